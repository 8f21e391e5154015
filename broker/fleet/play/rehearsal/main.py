# Runs in every shell of a Python template before a job does, and is rolled back:
# what it touches, a job finds touched. It must end well without any library.
import json
import sys

try:
    import numpy as np
    import pandas as pd
except ImportError:
    rows = [{"key": i % 7, "value": i * 0.5} for i in range(1000)]
    print(json.dumps(sorted(rows, key=lambda r: r["key"])[:3]))
else:
    n = np.arange(20_000)
    table = pd.DataFrame({"key": n % 97, "group": (n % 5).astype(str), "value": np.sqrt(n)})
    sums = table.groupby("key")["value"].agg(["mean", "sum"]).reset_index()
    merged = table.merge(sums, on="key").sort_values("value")
    print(merged.describe().to_string())
    print(json.dumps(merged.head(3).to_dict(orient="records")))
print("done", file=sys.stderr)
