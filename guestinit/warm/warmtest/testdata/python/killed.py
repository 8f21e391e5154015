import os, signal, sys
print("flushed", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
