"""One row of the demo's table: times.py NAME WHOLE-NANOSECONDS < job.json."""

import json
import sys

job = json.load(sys.stdin)
result = job["result"]
ready = next(phase["ms"] for phase in result["phases"] if phase["name"] == "ready")
program = result["usage"]["wall_ms"]
whole = int(sys.argv[2]) / 1e6
print(f"{sys.argv[1]:<12}{ready:>16.0f}{program:>16.0f}{whole:>16.0f}")
