import sys
calls = []
sys.settrace(lambda f, e, a: calls.append((f.f_code.co_name, e)))
def f():
    pass
f()
sys.settrace(None)
print(calls)
