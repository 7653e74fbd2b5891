"""Attention over pages of compressed rows, beside attention over the rows as they were."""
import numpy as np

import kvant

T, HEADS, QUERIES, D = 200, 2, 8, 128
rng = np.random.default_rng(0)
k, v = rng.standard_normal((2, T, HEADS, D), dtype=np.float32)
q = rng.standard_normal((1, QUERIES, D), dtype=np.float32)


def attend(name_k, name_v):
    cache = kvant.ops.PagedCache(HEADS, D, pages=8, k=name_k, v=name_v)
    table = [6, 0, 3, 1]                       # pages of this sequence, in order
    cache.write(k, v, table)
    return cache.attend(q, table, start=T - 1), cache.nbytes


exact, _ = attend("f32", "f32")
for pair in (("f16", "f16"), ("tbq4_0", "tbq4_0"), ("turbo3_tcq", "tbq3_0")):
    out, size = attend(*pair)
    print(f"{pair[0]}/{pair[1]}: {size} bytes, relative error {np.linalg.norm(out - exact) / np.linalg.norm(exact):.4f}")
