"""Draws from the kernel's generator all the time, and prints what comes right
after a new generation: one line of JSON."""

import json
import os
import uuid


def generation():
    with open("/run/thaw/generation") as f:
        return f.read()


def draw():
    with open("/dev/urandom", "rb", 0) as device, open("/proc/sys/kernel/random/uuid") as kernel:
        return {
            "getrandom": os.getrandom(16).hex(), "urandom": device.read(16).hex(),
            "kernel uuid": kernel.read().strip(), "uuid4": str(uuid.uuid4()),
        }


first = generation()
print("up", flush=True)
while generation() == first:
    draw()
drawn = draw()
with open("/etc/machine-id") as f:
    drawn["machine id"] = f.read().strip()
drawn["hostname"] = os.uname().nodename
print(json.dumps(drawn), flush=True)
