import pickle, copy
class Thing:
    def __init__(self):
        self.a = 1
print(pickle.dumps(Thing()), pickle.loads(pickle.dumps(Thing())).a, Thing, Thing.__module__, copy.deepcopy(Thing()).a)
