"""Starts, warms up and serves the control socket.

	start ─▶ warm up ─▶ ready ─▶ waiting ──generation──▶ renew, answer ─┐
	                              │  ▲ └───────────────────────────────┘
	                              │  └──────── answer ──┐
	                        run ──┤                     │
	                              ├── cell ─▶ run cell ─┘
	                              ▼
	                    run the program, end with it
"""

import ctypes
import gc
import importlib
import os
import platform
import signal
import socket
import sys
import time
import warnings

from . import bare, cell, command, control, finish, generation, immortal, job, pages

_KEEPER = os.path.join(os.path.dirname(__file__), "../../keeper/keeper.so")


class Server:
    def __init__(self, startup):
        self._startup = startup
        self._control = control.Control()
        self._generation = generation.Generation()
        self._pid = os.getpid()
        self._context = None

    def warm_up(self, modules):
        """Imports the modules, runs what jobs run, and settles the memory."""
        began = time.monotonic()
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
        bare.prepare()
        self._generation.watch()
        self._generation.prepare()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGURG, self._renew_while_busy)
        # A thread that a library has started shall not be in the template:
        # OpenBLAS ends its own before a fork and starts them again on demand.
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        for name in [name for name in sys.modules if name.partition(".")[0] == "thaw_warm"]:
            del sys.modules[name]
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        sys.modules.pop("__main__")
        self._warm_modules = {name: place for place, name in enumerate(sys.modules)}
        gc.collect()
        immortal.make()
        gc.freeze()
        pages.make_writable()
        pages.join_program()
        keeper = ctypes.CDLL(_KEEPER).thaw_keep()
        self._control.send({
            "op": "ready", "runtime": "python", "version": platform.python_version(),
            "modules": len(sys.modules), "missing": missing, "keeper": keeper,
            "took_us": int((time.monotonic() - began) * 1e6),
        })

    def serve(self):
        """Handles messages until the agent is gone or a program has run."""
        while True:
            message = self._control.receive()
            if message is None:
                os._exit(0)
            kind, renewed = message["op"], {}
            if "seed" in message:
                # Goes on only if every generator was renewed: else nothing must run.
                self._generation.renew(bytes.fromhex(message["seed"]))
                renewed["number"] = message["number"]
            if kind == "generation":
                self._control.send({"op": "generation", **renewed})
            elif kind == "run":
                self._run(message, renewed)
            elif kind == "cell":
                self._cell(message, renewed)

    def _renew_while_busy(self, number, frame):
        """Handles SIGURG: a new generation while the program runs. The kernel
        delivers it before the program's next instruction."""
        if os.getpid() != self._pid:
            return
        try:
            self._generation.renew()
            self._control.send({"op": "generation", "number": 0}, socket.MSG_DONTWAIT)
        except Exception:
            pass  # no answer; the agent decides

    def _run(self, message, renewed):
        try:
            chosen, code, environ = job.prepare(message, self._startup)
        except command.Cold as e:
            self._control.send({"op": "run", "cold": str(e)[:256], **renewed})
            command.execute(message["argv"], job.environment(message["env"]))
        except OSError as e:
            self._control.send({"op": "run", "errno": e.errno, **renewed})
            return
        self._generation.forget()
        self._control.send({"op": "run", **renewed})
        job.run(chosen, code, environ, self._warm_modules)

    def _cell(self, message, renewed):
        if self._context is None:
            self._context = cell.Context()
            self._generation.forget()
        answer = self._context.run(message["id"], message["source"])
        if os.getpid() != self._pid:
            # A child that the cell forked and that fell through.
            finish.end(None, self._warm_modules)
        self._control.send({**answer, **renewed})


def _exercise():
    """Runs what most jobs run first, so that its memory is laid out already."""
    import io
    import linecache

    source = "import math\nclass A:\n    def f(self, x=1):\n        return [i * x for i in range(3)]\nA().f()\nprint"
    exec(compile(source, "<warm>", "exec"), {})
    try:
        raise ValueError("warm")
    except ValueError as e:
        import traceback

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


def main(startup_modules, modules):
    """Never returns."""
    startup = command.Startup(startup_modules)
    sys.path.pop(0)
    server = Server(startup)
    server.warm_up(modules)
    server.serve()
