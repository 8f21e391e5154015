import os

print("before", flush=True)
os.execvp("sh", ["sh", "-c", "echo $0 after; exit 6", "it"])
