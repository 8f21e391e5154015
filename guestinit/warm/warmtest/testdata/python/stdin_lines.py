import sys
print([l for l in sys.stdin], sys.stdin.isatty(), sys.stdin.name, sys.stdin.encoding)
