"""Holds connections of every kind while the machine gets a new generation, then
says what became of them: one line of JSON."""

import errno
import json
import socket
import threading
import time

HOST, SELF, ECHO, DISCARD, PORT = "10.99.0.1", "10.99.0.2", 1, 2, 8080


def generation():
    with open("/run/thaw/generation") as f:
        return f.read()


def connect(port):
    c = socket.create_connection((HOST, port), 20)
    c.settimeout(None)
    return c


def end(use):
    """How a connection ends, and when by the monotonic clock."""
    try:
        what = use()
        return ("data" if what else "end"), time.monotonic()
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e)), time.monotonic()


ends = {}


def run(name, use):
    ends[name] = end(use)


def send(c):
    while True:
        c.sendall(bytes(64 << 10))


def echoes(a, b):
    """Whether what goes in at a comes out at b."""
    a.settimeout(10)
    b.settimeout(10)
    a.sendall(b"hello")
    return b.recv(5, socket.MSG_WAITALL) == b"hello"


idle, reading, sending, half, datagrams = connect(ECHO), connect(ECHO), connect(DISCARD), connect(ECHO), socket.socket(type=socket.SOCK_DGRAM)
half.shutdown(socket.SHUT_WR)
datagrams.connect((HOST, 9))
server = socket.create_server(("0.0.0.0", PORT))
print("listening", flush=True)
incoming = server.accept()[0]
pairs = {}
for name, address in (("loopback", "127.0.0.1"), ("own address", SELF)):
    c = socket.create_connection((address, PORT))
    pairs[name] = (c, server.accept()[0])
threads = [
    threading.Thread(target=run, args=("reading", lambda: reading.recv(1))),
    threading.Thread(target=run, args=("sending", lambda: send(sending))),
]
for t in threads:
    t.start()
first = generation()
print("up", flush=True)
while generation() == first:
    time.sleep(0.001)
began = time.monotonic()
# Blocked for good if the connection is alive: a time limit tells.
for name, c in (("idle", idle), ("half closed", half), ("incoming", incoming)):
    c.settimeout(10)
    run(name, lambda: c.recv(1))
for t in threads:
    t.join(10)
alive = {name: echoes(*pair) for name, pair in pairs.items()}
c = socket.create_connection(("127.0.0.1", PORT), 10)
alive["listener"] = echoes(c, server.accept()[0])
c = connect(ECHO)
alive["new connection"] = echoes(c, c)
print(json.dumps({"ends": {n: {"error": e, "after": at - began} for n, (e, at) in ends.items()}, "alive": alive}), flush=True)
server.settimeout(60)
c = server.accept()[0]  # the host connects once more
c.sendall(c.recv(5, socket.MSG_WAITALL))
