import sys
print({k: v for k, v in vars().items() if k not in ("__loader__", "sys")}, list(vars()))
print(type(__loader__).__name__, sys.modules["__main__"].__dict__ is globals(), __name__ == "__main__")
x: int = 3
print(__annotations__)
