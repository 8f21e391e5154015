import sys, traceback, inspect, warnings
print(sys._getframe().f_back, len(inspect.stack()))
def f():
    traceback.print_stack()
    warnings.warn("level two", stacklevel=2)
    warnings.warn("level five", stacklevel=5)
f()
warnings.warn("level two, module", UserWarning, stacklevel=2)
