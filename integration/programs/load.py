"""Writes to the disk and to the network as fast as it can until a file "stop"
appears, then compares everything with what it should be: one line of JSON."""

import errno
import hashlib
import json
import mmap
import os
import socket
import threading

HOST, UP, DOWN = "10.99.0.1", 3, 4
BLOCK = 64 << 10
SLOTS = 128  # blocks of a file, written in turn again and again
problems = []


def block(stream, number):
    return hashlib.shake_128(b"%d:%d" % (stream, number)).digest(BLOCK)


def stopped():
    return os.path.exists("stop")


class File:
    """One file and what each of its blocks should be."""

    def __init__(self, number, direct):
        self.number, self.path, self.written = number, "data%d" % number, {}
        self.flags = os.O_DIRECT if direct else 0
        self.total = 0

    def write(self):
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | self.flags)
        buffer = mmap.mmap(-1, BLOCK)  # aligned, as O_DIRECT needs it
        while not stopped():
            slot = self.total * 7 % SLOTS
            buffer[:] = block(self.number, self.total)
            os.pwrite(fd, buffer, slot * BLOCK)
            self.written[slot] = self.total
            self.total += 1
            if self.total % 32 == 0:
                os.fdatasync(fd)
        os.fsync(fd)
        os.close(fd)

    def check(self):
        """Reads the disk, not the cache."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, BLOCK)
        for slot, number in self.written.items():
            if os.preadv(fd, [buffer], slot * BLOCK) != BLOCK or buffer[:] != block(self.number, number):
                problems.append("%s: slot %d is not block %d" % (self.path, slot, number))
        os.close(fd)


class Stream:
    """A connection that is made anew when it breaks."""

    def __init__(self, port):
        self.port, self.connections, self.blocks, self.errors = port, 0, 0, []

    def run(self):
        while not stopped():
            try:
                with socket.create_connection((HOST, self.port), 20) as c:
                    c.settimeout(None)  # with one, MSG_WAITALL does not wait
                    self.connections, self.blocks = self.connections + 1, 0
                    self.move(c)
            except OSError as e:
                self.errors.append(errno.errorcode.get(e.errno, str(e)))
                if len(self.errors) > 10:
                    return

    def move(self, c):
        while not stopped():
            want = block(self.port, self.blocks)
            if self.port == UP:
                c.sendall(want)
            else:
                got = c.recv(BLOCK, socket.MSG_WAITALL)
                if got != want[:len(got)]:
                    problems.append("stream: block %d is another" % self.blocks)
                if len(got) < BLOCK:
                    c.recv(1)  # says why
                    problems.append("stream: block %d is short" % self.blocks)
            self.blocks += 1


files = [File(n, direct=n % 2 == 0) for n in range(4)]
streams = [Stream(UP), Stream(DOWN)]
threads = [threading.Thread(target=f.write) for f in files] + [threading.Thread(target=s.run) for s in streams]
for t in threads:
    t.start()
print("up", flush=True)
for t in threads:
    t.join()
for f in files:
    f.check()
print(json.dumps({
    "problems": problems[:20],
    "written": [f.total for f in files],
    "streams": {name: {"connections": s.connections, "blocks": s.blocks, "errors": s.errors} for name, s in (("up", streams[0]), ("down", streams[1]))},
}), flush=True)
