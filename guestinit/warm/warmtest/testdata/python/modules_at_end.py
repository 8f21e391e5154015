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
# The last of the warm ones comes back to its own place, behind one of the job's.
names = list(sys.modules)
last = max(i for i, name in enumerate(names) if not name.startswith("mine_") and name != "__main__")
tail = [(name, sys.modules.pop(name)) for name in names[last - 1 :]]
module = types.ModuleType("mine_4")
module.noisy = Noisy("mine_4")
sys.modules["mine_4"] = module
del module
for name, module in tail[1:]:
    sys.modules[name] = module
del module, tail
print("end")
