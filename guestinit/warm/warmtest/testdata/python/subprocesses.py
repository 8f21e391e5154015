import subprocess, sys
print(subprocess.run([sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"], capture_output=True, text=True))
print(subprocess.run("ls /proc/self/fd", shell=True, capture_output=True, text=True, close_fds=False).stdout)
subprocess.run(["sh", "-c", "echo child; echo err >&2; exit 3"], check=True)
