"""Runs one program as `python3 main.py` would, and ends with it."""

import functools
import importlib.machinery
import os
import runpy
import signal
import stat
import sys
import time
import types
import warnings

from . import bare, command, finish, generation


def prepare(message, startup):
    """Makes the process the job's: directory, environment, input, command.

    Returns the Command and its code; Cold says that this cannot be done here.
    An OSError means that nothing was changed.
    """
    os.chdir(message["cwd"])
    if not message["stdin"]:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, 0, inheritable=True)
        os.close(null)
    if message.get("cold"):
        raise command.Cold(message["cold"])
    environ = environment(message["env"])
    chosen = startup.parse(message["argv"], environ)
    return chosen, _code(chosen), environ


def environment(entries):
    """Returns a dict of NAME=value entries; the first of a name counts."""
    environ = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        environ.setdefault(name, value)
    return environ


def _code(chosen):
    """Returns the program's code object, or None for a module."""
    if chosen.kind == "module":
        return None
    if chosen.kind == "string":
        raise command.Cold("option -c")
    try:
        fd = os.open(chosen.target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or chosen.target.endswith(".pyc"):
                raise command.Cold("no source file")
            source = file.read()
    except OSError:
        raise command.Cold("script cannot be read") from None
    # A fresh interpreter reports what is wrong with the source. Warnings are
    # kept until it is known that this one goes on, not to be given twice.
    kept, show = [], warnings._showwarnmsg
    warnings._showwarnmsg = kept.append
    try:
        code = compile(source, os.path.join(os.getcwd(), chosen.target), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
        raise command.Cold("source does not compile") from None
    finally:
        warnings._showwarnmsg = show
    for message in kept:
        show(message)
    return code


def run(chosen, code, environ, warm_modules):
    """Runs the program and ends the process."""
    _enter(chosen, environ)
    main = _main_module(chosen)
    namespace = main.__dict__
    sys.modules["__main__"] = main
    del main
    if chosen.kind == "module":
        start = functools.partial(runpy._run_module_as_main, chosen.target, True)
    else:
        start = functools.partial(exec, code, namespace)
    del namespace, code
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, failed = bare.call(start)
    del start
    finish.end(failed, warm_modules)


def _enter(chosen, environ):
    os.environ.clear()
    os.environ.update(environ)  # in the job's order, which programs can see
    time.tzset()
    generation.renew_multiprocessing()
    sys.executable = sys._base_executable = chosen.executable
    sys.orig_argv = list(chosen.original)
    sys.argv = list(chosen.argv)
    if chosen.kind == "file":
        sys.path.insert(0, os.path.dirname(os.path.realpath(chosen.target)))
    else:
        sys.path.insert(0, os.getcwd())


def _main_module(chosen):
    """Returns a __main__ as the interpreter makes it, in its order."""
    main = types.ModuleType("__main__")
    namespace = main.__dict__
    namespace["__annotations__"] = {}
    namespace["__builtins__"] = sys.modules["builtins"]
    if chosen.kind == "file":
        path = os.path.join(os.getcwd(), chosen.target)
        namespace["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
        namespace["__file__"] = path
        namespace["__cached__"] = None
    else:
        namespace["__loader__"] = importlib.machinery.BuiltinImporter
    return main
