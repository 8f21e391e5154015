print("\d", 1 is 1)
