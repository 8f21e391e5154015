import sys
sys.exit("it failed: \u00e9")
