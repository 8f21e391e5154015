import pandas as pd, numpy as np
df = pd.DataFrame({"m": list("abcab"), "v": range(5)})
print(df.groupby("m").v.agg(["sum", "mean"]))
print(np.arange(6).reshape(2, 3) @ np.ones((3, 2)), np.random.default_rng(7).integers(0, 100, 5))
np.random.seed(3)
print(np.random.rand(2))
