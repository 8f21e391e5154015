import inspect
def documented():
    """With a doc."""
    return 1  # comment
class K:
    attr = 1
print(inspect.getsource(documented), inspect.getsource(K), inspect.getfile(K), inspect.getmodule(documented))
