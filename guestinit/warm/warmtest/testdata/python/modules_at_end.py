# A job's own modules go at its end, in their order, wherever others have gone meanwhile.
import sys
import types


class Noisy:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("gone", self.name)


for name in ("mine_1", "mine_2", "mine_3"):
    module = types.ModuleType(name)
    module.noisy = Noisy(name)
    sys.modules[name] = module
    del module
    import json

    sys.modules["json"] = sys.modules.pop("json")
    sys.modules.pop("csv", None)
print("end")
