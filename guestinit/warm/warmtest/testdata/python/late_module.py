# An extension module that no warm interpreter has loaded.
import _lsprof

print(_lsprof.Profiler.__name__)
