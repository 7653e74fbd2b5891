"""Rows in every format: bits for a value, the error of what comes back, and of scores."""
import numpy as np

import kvant

rng = np.random.default_rng(0)
x = rng.standard_normal((64, 128), dtype=np.float32)
q = rng.standard_normal((8, 128), dtype=np.float32)
exact = q @ x.T
print("format      bits   error of rows   error of scores")
for name in kvant.formats.names():
    f = kvant.formats.get(name)
    rows = f.encode(x)
    error = np.linalg.norm(f.decode(rows, 128) - x) / np.linalg.norm(x)
    scores = np.linalg.norm(f.score(q, rows) - exact) / np.linalg.norm(exact)
    print(f"{name:10} {f.bits(128):5.2f} {error:15.4f} {scores:17.4f}")
