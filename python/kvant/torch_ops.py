"""kvant.ops as PyTorch custom ops over CPU tensors, namespace `kvant`: torch.compile takes them whole, since each has a fake
implementation.  `import kvant.torch_ops` registers them; wants torch 2.4 or later.

A layer's keys and values are two tensors of pages, uint8 [pages, heads, 64, row bytes] (`pages`), which `cache_write` changes in place
and `paged_attention` reads; a sequence is its block table, int32 [pages of it].  No op has a gradient.  Tensors that are contiguous are
not copied.  Threads: as kvant.ops."""
from typing import Any

import torch
from torch import Tensor

from . import ops
from .formats import Format


def pages(n: int, heads: int, dim: int, format: str = "f16") -> Tensor:
    """Zeros for n pages of one side: uint8 [n, heads, 64, row bytes of dim values]."""
    return torch.zeros((n, heads, ops.PAGE, Format(format).row_bytes(dim)), dtype=torch.uint8)


def _cache(k_pages: Tensor, v_pages: Tensor, dim: int, dim_v: int, k_format: str, v_format: str) -> ops.PagedCache:
    for x, f, d in ((k_pages, k_format, dim), (v_pages, v_format, dim_v)):
        wanted = (k_pages.shape[0], k_pages.shape[1], ops.PAGE, Format(f).row_bytes(d))
        if x.dtype != torch.uint8 or tuple(x.shape) != wanted or not x.is_contiguous():
            raise ValueError(f"pages {x.dtype} {tuple(x.shape)} found, contiguous uint8 {wanted} wanted for {d} values of {f}")
    memory = (k_pages.numpy().reshape(-1), v_pages.numpy().reshape(-1))
    return ops.PagedCache(int(k_pages.shape[1]), dim, int(k_pages.shape[0]), k_format, v_format, dim_v, memory=memory)


@torch.library.custom_op("kvant::cache_write", mutates_args=("k_pages", "v_pages"), device_types="cpu")
def cache_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, start: int, k_format: str, v_format: str) -> None:
    """k f32[n, heads, dim], v f32[n, heads, dim_v] of tokens start, start + 1, ... are encoded into the pages of the table."""
    _cache(k_pages, v_pages, int(k.shape[-1]), int(v.shape[-1]), k_format, v_format).write(k, v, table, start)


@cache_write.register_fake
def _(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, start: int, k_format: str, v_format: str) -> None:
    return None


@torch.library.custom_op("kvant::paged_attention", mutates_args=(), device_types="cpu")
def paged_attention(q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, start: int, dim_v: int, k_format: str, v_format: str,
                    scale: float | None = None, window: int = 0, softcap: float = 0.0, exact: bool = True) -> Tensor:
    """q f32[n, query heads, dim] of tokens start, start + 1, ..., whose K and V were written -> f32[n, query heads, dim_v]; causal.
    scale: 1/sqrt(dim).  exact False: int8 queries, as in decode."""
    cache = _cache(k_pages, v_pages, int(q.shape[-1]), dim_v, k_format, v_format)
    return torch.from_numpy(cache.attend(q, table, start, scale, window, softcap, exact))


@paged_attention.register_fake
def _(q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, start: int, dim_v: int, k_format: str, v_format: str,
      scale: float | None = None, window: int = 0, softcap: float = 0.0, exact: bool = True) -> Tensor:
    return q.new_empty((q.shape[0], q.shape[1], dim_v), dtype=torch.float32)


@torch.library.custom_op("kvant::gated_delta_rule", mutates_args=(), device_types="cpu")
def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, interleaved: bool = False) -> tuple[Tensor, Tensor]:
    """kvant.ops.gated_delta_rule: o f32[n, hv, dv] and the state f32[hv, dv, dk] after it."""
    o, s = ops.gated_delta_rule(q, k, v, g, beta, state, interleaved)
    return torch.from_numpy(o), torch.from_numpy(s)


@gated_delta_rule.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, interleaved: bool = False) -> tuple[Tensor, Tensor]:
    return torch.empty(v.shape, dtype=torch.float32), torch.empty(state.shape, dtype=torch.float32)


@torch.library.custom_op("kvant::causal_conv", mutates_args=(), device_types="cpu")
def causal_conv(x: Tensor, w: Tensor, state: Tensor, bias: Tensor | None = None, silu: bool = True) -> tuple[Tensor, Tensor]:
    """kvant.ops.causal_conv: y f32[n, c] and the state f32[c, k - 1] after it."""
    y, s = ops.causal_conv(x, w, state, bias, silu)
    return torch.from_numpy(y), torch.from_numpy(s)


@causal_conv.register_fake
def _(x: Tensor, w: Tensor, state: Tensor, bias: Tensor | None = None, silu: bool = True) -> tuple[Tensor, Tensor]:
    return torch.empty(x.shape, dtype=torch.float32), torch.empty(state.shape, dtype=torch.float32)


@torch.library.custom_op("kvant::encode", mutates_args=(), device_types="cpu")
def encode(x: Tensor, format: str) -> Tensor:
    """f32[n, d] -> rows uint8 [n, row bytes]."""
    return torch.from_numpy(Format(format).encode(x))


@encode.register_fake
def _(x: Tensor, format: str) -> Tensor:
    return torch.empty((x.shape[0], Format(format).row_bytes(_known(x.shape[1]))), dtype=torch.uint8)


@torch.library.custom_op("kvant::decode", mutates_args=(), device_types="cpu")
def decode(rows: Tensor, dim: int, format: str) -> Tensor:
    """rows uint8 [n, row bytes] of dim values -> f32[n, dim]."""
    return torch.from_numpy(Format(format).decode(rows, dim))


@decode.register_fake
def _(rows: Tensor, dim: int, format: str) -> Tensor:
    return torch.empty((rows.shape[0], dim), dtype=torch.float32)


def _known(n: Any) -> int:
    """A width decides about the bytes of a row: it is no symbol."""
    return int(n)
