"""Runs renewals and cells before there are any, in the template.

What they do for the first time is not done in every machine then: code adapts itself to
what it meets, types get their entries in caches, memory is laid out. All goes the way that
it goes later, by the control socket.
"""

import json
import linecache
import socket
import struct
import sys
import types

# What a cell needs of the interpreter. It writes nothing.
_SOURCE = "import math\nx = 1\nprint(end='')\nx"


def run(server, times):
    """Serves so many cells and renewals, and leaves nothing of them to see."""
    # A message is received in one piece, as later.
    agent, handed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for number in range(times):
        message = {"op": "cell", "id": 1, "source": _SOURCE, "number": number, "seed": "00" * 32}
        frame = json.dumps(message).encode()
        agent.sendall(struct.pack("<I", len(frame)) + frame)
    agent.shutdown(socket.SHUT_WR)
    argv, path, main = sys.argv, sys.path[:], sys.modules.pop("__main__", None)
    with agent, server.control.on(handed):
        server.serve()
    server.forget()
    linecache.clearcache()
    sys.argv, sys.path[:] = argv, path
    del sys.modules["__main__"]
    if main is not None:
        sys.modules["__main__"] = main


def gather(modules):
    """Makes the code of the modules' functions anew, so that it lies together in memory:
    code writes to itself when it runs."""
    functions = []
    for module in modules:
        for thing in vars(module).values():
            if getattr(thing, "__module__", None) == module.__name__:
                functions += vars(thing).values() if isinstance(thing, type) else [thing]
    functions = [thing for thing in functions if isinstance(thing, types.FunctionType)]
    # All is made before any goes, whose place the next one would take.
    codes = [function.__code__.replace() for function in functions]
    for function, code in zip(functions, codes):
        function.__code__ = code
