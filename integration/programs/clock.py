"""Looks at the clocks while the machine gets a new generation, with timers
under way: one line of JSON."""

import ctypes
import json
import os
import struct
import threading
import time

DELAY = 5.0  # seconds, of all timers
libc = ctypes.CDLL(None, use_errno=True)


def generation():
    with open("/run/thaw/generation") as f:
        return f.read()


def timerfd(clock, at, absolute):
    """A timer that fires once (timerfd_create(2))."""
    fd = libc.timerfd_create(clock, 0)
    whole, part = int(at), int(at % 1 * 1e9)
    spec = ctypes.create_string_buffer(struct.pack("qqqq", 0, 0, whole, part))
    if fd < 0 or libc.timerfd_settime(fd, 1 if absolute else 0, spec, None):
        raise OSError(ctypes.get_errno(), "timerfd")
    return fd


fired = {}


def wait(name, sleep):
    sleep()
    fired[name] = time.monotonic()


sleeper = threading.Event()
began = time.monotonic()
relative, absolute = timerfd(time.CLOCK_MONOTONIC, DELAY, False), timerfd(time.CLOCK_REALTIME, time.time() + 3600, True)
threads = [threading.Thread(target=wait, args=a, daemon=True) for a in (
    ("sleep", lambda: time.sleep(DELAY)),
    ("condition", lambda: sleeper.wait(DELAY)),
    ("timerfd", lambda: os.read(relative, 8)),
    ("wall clock", lambda: os.read(absolute, 8)),  # in an hour: at once after a jump of days
)]
for t in threads:
    t.start()
first = generation()
print("up", flush=True)


def clocks():
    return {"wall": time.time(), "monotonic": time.monotonic(), "boot": time.clock_gettime(time.CLOCK_BOOTTIME)}


# The machine may be frozen anywhere here, with the clocks set under way between
# two statements. What was read before a generation that was still the first one
# is surely from before the freeze.
before = reading = clocks()
while generation() == first:
    before, reading = reading, clocks()
    time.sleep(0.001)
after = clocks()
seen = after["monotonic"]
jump = {name: after[name] - before[name] for name in after}
jump["back"] = after["monotonic"] < reading["monotonic"]
if jump["wall"] < 3600:
    threads.pop()  # it has an hour to wait
for t in threads:
    t.join(30)
print(json.dumps({"jump": jump, "fired": {n: at - began for n, at in fired.items()}, "seen": seen - began}), flush=True)
