import os, subprocess, ctypes
print(sorted(os.environ.items()))
os.environ["ADDED"] = "x"
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print(libc.getenv(b"ADDED"), libc.getenv(b"GONE"), libc.getenv(b"HOME"), libc.getenv(b"JOB"))
print(subprocess.run(["env"], capture_output=True, text=True).stdout.count("JOB=1"))
