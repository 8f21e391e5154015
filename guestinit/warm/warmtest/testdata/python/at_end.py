import atexit, weakref
class Noisy:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("del", self.name)
a = Noisy("global")
b = Noisy("cycle")
b.me = b
weakref.finalize(a, print, "finalizer")
f = open("/tmp/at_end.txt", "w")
f.write("not closed")
def keep():
    return a
atexit.register(lambda: print("atexit sees", a.name))
print("end of main")
