"""Ends the process as Py_FinalizeEx would, as far as a program can tell.

Taking the interpreter apart object by object would write to every page of it,
which in a restored machine means a page fault for each. So what the job made
is released and all that a program can see happens in the usual order, and the
rest goes with the process:

	report exception → threads joined → atexit → streams flushed
	  → modules of the job released, cycles collected → open files flushed
	  → exit handlers of the C library
"""

import atexit
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import traceback

from . import bare

_FLUSH_FAILED = 120

_exit = ctypes.PyDLL(None).exit  # holds the interpreter's lock: no other thread runs any more


def end(failed, warm_modules):
    """Ends the process after the main program has ended, with what it raised."""
    code, interrupted = 0, isinstance(failed, KeyboardInterrupt)
    if failed is not None:
        code = report(failed)
        failed = None
    try:
        threading._shutdown()
    except BaseException as e:
        _ignored(f"Exception ignored on threading shutdown {threading!r}:", e)
    bare.call(atexit._run_exitfuncs)
    flushed = flush()
    _release(warm_modules)
    if not flush(tell=False) or not flushed:
        code = _FLUSH_FAILED
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    _exit(ctypes.c_int(code))


def report(failed):
    """Does what PyErr_Print does, and returns the exit code."""
    if isinstance(failed, SystemExit):
        return _system_exit(failed)
    sys.last_exc = sys.last_value = failed
    sys.last_type, sys.last_traceback = type(failed), failed.__traceback__
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        _write("sys.excepthook is missing\n")
        sys.__excepthook__(type(failed), failed, failed.__traceback__)
        return 1
    try:
        hook(type(failed), failed, failed.__traceback__)
    except SystemExit as e:
        return _system_exit(e)
    except BaseException as e:
        e.__traceback__ = e.__traceback__.tb_next
        e.__context__ = None
        _write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(e), e, e.__traceback__)
        _write("\nOriginal exception was:\n")
        sys.__excepthook__(type(failed), failed, failed.__traceback__)
    return 1


def _system_exit(failed):
    code = failed.code
    if code is None:
        return 0
    if isinstance(code, int):
        try:
            # As PyLong_AsLong and exit(3) cut it.
            return ctypes.c_int(code).value if -(2**63) <= code < 2**63 else -1
        finally:
            del code
    _write(str(code) + "\n")
    return 1


def flush(tell=True):
    """Flushes the standard streams and reports whether that went well."""
    ok = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        if stream is None:
            continue
        try:
            if getattr(stream, "closed", False):
                continue
            stream.flush()
        except BaseException as e:
            ok = False
            if name == "stdout" and tell:
                e.__traceback__ = e.__traceback__.tb_next
                _ignored("Exception ignored on flushing sys.stdout:", e)
    return ok


def _release(warm_modules):
    """Drops what the job has imported and made."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback", "argv", "path_hooks", "excepthook"):
        sys.__dict__.pop(name, None)
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    for name in _new_modules(warm_modules):
        sys.modules.pop(name, None)
    sys.modules.pop("__main__", None)
    gc.collect()
    # Files that only warm modules still know. The frozen objects are not among
    # those that are looked at.
    for thing in gc.get_objects():
        if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            try:
                if not thing.closed:
                    thing.flush()
            except Exception:
                pass


def _new_modules(warm_modules):
    """Returns the modules that are not among the warm ones, which come with their places.

    New ones come last. Each name that is looked at may be a page that nothing else reads,
    so the search goes back from the end, to two warm ones in a row that stand where they
    stood. One alone may have come back to its place behind a new one.
    """
    new, place, settled = [], len(sys.modules), 0
    for name in reversed(sys.modules):
        place -= 1
        if name not in warm_modules:
            new.append(name)
            settled = 0
        elif warm_modules[name] != place:
            settled = 0
        else:
            settled += 1
            if settled == 2:
                break
    return new[::-1]


def _ignored(title, e):
    _write(title + "\n" + "".join(traceback.format_exception(type(e), e, e.__traceback__)))


def _write(text):
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:
        pass
