import argparse
p = argparse.ArgumentParser()
p.add_argument("--n", type=int, required=True)
p.parse_args()
