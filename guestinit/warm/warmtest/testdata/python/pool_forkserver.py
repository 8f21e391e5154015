import multiprocessing
def work(q):
    q.put(__name__)
if __name__ == "__main__":
    c = multiprocessing.get_context("forkserver")
    q = c.Queue()
    p = c.Process(target=work, args=(q,))
    p.start()
    print(q.get(), p.join(), p.exitcode)
