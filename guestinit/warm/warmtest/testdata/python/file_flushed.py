import os, sys, subprocess
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    print(open("/tmp/file_flushed.txt").read())
    out = open("/tmp/file_flushed.txt", "w")
    out.write("parent")
else:
    out = open("/tmp/file_flushed.txt", "w")
    out.write("child")
