"""kvant.ops as PyTorch custom ops, namespace `kvant`: torch.compile takes them whole, since each has a fake implementation.
`import kvant.torch_ops` registers them; wants torch 2.4 or later.

Tensors are the CPU's or a CUDA GPU's, all of one device; on CUDA everything runs in torch's current stream, without waiting and without
copies between devices (the wheel must have libkvant-cuda.so).  A layer's keys and values are two tensors of pages, uint8 [pages, heads, 64,
row bytes] (`pages`), which `cache_write` changes in place and `paged_attention` reads; pages may lie apart, so that both can be cut out of
one block of memory.  A sequence is its block table, int32 [pages of it].  `..._batch` takes many sequences: int32 q0[n + 1] (sequence i
owns rows q0[i] to q0[i + 1] - 1), pos0[n] (position of its first row), prompt[n] (0: decode rows, whose queries may be int8 where exact is
False), table[n, pages], and ones: that many sequences at the front have one row each.  Numbers in tensors of the CPU are checked (ValueError);
those on CUDA are not, for that would wait: a wrong table, q0 or pos0 there reads and writes other memory.
A device of kvant's stays for each of torch's streams that was used, until `release`.  torch never frees its own streams; of another one
(torch.cuda.ExternalStream) call `release` before it ends.
No op has a gradient.  Tensors that are contiguous and of the right type are not copied.  Threads: as kvant.ops."""
from ctypes import c_int32

import torch
from torch import Tensor

from . import _abi, formats, ops
from ._tensors import STREAM_LEGACY, Operands, attention, batch, checked, floats, format_of, held, known, lone, one_table, side, write
from ._tensors import release as _release

BOTH = ("cpu", "cuda")


def row_formats() -> list[str]:
    """Formats whose rows are encoded one by one: those that these ops take."""
    return [name for name in formats.names() if not format_of(name).is_paged]


def pages(n: int, heads: int, dim: int, format: str = "f16", device: torch.device | str = "cpu") -> Tensor:
    """Zeros for n pages of one side: uint8 [n, heads, 64, row bytes of dim values]."""
    return torch.zeros((n, heads, ops.PAGE, format_of(format).row_bytes(dim)), dtype=torch.uint8, device=device)


def release(device: torch.device | str = "cpu", stream: torch.cuda.Stream | None = None) -> int:
    """Closes what these ops keep for a device, or for one stream of a GPU that is about to end, and says how many devices of kvant's that were; the
    next call opens one anew.  What runs there must be over; a CUDA graph that was captured there must not be replayed afterwards."""
    return _release(torch.device(device), None if stream is None else stream.cuda_stream or STREAM_LEGACY)


@torch.library.custom_op("kvant::cache_write", mutates_args=("k_pages", "v_pages"), device_types=BOTH)
def cache_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, start: int, k_format: str, v_format: str) -> None:
    """k f32[n, heads, dim], v f32[n, heads, dim_v] of tokens start, start + 1, ... are encoded into the pages of the table."""
    of = Operands(k)
    k, v = floats(k, None, None, None), floats(v, k.shape[0], k.shape[1], None)
    n, h = int(k.shape[0]), int(k.shape[1])
    sides = side(of, k_pages, h, int(k.shape[2]), k_format), side(of, v_pages, h, int(v.shape[2]), v_format)
    write(of, lone(of, n, start, True, one_table(table, start, n, held(k_pages, v_pages))), (k, sides[0]), (v, sides[1]))


@cache_write.register_fake
def _(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, start: int, k_format: str, v_format: str) -> None:
    return None


@torch.library.custom_op("kvant::cache_write_batch", mutates_args=("k_pages", "v_pages"), device_types=BOTH)
def cache_write_batch(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, q0: Tensor, pos0: Tensor, prompt: Tensor, table: Tensor, ones: int,
                      k_format: str, v_format: str) -> None:
    """cache_write of many sequences."""
    of = Operands(k)
    k, v = floats(k, None, None, None), floats(v, k.shape[0], k.shape[1], None)
    n, h = int(k.shape[0]), int(k.shape[1])
    sides = side(of, k_pages, h, int(k.shape[2]), k_format), side(of, v_pages, h, int(v.shape[2]), v_format)
    write(of, batch(of, q0, pos0, prompt, table, n, ones, held(k_pages, v_pages)), (k, sides[0]), (v, sides[1]))


@cache_write_batch.register_fake
def _(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, q0: Tensor, pos0: Tensor, prompt: Tensor, table: Tensor, ones: int, k_format: str,
      v_format: str) -> None:
    return None


@torch.library.custom_op("kvant::paged_attention", mutates_args=(), device_types=BOTH)
def paged_attention(q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, start: int, dim_v: int, k_format: str, v_format: str,
                    scale: float | None = None, window: int = 0, softcap: float = 0.0, exact: bool = True) -> Tensor:
    """q f32[n, query heads, dim] of tokens start, start + 1, ..., whose K and V were written -> f32[n, query heads, dim_v]; causal.
    scale: 1/sqrt(dim).  exact False: int8 queries, as in decode."""
    of, heads = Operands(q), int(k_pages.shape[1])
    q = floats(q, None, None, None)
    n, h, d = (int(x) for x in q.shape)
    out = q.new_empty((n, h, dim_v))
    sides = side(of, k_pages, heads, d, k_format), side(of, v_pages, heads, dim_v, v_format)
    seqs = lone(of, n, start, n > 1, one_table(table, start, n, held(k_pages, v_pages)))
    attention(of, q, out, seqs, sides[0], sides[1], heads, start + n - 1, scale, window, softcap, exact)
    return out


@paged_attention.register_fake
def _(q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, start: int, dim_v: int, k_format: str, v_format: str,
      scale: float | None = None, window: int = 0, softcap: float = 0.0, exact: bool = True) -> Tensor:
    return q.new_empty((q.shape[0], q.shape[1], dim_v), dtype=torch.float32)


@torch.library.custom_op("kvant::paged_attention_batch", mutates_args=(), device_types=BOTH)
def paged_attention_batch(q: Tensor, k_pages: Tensor, v_pages: Tensor, q0: Tensor, pos0: Tensor, prompt: Tensor, table: Tensor, ones: int, max_pos: int,
                          dim_v: int, k_format: str, v_format: str, scale: float | None = None, window: int = 0, softcap: float = 0.0,
                          exact: bool = True) -> Tensor:
    """paged_attention of many sequences.  max_pos: the highest position of the batch, or more."""
    of, heads = Operands(q), int(k_pages.shape[1])
    q = floats(q, None, None, None)
    n, h, d = (int(x) for x in q.shape)
    out = q.new_empty((n, h, dim_v))
    sides = side(of, k_pages, heads, d, k_format), side(of, v_pages, heads, dim_v, v_format)
    seqs = batch(of, q0, pos0, prompt, table, n, ones, held(k_pages, v_pages), max_pos)
    attention(of, q, out, seqs, sides[0], sides[1], heads, min(max_pos, int(table.shape[1]) * ops.PAGE - 1), scale, window, softcap, exact)
    return out


@paged_attention_batch.register_fake
def _(q: Tensor, k_pages: Tensor, v_pages: Tensor, q0: Tensor, pos0: Tensor, prompt: Tensor, table: Tensor, ones: int, max_pos: int, dim_v: int,
      k_format: str, v_format: str, scale: float | None = None, window: int = 0, softcap: float = 0.0, exact: bool = True) -> Tensor:
    return q.new_empty((q.shape[0], q.shape[1], dim_v), dtype=torch.float32)


@torch.library.custom_op("kvant::gated_delta_rule", mutates_args=(), device_types=BOTH)
def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, interleaved: bool = False) -> tuple[Tensor, Tensor]:
    """kvant.ops.gated_delta_rule: o f32[n, hv, dv] and the state f32[hv, dv, dk] after it."""
    of, q = Operands(q), floats(q, None, None, None)
    n, hk, dk = (int(x) for x in q.shape)
    v = floats(v, n, None, None)
    hv, dv = int(v.shape[1]), int(v.shape[2])
    k, g, beta, s = floats(k, n, hk, dk), floats(g, n, hv), floats(beta, n, hv), floats(state, hv, dv, dk).clone()
    out = torch.empty_like(v)
    a = _abi.kvant_gdn_args()
    a.seqs, a.q, a.k, a.v, a.g, a.beta, a.state, a.o = lone(of, n, 1, n > 1), of(q), of(k), of(v), of(g), of(beta), of(s, None), of(out)
    a.ldq = a.ldk = hk * dk
    a.ldv, a.slot_stride, a.hk, a.hv, a.dk, a.dv, a.interleaved = hv * dv, hv * dv * dk, hk, hv, dk, dv, int(interleaved)
    of.run((_abi.KVANT_OP_GDN_CHUNK if n > 1 else _abi.KVANT_OP_GDN_STEP, a))
    return out, s


@gated_delta_rule.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, interleaved: bool = False) -> tuple[Tensor, Tensor]:
    return v.new_empty(v.shape, dtype=torch.float32), state.new_empty(state.shape, dtype=torch.float32)


@torch.library.custom_op("kvant::causal_conv", mutates_args=(), device_types=BOTH)
def causal_conv(x: Tensor, w: Tensor, state: Tensor, bias: Tensor | None = None, silu: bool = True) -> tuple[Tensor, Tensor]:
    """kvant.ops.causal_conv: y f32[n, c] and the state f32[c, k - 1] after it."""
    of, x = Operands(x), floats(x, None, None)
    n, c = int(x.shape[0]), int(x.shape[1])
    w = floats(w, c, None)
    taps = int(w.shape[1])
    s, y = floats(state, c, taps - 1).clone(), torch.empty_like(x)
    a = _abi.kvant_conv_args()
    a.seqs, a.x, a.w, a.state, a.y = lone(of, n, 1, n > 1), of(x), of(w), of(s), of(y)
    a.c, a.k, a.slot_stride, a.ldx, a.linear = c, taps, c * (taps - 1), c, int(not silu)
    if bias is not None:
        a.bias = of(floats(bias, c))
    of.run((_abi.KVANT_OP_CONV_CHUNK if n > 1 else _abi.KVANT_OP_CONV_STEP, a))
    return y, s


@causal_conv.register_fake
def _(x: Tensor, w: Tensor, state: Tensor, bias: Tensor | None = None, silu: bool = True) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=torch.float32), state.new_empty(state.shape, dtype=torch.float32)


@torch.library.custom_op("kvant::encode", mutates_args=(), device_types=BOTH)
def encode(x: Tensor, format: str) -> Tensor:
    """f32[n, d] -> rows uint8 [n, row bytes]."""
    of, x = Operands(x), floats(x, None, None)
    n, d = int(x.shape[0]), int(x.shape[1])
    checked(format, d)
    rows = pages((n + ops.PAGE - 1) // ops.PAGE or 1, 1, d, format, x.device)
    if n:
        table = torch.arange(rows.shape[0], dtype=torch.int32, device=x.device)
        write(of, lone(of, n, 0, True, table), (x[:, None], side(of, rows, 1, d, format)))
    return rows.view(-1, rows.shape[3])[:n].clone()


@encode.register_fake
def _(x: Tensor, format: str) -> Tensor:
    return x.new_empty((x.shape[0], format_of(format).row_bytes(known(x.shape[1]))), dtype=torch.uint8)


@torch.library.custom_op("kvant::decode", mutates_args=(), device_types=BOTH)
def decode(rows: Tensor, dim: int, format: str) -> Tensor:
    """rows uint8 [n, row bytes] of dim values -> f32[n, dim]."""
    checked(format, dim)
    n, row = int(rows.shape[0]), format_of(format).row_bytes(dim)
    if rows.dtype != torch.uint8 or rows.dim() != 2 or rows.shape[1] != row:
        raise ValueError(f"rows {rows.dtype} {tuple(rows.shape)} found, uint8 [n, {row}] wanted")
    whole = rows.new_zeros(((n + ops.PAGE - 1) // ops.PAGE or 1, 1, ops.PAGE, row))
    whole.view(-1, row)[:n] = rows
    out = torch.empty((n, dim), dtype=torch.float32, device=rows.device)
    if n:
        of, at = Operands(rows), torch.arange(n, dtype=torch.int32, device=rows.device)
        a = _abi.kvant_cache_read_args()
        a.side, a.page, a.row = side(of, whole, 1, dim, format), of(at // ops.PAGE, c_int32), of(at % ops.PAGE, c_int32)
        a.y, a.n, a.h, a.d = of(out), n, 1, dim
        of.run((_abi.KVANT_OP_CACHE_READ, a))
    return out


@decode.register_fake
def _(rows: Tensor, dim: int, format: str) -> Tensor:
    return rows.new_empty((rows.shape[0], dim), dtype=torch.float32)
