#!/usr/bin/env python3
"""Golden vectors of the formats of page scope (ptcq2, ptcq3, ptcq4), by an implementation in numpy that shares no code with src/formats.

    tools/golden_pages.py --out DIR       writes DIR/own_ptcq2.json, ... (docs/formats/golden.md has the form)
    tools/golden_pages.py --check DIR     recomputes every vector of DIR and compares; exit 1 on a difference

Rows of one head, f32[64][128], become a page: the mean of the rotated rows in i8 steps, and for each row what it has beside the mean, by the
path of least squared error through a trellis of 512 states.  Sums are in f64.  Books and signs are read from src/formats/tables.toml."""
import argparse
import json
import os
import sys
import tomllib

import numpy as np

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
STATES, BITS, D, ROWS = 512, 9, 128, 64
F = np.float32


def tables():
    with open(os.path.join(ROOT, "src", "formats", "tables.toml"), "rb") as f:
        raw = tomllib.load(f)
    return {name: np.array([int(w, 16) for w in t["bits"].split()], np.uint32).view(F) for name, t in raw.items() if "bits" in t}


T = tables()


def rotate(x, before, after):
    """Signs, butterfly, 1/sqrt(128), signs; one rounding per operation."""
    x, h = x * before, 1
    while h < D:
        pairs = x.reshape(len(x), -1, 2, h)
        x = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).reshape(len(x), D)
        h *= 2
    return x * np.uint32(0x3db504f3).view(F) * after


def half(x):
    return np.asarray(x, F).astype(np.float16).astype(F)


def search(y, k, book):
    """Symbols u8[n][128] and starts u8[n] of the least squared error: costs in f32, the first of equal ones."""
    n, low = len(y), STATES >> k
    cost, back = np.zeros((n, STATES), F), np.empty((D, n, low), np.uint8)
    for t in range(D):
        into = cost.reshape(n, low, 1 << k)
        back[t], best = into.argmin(2), into.min(2)
        e = y[:, t:t + 1] - book
        cost = np.tile(best, (1, 1 << k)) + e * e
    state, symbols, rows = cost.argmin(1), np.empty((n, D), np.uint8), np.arange(n)
    for t in range(D - 1, -1, -1):
        symbols[:, t] = state >> (BITS - k)
        state = (state & (low - 1)) << k | back[t, rows, state & (low - 1)]
    return symbols, (state >> k).astype(np.uint8)


def values(symbols, start, k, book):
    out, state = np.empty(symbols.shape, F), start.astype(np.int64) << k
    for t in range(D):
        state = state >> k | symbols[:, t].astype(np.int64) << (BITS - k)
        out[:, t] = book[state]
    return out


def quantized(m):
    step = half(np.abs(m).max() / F(127) + F(1e-9))
    q = np.rint(m / step) if step > 0 else np.zeros(D)
    return np.clip(q, -127, 127).astype(np.int8), step


def mean_of(rows, ok):
    return rows[ok].astype(np.float64).mean(0).astype(F) if ok.any() else np.zeros(D, F)


def encode(rows, k):
    book, y = T[f"ptcq{k}_book"], rotate(rows, T["wht_signs1"], T["wht_signs2"])
    ok = np.isfinite(y).all(1)
    y = np.where(ok[:, None], y, F(0))
    q, step = quantized(mean_of(y, ok))
    r = np.where(ok[:, None], y - q.astype(F) * step, F(0))
    wide = r.astype(np.float64)
    yy = (wide * wide).sum(1)
    rms = np.sqrt(yy / D).astype(F) + F(1e-9)
    fit, symbols, start, scale = np.full(ROWS, -1.0), np.zeros((ROWS, D), np.uint8), np.zeros(ROWS, np.uint8), np.zeros(ROWS, F)
    for larger in (F(1), F(1) / F(0.94)):
        s, s0 = search(r / rms[:, None] * larger, k, book)
        c = values(s, s0, k, book).astype(np.float64)
        cc, cy = (c * c).sum(1), (c * wide).sum(1)
        now = np.where(yy > 0, cy * cy / np.where(yy > 0, cc * yy, 1), 0)
        d = half(np.minimum(np.where((yy > 0) & (cy > 0), yy / np.where(cy > 0, cy, 1), 0).astype(F), F(65504)))
        better = now > fit
        fit, symbols, start = np.where(better, now, fit), np.where(better[:, None], s, symbols), np.where(better, s0, start)
        scale = np.where(better, d, scale)
    q, step = quantized(q.astype(F) * step + mean_of(r - values(symbols, start, k, book) * scale[:, None], ok))
    scale = np.where(ok, scale, F("nan")).astype(np.float16)
    scale.view(np.uint16)[~ok] = 0x7e00
    return pack(symbols, scale, q, start, step, k)


def pack(symbols, scale, q, start, step, k):
    codes = np.packbits((symbols[:, :, None] >> np.arange(k) & 1).reshape(ROWS, -1), axis=1, bitorder="little")
    start = start.copy()
    start[:16] |= (np.float16(step).view(np.uint16) >> np.arange(16) & 1).astype(np.uint8) << 7
    return codes.tobytes() + scale.tobytes() + q.tobytes() + start.tobytes()


def decode(page, k):
    """Values in the rotated space."""
    raw, top = np.frombuffer(page, np.uint8), 16 * k * ROWS
    bits = np.unpackbits(raw[:top].reshape(ROWS, -1), axis=1, bitorder="little").reshape(ROWS, D, k)
    start = raw[top + 256:]
    step = np.array([int(((start[:16] >> 7).astype(np.uint32) << np.arange(16)).sum())], np.uint16).view(np.float16).astype(F)
    scale, q = raw[top:top + 128].view(np.float16).astype(F), raw[top + 128:top + 256].view(np.int8).astype(F)
    c = values((bits << np.arange(k)).sum(2).astype(np.uint8), start & (STATES >> k) - 1, k, T[f"ptcq{k}_book"])
    return c * scale[:, None] + q * step


def inputs():
    """Rows with a mean, rows of many sizes with an empty one, and rows of which two are not finite."""
    rng = np.random.default_rng(1)
    plain = (rng.standard_normal((ROWS, D)) + 0.7 * rng.standard_normal(D)).astype(F)
    sizes = (rng.standard_normal((ROWS, D)) * np.exp2(rng.integers(-12, 9, (ROWS, 1)))).astype(F)
    sizes[5] = 0
    broken = plain[::-1].copy()
    broken[7, 3], broken[40, 100] = np.nan, np.inf
    return {"a mean": plain, "many sizes": sizes, "not finite": broken, "zeros": np.zeros((ROWS, D), F)}


def vectors(k):
    out = []
    for name, x in inputs().items():
        page = encode(x, k)
        shown = decode(page, k)
        out.append({"name": name, "x_f32": x.tobytes().hex(), "enc": page.hex(), "acc_f32": shown.astype(F).tobytes().hex()})
    return out


def check(folder):
    bad = 0
    for k in (2, 3, 4):
        with open(os.path.join(folder, f"own_ptcq{k}.json"), encoding="utf-8") as f:
            kept = json.load(f)["vectors"]
        bad += sum(a != b for a, b in zip(kept, vectors(k))) + (len(kept) != len(inputs()))
    print(f"golden_pages: {bad} vectors differ")
    return int(bad > 0)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out")
    p.add_argument("--check")
    a = p.parse_args()
    if bool(a.out) == bool(a.check):
        p.error("one of --out and --check is needed")
    np.seterr(all="ignore")
    if a.check:
        return check(a.check)
    os.makedirs(a.out, exist_ok=True)
    for k in (2, 3, 4):
        with open(os.path.join(a.out, f"own_ptcq{k}.json"), "w", encoding="utf-8") as f:
            json.dump({"format": f"ptcq{k} (page scope)", "made_by": "tools/golden_pages.py", "vectors": vectors(k)}, f, indent=0)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
