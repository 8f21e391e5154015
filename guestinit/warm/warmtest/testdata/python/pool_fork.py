import multiprocessing, os
def square(x):
    return x * x
class Point:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return self.x == other.x
def move(p):
    return Point(p.x + 1)
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(square, range(5)), pool.map(move, [Point(1)]) == [Point(2)])
