import ctypes
import sys

# What the C library does at the end: handlers in reverse order, then its streams.
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
for text in (b"registered first", b"registered last"):
    libc.__cxa_atexit(libc.puts, ctypes.c_void_p(libc.strdup(text)), None)
libc.printf(b"no newline ")
sys.exit(3)
