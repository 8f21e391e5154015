"""Writes a web server's access log, always the same: make_log.py FILE [LINES]."""

import datetime
import random
import sys

path = sys.argv[1]
lines = int(sys.argv[2]) if len(sys.argv) > 2 else 60_000

rng = random.Random(42)
paths = ["/", "/login", "/api/items", "/api/items/7", "/static/app.js", "/search?q=lamp", "/missing"]
when = datetime.datetime(2025, 6, 1, tzinfo=datetime.timezone.utc)

with open(path, "w") as f:
    for _ in range(lines):
        when += datetime.timedelta(milliseconds=rng.randrange(1, 1500))
        target = rng.choices(paths, weights=[30, 8, 20, 10, 25, 6, 1])[0]
        status = 404 if target == "/missing" else rng.choices([200, 304, 500], weights=[90, 8, 2])[0]
        size = 0 if status == 304 else rng.randrange(200, 40_000)
        f.write(
            f'10.0.{rng.randrange(4)}.{rng.randrange(1, 255)} - - [{when:%d/%b/%Y:%H:%M:%S +0000}] '
            f'"GET {target} HTTP/1.1" {status} {size} {rng.expovariate(1 / 40):.1f}ms\n'
        )
