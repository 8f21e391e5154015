"""Warms the interpreter up: what each machine would do, and where in memory, is done in the
template, as far as it can be."""

import ctypes
import gc
import importlib
import io
import linecache
import os
import platform
import signal
import sys
import time
import traceback
import warnings

from . import bare, holes, immortal, pages, rehearsal

_KEEPER = os.path.join(os.path.dirname(__file__), "../../keeper/keeper.so")

# Bytecode is at rest after so many runs: the longest record that an instruction keeps of
# itself is of 16.
_REHEARSALS = 24


def run(server, modules):
    """Imports the modules, runs what jobs run, and settles the memory. Returns the message
    that all is ready."""
    began = time.monotonic()
    missing = _load(modules)
    bare.prepare()
    server.generation.watch()
    server.generation.prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGURG, server.renew_while_busy)
    # A thread that a library has started shall not be in the template:
    # OpenBLAS ends its own before a fork and starts them again on demand.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "thaw_warm"}
    gc.collect()
    holes.fill()
    rehearsal.gather(ours.values())
    rehearsal.run(server, _REHEARSALS)
    for name in ours:
        del sys.modules[name]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    sys.modules.pop("__main__")
    server.warm_modules = {name: place for place, name in enumerate(sys.modules)}
    gc.collect()
    immortal.make()
    gc.freeze()
    pages.make_writable()
    pages.join_program()
    keeper = ctypes.CDLL(_KEEPER).thaw_keep()
    # What is used from here on moves to where the holes are filled, step by step.
    for _ in range(3):
        gc.collect()
        holes.fill()
        rehearsal.run(server, 2)
    gc.collect()
    return {
        "op": "ready", "runtime": "python", "version": platform.python_version(),
        "modules": len(sys.modules), "missing": missing, "keeper": keeper,
        "took_us": int((time.monotonic() - began) * 1e6),
    }


def _load(modules):
    """Imports the modules, uses the libraries a little, and returns what is missing."""
    filters = list(warnings.filters)
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    _exercise()
    # Libraries add filters for their own sake. A program that never
    # imports them must not see those.
    warnings.filters[:] = filters
    warnings._filters_mutated()
    return missing


def _exercise():
    """Runs what most jobs run first, so that its memory is laid out already."""
    source = "import math\nclass A:\n    def f(self, x=1):\n        return [i * x for i in range(3)]\nA().f()\nprint"
    exec(compile(source, "<warm>", "exec"), {})
    try:
        raise ValueError("warm")
    except ValueError as e:
        traceback.format_exception(e)
    linecache.clearcache()
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        frame = pandas.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3]})
        frame.groupby("k").v.sum().to_dict()
        repr(frame.merge(frame, on="k").describe())
        # Once more at the size of a small job: the heap grows, and code is mapped,
        # here and not in every machine, where each page costs a fault.
        numpy = sys.modules["numpy"]
        n = numpy.arange(20_000)
        frame = pandas.DataFrame({"k": n % 97, "g": (n % 5).astype(str), "v": numpy.sqrt(n)})
        sums = frame.groupby("k")["v"].agg(["mean", "sum"]).reset_index()
        frame.groupby("g")["v"].mean().to_dict()
        merged = frame.merge(sums, on="k").sort_values("v")
        merged.describe().to_string()
        merged.head(3).to_dict(orient="records")
        pandas.read_csv(io.StringIO(merged.head(500).to_csv(index=False)))
