"""Starts, and serves the control socket.

	start ─▶ warm up ─▶ ready ─▶ waiting ──generation──▶ renew, answer ─┐
	                              │  ▲ └───────────────────────────────┘
	                              │  └──────── answer ──┐
	                        run ──┤                     │
	                              ├── cell ─▶ run cell ─┘
	                              ▼
	                    run the program, end with it
"""

import gc
import os
import socket
import sys

from . import cell, command, control, finish, generation, holes, job, warmup


class Server:
    def __init__(self, startup):
        self._startup = startup
        self.control = control.Control()
        self.generation = generation.Generation()
        self.warm_modules = {}
        self._pid = os.getpid()
        self._context = None

    def serve(self):
        """Handles messages until the agent is gone; or a program runs, and ends the process."""
        while True:
            message = self.control.receive()
            if message is None:
                return
            kind, renewed = message["op"], {}
            if "seed" in message:
                # Goes on only if every generator was renewed: else nothing must run.
                self.generation.renew(bytes.fromhex(message["seed"]))
                renewed["number"] = message["number"]
            if kind == "generation":
                self.control.send({"op": "generation", **renewed})
            elif kind == "run":
                self._run(message, renewed)
            elif kind == "cell":
                self._cell(message, renewed)

    def forget(self):
        """Ends the context."""
        self._context = None

    def renew_while_busy(self, number, frame):
        """Handles SIGURG: a new generation while the program runs. The kernel
        delivers it before the program's next instruction."""
        if os.getpid() != self._pid:
            return
        try:
            self.generation.renew()
            self.control.send({"op": "generation", "number": 0}, socket.MSG_DONTWAIT)
        except Exception:
            pass  # no answer; the agent decides

    def _run(self, message, renewed):
        try:
            chosen, code, environ = job.prepare(message, self._startup)
        except command.Cold as e:
            self.control.send({"op": "run", "cold": str(e)[:256], **renewed})
            command.execute(message["argv"], job.environment(message["env"]))
        except OSError as e:
            self.control.send({"op": "run", "errno": e.errno, **renewed})
            return
        self.generation.forget()
        self.control.send({"op": "run", **renewed})
        job.run(chosen, code, environ, self.warm_modules)

    def _cell(self, message, renewed):
        if self._context is None:
            self._context = cell.Context()
            self.generation.forget()
        answer = self._context.run(message["id"], message["source"])
        if os.getpid() != self._pid:
            # A child that the cell forked and that fell through.
            finish.end(None, self.warm_modules)
        self.control.send({**answer, **renewed})


def main(startup_modules, modules):
    """Never returns."""
    startup = command.Startup(startup_modules)
    sys.path.pop(0)
    server = Server(startup)
    ready = warmup.run(server, modules)
    # Nothing that was made until now goes any more: it would leave holes again.
    holes.fill(last=True)
    gc.freeze()
    server.control.send(ready)
    server.serve()
    os._exit(0)
