import multiprocessing, sys
def square(x):
    return x * x, __name__, __file__, sys.argv[0]
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, range(3)))
    print(__spec__, multiprocessing.current_process().name)
