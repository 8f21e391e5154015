import sys
print(ascii(sys.argv))
print("\udc80")
