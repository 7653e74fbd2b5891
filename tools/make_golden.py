#!/usr/bin/env python3
"""Golden vectors of the cache formats, from an implementation that shares no code with src/formats.

    tools/make_golden.py --out DIR [--seed N]     writes our own files (docs/formats/golden.md has the form)
    tools/make_golden.py --check DIR              recomputes every vector of DIR and compares; exit 1 on a difference
    options: --tables FILE   bit patterns from the specification's tables.json instead of src/formats/tables.toml
             --data DIR      projection files (default: ../data beside the folder given to --check)

Written from the specification in plain Python: f32 arithmetic is f64 arithmetic rounded once per operation (exact for
+ - * / and sqrt), lists are rounded through array('f').  Slow on purpose: one vector takes milliseconds.
"""
import argparse
import json
import math
import os
import random
import re
import struct
import sys
import tomllib
from array import array

HERE = os.path.dirname(os.path.abspath(__file__))
INF = float("inf")


# --- f32, fp16, bf16 ---------------------------------------------------------------------------------------------

_ONE = array("f", [0.0])


def f32(x):
    _ONE[0] = x
    return _ONE[0]


def rnd(xs):
    return array("f", xs).tolist()


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def from_bits(u):
    return struct.unpack("<f", struct.pack("<I", u))[0]


def add(a, b):
    return rnd([x + y for x, y in zip(a, b)])


def mul(a, b):
    return rnd([x * y for x, y in zip(a, b)])


def scale(a, k):
    return rnd([x * k for x in a])


def seq_sum(xs):
    s = 0.0
    for x in xs:
        s = f32(s + x)
    return s


def sqrt32(x):
    return f32(math.sqrt(x)) if x == x and x >= 0 else x


def div32(a, b):
    if b == 0:
        return math.copysign(INF, a) if a else float("nan")
    return f32(a / b)


def fp16(x, half_up=False):
    """f32 -> 16 bits: exact fraction of the fp16 grid, then the tie rule."""
    sign = 0x8000 if math.copysign(1.0, x) < 0 else 0
    a = abs(x)
    if a != a:
        return sign | 0x7e00
    if a == INF:
        return sign | 0x7c00
    if a == 0:
        return sign
    e = max(math.frexp(a)[1] - 1, -14)
    q = math.ldexp(a, 10 - e)                     # in units of the last place, exact in f64
    n = math.floor(q)
    rest = q - n
    if rest > 0.5 or (rest == 0.5 and (half_up or n % 2)):
        n += 1
    if n == 0:
        return sign
    if n >= 2048:
        n, e = n // 2, e + 1
    if e > 15:
        return sign | 0x7c00
    return sign | (n if n < 1024 else (e + 15) << 10 | (n - 1024))


def from_fp16(h):
    e, m = h >> 10 & 31, h & 1023
    v = math.ldexp(m, -24) if e == 0 else INF if e == 31 and not m else float("nan") if e == 31 \
        else math.ldexp(1024 + m, e - 25)
    return -v if h & 0x8000 else v


def bf16(x):
    u = bits(x)
    return (u >> 16 | 0x40) if x != x else ((u + 0x7fff + (u >> 16 & 1)) >> 16) & 0xffff


def from_bf16(b):
    return from_bits(b << 16)


def u16(v):
    return struct.pack("<H", v)


def get16(b, at=0):
    return struct.unpack_from("<H", b, at)[0]


# --- tables ------------------------------------------------------------------------------------------------------

TABLES = ("turbo3_centroids", "turbo3_midpoints", "turbo4_eliza_centroids", "turbo4_eliza_midpoints", "buun_turbo4_centroids",
          "buun_turbo4_midpoints", "tbq3_centroids", "tbq4_centroids", "wht_signs1", "wht_signs2", "tbq_signs32", "turbo3_tcq_codebook",
          "polar_q4_centroids", "polar_q4_boundaries_verify_ref")
T = {}


def load_tables(path):
    if path:
        with open(path, encoding="utf-8") as f:
            spec = json.load(f)
        for name in TABLES:
            t = spec[name]
            T[name] = [float(v) for v in t["values"]] if "values" in t else [from_bits(int(b, 16)) for b in t["f32_bits"]]
        return
    with open(os.path.join(HERE, "..", "src", "formats", "tables.toml"), "rb") as f:
        own = tomllib.load(f)
    for name in TABLES:
        T[name] = [from_bits(int(b, 16)) for b in own[name]["bits"].split()]


K128, K32 = from_bits(0x3db504f3), from_bits(0x3e3504f3)
QJL_SCALE, POLAR_MAG = from_bits(0x3ba06c99), from_bits(0x3d3504f3)
EPS = f32(1e-10)


def polar_signs():
    s, out = 42, []
    for _ in range(128):
        s ^= s << 13 & 0xffffffff
        s ^= s >> 17
        s ^= s << 5 & 0xffffffff
        out.append(1.0 if s & 1 else -1.0)
    return out


SIGNS = polar_signs()


# --- transforms --------------------------------------------------------------------------------------------------

def butterfly(x):
    x, h = list(x), 1
    while h < len(x):
        for i in range(0, len(x), 2 * h):
            a, b = x[i:i + h], x[i + h:i + 2 * h]
            x[i:i + h] = add(a, b)
            x[i + h:i + 2 * h] = rnd([p - q for p, q in zip(a, b)])
        h *= 2
    return x


def rot128(x):
    return mul(scale(butterfly(mul(x, T["wht_signs1"])), K128), T["wht_signs2"])


def pre32(x):
    return scale(butterfly(mul(x, T["tbq_signs32"])), K32)


def post32(y):
    return mul(scale(butterfly(y), K32), T["tbq_signs32"])


def chunks(x, n):
    return [x[i:i + n] for i in range(0, len(x), n)]


def upper(mids, v):
    """Number of midpoints m with not (v < m)."""
    k = 0
    while k < len(mids) and not v < mids[k]:
        k += 1
    return k


def lower(c, v):
    """Nearest centroid; a tie takes the lower index."""
    if v <= c[0]:
        return 0
    if not v < c[-1]:
        return len(c) - 1
    lo = max(k for k in range(len(c)) if c[k] <= v)
    return lo if f32(v - c[lo]) <= f32(c[lo + 1] - v) else lo + 1


def nibbles_split(codes):
    return bytes(codes[j] | codes[j + 16] << 4 for j in range(16))


def nibbles_pairs(codes):
    return bytes(codes[2 * i] | codes[2 * i + 1] << 4 for i in range(len(codes) // 2))


def unit(x):
    """norm and x/|x| as every 128-group format normalises."""
    norm = sqrt32(seq_sum(mul(x, x)))
    return norm, scale(x, div32(1.0, norm) if norm > EPS else 0.0)


# --- formats: encode(x, half_up) -> bytes, decode(bytes) -> acc or real values -----------------------------------

class Blocks:
    """32-wide records: d fp16 and packed codes of the preconditioned block."""
    group, n_bytes, real = 32, 0, True

    def encode(self, x, hu):
        y = pre32(x)
        d = sqrt32(f32(seq_sum(mul(y, y)) / 32.0))
        codes = [0] * 32
        if d != 0:
            inv = div32(1.0, d)
            codes = [self.code(f32(v * inv)) for v in y]
        return u16(fp16(d, hu)) + self.pack(codes)

    def values(self, b):
        d = from_fp16(get16(b))
        return [f32(d * self.c[k]) for k in self.unpack(b)]

    def decode(self, b):
        return post32(self.values(b))


class Tbq4(Blocks):
    n_bytes = 18
    c = property(lambda self: T["tbq4_centroids"])

    def code(self, v):
        return lower(self.c, v)

    def pack(self, codes):
        return nibbles_split(codes)

    def unpack(self, b):
        return [v & 15 for v in b[2:18]] + [v >> 4 for v in b[2:18]]


class Tbq3(Blocks):
    n_bytes = 14
    c = property(lambda self: T["tbq3_centroids"])

    def code(self, v):
        return lower(self.c, v)

    def pack(self, codes):
        return sum(k << 3 * j for j, k in enumerate(codes)).to_bytes(12, "little")

    def unpack(self, b):
        n = int.from_bytes(b[2:14], "little")
        return [n >> 3 * j & 7 for j in range(32)]


class Turbo4(Tbq4):
    group, n_bytes, real = 128, 72, False
    c = property(lambda self: T["turbo4_eliza_centroids"])

    def code(self, v):
        return upper(T["turbo4_eliza_midpoints"], v)

    def encode(self, x, hu):
        return b"".join(Blocks.encode(self, part, hu) for part in chunks(x, 32))

    def decode(self, b):
        return [v for part in chunks(b, 18) for v in self.values(part)]


class Group:
    """128-wide groups with one corrected norm over rotated values."""
    group, real = 128, False

    def encode(self, x, hu):
        norm, u = unit(x)
        y = rot128(u)
        codes, c = self.choose(y)
        rn = sqrt32(seq_sum(mul(c, c)))
        return self.pack(fp16(div32(norm, rn) if rn > EPS else norm, hu), codes)


class Turbo3(Group):
    n_bytes = 56

    def choose(self, y):
        codes = [upper(T["turbo3_midpoints"], v) for v in y]
        return codes, [T["turbo3_centroids"][k] for k in codes]

    def pack(self, h, codes):
        out = b""
        for part in chunks(codes, 32):
            low = sum((k & 3) << 2 * j for j, k in enumerate(part))
            high = sum((k >> 2) << j for j, k in enumerate(part))
            out += u16(h) + low.to_bytes(8, "little") + high.to_bytes(4, "little")
        return out

    def decode(self, b):
        out = []
        for part in chunks(b, 14):
            low, high = int.from_bytes(part[2:10], "little"), int.from_bytes(part[10:14], "little")
            norm = from_fp16(get16(part))
            out += [f32(T["turbo3_centroids"][low >> 2 * j & 3 | (high >> j & 1) << 2] * norm) for j in range(32)]
        return out


class Turbo466(Group):
    n_bytes = 66

    def choose(self, y):
        codes = [upper(T["buun_turbo4_midpoints"], v) for v in y]
        return codes, [T["buun_turbo4_centroids"][k] for k in codes]

    def pack(self, h, codes):
        return u16(h) + nibbles_pairs(codes)

    def decode(self, b):
        norm = from_fp16(get16(b))
        return [f32(T["buun_turbo4_centroids"][k] * norm) for v in b[2:] for k in (v & 15, v >> 4)]


class Tcq(Group):
    n_bytes = 52

    def choose(self, y):
        book, cost, back = T["turbo3_tcq_codebook"], [0.0] * 512, []
        for v in y:
            groups = chunks(cost, 8)
            best = [min(g) for g in groups]
            back.append([g.index(m) for g, m in zip(groups, best)])
            e = rnd([v - c for c in book])
            cost = add(best * 8, mul(e, e))
        s = cost.index(min(cost))
        states = []
        for step in reversed(back):
            states.append(s)
            s = (s & 63) << 3 | step[s & 63]
        states.reverse()
        return (s, states), [book[t] for t in states]

    def pack(self, h, path):
        start, states = path
        n = start >> 3
        for t, s in enumerate(states):
            n |= (s >> 6) << 6 + 3 * t
        return u16(h) + n.to_bytes(49, "little") + b"\0"

    def decode(self, b):
        n, norm = int.from_bytes(b[2:51], "little"), from_fp16(get16(b))
        return [f32(T["turbo3_tcq_codebook"][n >> 3 * t & 511] * norm) for t in range(128)]


class Polar:
    group, n_bytes, real = 128, 82, True

    def __init__(self, residual):
        self.residual = residual

    def encode(self, x, hu):
        norm = f32(math.sqrt(sum(v * v for v in x)))
        y = butterfly(scale(x, div32(1.0, norm) if norm > EPS else 0.0))
        codes = [upper(T["polar_q4_boundaries_verify_ref"], v) for v in y]
        p = seq_sum(mul(rnd([v - T["polar_q4_centroids"][k] for v, k in zip(y, codes)]), SIGNS))
        bit = 1 if self.residual and p > 0 else 0
        return u16(fp16(norm, hu)) + nibbles_pairs(codes) + bytes([bit]) + bytes(15)

    def values(self, b):
        y = [T["polar_q4_centroids"][k] for v in b[2:66] for k in (v & 15, v >> 4)]
        if self.residual:
            r = POLAR_MAG if b[66] & 1 else -POLAR_MAG
            y = add(y, [f32(r * s) for s in SIGNS])
        return y

    def decode(self, b):
        return scale(scale(butterfly(self.values(b)), 1 / 128), from_fp16(get16(b)))


class Qjl:
    group, n_bytes, real = 128, 34, True

    def __init__(self, pi):
        self.rows = chunks(pi, 256)

    def sketch(self, x):
        s = [0.0] * 256
        for v, row in zip(x, self.rows):
            s = add(s, scale(row, v))
        return s

    def encode(self, x, hu):
        n = sum(1 << j for j, v in enumerate(self.sketch(x)) if v > 0)
        return n.to_bytes(32, "little") + u16(bf16(f32(math.sqrt(sum(v * v for v in x)))))

    def signs(self, b):
        n = int.from_bytes(b[:32], "little")
        return [1.0 if n >> j & 1 else -1.0 for j in range(256)]

    def factor(self, b):
        return f32(QJL_SCALE * from_bf16(get16(b, 32)))

    def decode(self, b):
        signs, k = self.signs(b), self.factor(b)
        return [f32(k * sum(s * p for s, p in zip(signs, row))) for row in self.rows]

    def score(self, sketch, b):
        return f32(self.factor(b) * seq_sum(mul(self.signs(b), sketch)))

    def query_i8(self, sketch):
        top = max(abs(v) for v in sketch)
        d = div32(top, 127.0) if top > 0 else 1.0
        inv = div32(1.0, d)
        return d, [max(-127, min(127, round(f32(v * inv)))) for v in sketch]      # round(): ties to even

    def score_i8(self, q, d, b):
        return f32(f32(self.factor(b) * d) * sum(int(s) * v for s, v in zip(self.signs(b), q)))


class Plain:
    group, real = 1, True

    def __init__(self, n_bytes, enc, dec):
        self.n_bytes, self.enc, self.dec = n_bytes, enc, dec

    def encode(self, x, hu):
        return self.enc(x[0])

    def decode(self, b):
        return [self.dec(b)]


class Q8:
    group, n_bytes, real = 32, 34, True

    def encode(self, x, hu):
        d = div32(max(abs(v) for v in x), 127.0)
        inv = div32(1.0, d) if d > 0 else 0.0
        codes = []
        for v in x:
            t = f32(v * inv)
            codes.append(int(math.copysign(math.floor(abs(t) + 0.5), t)))         # half away from zero
        return u16(fp16(d, hu)) + struct.pack("32b", *codes)

    def decode(self, b):
        d = from_fp16(get16(b))
        return [f32(d * k) for k in struct.unpack("32b", b[2:])]


class Q4:
    group, n_bytes, real = 32, 18, True

    def encode(self, x, hu):
        top = max([0.0] + x, key=abs)             # the first of the largest; 0.0 for zeros of either sign
        d = f32(top / -8.0)
        inv = div32(1.0, d) if d != 0 else 0.0
        codes = [min(15, int(f32(f32(v * inv) + 8.5))) for v in x]
        return u16(fp16(d, hu)) + nibbles_split(codes)

    def decode(self, b):
        d = from_fp16(get16(b))
        codes = [v & 15 for v in b[2:]] + [v >> 4 for v in b[2:]]
        return [f32(d * (k - 8)) for k in codes]


def e4m3_values():
    return [math.ldexp(8 + (k & 7), (k >> 3) - 10) if k >> 3 else math.ldexp(k, -9) for k in range(127)]


E4M3 = e4m3_values()


def to_e4m3(x):
    a = min(abs(x), 448.0)
    k = min(range(127), key=lambda i: (abs(E4M3[i] - a), i & 1))     # nearest, ties to the even code
    return bytes([k | (0x80 if math.copysign(1.0, x) < 0 else 0)])


def from_e4m3(b):
    return -E4M3[b[0] & 127] if b[0] & 128 else E4M3[b[0] & 127]


def make_formats(pi):
    return {"f32": Plain(4, lambda v: struct.pack("<f", v), lambda b: struct.unpack("<f", b)[0]),
            "f16": Plain(2, lambda v: u16(fp16(v)), lambda b: from_fp16(get16(b))),
            "bf16": Plain(2, lambda v: u16(bf16(v)), lambda b: from_bf16(get16(b))),
            "f8_e4m3": Plain(1, to_e4m3, from_e4m3), "q8_0": Q8(), "q4_0": Q4(), "tbq3_0": Tbq3(), "tbq4_0": Tbq4(),
            "turbo3": Turbo3(), "turbo4": Turbo4(), "turbo4_66": Turbo466(), "turbo3_tcq": Tcq(),
            "q4_polar": Polar(0), "q4_polar_r": Polar(1), "qjl1_256": Qjl(pi)}


def encode_row(f, x, hu=False):
    return b"".join(f.encode(part, hu) for part in chunks(x, f.group))


def decode_row(f, b):
    return [v for part in chunks(b, f.n_bytes) for v in f.decode(part)]


def dot64(a, b):
    return f32(sum(x * y for x, y in zip(a, b)))


def preht_score(f, b, hq):
    """Pre-Hadamard path: hq = H(q)."""
    s = sum(v * h for v, h in zip(f.values(b), hq))
    return f32(f32(from_fp16(get16(b)) / 128.0) * s)


# --- generators --------------------------------------------------------------------------------------------------

M64 = (1 << 64) - 1


def splitmix(state):
    state = (state + 0x9E3779B97F4A7C15) & M64
    z = state
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return state, z ^ z >> 31


def projection_boxmuller(seed):
    state, out = seed ^ 0xC0FFEE1234567890, []
    while len(out) < 128 * 256:
        u = []
        for _ in range(2):
            state, v = splitmix(state)
            u.append((v >> 11 | 1) * 2.0 ** -53)
        r, t = math.sqrt(-2.0 * math.log(u[0])), 6.28318530717958647692 * u[1]
        out += [r * math.cos(t), r * math.sin(t)]
    return rnd(out)


def projection_marsaglia(seed):
    state, out = seed or 0x42, []
    while len(out) < 128 * 256:
        u = []
        for _ in range(2):
            state, v = splitmix(state)
            u.append(f32(f32((v >> 11 & 0xFFFFFF) / 2.0 ** 24 * 2.0) - 1.0))
        r = f32(f32(u[0] * u[0]) + f32(u[1] * u[1]))
        if r >= 1 or r == 0:
            continue
        k = sqrt32(f32(f32(-2.0 * f32(math.log(r))) / r))
        out += [f32(u[0] * k), f32(u[1] * k)]
    return out


def floats_hex(xs):
    return struct.pack("<%df" % len(xs), *xs).hex() if xs else ""


def hex_floats(text):
    b = bytes.fromhex(text)
    return list(struct.unpack("<%df" % (len(b) // 4), b))


# --- our own files -----------------------------------------------------------------------------------------------

def inputs(rng, d):
    """Named rows: ordinary, scaled, spiky, sparse (ties), degenerate."""
    def normal():
        return rnd([rng.gauss(0, 1) for _ in range(d)])

    def onehot(v):
        x = [0.0] * d
        x[rng.randrange(d)] = f32(v)
        return x
    rows = [("normal_%d" % i, normal()) for i in range(8)]
    for s in (1e-2, 1e-4, 1e-6, 30.0, 1000.0, 5000.0):
        rows.append(("scaled_normal_%g" % s, scale(normal(), f32(s))))
    for i in range(3):
        x = normal()
        x[rng.randrange(d)] *= 10.0
        rows.append(("outlier_%d" % i, rnd(x)))
        rows.append(("laplace_%d" % i, rnd([rng.expovariate(1) * rng.choice((-1, 1)) for _ in range(d)])))
        rows.append(("onehot_%d" % i, onehot(rng.choice((1.0, -3.0, 0.37)))))
        x = onehot(1.0)
        x[(x.index(1.0) + 1 + rng.randrange(d - 1)) % d] = 1.0
        rows.append(("twohot_tie_%d" % i, x))
        x = [0.0] * d
        for _ in range(8):
            x[rng.randrange(d)] = float(rng.randrange(-4, 5))
        rows.append(("sparse8_int_%d" % i, x))
    for v in (1.00048828, 1.00146484, 2049.0, 2051.0, -4098.0):
        rows.append(("onehot_fp16edge_%g" % v, onehot(v)))
    rows += [("zero", [0.0] * d), ("negzero", [-0.0] * d), ("constant_one", [1.0] * d),
             ("ramp", [float(j - d // 2) for j in range(d)]), ("alternating", [(-1.0) ** j for j in range(d)]),
             ("uniform", rnd([rng.uniform(-1, 1) for _ in range(d)]))]
    return rows


TITLES = {"qjl1_256": "qjl1_256 (34 bytes per 128-wide key)"}
NOTE = "all *_f32 fields: little-endian IEEE f32 bytes as hex; enc*: raw bytes as hex"


def vector_fields(name, fmts, x, qs):
    f = fmts[name]
    if name == "q4_polar":
        out = {}
        for key, g in (("noqjl", f), ("qjl", fmts["q4_polar_r"])):
            b = encode_row(g, x)
            dec = decode_row(g, b)
            out["enc_" + key] = b.hex()
            out["dec_%s_f32" % key] = floats_hex(dec)
            out["score_%s_f32" % key] = floats_hex([dot64(q, dec) for q in qs])
        return out
    b = encode_row(f, x)
    dec = decode_row(f, b)
    out = {"enc": b.hex(), "dec_f32" if f.real else "dec_rotated_f32": floats_hex(dec)}
    if name == "qjl1_256":
        groups = chunks(b, f.n_bytes)
        out["score_f32"] = floats_hex([f32(sum(f.score(f.sketch(part), g) for part, g in zip(chunks(q, 128), groups)))
                                       for q in qs])
    else:
        out["score_f32"] = floats_hex([dot64(q, dec) for q in qs])
    return out


def make_rows(name, fmts, rng, d, path):
    qs = [rnd([rng.gauss(0, 1) for _ in range(d)]) for _ in range(3)]
    f = fmts[name]
    doc = {"format": TITLES.get(name, "%s (%d bytes per %d)" % (name, f.n_bytes, f.group)), "block_bytes": f.n_bytes,
           "source": "tools/make_golden.py", "encoding": NOTE, "q_f32": [floats_hex(q) for q in qs]}
    if name == "qjl1_256":
        doc["projection"], doc["projection_seed"] = "splitmix64+Box-Muller", "0x2a"
        doc["q_sketch_f32"] = [floats_hex([v for part in chunks(q, 128) for v in f.sketch(part)]) for q in qs]
    if name == "q4_polar":
        doc["q_preht_f32"] = [floats_hex([v for part in chunks(q, 128) for v in butterfly(part)]) for q in qs]
    doc["vectors"] = []
    for label, x in inputs(rng, d):
        v = {"name": label, "informative_only": 0, "x_f32": floats_hex(x)}
        v.update(vector_fields(name, fmts, x, qs))
        doc["vectors"].append(v)
    write(path, doc)


def fused(q_sketch, k_rows, v_rows, sm_scale, qjl):
    """One head: k_rows bytes, v_rows real-space lists."""
    raw = [f32(qjl.score(q_sketch, k) * sm_scale) for k in k_rows]
    if not raw:
        return [0.0] * 128
    m = max(raw)
    w = rnd([math.exp(f32(r - m)) for r in raw])
    inv = f32(1.0 / sum(w))
    out = [0.0] * 128
    for wt, v in zip(rnd([x * inv for x in w]), v_rows):
        if wt != 0:
            out = add(out, scale(v, wt))
    return out


def make_fused(v_name, fmts, rng, path):
    qjl, polar = fmts["qjl1_256"], v_name == "q4_polar"
    enc_v = fmts["q4_polar_r"] if polar else fmts[v_name]
    doc = {"format": "fused QJL-K + %s-V" % v_name, "source": "tools/make_golden.py", "encoding": NOTE, "cases": []}
    for heads, kv, n in ((1, 1, 40), (4, 2, 96), (8, 2, 17), (2, 1, 1)):
        def normal(k):
            return rnd([rng.gauss(0, 1) for _ in range(k)])
        sketches = [qjl.sketch(normal(128)) for _ in range(heads)]
        ks = [[qjl.encode(normal(128), False) for _ in range(n)] for _ in range(kv)]
        vs = [[encode_row(enc_v, normal(128)) for _ in range(n)] for _ in range(kv)]
        case = {"n_heads": heads, "n_kv_heads": kv, "n_kv": n, "causal": 0, "sm_scale": f32(128 ** -0.5),
                "q_sketch_f32": floats_hex([v for s in sketches for v in s]),
                "k_blocks": b"".join(b for r in ks for b in r).hex(), "v_blocks": b"".join(b for r in vs for b in r).hex()}
        readers = {"out_useqjl1_f32": fmts["q4_polar_r"], "out_useqjl0_f32": fmts["q4_polar"]} if polar \
            else {"out_f32": enc_v}
        seen = n // 3 + 1

        def outs(count):
            res = {}
            for key, reader in readers.items():
                real = [[decode_row(reader, b) for b in r[:count]] for r in vs]
                res[key] = floats_hex([v for h in range(heads) for v in
                                       fused(sketches[h], ks[h // (heads // kv)][:count], real[h // (heads // kv)],
                                             case["sm_scale"], qjl)])
            return res
        case.update(outs(n))
        case["causal_variant"] = dict(q_pos_base=seen - 1, visible_tokens=seen, **outs(seen))
        doc["cases"].append(case)
    write(path, doc)


def write(path, doc):
    with open(path, "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")


def make_all(out, seed):
    os.makedirs(out, exist_ok=True)
    fmts = make_formats(projection_boxmuller(42))
    for name in fmts:
        if name == "q4_polar_r":
            continue                              # both are in q4_polar.json
        rng = random.Random("%d %s" % (seed, name))
        make_rows(name, fmts, rng, 128, os.path.join(out, "own_%s.json" % name))
        if name in ("tbq3_0", "turbo3", "turbo4_66", "qjl1_256", "q4_polar", "turbo4"):
            make_rows(name, fmts, rng, 256, os.path.join(out, "own_%s_d256.json" % name))
    rng = random.Random("%d rotation" % seed)
    doc = {"format": "rotation128 (signs1 -> FWHT/sqrt128 -> signs2)", "encoding": NOTE, "vectors": [
        {"name": n, "informative_only": 0, "x_f32": floats_hex(x), "y_f32": floats_hex(rot128(x))}
        for n, x in inputs(rng, 128)]}
    write(os.path.join(out, "own_rotation128.json"), doc)
    for v in ("tbq3_0", "q4_polar"):
        make_fused(v, fmts, random.Random("%d fused %s" % (seed, v)), os.path.join(out, "own_fused_%s.json" % v))


# --- check -------------------------------------------------------------------------------------------------------

class Check:
    def __init__(self):
        self.passed = self.failed = self.ties = 0

    def ok(self, cond, text):
        if cond:
            self.passed += 1
        else:
            self.failed += 1
            if self.failed <= 20:
                print("FAIL", text)

    def floats(self, got, want, tol, text):
        bad = [i for i, (a, b) in enumerate(zip(got, want)) if not (abs(a - b) <= tol or (b != b or abs(b) == INF) and
                                                                    (a != a or abs(a) == INF))]
        self.ok(len(got) == len(want) and not bad, "%s: %s" % (text, [(i, got[i], want[i]) for i in bad[:2]]))


def norm2(x):
    return math.sqrt(sum(v * v for v in x if abs(v) < 1e30))


def check_bytes(c, f, x, want, text):
    got = encode_row(f, x)
    if got != want and encode_row(f, x, True) == want:
        c.ties += 1
        got = want
    c.ok(got == want, "%s: %s want %s" % (text, got[:12].hex(), want[:12].hex()))


def check_vector(c, where, f, v, suffix, qs):
    x = hex_floats(v["x_f32"])
    enc = bytes.fromhex(v["enc" + suffix])
    check_bytes(c, f, x, enc, where + " enc" + suffix)
    dec = decode_row(f, enc)
    key = "dec_rotated_f32" if "dec_rotated_f32" in v else "dec%s_f32" % suffix
    # QJL sums 256 terms in another order; everything else is the same operations in the same order
    tol = 64 * 2.0 ** -24 * 2 * norm2(dec) if isinstance(f, Qjl) else 0.0
    c.floats(dec, hex_floats(v[key]), tol + (1e-42 if isinstance(f, Qjl) else 0.0), where + " " + key)
    if "score%s_f32" % suffix not in v:
        return
    want = hex_floats(v["score%s_f32" % suffix])
    for i, q in enumerate(qs):
        if isinstance(f, Qjl):
            parts = [f.sketch(p) for p in chunks(q, 128)]
            got = sum(f.score(s, b) for s, b in zip(parts, chunks(enc, 34)))
            size = sum(norm2(s) * 16 * abs(f.factor(b)) for s, b in zip(parts, chunks(enc, 34)))
        else:
            got, size = dot64(q, dec), norm2(q) * norm2(dec)
        c.floats([got], [want[i]], 100 * 2.0 ** -24 * size + 1e-42, where + " score%d" % i)
        pre = "score_preht%s_f32" % suffix
        if pre in v and len(enc) == 82 and get16(enc) & 0x7fff >= 0x400:
            c.floats([preht_score(f, enc, butterfly(q))], [hex_floats(v[pre])[i]], 100 * 2.0 ** -24 * size, where + " preht")


def check_gqa(c, where, f, g):
    heads, kv, n = g["n_heads"], g["n_kv_heads"], g["n_tokens"]
    sketches = chunks(hex_floats(g["q_sketch_f32"]), 256)
    blocks = chunks(bytes.fromhex(g["k_blocks"]), 34)
    for h in range(heads):
        rows = blocks[h // (heads // kv) * n:][:n]
        c.floats([f.score(sketches[h], b) for b in rows], hex_floats(g["scores_f32"])[h * n:][:n], 1e-4, where + " gqa")
        d, q = f.query_i8(sketches[h])
        c.ok(struct.pack("256b", *q).hex() == g["i8"][h]["values_i8"], where + " gqa int8 query")
        c.floats([d], hex_floats(g["i8"][h]["scale_f32"]), 0.0, where + " gqa int8 scale")
        c.floats([f.score_i8(q, d, b) for b in rows], hex_floats(g["scores_i8_f32"])[h * n:][:n], 1e-4, where + " gqa int8")


def check_fused(c, where, doc, fmts):
    polar = "q4_polar" in doc["format"]
    qjl = fmts["qjl1_256"]
    for i, case in enumerate(doc["cases"]):
        heads, kv, n = case["n_heads"], case["n_kv_heads"], case["n_kv"]
        sketches = chunks(hex_floats(case["q_sketch_f32"]), 256)
        ks = chunks(bytes.fromhex(case["k_blocks"]), 34)
        sm = f32(case["sm_scale"])
        hot = max(abs(qjl.score(sketches[h], ks[h // (heads // kv) * n + t])) for h in range(heads) for t in range(n)) * sm
        for src, count in ((case, n), (case.get("causal_variant"), (case.get("causal_variant") or {}).get("visible_tokens"))):
            for key, name in (("out_f32", "tbq3_0"), ("out_useqjl1_f32", "q4_polar_r"), ("out_useqjl0_f32", "q4_polar")):
                if not src or key not in src:
                    continue
                f = fmts[name]
                vs = [decode_row(f, b) for b in chunks(bytes.fromhex(case["v_blocks"]), 82 if polar else 56)]
                got = [v for h in range(heads) for v in
                       fused(sketches[h], ks[h // (heads // kv) * n:][:count], vs[h // (heads // kv) * n:][:count], sm, qjl)]
                c.floats(got, hex_floats(src[key]), 1e-4 if hot > 50 else 1e-5, "%s case %d %s" % (where, i, key))


def projection_for(doc, data):
    text = doc.get("projection", "")
    seed = doc.get("projection_seed") or (re.search("0x[0-9a-fA-F]+", text) or [None])[0]
    if not seed:
        return None
    kind = "marsaglia" if "arsaglia" in text else "boxmuller"
    n = int(seed, 16)
    path = os.path.join(data, "qjl_projection_marsaglia_seed%X.f32le.bin" % n)
    if kind == "marsaglia" and os.path.exists(path):     # the C library's logf decides the last bit: use the file
        with open(path, "rb") as f:
            return list(struct.unpack("<32768f", f.read()))
    return projection_marsaglia(n) if kind == "marsaglia" else projection_boxmuller(n)


def check_rows(c, where, doc, fmts):
    title = doc["format"]
    name = "turbo4_66" if title.startswith("buun turbo4_0 (66") else title.split()[0]
    if name not in fmts:
        return 0
    f, qs = fmts[name], [hex_floats(q) for q in doc.get("q_f32", [])]
    for q, s in zip(qs, doc.get("q_sketch_f32", [])):
        c.floats([v for p in chunks(q, 128) for v in f.sketch(p)], hex_floats(s), 1e-4, where + " sketch")
    for q, s in zip(qs, doc.get("q_preht_f32", [])):
        c.floats([v for p in chunks(q, 128) for v in butterfly(p)], hex_floats(s), 0.0, where + " preht")
    for v in doc["vectors"]:
        if v.get("informative_only"):
            continue
        if "enc_noqjl" in v:
            check_vector(c, "%s %s" % (where, v["name"]), fmts["q4_polar"], v, "_noqjl", qs)
            check_vector(c, "%s %s" % (where, v["name"]), fmts["q4_polar_r"], v, "_qjl", qs)
        else:
            check_vector(c, "%s %s" % (where, v["name"]), f, v, "", qs)
    if "gqa" in doc:
        check_gqa(c, where, f, doc["gqa"])
    return 1


def check_all(folder, data):
    c = Check()
    default = projection_boxmuller(42)
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".json"):
            continue
        with open(os.path.join(folder, file)) as f:
            doc = json.load(f)
        title = doc.get("format", "")
        before = c.passed + c.failed
        fmts = make_formats(projection_for(doc, data) or default)
        if title.startswith("rotation128"):
            for v in doc["vectors"]:
                if not v["informative_only"]:
                    c.floats(rot128(hex_floats(v["x_f32"])), hex_floats(v["y_f32"]), 0.0, file + " " + v["name"])
        elif title.startswith("fused "):
            check_fused(c, file, doc, fmts)
        elif not title or not check_rows(c, file, doc, fmts):
            print("%-36s skipped: no kvant format" % file)
            continue
        print("%-36s %d comparisons" % (file, c.passed + c.failed - before))
    print("make_golden: %d passed, %d failed (%d accepted fp16 ties)" % (c.passed, c.failed, c.ties))
    return 1 if c.failed or not c.passed else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out")
    p.add_argument("--check")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tables")
    p.add_argument("--data")
    a = p.parse_args()
    if bool(a.out) == bool(a.check):
        p.error("one of --out and --check is needed")
    load_tables(a.tables)
    if a.check:
        return check_all(a.check, a.data or os.path.join(a.check, "..", "data"))
    make_all(a.out, a.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
