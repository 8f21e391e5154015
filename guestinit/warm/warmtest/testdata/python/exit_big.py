raise SystemExit(2**40 + 3)
