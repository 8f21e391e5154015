"""Writes orders.xlsx with two sheets, always the same."""

import datetime
import os
import random

from openpyxl import Workbook

rng = random.Random(7)
book = Workbook()
orders = book.active
orders.title = "orders"
orders.append(["order", "date", "customer", "amount"])
for i in range(500):
    day = datetime.date(2025, 1, 1) + datetime.timedelta(days=rng.randrange(365))
    orders.append([1000 + i, day, f"customer {rng.randrange(60):02d}", round(rng.uniform(5, 900), 2)])
customers = book.create_sheet("customers")
customers.append(["customer", "city"])
for i in range(60):
    customers.append([f"customer {i:02d}", rng.choice(["Oslo", "Lisbon", "Kraków", "Ghent"])])
book.save(os.path.join(os.environ["THAW_OUT"], "orders.xlsx"))
print("orders.xlsx: 500 orders, 60 customers")
