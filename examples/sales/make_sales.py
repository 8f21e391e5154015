"""Writes a CSV of sales, always the same: make_sales.py FILE [ROWS]."""

import csv
import datetime
import random
import sys

path = sys.argv[1]
rows = int(sys.argv[2]) if len(sys.argv) > 2 else 40_000

rng = random.Random(20_250_101)
products = {"kettle": 39.9, "toaster": 29.5, "lamp": 54.0, "chair": 120.0, "desk": 340.0}
regions = ["north", "south", "east", "west"]
first = datetime.date(2025, 1, 1)

with open(path, "w", newline="") as f:
    out = csv.writer(f)
    out.writerow(["date", "region", "product", "quantity", "price"])
    for _ in range(rows):
        day = first + datetime.timedelta(days=int(365 * rng.random() ** 0.8))
        product = rng.choice(list(products))
        price = round(products[product] * rng.uniform(0.9, 1.1), 2)
        out.writerow([day.isoformat(), rng.choice(regions), product, rng.randint(1, 5), price])
