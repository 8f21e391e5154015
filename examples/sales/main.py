"""Groups sales.csv by month: a table on stdout and in a CSV, and a chart."""

import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

out = os.environ["THAW_OUT"]

sales = pd.read_csv("sales.csv", parse_dates=["date"])
sales["revenue"] = sales["quantity"] * sales["price"]
monthly = (
    sales.groupby([sales["date"].dt.strftime("%Y-%m").rename("month"), "region"])["revenue"]
    .sum()
    .unstack()
    .round(2)
)
monthly["total"] = monthly.sum(axis=1).round(2)

print(f"{len(sales)} sales, {monthly['total'].sum():,.2f} in all")
print(monthly.to_string())
monthly.to_csv(os.path.join(out, "monthly.csv"))

axes = monthly.drop(columns="total").plot.bar(stacked=True, figsize=(10, 5))
axes.set_title("Revenue by month and region")
axes.set_ylabel("revenue")
plt.tight_layout()
plt.savefig(os.path.join(out, "monthly.png"), dpi=100)
