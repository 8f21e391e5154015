import sys, gc, locale, threading, time, os, builtins
print(gc.isenabled(), gc.get_threshold(), gc.garbage, gc.callbacks)
print(sys.getswitchinterval(), sys.getrecursionlimit(), sys.gettrace(), sys.getprofile(), sys.getrefcount is not None)
print(locale.getlocale(), time.tzname, os.umask(0o22), "descriptors:", len(os.listdir("/proc/self/fd")))
print(hasattr(builtins, "_"), hasattr(sys, "last_exc"), sys.meta_path, sys.path_hooks, sys.warnoptions, sys._xoptions, sys.dont_write_bytecode, sys.pycache_prefix)
print(sys.path, hasattr(sys, "ps1"), sys.displayhook, sys.excepthook, sys.unraisablehook, sys.breakpointhook)
print(threading.enumerate(), sys.stdlib_module_names >= {"json"}, open("/dev/null").fileno())
