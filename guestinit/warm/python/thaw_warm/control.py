"""Frames of the control socket: u32 little-endian length, then JSON.

Strings stand for bytes as in os.fsdecode: what is not UTF-8 comes as lone
surrogates, which JSON can carry.
"""

import contextlib
import fcntl
import json
import json.encoder
import os
import socket
import struct

# The agent hands the socket over as 3; a fresh interpreter has 3 free.
_HANDED = 3
_MINIMUM = 1000

MAX_FRAME = 8 << 20

# Most frames come in one piece.
_PIECE = 4 << 10

# What is written in C of json, without the Python around it: running that would write to the
# pages that its code lies on. The arguments are those of JSONEncoder.iterencode, without the
# look for cycles.
_scan = json.JSONDecoder().scan_once
try:
    _parts = json.encoder.c_make_encoder(
        None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True)
    _parts({}, 0)
except TypeError:  # another version's

    def _parts(message, _, encoder=json.JSONEncoder(separators=(",", ":"))):
        return encoder.iterencode(message)


class Control:
    """The interpreter's end of the control socket."""

    def __init__(self):
        fd = fcntl.fcntl(_HANDED, fcntl.F_DUPFD_CLOEXEC, _MINIMUM)
        os.close(_HANDED)
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._owner = os.getpid()
        self._received = b""

    @contextlib.contextmanager
    def on(self, handed):
        """Uses another socket meanwhile, which is closed."""
        with handed:
            saved, self._socket = self._socket, handed
            yield
            self._socket, self._received = saved, b""

    def receive(self):
        """Returns the next message, or None when the agent is gone."""
        if not self._fill(4):
            return None
        (length,) = struct.unpack_from("<I", self._received)
        if length > MAX_FRAME or not self._fill(4 + length):
            return None
        body, self._received = self._received[4 : 4 + length], self._received[4 + length :]
        return _scan(body.decode("utf-8", "surrogatepass"), 0)[0]

    def send(self, message, flags=0):
        """Sends a message. Only the process that owns the socket does: a
        forked child of the job's is nobody to the agent."""
        if os.getpid() != self._owner:
            return
        body = "".join(_parts(message, 0)).encode("ascii")
        try:
            self._socket.sendall(struct.pack("<I", len(body)) + body, flags)
        except OSError:
            pass  # the job closed the descriptor, or the agent is gone

    def _fill(self, n):
        """Receives until there are n bytes, or returns False when the agent is gone."""
        while len(self._received) < n:
            piece = self._socket.recv(max(_PIECE, min(n - len(self._received), 1 << 16)))
            if not piece:
                return False
            self._received += piece
        return True
