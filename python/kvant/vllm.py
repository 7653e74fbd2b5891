"""kvant's cache formats in vLLM: the plugin that vLLM finds by its entry point (group vllm.general_plugins) and calls in each process.

    vllm serve MODEL --attention-backend CUSTOM --kv-cache-dtype kvant_tbq4_0                  vLLM with register_kv_cache_dtype (0.33)
    KVANT_VLLM_FORMAT=tbq4_0 vllm serve MODEL --attention-backend CUSTOM                        vLLM 0.26 too, whose names of types are fixed

KVANT_VLLM_FORMAT may name K's and V's format, "tbq4_0:q8_0".  Formats that encode whole pages (ptcq*) are refused: vLLM's blocks have no
exact tail.  Blocks have 64 tokens.  Nothing here imports torch or CUDA; kvant.vllm_backend is imported when vLLM asks for the backend."""
import importlib
import os
from typing import Any

VARIABLE = "KVANT_VLLM_FORMAT"
PREFIX = "kvant_"
BACKEND = "kvant.vllm_backend.KvantBackend"


def formats_of(cache_dtype: str | None) -> tuple[str, str] | None:
    """K's and V's format that a --kv-cache-dtype names, or KVANT_VLLM_FORMAT where it is "auto"; None: neither."""
    name = cache_dtype or "auto"
    if name == "auto":
        name = PREFIX + os.environ.get(VARIABLE, "")
    if not name.startswith(PREFIX) or name == PREFIX:
        return None
    k, _, v = name[len(PREFIX):].partition(":")
    return k, v or k


def names() -> list[str]:
    """Cache formats that vLLM's blocks can hold."""
    from . import formats
    return [n for n in formats.names() if not formats.get(n).is_paged]


def slot_bytes(pair: tuple[str, str], head_size: int, head_size_v: int | None = None) -> int:
    """Bytes of a token's keys and values of one head."""
    from . import formats
    for name in pair:
        if formats.get(name).is_paged:
            raise ValueError(f"{name} encodes whole pages, and vLLM's blocks have no exact tail to keep rows in: one of {', '.join(names())} wanted")
    return formats.get(pair[0]).row_bytes(head_size) + formats.get(pair[1]).row_bytes(head_size_v or head_size)


def _handler(name: str, mode: Any) -> type:
    """vLLM's KVCacheDTypeHandler of a format: bytes, whose kernels are the backend's own.  KVQuantMode.CUSTOM is an alias of a mode of
    vLLM's (12, OCTAVE_K3V4, in 0.33), so nothing here asks a spec for its mode."""
    import torch

    class Handler:
        def torch_dtype(self) -> torch.dtype:
            return torch.uint8

        def quant_mode(self) -> Any:
            return mode
    setattr(Handler, "name", name)
    return Handler


def _register_types(cache: Any, interface: Any) -> None:
    pair = formats_of("auto")
    named = [PREFIX + n for n in names()] + ([PREFIX + ":".join(pair)] if pair and pair[0] != pair[1] else [])
    for name in named:
        if not cache.is_known_kv_cache_dtype(name):
            cache.register_kv_cache_dtype(name)(_handler(name, interface.KVQuantMode.CUSTOM))


def _spec_by_layer(attention: Any, interface: Any) -> None:
    """vLLM without customize_spec: a layer that has this backend asks for blocks of bytes, as vLLM's own packed formats do."""
    import torch
    before = attention.Attention.get_kv_cache_spec
    if getattr(before, "_kvant", False):
        return

    def get_kv_cache_spec(self: Any, vllm_config: Any) -> Any:
        spec, pair = before(self, vllm_config), formats_of(self.kv_cache_dtype)
        if spec is None or pair is None or self.attn_backend.full_cls_name() != tuple(BACKEND.rsplit(".", 1)):
            return spec
        return interface.TQFullAttentionSpec(block_size=vllm_config.cache_config.block_size, num_kv_heads=self.num_kv_heads, head_size=self.head_size,
                                             head_size_v=self.head_size_v, dtype=torch.uint8, sliding_window=self.sliding_window,
                                             tq_slot_size=slot_bytes(pair, self.head_size, self.head_size_v))
    setattr(get_kv_cache_spec, "_kvant", True)
    attention.Attention.get_kv_cache_spec = get_kv_cache_spec


def register() -> None:
    """The backend under AttentionBackendEnum.CUSTOM, and a --kv-cache-dtype for each format where vLLM takes new ones.  May be called again."""
    registry = importlib.import_module("vllm.v1.attention.backends.registry")
    registry.register_backend(registry.AttentionBackendEnum.CUSTOM, BACKEND)
    pair = formats_of("auto")
    if pair:
        slot_bytes(pair, 128)           # an unknown name is an error now, not in a worker later
    cache, interface = importlib.import_module("vllm.config.cache"), importlib.import_module("vllm.v1.kv_cache_interface")
    if hasattr(cache, "register_kv_cache_dtype"):
        _register_types(cache, interface)
    else:
        _spec_by_layer(importlib.import_module("vllm.model_executor.layers.attention.attention"), interface)
