import atexit, sys
atexit.register(print, "atexit 1")
atexit.register(lambda: 1 / 0)
atexit.register(print, "atexit 2")
def f():
    try:
        sys.exit(3)
    finally:
        print("finally")
f()
