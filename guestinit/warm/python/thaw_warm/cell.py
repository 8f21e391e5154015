"""Runs cells in one namespace that lives from cell to cell."""

import _signal  # the library's Python around it makes enums of numbers, whose code lies on pages of its own
import ast
import asyncio
import ctypes
import functools
import inspect
import linecache
import sys
import types

from . import bare, finish

# What one answer may carry of a result's repr and an exception's message, in
# characters; the rest is cut.
MAX_RESULT = 32 << 10
MAX_MESSAGE = 4 << 10

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

_flush_c = ctypes.CDLL(None).fflush


class Context:
    """The namespace of successive cells."""

    def __init__(self):
        main = types.ModuleType("__main__")
        main.__dict__["__annotations__"] = {}
        main.__dict__["__builtins__"] = sys.modules["builtins"]
        sys.modules["__main__"] = main
        sys.argv = [""]
        sys.path.insert(0, "")
        self._namespace = main.__dict__
        self._loop = None

    def run(self, number, source):
        """Runs one cell and returns the answer to it."""
        answer = {"op": "cell", "id": number, "status": "ok"}
        value, failed = self._evaluate(f"<cell {number}>", source)
        if failed is None and value is not None:
            text, failed = _text(value)
            if failed is None:
                answer["result"] = text[:MAX_RESULT]
                answer["cut"] = len(text) > MAX_RESULT
        if failed is not None:
            answer["status"] = "interrupted" if isinstance(failed, KeyboardInterrupt) else "error"
            answer["type"] = type(failed).__qualname__[:256]
            message, unprintable = _text(failed, str)
            answer["message"] = "" if unprintable else message[:MAX_MESSAGE]
            if not isinstance(failed, SystemExit):
                finish.report(failed)
        finish.flush()
        _flush_c(None)
        return answer

    def _evaluate(self, name, source):
        lines = source.splitlines(keepends=True)
        linecache.cache[name] = (len(source), None, lines, name)
        try:
            tree = compile(source, name, "exec", ast.PyCF_ONLY_AST | _FLAGS, dont_inherit=True)
            last = None
            if tree.body and isinstance(tree.body[-1], ast.Expr):
                last = ast.Expression(tree.body.pop().value)
            statements = compile(tree, name, "exec", _FLAGS, dont_inherit=True)
            last = last and compile(last, name, "eval", _FLAGS, dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as e:
            e.__traceback__ = None
            return None, e
        _, failed = self._call(statements)
        if failed is not None or last is None:
            return None, failed
        return self._call(last)

    def _call(self, code):
        """Runs code, with an interrupt only ever raised within it."""
        try:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
            value, failed = bare.call(functools.partial(eval, code, self._namespace))
            if failed is None and code.co_flags & inspect.CO_COROUTINE:
                value, failed = self._await(value)
            _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        except KeyboardInterrupt as e:
            _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
            e.__traceback__ = None
            return None, e
        return value, failed

    def _await(self, coroutine):
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task), None
        except BaseException as e:
            if not task.done():
                task.cancel()
                try:
                    self._loop.run_until_complete(task)
                except BaseException:
                    pass
            e.__traceback__ = _from_file(e.__traceback__)
            return None, e


def _from_file(tb):
    """Skips the frames that are not a cell's."""
    at = tb
    while at is not None and not at.tb_frame.f_code.co_filename.startswith("<cell "):
        at = at.tb_next
    return at


def _text(value, convert=repr):
    try:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        text = str.__str__(convert(value))  # whose type may be another, with ways of its own
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        return text, None
    except BaseException as e:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        e.__traceback__ = e.__traceback__.tb_next
        return "", e
