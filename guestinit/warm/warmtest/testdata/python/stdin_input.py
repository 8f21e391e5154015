print(repr(input("prompt> ")), repr(input()))
input()
