import random
random.seed(42)
print(random.random(), random.randint(1, 100), random.Random(5).random(), random.sample(range(9), 3))
state = random.getstate()
a = random.random()
random.setstate(state)
print(a == random.random(), random.seed.__name__, random.seed.__module__)
