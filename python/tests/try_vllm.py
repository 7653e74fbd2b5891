"""try_vllm: the plugin kvant.vllm: registration, the cache's spec and shape, and forward of its own backend over vLLM's metadata against torch's
attention over the decoded rows.

    python try_vllm.py FOLDER               each recorded interface of vLLM (FOLDER/vllm-*.json), one process to each
    python try_vllm.py FOLDER real          the vLLM that this interpreter imports
    ... cuda                                tensors of the GPU

Prints "try_vllm: N passed, M failed"."""
import glob
import importlib
import inspect
import os
import subprocess
import sys
import types

import torch
import torch.nn.functional as F
import vllm_interface
from counted import COUNTS, interface, ok, refused

DEVICE = "cuda" if "cuda" in sys.argv else "cpu"
CLASS = 1e-5 if DEVICE == "cpu" else 1e-4
H, Q, D, BLOCKS = 2, 6, 64, 12


def check_names(found):
    """Each method of ours that vLLM's class has too takes its parameters, by these names, in this order."""
    from kvant import vllm_backend as b
    classes = found["classes"]["vllm.v1.attention.backend"]
    for ours, theirs in ((b.KvantBackend, "AttentionBackend"), (b.KvantImpl, "AttentionImpl"), (b.KvantMetadataBuilder, "AttentionMetadataBuilder")):
        ok(not getattr(ours, "__abstractmethods__", None), f"{ours.__name__} leaves out {getattr(ours, '__abstractmethods__', None)}")
        for name, wanted in classes[theirs]["methods"].items():
            f = inspect.getattr_static(ours, name, None) if name in vars(ours) else None
            have = vllm_interface.parameters(getattr(f, "__func__", f)) if f is not None else wanted
            ok(have[:len(wanted)] == wanted, f"{ours.__name__}.{name}: {have} found, vLLM {found['version']} calls {wanted}")


def check_registration(real):
    from kvant import vllm
    registry = importlib.import_module("vllm.v1.attention.backends.registry")
    cache = importlib.import_module("vllm.config.cache")
    vllm.register()
    vllm.register()
    custom = registry.AttentionBackendEnum.CUSTOM
    path = custom.get_path() if real else registry.paths[custom]
    ok(path == "kvant.vllm_backend.KvantBackend" and importlib.import_module("kvant.vllm_backend").KvantBackend.get_name() == "CUSTOM", f"{path}")
    if hasattr(cache, "register_kv_cache_dtype"):
        handler = cache._KV_CACHE_DTYPE_HANDLERS["kvant_tbq4_0"]
        ok(handler.torch_dtype() == torch.uint8 and handler.quant_mode().value == 12 and handler.name == "kvant_tbq4_0", f"{vars(type(handler))}")
        ok(not any(n.startswith("kvant_ptcq") for n in cache._KV_CACHE_DTYPE_HANDLERS), "a format of whole pages was registered")
    os.environ[vllm.VARIABLE] = "nope"
    refused(Exception, ["nope"], vllm.register)
    os.environ[vllm.VARIABLE] = "ptcq3"
    refused(ValueError, ["ptcq3", "exact tail"], vllm.register)
    os.environ[vllm.VARIABLE] = "tbq4_0:q8_0"
    ok(vllm.formats_of("auto") == ("tbq4_0", "q8_0") and vllm.formats_of("kvant_f16") == ("f16", "f16") and vllm.formats_of("fp8") is None, "names")


def check_spec(real):
    """Blocks of 64 tokens of compressed rows: what vLLM counts is what the backend cuts."""
    from kvant import vllm, vllm_backend
    b, interface = vllm_backend.KvantBackend, importlib.import_module("vllm.v1.kv_cache_interface")
    slot = vllm.slot_bytes(("tbq4_0", "q8_0"), D)
    ok(slot == 36 + 68 and b.get_kv_cache_shape(BLOCKS, 64, H, D, "auto") == (BLOCKS, H, 64, slot), f"slots of {slot} bytes")
    ok(b.supports_kv_cache_dtype("kvant_tbq3_0") and b.supports_kv_cache_dtype("auto") and not b.supports_kv_cache_dtype("fp8"), "types")
    if hasattr(importlib.import_module("vllm.config.cache"), "register_kv_cache_dtype"):
        spec = interface.FullAttentionSpec(block_size=64, num_kv_heads=H, head_size=D, head_size_v=D, dtype=torch.uint8)
        if real:
            cut = replaced(spec, vllm_backend)
            ok(cut.page_size_bytes == H * 64 * slot and b.customize_spec(cut) is cut, f"{cut.page_size_bytes} bytes to a page")
        else:
            ok(b.customize_spec(spec).state_content_bytes == slot, f"{b.customize_spec(spec)}")
        plain = interface.FullAttentionSpec(block_size=64, num_kv_heads=H, head_size=D, head_size_v=D, dtype=torch.bfloat16)
        ok(b.customize_spec(plain) is plain, "a layer without the format was changed")
        ok([x.name for x in b.supported_kv_cache_layouts()] == ["LBHNC", "BLHNC"], "layouts")
        return
    attention = importlib.import_module("vllm.model_executor.layers.attention.attention")
    layer = types.SimpleNamespace(kv_cache_dtype="auto", attn_backend=b, num_kv_heads=H, head_size=D, head_size_v=D, sliding_window=None,
                                  kv_cache_torch_dtype=torch.bfloat16, attn_type="decoder")
    config = types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=64, skip_page_size_padded=None))
    spec = attention.Attention.get_kv_cache_spec(layer, config)
    ok(spec.tq_slot_size == slot and spec.dtype == torch.uint8, f"{spec}")
    ok(not real or spec.page_size_bytes == H * 64 * slot, f"{spec}")
    layer.kv_cache_dtype = "fp8"
    ok(getattr(attention.Attention.get_kv_cache_spec(layer, config) if not real else None, "tq_slot_size", None) is None, "a layer of fp8 was changed")


def replaced(spec, backend):
    """customize_spec inside a configuration of vLLM's own."""
    config = types.SimpleNamespace(cache_config=types.SimpleNamespace(cache_dtype="auto"))
    before, backend.get_current_vllm_config = backend.get_current_vllm_config, lambda: config
    try:
        return backend.KvantBackend.customize_spec(spec)
    finally:
        backend.get_current_vllm_config = before


def metadata(lengths, held, tables):
    """vLLM's metadata of a batch; padded by one token and block, as the runner may."""
    b = importlib.import_module("vllm.v1.attention.backend")
    q0 = torch.tensor([sum(lengths[:i]) for i in range(len(lengths) + 1)], dtype=torch.int32)
    seq = torch.tensor([h + n for h, n in zip(held, lengths)], dtype=torch.int32)
    slots = [t[p // 64] * 64 + p % 64 for h, n, t in zip(held, lengths, tables) for p in range(h, h + n)]
    return b.CommonAttentionMetadata(query_start_loc=q0.to(DEVICE), query_start_loc_cpu=q0, seq_lens=seq.to(DEVICE), num_reqs=len(lengths),
                                     num_actual_tokens=sum(lengths), max_query_len=max(lengths), max_seq_len=int(seq.max()), causal=True,
                                     block_table_tensor=torch.tensor(tables, dtype=torch.int32, device=DEVICE),
                                     slot_mapping=torch.tensor(slots, dtype=torch.int64, device=DEVICE))


def expected(q, k, v, formats, window=0):
    """torch's attention of the last len(q) tokens over what the rows decode to."""
    from kvant import torch_ops
    k, v = (torch_ops.decode(torch_ops.encode(x.reshape(-1, D).float(), f), D, f).reshape(x.shape) for x, f in zip((k, v), formats))
    n, t = q.shape[0], k.shape[0]
    at = torch.arange(t - n, t, device=q.device)[:, None] - torch.arange(t, device=q.device)[None]
    mask = (at >= 0) & ((at < window) if window else (at >= 0))
    return F.scaled_dot_product_attention(*(x.float().transpose(0, 1)[None] for x in (q, k, v)), attn_mask=mask, enable_gqa=True)[0].transpose(0, 1)


def check_forward(kind, window):
    """Prompts, then decode steps beside a prompt that goes on, over blocks in no order, out of memory that is more than the layer's."""
    from kvant import vllm_backend
    formats = ("tbq4_0", "q8_0")
    torch.manual_seed(7)
    impl = vllm_backend.KvantImpl(Q, D, D ** -0.5, H, None, window or None, "auto", None)
    builder = vllm_backend.KvantMetadataBuilder(None, ["a"], types.SimpleNamespace(
        speculative_config=None, parallel_config=types.SimpleNamespace(decode_context_parallel_size=1)), torch.device(DEVICE))
    shape = vllm_backend.KvantBackend.get_kv_cache_shape(BLOCKS, 64, H, D)
    page = shape[1] * shape[2] * shape[3]
    memory = torch.full((BLOCKS, page + 64), 0xff, dtype=torch.uint8, device=DEVICE)        # blocks apart, as in a pool of several layers
    cache = memory[:, :page].unflatten(1, shape[1:])
    texts = {i: [torch.randn(n, h, D, device=DEVICE).to(kind) for h in (Q, H, H)] for i, n in ((0, 140), (1, 70), (2, 200))}
    tables = {0: [9, 2, 4, 0], 1: [7, 1, 0, 0], 2: [3, 11, 5, 8]}
    apart = []
    for step in ([(0, 0, 130), (1, 0, 64)], [(0, 130, 131), (1, 64, 65), (2, 0, 90)], [(1, 65, 66), (0, 131, 132), (2, 90, 200)], [(2, 199, 200), (0, 132, 133)]):
        m = metadata([b - a for _, a, b in step], [a for _, a, _ in step], [tables[i] for i, _, _ in step])
        made = builder.build(0, m)
        q, k, v = (torch.cat([texts[i][j][a:b] for i, a, b in step]) for j in range(3))
        out = torch.full((q.shape[0] + 3, Q, D), float("nan"), device=DEVICE).to(kind)
        impl.forward(None, q, k, v, cache, made, out)
        at = 0
        for i, a, b in step:
            want = expected(texts[i][0][a:b], texts[i][1][:b], texts[i][2][:b], formats, window)
            apart.append((out[at:at + b - a].float() - want).abs().max().item())
            at += b - a
        ok(bool(out[at:].isnan().all()), "rows behind the batch were written")
    limit = CLASS if kind == torch.float32 else 0.03
    ok(all(x < limit for x in apart), f"{kind}, window {window}: {apart} from torch's attention, at most {limit}")      # no NaN either
    ok(bool((memory[:, page:] == 0xff).all()) and bool((cache[10] == 0xff).all()) and bool((cache[6] == 0xff).all()), "bytes outside the batch's blocks changed")
    print(f"forward, {kind}, window {window}: {max(apart):.2g} from torch's attention over decoded rows")


def check_refusals():
    from kvant import vllm_backend as b
    refused(NotImplementedError, ["ALiBi"], b.KvantImpl, Q, D, 1.0, H, [1.0], None, "kvant_f16")
    refused(NotImplementedError, ["sinks"], b.KvantImpl, Q, D, 1.0, H, None, None, "kvant_f16", sinks=1)
    refused(ValueError, ["'fp8'"], b.KvantImpl, Q, D, 1.0, H, None, None, "fp8")
    refused(ValueError, ["blocks of 16"], b.KvantBackend.get_kv_cache_shape, BLOCKS, 16, H, D)
    impl = b.KvantImpl(Q, D, 1.0, H, None, None, "kvant_f16")
    refused(ValueError, ["uint8 [blocks, 2, 64, 256]"], impl.sides, torch.zeros(BLOCKS, H, 64, 255, dtype=torch.uint8), D)
    empty = torch.ones(3, Q, D)
    ok(not impl.forward(None, empty, empty, empty, torch.tensor([]), None, empty).any(), "the measuring run left rows")


def one(path, real):
    found = interface(vllm_interface, path, real)
    check_registration(real)
    check_names(found)
    check_spec(real)
    for kind in (torch.float32, torch.bfloat16):
        for window in (0, 50):
            check_forward(kind, window)
    check_refusals()
    print(f"vLLM {found['version']}{'' if real else ', as recorded'}: {COUNTS[True]} passed, {COUNTS[False]} failed")


def main():
    folder, rest = sys.argv[1], sys.argv[2:]
    if "real" in rest or folder.endswith(".json"):
        one(folder, "real" in rest)
        return COUNTS[False]
    passed = failed = 0
    paths = sorted(glob.glob(os.path.join(folder, "vllm-*.json")))
    for path in paths:
        r = subprocess.run([sys.executable, __file__, path, *rest], capture_output=True, text=True, check=False)
        print(r.stdout.strip(), r.stderr.strip()[-1500:], sep="\n")
        counts = [line.split() for line in r.stdout.splitlines() if line.startswith("vLLM ")]
        passed, failed = passed + int(counts[0][-4] if counts else 0), failed + int(counts[0][-2] if counts else 1)
    failed += len(paths) < 2            # 0.26 and 0.33 have different ways in
    print(f"try_vllm: {passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main() > 0)
