import sys, os
print("first")
os.write(1, b"second\n")
sys.stderr.write("err 1 ")
os.write(2, b"err 2\n")
print(sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors, sys.stdout.name, sys.stdout.mode)
print(sys.stdout.buffer.raw.fileno(), sys.__stdout__ is sys.stdout)
