"""A cache for transformers whose layers hold rows in kvant's formats, the exact tail included: the quality of a format measured in
your own harness, with any model whose layers have full attention.

    cache = kvant.transformers.KvantCache(model.config, k="tbq4_0", v="tbq3_0")
    logits = kvant.transformers.logits(model, ids, cache)        # or model(ids, past_key_values=cache), model.generate(...)

A query at position i reads key j exactly, in f16, where i // 64 - j // 64 < exact_tail / 64, else from its encoded row, as in the
engine.  transformers hands a layer one tensor for all queries of a call, so that this holds for calls that do not go across a
multiple of 64 tokens, which `logits` sees to; in a longer call the keys of later pages are exact for all its queries.
Attention itself is transformers' own, over decoded rows: this measures errors, not speed."""
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from . import formats
from .formats import Format

PAGE = 64


class _Side:
    """K or V of one layer: encoded rows of full pages, u8[batch, heads, tokens, row_bytes]."""

    def __init__(self, fmt: Format) -> None:
        self.format, self.rows = fmt, np.empty((0, 0, 0, 0), np.uint8)

    def seal(self, x: torch.Tensor) -> torch.Tensor:
        """Encodes x[batch, heads, n, d] behind the rows that are there; returns what a reader gets for them."""
        b, h, n, d = x.shape
        made = self.format.encode(x.detach().to("cpu", torch.float32).reshape(-1, d).numpy())
        decoded = self.format.decode(made, d)
        new = made.reshape(b, h, n, -1)
        self.rows = np.concatenate([self.rows, new], axis=2) if self.rows.size else new
        return torch.from_numpy(decoded).reshape(b, h, n, d).to(x.device, x.dtype)

    def pick(self, index: Any) -> None:
        if self.rows.size:
            self.rows = self.rows[index]


class KvantLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer.  keys and values are what attention reads: decoded rows, then the exact tail."""

    is_croppable = False

    def __init__(self, k: Format, v: Format, exact_tail: int = PAGE, **_: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if exact_tail < 0 or exact_tail % PAGE:
            raise ValueError(f"exact_tail {exact_tail} found, a multiple of {PAGE} wanted")
        if exact_tail == 0 and (k.is_paged or v.is_paged):
            raise ValueError(f"exact_tail 0 found, {PAGE} or more wanted: {k.name}/{v.name} encode whole pages")
        self._sides, self._tail = (_Side(k), _Side(v)), exact_tail // PAGE

    def _extend(self, side: _Side, held: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """The side with new rows: what is now out of the exact tail's reach is encoded."""
        exact = self._tail > 0 and not side.format.is_wide
        out = torch.cat([held, new.to(torch.float16).to(new.dtype) if exact else new], dim=-2)
        sealed, before = side.rows.shape[2], held.shape[-2]
        until = max((before // PAGE - self._tail + 1) * PAGE, 0) if exact else out.shape[-2]
        if until > sealed:
            out[..., sealed:until, :] = side.seal(out[..., sealed:until, :])
        return out

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends keys and values [batch, heads, n, d]; returns what attention reads."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        shape = key_states.shape[:2]
        assert self.keys is not None and self.values is not None
        if self.keys.numel() == 0:
            self.keys, self.values = key_states.new_empty(*shape, 0, key_states.shape[-1]), value_states.new_empty(*shape, 0, value_states.shape[-1])
        self.keys = self._extend(self._sides[0], self.keys, key_states)
        self.values = self._extend(self._sides[1], self.values, value_states)
        return self.keys, self.values

    @property
    def nbytes(self) -> int:
        """Bytes that the engine would hold for these tokens: encoded rows, and two bytes for each value that is not encoded yet."""
        held = [(s.rows.nbytes, x, s.rows.shape[2]) for s, x in zip(self._sides, (self.keys, self.values)) if x is not None and x.numel()]
        return sum(rows + 2 * x[..., sealed:, :].numel() for rows, x, sealed in held)

    def crop(self, tokens_to_remove: int) -> None:
        """Removes tokens that are not encoded yet."""
        n = self.get_seq_length() - abs(tokens_to_remove)
        sealed = max(s.rows.shape[2] for s in self._sides)
        if n < sealed:
            raise ValueError(f"crop to {n} tokens: {sealed} are encoded, wanted at least so many")
        super().crop(tokens_to_remove)

    def reset(self) -> None:
        """Empties the layer."""
        super().reset()
        for side in self._sides:
            side.rows = np.empty((0, 0, 0, 0), np.uint8)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Rows of the batch in another order."""
        super().reorder_cache(beam_idx)
        for side in self._sides:
            side.pick(beam_idx.cpu().numpy())

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Only these rows of the batch."""
        super().batch_select_indices(indices)
        for side in self._sides:
            side.pick(indices.cpu().numpy())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row of the batch so many times."""
        super().batch_repeat_interleave(repeats)
        for side in self._sides:
            if side.rows.size:
                side.rows = side.rows.repeat(repeats, axis=0)


class KvantCache(Cache):
    """A cache for a model's forward and generate.  config: the model's; k, v: formats; layers: {layer: (k, v)} for some of them;
    exact_tail: tokens kept in f16.  ValueError: a kind of layer whose keys and values are not compressed here (sliding windows)."""

    def __init__(self, config: Any, k: str = "tbq4_0", v: str | None = None, exact_tail: int = PAGE,
                 layers: dict[int, tuple[str, str]] | None = None) -> None:
        made = list(DynamicCache(config=config).layers)
        text = config.get_text_config(decoder=True)
        while len(made) < text.num_hidden_layers:
            made.append(DynamicLayer())  # type: ignore[no-untyped-call]
        for i, layer in enumerate(made):
            if type(layer) is DynamicLayer:
                names = (layers or {}).get(i, (k, v or k))
                made[i] = KvantLayer(formats.get(names[0]), formats.get(names[1]), exact_tail)
            elif isinstance(layer, DynamicLayer):
                raise ValueError(f"layer {i} is a {type(layer).__name__}, wanted full attention or a layer without keys and values")
        super().__init__(layers=made)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values as the engine would hold them."""
        return sum(layer.nbytes for layer in self.layers if isinstance(layer, KvantLayer))


def logits(model: Any, ids: Any, cache: Cache) -> torch.Tensor:
    """Logits of every token of ids int[batch, n] -> f32[batch, n, n_vocab], in calls that end on multiples of 64 tokens."""
    parts, at = [], 0
    with torch.no_grad():
        while at < ids.shape[1]:
            step = PAGE - cache.get_seq_length() % PAGE
            parts.append(model(ids[:, at:at + step], past_key_values=cache, use_cache=True).logits.float())
            at += step
    return torch.cat(parts, dim=1)
