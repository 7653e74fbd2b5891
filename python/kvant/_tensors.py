"""Tensors of PyTorch as operands of the ops: a device for each of torch's devices and streams, checks of tensors, batches of sequences.
Private.  No tensor is copied that has the right type and order; on CUDA everything runs in torch's current stream of the tensors' GPU, in
order with torch's own work, and nothing waits."""
import ctypes
import functools
import threading
from typing import Any

import torch
from torch import Tensor

from . import _abi
from ._c import call
from .formats import ENCODERS, Format
from .ops import PAGE, Device

STREAM_LEGACY = 1       # cudaStreamLegacy: the default stream by name, where torch's number of it is 0

_lock = threading.Lock()
_devices: dict[tuple[str, int], Device] = {}     # until `release`: torch has a fixed pool of streams (32 of a priority and GPU) and frees none


@functools.cache
def format_of(name: str) -> Format:
    """One object for each name: devices know a format's parameter by its address."""
    return Format(name)


def name_of(at: torch.device) -> str:
    """kvant's name of a device of torch's."""
    if at.type not in ("cpu", "cuda"):
        raise ValueError(f"device {at} found, cpu or cuda wanted")
    return f"cuda:{at.index or 0}" if at.type == "cuda" else "cpu"


def device_of(x: Tensor) -> Device:
    """The device of x, for torch's current stream there."""
    name = name_of(x.device)
    stream = (torch.cuda.current_stream(x.device).cuda_stream or STREAM_LEGACY) if x.device.type == "cuda" else 0
    with _lock:
        if (name, stream) not in _devices:
            _devices[name, stream] = Device(name=name, stream=stream)
        return _devices[name, stream]


def release(at: torch.device, stream: int | None) -> int:
    """Forgets the devices of `at`, of one stream or of all; a device closes when the calls that have it returned.  How many."""
    name = name_of(at)
    with _lock:
        gone = [key for key in _devices if key[0] == name and stream in (None, key[1])]
        closing = [_devices.pop(key) for key in gone]
    return len(closing)


class Operands:
    """Tensors of one call, all of one device: their addresses, checked, and the tensors kept until it returned."""

    def __init__(self, first: Tensor) -> None:
        self.device, self.at, self.kept = device_of(first), first.device, [first]

    def __call__(self, x: Tensor, kind: Any = ctypes.c_float) -> Any:
        """The address of x."""
        if x.device != self.at:
            raise ValueError(f"tensors of {self.at} and {x.device} found, one device wanted")
        self.kept.append(x)
        address = x.data_ptr()
        if x.numel() and self.at.type == "cuda":
            address = self.device.adopt(address - address % 16, x.nbytes) + address % 16
        return ctypes.cast(address, ctypes.POINTER(kind)) if kind else address

    def ints(self, values: list[int]) -> Any:
        """Few integers of the host, on the device."""
        return self(few_ints(values, self.at), ctypes.c_int32)

    def run(self, *ops: tuple[int, Any]) -> None:
        if self.at.type == "cpu":
            self.device.run(*ops)
            return
        with torch.cuda.device(self.at):
            self.device.run(*ops, wait=False)


def few_ints(values: list[int], at: torch.device) -> Tensor:
    """int32 [values] there.  On a GPU each is an argument of a fill: a copy from memory that is not pinned waits for the stream, and one from
    pinned memory would be read again when a captured graph runs."""
    if at.type == "cpu":
        return torch.tensor(values, dtype=torch.int32, device=at)
    x = torch.zeros(len(values), dtype=torch.int32, device=at)
    for i, value in enumerate(values):
        if value:
            x[i].fill_(value)
    return x


def floats(x: Tensor, *shape: int | None) -> Tensor:
    """x as contiguous f32 of this shape (None: any)."""
    if x.dim() != len(shape) or any(w is not None and w != n for n, w in zip(x.shape, shape)):
        raise ValueError(f"shape {tuple(x.shape)} found, {list(shape)} wanted (None: any)")
    return x.to(torch.float32).contiguous()


def integers(x: Tensor, *shape: int | None) -> Tensor:
    if x.dtype != torch.int32 or x.dim() != len(shape) or any(w is not None and w != n for n, w in zip(x.shape, shape)) or not x.is_contiguous():
        raise ValueError(f"{x.dtype} {tuple(x.shape)} found, contiguous int32 {list(shape)} wanted (None: any)")
    return x


def side(of: Operands, pages: Tensor, heads: int, dim: int, format: str) -> _abi.kvant_kv_side:
    """pages u8[n, heads, 64, row bytes]: the pages may lie apart, a page is whole."""
    f, s = format_of(format), _abi.kvant_kv_side()
    if f.is_paged:
        raise ValueError(f"{f.name} encodes whole pages, and these have no exact tail to keep rows in: another format wanted")
    row = f.row_bytes(dim)
    inner = (PAGE * row, row, 1)
    if pages.dtype != torch.uint8 or tuple(pages.shape[1:]) != (heads, PAGE, row) or (heads > 1 and pages.stride()[1:] != inner) or pages.stride()[2:] != inner[1:]:
        raise ValueError(f"pages {pages.dtype} {tuple(pages.shape)} with strides {pages.stride()} found, uint8 [n, {heads}, {PAGE}, {row}], each page "
                         f"contiguous, wanted for {dim} values of {format}")
    s.fmt, s.param, s.encoder = f._at, f._param(), ENCODERS["best"]
    s.pages, s.row_bytes, s.head_bytes = of(pages, ctypes.c_uint8), row, row * PAGE
    s.page_bytes = max(pages.stride(0), heads * PAGE * row) if pages.shape[0] == 1 else pages.stride(0)
    return s


def whole_rows(q0: Tensor, tokens: int, ones: int) -> Tensor:
    """Rows of each sequence, of a q0 on the CPU."""
    rows = q0[1:].long() - q0[:-1].long()
    if int(q0[0]) != 0 or int(q0[-1]) != tokens or bool((rows < 0).any()):
        raise ValueError(f"q0 {q0.tolist()} found, numbers that do not fall, from 0 to the {tokens} rows, wanted")
    if bool((rows[:ones] != 1).any()):
        raise ValueError(f"ones {ones} with q0 {q0.tolist()} found, sequences at the front of one row each wanted")
    return rows


def whole_batch(q0: Tensor, pos0: Tensor, table: Tensor, tokens: int, ones: int, pages: int, max_pos: int | None) -> None:
    """ValueError unless a batch on the CPU stays in its rows and pages.  max_pos None: rows are written, and only the pages of these are used."""
    rows, first = whole_rows(q0, tokens, ones), pos0.long()
    end = first + rows                              # behind the last position
    used = rows > 0
    room, most = int(table.shape[1]) * PAGE, int(end[used].max()) if bool(used.any()) else 0
    if bool((first[used] < 0).any()) or most > room:
        raise ValueError(f"pos0 {pos0.tolist()} with q0 {q0.tolist()} found, positions 0 to {room - 1} wanted: the block table has room for {room}")
    if max_pos is not None and most - 1 > max_pos:
        raise ValueError(f"max_pos {max_pos} found, the highest position {most - 1} or more wanted")
    at = torch.arange(room // PAGE, device=table.device)[None]
    read = used[:, None] & (at * PAGE < end[:, None]) & (at >= (first // PAGE if max_pos is None else torch.zeros_like(first))[:, None])
    bad = table[read & ((table < 0) | (table >= pages))]
    if bad.numel():
        raise ValueError(f"block table: page {int(bad[0])} found, 0 to {pages - 1} wanted")


def batch(of: Operands, q0: Tensor, pos0: Tensor, prompt: Tensor, table: Tensor, tokens: int, ones: int, pages: int,
          max_pos: int | None = None) -> _abi.kvant_seqs:
    """A ragged batch of n sequences: int32 q0[n + 1], pos0[n], prompt[n], table[n, pages of a sequence]; numbers checked on the CPU."""
    n, s = int(pos0.shape[0]), _abi.kvant_seqs()
    if not 0 <= ones <= n:
        raise ValueError(f"ones {ones} found, 0 to {n} sequences wanted")
    s.n_seqs, s.n_tokens, s.n_few, s.few_rows = n, tokens, ones, ones
    s.q0, s.pos0 = of(integers(q0, n + 1), ctypes.c_int32), of(integers(pos0, n), ctypes.c_int32)
    s.prompt = of(integers(prompt, n), ctypes.c_int32)
    if table.dtype != torch.int32 or table.dim() != 2 or table.shape[0] != n or (table.shape[1] > 1 and table.stride(1) != 1):
        raise ValueError(f"block table {table.dtype} {tuple(table.shape)} with strides {table.stride()} found, int32 [{n}, pages] in rows wanted")
    s.table, s.table_stride = of(table, ctypes.c_int32), int(table.stride(0)) if n > 1 else int(table.shape[1])
    if of.at.type == "cpu":
        whole_batch(q0, pos0, table, tokens, ones, pages, max_pos)
    return s


def lone(of: Operands, n: int, start: int, prompt: bool, table: Tensor | None = None) -> _abi.kvant_seqs:
    """One sequence of n tokens from position start on; with a state slot 0 where it has no table."""
    s = _abi.kvant_seqs()
    s.n_seqs, s.n_tokens, s.n_few, s.few_rows = 1, n, int(n == 1), int(n == 1)
    values = of.ints([0, n, start, int(prompt), 0, 0])
    place = ctypes.addressof(values.contents)

    def at(i: int) -> Any:
        return ctypes.cast(place + 4 * i, ctypes.POINTER(ctypes.c_int32))
    s.q0, s.pos0, s.prompt, s.slot_in, s.slot_out = at(0), at(2), at(3), at(4), at(5)
    if table is None:
        s.table, s.table_stride = at(4), 1
    else:
        s.table, s.table_stride = of(table, ctypes.c_int32), int(table.shape[0])
    return s


def held(*sides: Tensor) -> int:
    """Pages that K and V both have: a table's numbers are for both."""
    return min(int(s.shape[0]) for s in sides)


def one_table(table: Tensor, start: int, n: int, pages: int) -> Tensor:
    """The block table of one sequence, int32 [pages of it], checked where that costs no wait for a GPU."""
    t = table.reshape(-1)
    if start < 0:
        raise ValueError(f"start {start} found, 0 or more wanted")
    if start + n > t.shape[0] * PAGE:
        raise ValueError(f"{start + n} tokens found, the block table has room for {t.shape[0] * PAGE}")
    if t.device.type == "cpu" and t.numel() and (int(t.min()) < 0 or int(t.max()) >= pages):
        raise ValueError(f"block table: pages {int(t.min())} to {int(t.max())} found, 0 to {pages - 1} wanted")
    return t.to(torch.int32).contiguous()


def attention(of: Operands, q: Tensor, out: Tensor, seqs: _abi.kvant_seqs, k: _abi.kvant_kv_side, v: _abi.kvant_kv_side, heads: int, max_pos: int,
              scale: float | None, window: int, softcap: float, exact: bool) -> None:
    """Attention of q f32[n, query heads, dim] into out f32[n, query heads, dim_v]."""
    (_, h, d), dim_v = q.shape, int(out.shape[2])
    if h % heads:
        raise ValueError(f"{h} query heads found, a multiple of {heads} wanted")
    c = _abi.kvant_attn_args()
    c.seqs, c.k, c.v, c.q, c.out = seqs, k, v, of(q), of(out)
    c.ldq, c.gq, c.ldo, c.h, c.h_kv, c.d_k, c.d_v = h * d, d, h * dim_v, h, heads, d, dim_v
    c.scale, c.max_pos, c.window, c.softcap = d ** -0.5 if scale is None else scale, max_pos, window, softcap
    c.compute = _abi.KVANT_COMPUTE_F32 if exact else _abi.KVANT_COMPUTE_AUTO
    of.run((_abi.KVANT_OP_ATTN, c))


def write(of: Operands, seqs: _abi.kvant_seqs, *sides: tuple[Tensor, _abi.kvant_kv_side]) -> None:
    """The rows x f32[n, heads, dim] of each side."""
    ops = []
    for x, s in sides:
        a = _abi.kvant_cache_write_args()
        a.seqs, a.side, a.x, a.ldx, a.h, a.d = seqs, s, of(x), x.shape[1] * x.shape[2], x.shape[1], x.shape[2]
        ops.append((_abi.KVANT_OP_CACHE_WRITE, a))
    of.run(*ops)


def known(n: Any) -> int:
    """A width decides about the bytes of a row: it is no symbol."""
    return int(n)


def checked(format: str, dim: int) -> None:
    """KvantError unless the format takes rows of dim values."""
    call("kvant_format_check", format_of(format)._at, dim)
