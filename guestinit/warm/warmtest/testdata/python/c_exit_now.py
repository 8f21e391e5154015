import ctypes
import sys

print("lost?", end="")
libc = ctypes.CDLL(None)
libc.puts(b"kept")
sys.stderr.write("told\n")
libc.exit(300)
