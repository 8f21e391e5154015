import sys
def hook(t, v, tb):
    raise TypeError("in hook")
sys.excepthook = hook
raise ValueError("seen")
