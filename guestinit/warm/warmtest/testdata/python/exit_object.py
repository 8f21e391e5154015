raise SystemExit({"a": [1, 2]})
