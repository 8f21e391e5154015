import concurrent.futures
def f(x):
    return x + 1
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1) as e:
        print(list(e.map(f, [1, 2])))
    with concurrent.futures.ThreadPoolExecutor(2) as e:
        print(list(e.map(f, [1, 2])))
