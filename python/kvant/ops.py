"""Ops over arrays on the CPU, by the kernels that the engine runs: attention over pages of compressed rows, the gated delta rule,
causal convolution.  Arguments as in kvant.formats; each call copies nothing where arrays are contiguous and of the right type.
Threads: a Device belongs to one thread at a time; functions without one share a device and a lock."""
import ctypes
import threading
from typing import Any

import numpy as np

from . import _abi
from ._c import Array, Floats, array, call, floats, ints, lib, octets, shown
from .formats import ENCODERS, Encoder, Format

PAGE = _abi.KVANT_PAGE


class Device:
    """A device by name.  Functions over arrays take the CPU; "cuda:0" is for addresses of that GPU (kvant.torch_ops), with the caller's
    stream (a CUstream's address; 0: one of the device's own)."""

    def __init__(self, threads: int = 0, name: str = "cpu", stream: int = 0) -> None:
        params = _abi.kvant_device_params()
        lib.kvant_device_params_init(ctypes.byref(params), ctypes.sizeof(params))
        params.threads, params.stream = threads, stream or None
        self.name, self._d, self._lock = name, ctypes.c_void_p(), threading.Lock()
        call("kvant_device_open", name.encode(), ctypes.byref(params), ctypes.byref(self._d))

    def __repr__(self) -> str:
        text = ctypes.create_string_buffer(200)
        lib.kvant_device_describe(self._d, text, len(text))
        return f"<kvant device {text.value.decode()}>"

    def run(self, *ops: tuple[int, Any], wait: bool = True) -> None:
        """Ops (id, argument struct), in order.  wait False: returns when they are queued; later calls of this device, and other work in
        its stream, come after them."""
        made = (_abi.kvant_op * len(ops))()
        for i, (number, arguments) in enumerate(ops):
            made[i].id, made[i].args = number, ctypes.addressof(arguments)
        with self._lock:
            call("kvant_device_submit", self._d, made, len(ops), 0)
            if wait:
                call("kvant_device_sync", self._d)

    def adopt(self, address: int, count: int) -> int:
        """The caller's memory as an address of this device, without a copy; KvantError where it is not this device's."""
        found = ctypes.c_void_p()
        call("kvant_device_adopt", self._d, address, count, ctypes.byref(found))
        return found.value or 0

    def __del__(self) -> None:
        if getattr(self, "_d", None):
            lib.kvant_device_close(self._d)
            self._d = ctypes.c_void_p()


_shared: list[Device] = []


def _device() -> Device:
    if not _shared:
        _shared.append(Device())
    return _shared[0]


class _Batch:
    """A ragged batch of sequences, kept alive as long as the struct."""

    def __init__(self, lengths: list[int], starts: list[int], prompt: bool, tables: Any = None, slots: Any = None) -> None:
        n = len(lengths)
        self.q0 = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        self.pos0, self.prompt = np.asarray(starts, np.int32), np.full(n, int(prompt), np.int32)
        self.table = array(tables if tables is not None else np.zeros((n, 1)), np.int32)
        self.slots = array(slots if slots is not None else np.zeros(n), np.int32)
        self.first = np.where(self.pos0 == 0, -1, self.slots).astype(np.int32)
        s = self.c = _abi.kvant_seqs()
        ones = n if all(k == 1 for k in lengths) else 0
        s.n_seqs, s.n_tokens, s.n_few, s.few_rows = n, int(self.q0[-1]), ones, ones
        s.q0, s.pos0, s.prompt = ints(self.q0), ints(self.pos0), ints(self.prompt)
        s.table, s.table_stride = ints(self.table), self.table.shape[1]
        s.slot_in, s.slot_out = ints(self.first), ints(self.slots)


class PagedCache:
    """Keys and values of one layer in pages of 64 tokens, each side in a format of its own.  No exact tail: every row is encoded when
    it is written.  heads: of K and V; pages: how many there are; memory: of K and of V, the caller's, instead of new zeros.  A sequence is
    a list of page numbers, its block table."""

    def __init__(self, heads: int, dim: int, pages: int, k: str = "f16", v: str | None = None, dim_v: int | None = None,
                 encoder: Encoder = "best", device: Device | None = None, memory: tuple[Array, Array] | None = None) -> None:
        self.heads, self.dims, self.pages = heads, (dim, dim_v or dim), pages
        self.formats = (Format(k), Format(v or k))
        for f in self.formats:
            if f.is_paged:
                raise ValueError(f"{f.name} encodes whole pages, and this cache has no exact tail to keep rows in: another format wanted")
        self._device = device or _device()
        sizes = [pages * heads * PAGE * f.row_bytes(d) for f, d in zip(self.formats, self.dims)]
        self._memory = list(memory) if memory else [np.zeros(n, np.uint8) for n in sizes]
        for m, n in zip(self._memory, sizes):
            if m.dtype != np.uint8 or m.shape != (n,) or not m.flags.c_contiguous:
                raise ValueError(f"memory {m.dtype} {m.shape} found, contiguous uint8 ({n},) wanted")
        self._sides = [self._side(i, ENCODERS[encoder]) for i in range(2)]

    def _side(self, i: int, encoder: int) -> _abi.kvant_kv_side:
        f, s = self.formats[i], _abi.kvant_kv_side()
        s.fmt, s.param, s.pages, s.encoder = f._at, f._param(), octets(self._memory[i]), encoder
        s.row_bytes = f.row_bytes(self.dims[i])
        s.head_bytes = s.row_bytes * PAGE
        s.page_bytes = s.head_bytes * self.heads
        return s

    @property
    def nbytes(self) -> int:
        """Bytes of all pages, K and V."""
        return sum(int(m.nbytes) for m in self._memory)

    def _table(self, table: Any, start: int, n: int) -> Array:
        t, tokens = array(table, np.int32).reshape(1, -1), start + n
        if start < 0:
            raise ValueError(f"start {start} found, 0 or more wanted")
        if tokens > t.shape[1] * PAGE:
            raise ValueError(f"{tokens} tokens found, the block table has room for {t.shape[1] * PAGE}")
        if t.size and (t.min() < 0 or t.max() >= self.pages):
            raise ValueError(f"block table: pages {t.min()} to {t.max()} found, 0 to {self.pages - 1} wanted")
        return t

    def write(self, k: Any, v: Any, table: Any, start: int = 0) -> None:
        """k f32[n, heads, dim], v f32[n, heads, dim_v] of tokens start, start + 1, ... of the sequence with this block table."""
        given = [array(k, np.float32), array(v, np.float32)]
        for x, d in zip(given, self.dims):
            if x.ndim != 3 or x.shape[1:] != (self.heads, d) or x.shape[0] != given[0].shape[0]:
                raise shown(x, f"[n, {self.heads}, {d}]")
        n = given[0].shape[0]
        batch = _Batch([n], [start], True, self._table(table, start, n))
        ops = []
        for x, d, side in zip(given, self.dims, self._sides):
            a = _abi.kvant_cache_write_args()
            a.seqs, a.side, a.x, a.ldx, a.h, a.d = batch.c, side, floats(x), self.heads * d, self.heads, d
            ops.append((_abi.KVANT_OP_CACHE_WRITE, a))
        self._device.run(*ops)

    def attend(self, q: Any, table: Any, start: int, scale: float | None = None, window: int = 0, softcap: float = 0.0,
               exact: bool = True) -> Floats:
        """q f32[n, query heads, dim] of tokens start, start + 1, ..., whose K and V were written -> f32[n, query heads, dim_v].
        Causal; query head j reads head j // (query heads / heads).  scale: 1/sqrt(dim).  exact False: int8 queries, as in decode."""
        a = array(q, np.float32)
        if a.ndim != 3 or a.shape[2] != self.dims[0] or a.shape[1] % self.heads:
            raise shown(a, f"[n, a multiple of {self.heads}, {self.dims[0]}]")
        n, h, d = a.shape
        batch = _Batch([n], [start], n > 1, self._table(table, start, n))
        out = np.empty((n, h, self.dims[1]), np.float32)
        c = _abi.kvant_attn_args()
        c.seqs, c.k, c.v, c.q, c.out = batch.c, self._sides[0], self._sides[1], floats(a), floats(out)
        c.ldq, c.gq, c.ldo, c.h, c.h_kv, c.d_k, c.d_v = h * d, d, h * self.dims[1], h, self.heads, d, self.dims[1]
        c.scale, c.max_pos, c.window, c.softcap = d ** -0.5 if scale is None else scale, start + n - 1, window, softcap
        c.compute = _abi.KVANT_COMPUTE_F32 if exact else _abi.KVANT_COMPUTE_AUTO
        self._device.run((_abi.KVANT_OP_ATTN, c))
        return out


def gated_delta_rule(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any = None, interleaved: bool = False) -> tuple[Floats, Floats]:
    """The gated delta rule over one sequence: S <- exp(g) S; u = beta (v - S^T k); S <- S + k u^T; o = dk^-1/2 S^T q.
    q, k f32[n, hk, dk] (L2-normalised), v f32[n, hv, dv], g, beta f32[n, hv], g <= 0; state f32[hv, dv, dk] or None (zeros).
    Value head j has key head j // (hv/hk) if interleaved, else j % hk.  Returns o f32[n, hv, dv] and the state after it."""
    qa, ka, va = (array(x, np.float32) for x in (q, k, v))
    ga, ba = array(g, np.float32), array(beta, np.float32)
    if qa.ndim != 3 or ka.shape != qa.shape or va.ndim != 3 or va.shape[0] != qa.shape[0]:
        raise ValueError(f"q {qa.shape}, k {ka.shape}, v {va.shape} found, [n, hk, dk] twice and [n, hv, dv] wanted")
    (n, hk, dk), (_, hv, dv) = qa.shape, va.shape
    if ga.shape != (n, hv) or ba.shape != (n, hv):
        raise ValueError(f"g {ga.shape}, beta {ba.shape} found, [{n}, {hv}] wanted")
    s = np.zeros((hv, dv, dk), np.float32) if state is None else array(state, np.float32).copy()
    if s.shape != (hv, dv, dk):
        raise shown(s, f"[{hv}, {dv}, {dk}]")
    batch, out = _Batch([n], [1], n > 1), np.empty((n, hv, dv), np.float32)
    a = _abi.kvant_gdn_args()
    a.seqs, a.q, a.k, a.v, a.g, a.beta, a.state, a.o = (batch.c, floats(qa), floats(ka), floats(va), floats(ga), floats(ba), s.ctypes.data,
                                                        floats(out))
    a.ldq = a.ldk = hk * dk
    a.ldv, a.slot_stride, a.hk, a.hv, a.dk, a.dv, a.interleaved = hv * dv, hv * dv * dk, hk, hv, dk, dv, int(interleaved)
    _device().run((_abi.KVANT_OP_GDN_CHUNK if n > 1 else _abi.KVANT_OP_GDN_STEP, a))
    return out, s


def causal_conv(x: Any, w: Any, state: Any = None, bias: Any = None, silu: bool = True) -> tuple[Floats, Floats]:
    """Depthwise causal convolution over time, then SiLU.  x f32[n, c], w f32[c, k] (the last tap is the current token's),
    state f32[c, k - 1] of earlier inputs, oldest first, or None (zeros), bias f32[c].  Returns y f32[n, c] and the state after it."""
    xa, wa = array(x, np.float32), array(w, np.float32)
    if xa.ndim != 2 or wa.ndim != 2 or wa.shape[0] != xa.shape[1]:
        raise ValueError(f"x {xa.shape}, w {wa.shape} found, [n, c] and [c, k] wanted")
    (n, c), taps = xa.shape, wa.shape[1]
    s = np.zeros((c, taps - 1), np.float32) if state is None else array(state, np.float32).copy()
    if s.shape != (c, taps - 1):
        raise shown(s, f"[{c}, {taps - 1}]")
    b = None if bias is None else array(bias, np.float32)
    if b is not None and b.shape != (c,):
        raise shown(b, f"[{c}]")
    batch, y = _Batch([n], [1], n > 1), np.empty((n, c), np.float32)
    a = _abi.kvant_conv_args()
    a.seqs, a.x, a.w, a.state, a.y = batch.c, floats(xa), floats(wa), floats(s), floats(y)
    a.c, a.k, a.slot_stride, a.ldx, a.linear = c, taps, c * (taps - 1), c, int(not silu)
    if b is not None:
        a.bias = floats(b)
    _device().run((_abi.KVANT_OP_CONV_CHUNK if n > 1 else _abi.KVANT_OP_CONV_STEP, a))
    return y, s
