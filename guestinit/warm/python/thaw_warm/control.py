"""Frames of the control socket: u32 little-endian length, then JSON.

Strings stand for bytes as in os.fsdecode: what is not UTF-8 comes as lone
surrogates, which JSON can carry.
"""

import fcntl
import json
import os
import socket
import struct

# The agent hands the socket over as 3; a fresh interpreter has 3 free.
_HANDED = 3
_MINIMUM = 1000

MAX_FRAME = 8 << 20


class Control:
    """The interpreter's end of the control socket."""

    def __init__(self):
        fd = fcntl.fcntl(_HANDED, fcntl.F_DUPFD_CLOEXEC, _MINIMUM)
        os.close(_HANDED)
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._owner = os.getpid()

    def receive(self):
        """Returns the next message, or None when the agent is gone."""
        header = self._exactly(4)
        if header is None:
            return None
        (length,) = struct.unpack("<I", header)
        if length > MAX_FRAME:
            return None
        body = self._exactly(length)
        return None if body is None else json.loads(body)

    def send(self, message, flags=0):
        """Sends a message. Only the process that owns the socket does: a
        forked child of the job's is nobody to the agent."""
        if os.getpid() != self._owner:
            return
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
        try:
            self._socket.sendall(struct.pack("<I", len(body)) + body, flags)
        except OSError:
            pass  # the job closed the descriptor, or the agent is gone

    def _exactly(self, n):
        parts = bytearray()
        while len(parts) < n:
            piece = self._socket.recv(min(n - len(parts), 1 << 16))
            if not piece:
                return None
            parts += piece
        return bytes(parts)
