"""The attention backend of the plugin (kvant.vllm): blocks of 64 tokens, each all of K's heads and then all of V's, rows as kvant's pages have
them; keys and values are encoded as they come, and attention reads the encoded rows, by kvant.torch_ops in vLLM's stream.

vLLM's cache tensor of a layer is bytes [blocks, KV heads, 64, slot]; only a block's place and size are read from it, for a head's rows lie
together.  The queries' type decides: f32 is attended to exactly, f16 and bf16 as in kvant's decode.  Not there: CUDA graphs of attention
(vLLM's piecewise graphs go around it), sinks, ALiBi, cascades, other than decoders."""
import importlib
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from vllm.config import get_current_vllm_config
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadata, AttentionMetadataBuilder,
                                       AttentionType, CommonAttentionMetadata)

from . import _abi, torch_ops
from ._tensors import format_of
from .ops import PAGE
from .vllm import formats_of, slot_bytes


@dataclass
class KvantMetadata(AttentionMetadata):
    """A batch as kvant.torch_ops takes it; the tensors of n sequences are int32 on the device."""

    num_actual_tokens: int
    q0: torch.Tensor                    # [n + 1]
    pos0: torch.Tensor                  # [n]
    prompt: torch.Tensor                # [n]
    block_table: torch.Tensor           # [n, blocks]
    ones: int                           # sequences at the front with one token each
    max_pos: int


class KvantMetadataBuilder(AttentionMetadataBuilder[KvantMetadata]):
    """vLLM puts decode rows first (reorder_batch_threshold); what the host must know comes from the CPU's copies, without a wait."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.NEVER

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(1)

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False) -> KvantMetadata:
        m = common_attn_metadata
        if common_prefix_len or m.causal is not True:
            raise NotImplementedError(f"kvant: a common prefix of {common_prefix_len} tokens, causal {m.causal} found, 0 and True wanted")
        lengths = (m.query_start_loc_cpu[1:] - m.query_start_loc_cpu[:-1]).tolist()
        ones = next((i for i, n in enumerate(lengths) if n != 1), len(lengths))
        q0 = m.query_start_loc.to(torch.int32).contiguous()
        held = q0[1:] - q0[:-1]
        return KvantMetadata(num_actual_tokens=min(m.num_actual_tokens, sum(lengths)), q0=q0, pos0=(m.seq_lens - held).clamp_min(0).to(torch.int32),
                             prompt=(held != 1).to(torch.int32), block_table=m.block_table_tensor, ones=ones, max_pos=max(m.max_seq_len - 1, 0))


class KvantImpl(AttentionImpl[KvantMetadata]):
    """One layer."""

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None, alibi_slopes: list[float] | None = None,
                 sliding_window: int | None = None, kv_cache_dtype: str = "auto", logits_soft_cap: float | None = None,
                 attn_type: str = AttentionType.DECODER, kv_sharing_target_layer_name: str | None = None, **kwargs: Any) -> None:
        pair = formats_of(kv_cache_dtype)
        if pair is None:
            raise ValueError(f"kvant: kv_cache_dtype {kv_cache_dtype!r} without KVANT_VLLM_FORMAT found, a format wanted (docs/use/python.md)")
        refused = {"ALiBi": alibi_slopes, "sinks": kwargs.get("sinks"), "attention of another kind": attn_type != AttentionType.DECODER or None}
        for what, found in refused.items():
            if found is not None:
                raise NotImplementedError(f"kvant: no {what}")
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, float(scale), num_kv_heads or num_heads
        self.formats, self.kv_cache_dtype = pair, kv_cache_dtype
        self.window, self.softcap = sliding_window or 0, logits_soft_cap or 0.0
        self.shares = kv_sharing_target_layer_name is not None

    def sides(self, kv_cache: torch.Tensor, dim_v: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K's and V's pages, u8[blocks, KV heads, 64, row], of vLLM's tensor of bytes."""
        h = self.num_kv_heads
        rows = [format_of(f).row_bytes(d) for f, d in zip(self.formats, (self.head_size, dim_v))]
        wanted = (h, PAGE, sum(rows))
        if kv_cache.dtype != torch.uint8 or tuple(kv_cache.shape[1:]) != wanted or (kv_cache.shape[0] > 1 and kv_cache.stride(0) < h * PAGE * sum(rows)):
            raise ValueError(f"kvant: cache {kv_cache.dtype} {tuple(kv_cache.shape)} found, uint8 [blocks, {h}, {PAGE}, {sum(rows)}] wanted")
        blocks, cut = kv_cache.shape[0], h * PAGE * rows[0]
        flat = kv_cache.as_strided((blocks, h * PAGE * sum(rows)), (kv_cache.stride(0), 1))
        return flat[:, :cut].view(blocks, h, PAGE, rows[0]), flat[:, cut:].view(blocks, h, PAGE, rows[1])

    def forward(self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
                attn_metadata: KvantMetadata | None, output: torch.Tensor, output_scale: torch.Tensor | None = None,
                output_block_scale: torch.Tensor | None = None) -> torch.Tensor:
        """query [tokens, heads, d], key and value [tokens, KV heads, d] -> output, [tokens, heads, d_v] or flat."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("kvant: no output in a quantised type")
        if attn_metadata is None:               # vLLM measures its memory
            return output.zero_()
        m, n = attn_metadata, attn_metadata.num_actual_tokens
        dim_v = output.numel() // (output.shape[0] * self.num_heads)
        k_pages, v_pages = self.sides(kv_cache, dim_v)
        batch = (m.q0, m.pos0, m.prompt, m.block_table, m.ones)
        if not self.shares:
            torch_ops.cache_write_batch(key[:n].view(n, self.num_kv_heads, -1), value[:n].view(n, self.num_kv_heads, -1), k_pages, v_pages, *batch,
                                        *self.formats)
        out = torch_ops.paged_attention_batch(query[:n].view(n, self.num_heads, -1), k_pages, v_pages, *batch, m.max_pos, dim_v, *self.formats,
                                              self.scale, self.window, self.softcap, query.dtype == torch.float32)
        output[:n].copy_(out.view(output[:n].shape))
        return output


class KvantBackend(AttentionBackend):
    """AttentionBackendEnum.CUSTOM."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    forward_includes_kv_cache_update: bool = True

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[KvantImpl]:
        return KvantImpl

    @staticmethod
    def get_builder_cls() -> type[KvantMetadataBuilder]:
        return KvantMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return [PAGE]

    @staticmethod
    def get_kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto") -> tuple[int, ...]:
        """Of vLLM without customize_spec."""
        pair = formats_of(cache_dtype_str)
        if pair is None or block_size != PAGE:
            raise ValueError(f"kvant: kv_cache_dtype {cache_dtype_str!r}, blocks of {block_size} tokens found, a format and {PAGE} wanted")
        return num_blocks, num_kv_heads, PAGE, slot_bytes(pair, head_size)

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        """A slot for each token and KV head, K's row and V's; the format is the configuration's, for a spec has none."""
        if spec.state_content_bytes is not None or spec.dtype != torch.uint8:
            return spec
        pair = formats_of(str(get_current_vllm_config().cache_config.cache_dtype))
        return spec if pair is None else replace(spec, state_content_bytes=slot_bytes(pair, spec.head_size, spec.head_size_v))

    @classmethod
    def supported_kv_cache_layouts(cls) -> Any:
        """Those whose blocks are whole: a block's bytes are this backend's own."""
        layout = importlib.import_module("vllm.v1.kv_cache_layout").KVCacheLayout
        return layout.LBHNC, layout.BLHNC

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype: str | None) -> bool:
        pair = formats_of(kv_cache_dtype)
        return pair is not None and bool(slot_bytes(pair, PAGE))

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return 0 < head_size <= _abi.KVANT_MAX_HEAD_DIM

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return bool(capability.major >= 8)
