import threading, time
def work(n):
    time.sleep(0.3 * n)
    print("thread", n, threading.current_thread().name)
for i in range(3):
    threading.Thread(target=work, args=(i,)).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(threading.main_thread() is threading.current_thread(), threading.active_count())
