"""Cache formats: rows of one head's keys or values, and what attention asks of them.

A row is `d` values of one head of one token.  Shapes: x f32[n, d], rows u8[n, row_bytes], queries f32[r, d].
A format of page scope (is_paged) encodes 64 rows at once: n is a multiple of 64, and rows[64 i : 64 i + 64] are one page's bytes.
Arguments may be NumPy arrays, DLPack tensors on the CPU, or nested sequences; results are NumPy arrays.

    f = kvant.formats.get("tbq4_0")
    rows = f.encode(x)                   # u8[n, f.row_bytes(d)], f.bits(d) per value
    f.decode(rows, d)                    # f32[n, d]
    f.score(q, rows)                     # f32[r, n]: <q, k>, without the decoder's rounding to f32 in between
"""
import ctypes
import json
import struct
from typing import Any, Literal, NamedTuple

import numpy as np

from . import _abi
from ._c import Bytes, Floats, array, call, floats, lib, octets, shown

Encoder = Literal["upstream", "best"]
PAGE = _abi.KVANT_PAGE
ENCODERS: dict[str, int] = {"upstream": _abi.KVANT_ENCODER_UPSTREAM, "best": _abi.KVANT_ENCODER_BEST}


def projection(seed: int = _abi.KVANT_QJL_SEED) -> Floats:
    """The projection of qjl1_256, f32[128, 256]; the cache's own has seed 42."""
    out = np.empty((128, 256), np.float32)
    lib.kvant_qjl_projection_build(seed, floats(out))
    return out


class Format:
    """One cache format.  param: f32[128, 256], the projection of qjl1_256 (None: seed 42); others have none."""

    def __init__(self, name: str, param: Any = None) -> None:
        found = ctypes.POINTER(_abi.kvant_format)()
        call("kvant_format_parse", name.encode(), ctypes.byref(found))
        self._at = found
        self._f = found.contents
        self._k = lib.kvant_format_best(found).contents
        self.name = str(self._f.name.decode())
        self.aliases: list[str] = self._f.aliases.decode().split()
        self.group = self._f.group
        self.is_wide = bool(self._f.flags & _abi.KVANT_FORMAT_WIDE)
        self.is_paged = bool(self._f.flags & _abi.KVANT_FORMAT_PAGE)
        self.needs_param = bool(self._f.flags & _abi.KVANT_FORMAT_PARAM)
        if param is not None and not self.needs_param:
            raise ValueError(f"{name} has no parameter, wanted None")
        self.param = array(projection() if param is None else param, np.float32) if self.needs_param else None
        if self.param is not None and self.param.shape != (128, 256):
            raise shown(self.param, "[128, 256]")

    def __repr__(self) -> str:
        return f"<kvant format {self.name}, {self.bits(max(self.group, 128)):.3g} bits>"

    def _param(self) -> Any:
        return self.param.ctypes.data if self.param is not None else None

    def _rows(self, rows: Any, d: int) -> Bytes:
        call("kvant_format_check", self._at, d)
        r = array(rows, np.uint8)
        if r.ndim != 2 or r.shape[1] != self.row_bytes(d):
            raise shown(r, f"[n, {self.row_bytes(d)}]")
        if self.is_paged and r.shape[0] % PAGE:
            raise shown(r, f"[a multiple of {PAGE}, {self.row_bytes(d)}]")
        return r

    def _padded(self, x: Any) -> Floats:
        a = array(x, np.float32)
        if a.ndim != 2 or a.shape[1] < 1:
            raise shown(a, "[n, d]")
        call("kvant_format_check", self._at, a.shape[1])
        return np.ascontiguousarray(np.pad(a, ((0, 0), (0, self.padded(a.shape[1]) - a.shape[1]))))

    def padded(self, d: int) -> int:
        """d rounded up to whole groups: the zeros that a row is filled up with."""
        return int(lib.kvant_format_padded(self._at, d))

    def row_bytes(self, d: int) -> int:
        """Bytes of a row of d values."""
        return int(lib.kvant_format_row_bytes(self._at, d))

    def bits(self, d: int) -> float:
        """Bits for each of the d values of a row, scales included."""
        return self.row_bytes(d) * 8 / d

    def encode(self, x: Any, encoder: Encoder = "best") -> Bytes:
        """x f32[n, d] -> u8[n, row_bytes(d)].  encoder "upstream": the bits of the format's specification."""
        if encoder not in ENCODERS:
            raise ValueError(f"encoder {encoder!r} found, one of {sorted(ENCODERS)} wanted")
        a = self._padded(x)
        out = np.empty((a.shape[0], self.row_bytes(a.shape[1])), np.uint8)
        if self.is_paged and a.shape[0] % PAGE:
            raise shown(a, f"[a multiple of {PAGE}, d] ({self.name} encodes pages)")
        for i in range(0, a.shape[0], PAGE if self.is_paged else 1):
            if self.is_paged:
                self._k.encode_page(self._param(), floats(a[i]), a.shape[1], octets(out[i]), a.shape[1], ENCODERS[encoder])
                continue
            self._k.encode(self._param(), floats(a[i]), octets(out[i]), a.shape[1], ENCODERS[encoder])
        return out

    def decode(self, rows: Any, d: int) -> Floats:
        """rows u8[n, row_bytes(d)] -> f32[n, d], in real space, by the reference decoder."""
        r, dp = self._rows(rows, d), self.padded(d)
        out = np.empty((r.shape[0], dp), np.float32)
        acc = np.empty(int(lib.kvant_format_sdim(self._at, d)), np.float32)
        for i in range(r.shape[0]):
            if self.is_paged:
                lib.kvant_page_decode_acc(self._at, self._param(), octets(r[i - i % PAGE]), i % PAGE, floats(acc), dp)
                self._k.finish_out(self._param(), floats(acc), floats(out[i]), dp)
            else:
                lib.kvant_row_decode(self._at, self._param(), octets(r[i]), floats(out[i]), dp)
        return np.ascontiguousarray(out[:, :d])

    def score(self, q: Any, rows: Any) -> Floats:
        """<q, k> of every query q f32[r, d] and row -> f32[r, n].  Not scaled by 1/sqrt(d)."""
        d = array(q, np.float32).shape[-1]
        a, r = self._padded(q), self._rows(rows, d)
        dp, sdim = a.shape[1], int(lib.kvant_format_sdim(self._at, d))
        qp, out = np.empty((a.shape[0], sdim), np.float32), np.empty((a.shape[0], r.shape[0]), np.float32)
        for i in range(a.shape[0]):
            self._k.prep_q(self._param(), floats(a[i]), floats(qp[i]), dp)
        for i in range(0, r.shape[0] if self.is_paged else 0, PAGE):
            self._k.score_page(self._param(), floats(qp), sdim, a.shape[0], octets(r[i]), 0, PAGE, floats(out[:, i:]), r.shape[0], dp)
        if out.size and not self.is_paged:
            self._k.score(self._param(), floats(qp), sdim, a.shape[0], octets(r), r.shape[1], r.shape[0], floats(out), r.shape[0], dp)
        return out

    def weighted_sum(self, w: Any, rows: Any, d: int) -> Floats:
        """sum_i w[j, i] * row i of every row of weights w f32[r, n] -> f32[r, d]: attention's second half."""
        a, r, dp, sdim = array(w, np.float32), self._rows(rows, d), self.padded(d), int(lib.kvant_format_sdim(self._at, d))
        if a.ndim != 2 or a.shape[1] != r.shape[0]:
            raise shown(a, f"[r, {r.shape[0]}]")
        acc, out = np.zeros((a.shape[0], sdim), np.float32), np.empty((a.shape[0], dp), np.float32)
        for i in range(0, r.shape[0] if self.is_paged else 0, PAGE):
            self._k.axpy_page(self._param(), floats(a[:, i:]), a.shape[1], a.shape[0], octets(r[i]), 0, PAGE, floats(acc), sdim, dp)
        if a.size and not self.is_paged:
            self._k.axpy(self._param(), floats(a), a.shape[1], a.shape[0], octets(r), r.shape[1], r.shape[0], floats(acc), sdim, dp)
        for i in range(a.shape[0]):
            self._k.finish_out(self._param(), floats(acc[i]), floats(out[i]), dp)
        return np.ascontiguousarray(out[:, :d])


def names() -> list[str]:
    """Names of all formats, in the order of the table."""
    return [str(lib.kvant_format_at(i).contents.name.decode()) for i in range(lib.kvant_format_count())]


def get(name: str, param: Any = None) -> Format:
    """A format by its name or alias; KvantError lists the names that there are."""
    return Format(name, param)


class Golden(NamedTuple):
    """Rows that were encoded and compared with a file's; how many of them have other bytes; and how many have one bit pattern of one
    byte next to the file's: an fp16 norm at an exact tie, which other programs round up."""

    rows: int
    differ: int
    ties: int


def check_golden(path: str) -> dict[str, Golden]:
    """Golden vectors of another program (docs/formats/golden.md) through encode with the rule of the specification, by format; empty
    for a file of something else, or of a format that encodes pages."""
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    name = str(data.get("format", "")).split(" ")[0]
    if name not in names() or get(name).is_paged or "arsaglia" in str(data.get("projection", "")):
        return {}
    polar = {"q4_polar": "enc_noqjl", "q4_polar_r": "enc_qjl"}
    fields = polar if name == "q4_polar" else {name: "enc"}
    return {each: _compare(get(each), data["vectors"], field) for each, field in fields.items()}


def _compare(f: Format, vectors: list[dict[str, Any]], field: str) -> Golden:
    rows = differ = ties = 0
    for v in vectors:
        if v.get("informative_only") or field not in v:
            continue
        x = bytes.fromhex(v["x_f32"])
        made = f.encode(np.array([struct.unpack(f"<{len(x) // 4}f", x)], np.float32), "upstream")[0].astype(int)
        off = np.abs(made - np.frombuffer(bytes.fromhex(v[field]), np.uint8))
        tie = int(off.sum()) == 1
        rows, ties, differ = rows + 1, ties + tie, differ + (off.any() and not tie)
    return Golden(rows, int(differ), ties)
