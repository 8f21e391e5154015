"""Turns each sheet of orders.xlsx into a CSV file."""

import csv
import os

from openpyxl import load_workbook

book = load_workbook("orders.xlsx", read_only=True, data_only=True)
for sheet in book:
    path = os.path.join(os.environ["THAW_OUT"], f"{sheet.title}.csv")
    rows = 0
    with open(path, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        for row in sheet.iter_rows(values_only=True):
            out.writerow(["" if cell is None else cell for cell in row])
            rows += 1
    print(f"{sheet.title}.csv: {rows} rows")
