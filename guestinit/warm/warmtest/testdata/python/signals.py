import signal
for s in sorted(signal.valid_signals()):
    if s != signal.SIGURG:
        print(s, signal.getsignal(s))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
