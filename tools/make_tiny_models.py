#!/usr/bin/env python3
"""make_tiny_models.py: the six architectures as tiny seeded Hugging Face models, with what Transformers computes from them.

Writes for each architecture <arch>.gguf (weights in BF16, everything else F32) and <arch>.expect (prompt, logits of every
position, greedy continuation), and one summary.json with shapes, seeds, versions and margins.  tests/check_tiny.c loads both.

    python3 tools/make_tiny_models.py --out tests/golden/tiny              needs torch and transformers 5, any CPU
    python3 tools/make_tiny_models.py --out DIR --fake                     random weights, no logits: tests this file (numpy)

It owns the Hugging Face -> GGUF mapping of the specification, written a second time: kvant's loader is the first.  Every
weight is rounded to bf16 before Transformers sees it, so both sides compute with the same numbers; compute is f32 on the CPU,
attention and experts "eager", the delta rule in its plain torch form.  Shapes are small but awkward on purpose: GQA, head_dim
that is not n_embd / n_head, partial rotary, more value heads than key heads, llama-3 rope factors, zero-centred norms that
are not zero.  A seed is used only if the greedy choice is never closer than GAP, so that a rounding error cannot flip it.

expect file, little-endian: "KVTINY1\\0" | i32 n_prompt, n_vocab, n_greedy | i32 prompt[] | i32 greedy[] | f32 logits[n_prompt][n_vocab]
"""
import argparse
import json
import os
import platform
import struct
import sys
import zlib

import numpy as np

VOCAB, WIDTH, PROMPT, GREEDY = 512, 256, 150, 32
GAP = 0.02          # least top-1/top-2 logit distance over the greedy steps; f32 noise is near 1e-5
ROUTER_GAP = 2e-4   # least distance in router logits between the last expert chosen and the first not chosen

# ---- the six models ----------------------------------------------------------------------------------------------------

MODELS = {
    "qwen3": dict(layers=2, heads=4, kv=2, hd=80, ff=72, theta=1e6, tied=True),
    "qwen3moe": dict(layers=2, heads=4, kv=1, hd=64, experts=8, used=2, ff_exp=20, theta=1e6, tied=True),
    "llama": dict(layers=2, heads=4, kv=2, hd=64, ff=48, theta=1e4, tied=False,
                  llama3=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "qwen35": dict(layers=3, interval=2, heads=2, kv=1, hd=64, ff=40, hk=2, hv=6, dk=32, dv=32, rot=0.25, sections=[3, 3, 2],
                   theta=1e7, tied=True),
    "qwen35moe": dict(layers=2, interval=2, heads=2, kv=1, hd=64, experts=8, used=2, ff_exp=16, ff_sh=24, hk=2, hv=4, dk=32,
                      dv=32, rot=0.25, sections=[3, 3, 2], theta=1e7, tied=True),
    "qwen3next": dict(layers=2, interval=2, heads=2, kv=1, hd=64, experts=8, used=3, ff_exp=12, ff_sh=24, hk=2, hv=4, dk=32,
                      dv=32, rot=0.25, theta=1e7, tied=False),
}
EPS, CONV_K, CONTEXT = 1e-6, 4, 1024


def is_full(m, layer):
    return "interval" not in m or (layer + 1) % m["interval"] == 0


def hf_shapes(arch, m):
    """Names and shapes of the Transformers state dict; also an assertion about the version of Transformers."""
    shapes = {"model.embed_tokens.weight": (VOCAB, WIDTH), "model.norm.weight": (WIDTH,), "lm_head.weight": (VOCAB, WIDTH)}
    for i in range(m["layers"]):
        p = f"model.layers.{i}."
        shapes[p + "input_layernorm.weight"] = shapes[p + "post_attention_layernorm.weight"] = (WIDTH,)
        if is_full(m, i):
            q = m["heads"] * m["hd"]
            gate = 2 if "interval" in m else 1
            shapes[p + "self_attn.q_proj.weight"] = (gate * q, WIDTH)
            shapes[p + "self_attn.k_proj.weight"] = shapes[p + "self_attn.v_proj.weight"] = (m["kv"] * m["hd"], WIDTH)
            shapes[p + "self_attn.o_proj.weight"] = (WIDTH, q)
            if arch != "llama":
                shapes[p + "self_attn.q_norm.weight"] = shapes[p + "self_attn.k_norm.weight"] = (m["hd"],)
        else:
            key, value = m["hk"] * m["dk"], m["hv"] * m["dv"]
            g = p + "linear_attn."
            if arch == "qwen3next":
                shapes[g + "in_proj_qkvz.weight"] = (2 * key + 2 * value, WIDTH)
                shapes[g + "in_proj_ba.weight"] = (2 * m["hv"], WIDTH)
            else:
                shapes[g + "in_proj_qkv.weight"] = (2 * key + value, WIDTH)
                shapes[g + "in_proj_z.weight"] = (value, WIDTH)
                shapes[g + "in_proj_b.weight"] = shapes[g + "in_proj_a.weight"] = (m["hv"], WIDTH)
            shapes[g + "conv1d.weight"] = (2 * key + value, 1, CONV_K)
            shapes[g + "A_log"] = shapes[g + "dt_bias"] = (m["hv"],)
            shapes[g + "norm.weight"] = (m["dv"],)
            shapes[g + "out_proj.weight"] = (WIDTH, value)
        if "experts" in m:
            shapes[p + "mlp.gate.weight"] = (m["experts"], WIDTH)
            shapes[p + "mlp.experts.gate_up_proj"] = (m["experts"], 2 * m["ff_exp"], WIDTH)
            shapes[p + "mlp.experts.down_proj"] = (m["experts"], WIDTH, m["ff_exp"])
            if "ff_sh" in m:
                for name in ("gate", "up"):
                    shapes[p + f"mlp.shared_expert.{name}_proj.weight"] = (m["ff_sh"], WIDTH)
                shapes[p + "mlp.shared_expert.down_proj.weight"] = (WIDTH, m["ff_sh"])
                shapes[p + "mlp.shared_expert_gate.weight"] = (1, WIDTH)
        else:
            for name in ("gate", "up"):
                shapes[p + f"mlp.{name}_proj.weight"] = (m["ff"], WIDTH)
            shapes[p + "mlp.down_proj.weight"] = (WIDTH, m["ff"])
    return shapes


def zero_centred(arch, name):
    return arch in ("qwen35", "qwen35moe", "qwen3next") and "linear_attn" not in name


def to_bf16_bits(x):
    """Round to nearest even; x is finite."""
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16(x):
    return (to_bf16_bits(x).astype(np.uint32) << 16).view(np.float32)


def random_weights(arch, m, seed):
    """Random but lively: activations near 1 everywhere, logits of a few units, decays from slow to fast."""
    weights = {}
    for name, shape in sorted(hf_shapes(arch, m).items()):
        rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(f"{arch}.{name}".encode())]))
        x = rng.standard_normal(shape)
        if name.endswith("A_log"):
            x = np.log(rng.uniform(0.05, 2.0, shape))
        elif name.endswith("dt_bias"):
            x = rng.uniform(-2.0, 1.0, shape)
        elif name.endswith("conv1d.weight"):
            x = 0.5 * x
        elif "norm" in name:
            x = 0.1 * x + (0.0 if zero_centred(arch, name) else 1.0)
        elif name == "model.embed_tokens.weight":
            x = (0.12 if m["tied"] else 0.6) * x
        elif name == "lm_head.weight":
            x = 2.0 / WIDTH ** 0.5 * x
        elif name.endswith("mlp.gate.weight"):
            x = 1.5 / WIDTH ** 0.5 * x
        else:
            x = (0.8 if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj")) else 1.0) * \
                x / shape[-1] ** 0.5
        weights[name] = bf16(x.astype(np.float32)).reshape(shape)
    if m["tied"]:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    return weights


# ---- Hugging Face -> GGUF tensors --------------------------------------------------------------------------------------

def head_order(m):
    """GGUF value head j*Hk + kh is Hugging Face's kh*r + j."""
    r = m["hv"] // m["hk"]
    return np.array([kh * r + j for j in range(r) for kh in range(m["hk"])])


def reorder_heads(x, m, per_head, axis=0):
    """Permutes the value heads of an axis made of hv blocks of per_head."""
    x = np.moveaxis(x, axis, 0)
    x = x.reshape(m["hv"], per_head, *x.shape[1:])[head_order(m)].reshape(m["hv"] * per_head, *x.shape[1:])
    return np.moveaxis(x, 0, axis)


def gdn_tensors(arch, m, w, p, out):
    key, value = m["hk"] * m["dk"], m["hv"] * m["dv"]
    g = p + "linear_attn."
    conv = w[g + "conv1d.weight"][:, 0, :]
    a, dt, o = -np.exp(w[g + "A_log"].astype(np.float64)).astype(np.float32), w[g + "dt_bias"], w[g + "out_proj.weight"]
    if arch == "qwen3next":
        r = m["hv"] // m["hk"]
        rows = w[g + "in_proj_qkvz.weight"].reshape(m["hk"], 2 * m["dk"] + 2 * r * m["dv"], WIDTH)
        cut = np.cumsum([m["dk"], m["dk"], r * m["dv"]])
        q, k, v, z = (part.reshape(-1, WIDTH) for part in np.split(rows, cut, axis=1))
        out["attn_qkv.weight"] = np.concatenate([q, k, v])
        out["attn_gate.weight"] = z
        out["ssm_ba.weight"] = w[g + "in_proj_ba.weight"]
    else:
        qkv = w[g + "in_proj_qkv.weight"]
        out["attn_qkv.weight"] = np.concatenate([qkv[:2 * key], reorder_heads(qkv[2 * key:], m, m["dv"])])
        out["attn_gate.weight"] = reorder_heads(w[g + "in_proj_z.weight"], m, m["dv"])
        out["ssm_beta.weight"] = reorder_heads(w[g + "in_proj_b.weight"], m, 1)
        out["ssm_alpha.weight"] = reorder_heads(w[g + "in_proj_a.weight"], m, 1)
        conv = np.concatenate([conv[:2 * key], reorder_heads(conv[2 * key:], m, m["dv"])])
        a, dt = reorder_heads(a, m, 1), reorder_heads(dt, m, 1)
        o = reorder_heads(o, m, m["dv"], axis=1)
    out["ssm_conv1d.weight"], out["ssm_a"], out["ssm_dt.bias"], out["ssm_out.weight"] = conv, a, dt, o
    out["ssm_norm.weight"] = w[g + "norm.weight"]


def half_split_to_pairs(x, heads):
    """llama: rows of each head from (i, i + hd/2) to (2i, 2i + 1)."""
    return x.reshape(heads, 2, -1, x.shape[-1]).swapaxes(1, 2).reshape(x.shape)


def attention_tensors(arch, m, w, p, out):
    for name in "qkvo":
        x = w[p + f"self_attn.{name}_proj.weight"]
        if arch == "llama" and name in "qk":
            x = half_split_to_pairs(x, m["heads"] if name == "q" else m["kv"])
        out["attn_output.weight" if name == "o" else f"attn_{name}.weight"] = x
    if arch != "llama":
        for name in "qk":
            out[f"attn_{name}_norm.weight"] = norm(arch, w, p + f"self_attn.{name}_norm.weight")


def norm(arch, w, name):
    return w[name] + np.float32(1.0) if zero_centred(arch, name) else w[name]


def ffn_tensors(m, w, p, out):
    if "experts" not in m:
        for name in ("gate", "up", "down"):
            out[f"ffn_{name}.weight"] = w[p + f"mlp.{name}_proj.weight"]
        return
    out["ffn_gate_inp.weight"] = w[p + "mlp.gate.weight"]
    gate_up = w[p + "mlp.experts.gate_up_proj"]
    out["ffn_gate_exps.weight"], out["ffn_up_exps.weight"] = gate_up[:, :m["ff_exp"]], gate_up[:, m["ff_exp"]:]
    out["ffn_down_exps.weight"] = w[p + "mlp.experts.down_proj"]
    if "ff_sh" in m:
        out["ffn_gate_inp_shexp.weight"] = w[p + "mlp.shared_expert_gate.weight"][0]
        for name in ("gate", "up", "down"):
            out[f"ffn_{name}_shexp.weight"] = w[p + f"mlp.shared_expert.{name}_proj.weight"]


def rope_freqs(m):
    """llama-3 factors: kvant divides each angle by them."""
    s, dim = m["llama3"], m["hd"]
    freqs = 1.0 / m["theta"] ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
    wave = 2 * np.pi / freqs
    low = s["original_max_position_embeddings"] / s["low_freq_factor"]
    high = s["original_max_position_embeddings"] / s["high_freq_factor"]
    smooth = (s["original_max_position_embeddings"] / wave - s["low_freq_factor"]) / \
        (s["high_freq_factor"] - s["low_freq_factor"])
    mixed = 1.0 / ((1 - smooth) / s["factor"] + smooth)
    return np.where(wave < high, 1.0, np.where(wave > low, s["factor"], mixed)).astype(np.float32)


def gguf_tensors(arch, m, w):
    tensors = {"token_embd.weight": w["model.embed_tokens.weight"], "output_norm.weight": norm(arch, w, "model.norm.weight")}
    if not m["tied"]:
        tensors["output.weight"] = w["lm_head.weight"]
    if "llama3" in m:
        tensors["rope_freqs.weight"] = rope_freqs(m)
    for i in range(m["layers"]):
        p, out = f"model.layers.{i}.", {}
        out["attn_norm.weight"] = norm(arch, w, p + "input_layernorm.weight")
        second = "post_attention_norm.weight" if "interval" in m else "ffn_norm.weight"
        out[second] = norm(arch, w, p + "post_attention_layernorm.weight")
        if is_full(m, i):
            attention_tensors(arch, m, w, p, out)
        else:
            gdn_tensors(arch, m, w, p, out)
        ffn_tensors(m, w, p, out)
        tensors.update({f"blk.{i}.{name}": x for name, x in out.items()})
    return tensors


# ---- GGUF writer -------------------------------------------------------------------------------------------------------

F32, BF16 = 0, 30
U32, I32, FLOAT, STRING, ARRAY = 4, 5, 6, 8, 9


def gguf_string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == STRING:
        return gguf_string(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<iQ", inner, len(items)) + b"".join(gguf_value(inner, item) for item in items)
    return struct.pack({U32: "<I", I32: "<i", FLOAT: "<f"}[kind], value)


def gguf_tensor_type(name, x):
    """Matrices in BF16; vectors, the router, the conv taps in F32."""
    small = x.ndim == 1 or name.endswith(("ffn_gate_inp.weight", "ssm_conv1d.weight"))
    return F32 if small else BF16


def write_gguf(path, keys, tensors, alignment=32):
    head = b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(keys))
    for name, (kind, value) in keys.items():
        head += gguf_string(name) + struct.pack("<i", kind) + gguf_value(kind, value)
    data = b""
    for name, x in tensors.items():
        kind = gguf_tensor_type(name, x)
        raw = np.ascontiguousarray(x, dtype=np.float32)
        if kind == BF16:
            assert np.array_equal(bf16(raw), raw.reshape(-1).reshape(raw.shape)), f"{name} is not exact in bf16"
        raw = raw.tobytes() if kind == F32 else to_bf16_bits(raw).tobytes()
        head += gguf_string(name) + struct.pack("<I", x.ndim) + struct.pack(f"<{x.ndim}q", *reversed(x.shape))
        head += struct.pack("<iQ", kind, len(data))
        data += raw + bytes(-len(raw) % alignment)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % alignment) + data)


# ---- metadata ----------------------------------------------------------------------------------------------------------

def byte_alphabet():
    """GPT-2's printable stand-in of each byte."""
    keep = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    extra = iter(range(256, 512))
    return [chr(b if b in keep else next(extra)) for b in range(256)]


def vocabulary():
    """256 bytes, a few merges, three control tokens, the rest unused: VOCAB in all."""
    tokens = byte_alphabet()
    space = tokens[32]
    merges = [(space, "t"), ("h", "e"), ("i", "n"), ("r", "e"), ("o", "n"), (space + "t", "he"), (space, "a"), ("n", "d"),
              (space + "a", "nd"), ("e", "r"), (space, "s"), ("o", "u"), ("in", "g"), (space, "w"), ("e", "d")]
    types = [1] * 256
    for a, b in merges:
        tokens.append(a + b)
        types.append(1)
    for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        tokens.append(name)
        types.append(3)
    while len(tokens) < VOCAB:
        tokens.append(f"<|unused_{len(tokens)}|>")
        types.append(5)
    return tokens, types, [f"{a} {b}" for a, b in merges]


def gguf_keys(arch, m):
    n_rot = int(m["hd"] * m.get("rot", 1.0))
    tokens, types, merges = vocabulary()
    keys = {
        "general.architecture": (STRING, arch), "general.type": (STRING, "model"),
        "general.name": (STRING, f"tiny random {arch}"), "general.file_type": (U32, 32),
        "general.quantization_version": (U32, 2), "general.license": (STRING, "cc0-1.0"),
        f"{arch}.block_count": (U32, m["layers"]), f"{arch}.context_length": (U32, CONTEXT),
        f"{arch}.embedding_length": (U32, WIDTH), f"{arch}.vocab_size": (U32, VOCAB),
        f"{arch}.feed_forward_length": (U32, m.get("ff", m.get("ff_exp"))),
        f"{arch}.attention.head_count": (U32, m["heads"]), f"{arch}.attention.head_count_kv": (U32, m["kv"]),
        f"{arch}.attention.key_length": (U32, m["hd"]), f"{arch}.attention.value_length": (U32, m["hd"]),
        f"{arch}.attention.layer_norm_rms_epsilon": (FLOAT, EPS),
        f"{arch}.rope.dimension_count": (U32, n_rot), f"{arch}.rope.freq_base": (FLOAT, m["theta"]),
    }
    if "experts" in m:
        keys[f"{arch}.expert_count"] = (U32, m["experts"])
        keys[f"{arch}.expert_used_count"] = (U32, m["used"])
        keys[f"{arch}.expert_feed_forward_length"] = (U32, m["ff_exp"])
    if "ff_sh" in m:
        keys[f"{arch}.expert_shared_feed_forward_length"] = (U32, m["ff_sh"])
    if "sections" in m:
        keys[f"{arch}.rope.dimension_sections"] = (ARRAY, (I32, m["sections"] + [0]))
    if "interval" in m:
        keys[f"{arch}.full_attention_interval"] = (U32, m["interval"])
        keys[f"{arch}.ssm.conv_kernel"] = (U32, CONV_K)
        keys[f"{arch}.ssm.state_size"] = (U32, m["dk"])
        keys[f"{arch}.ssm.group_count"] = (U32, m["hk"])
        keys[f"{arch}.ssm.time_step_rank"] = (U32, m["hv"])
        keys[f"{arch}.ssm.inner_size"] = (U32, m["hv"] * m["dv"])
    end = tokens.index("<|endoftext|>")
    keys.update({
        "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "llama-bpe" if arch == "llama" else "qwen2"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)), "tokenizer.ggml.token_type": (ARRAY, (I32, types)),
        "tokenizer.ggml.merges": (ARRAY, (STRING, merges)), "tokenizer.ggml.bos_token_id": (U32, end),
        "tokenizer.ggml.eos_token_id": (U32, end),
    })
    return keys


# ---- Transformers ------------------------------------------------------------------------------------------------------

def hf_config(arch, m):
    import transformers as t
    rope = dict(rope_type="default", rope_theta=m["theta"])
    if "rot" in m:
        rope["partial_rotary_factor"] = m["rot"]
    if "sections" in m:
        rope.update(mrope_section=m["sections"], mrope_interleaved=True)
    if "llama3" in m:
        rope.update(m["llama3"], rope_type="llama3")
    c = dict(vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=m["layers"], num_attention_heads=m["heads"],
             num_key_value_heads=m["kv"], head_dim=m["hd"], max_position_embeddings=CONTEXT, rms_norm_eps=EPS,
             tie_word_embeddings=m["tied"], rope_parameters=rope, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    if "ff" in m:
        c["intermediate_size"] = m["ff"]
    if "experts" in m:
        c.update(num_experts=m["experts"], num_experts_per_tok=m["used"], moe_intermediate_size=m["ff_exp"])
        if arch != "qwen35moe":
            c["norm_topk_prob"] = True
    if "ff_sh" in m:
        c["shared_expert_intermediate_size"] = m["ff_sh"]
    if "interval" in m:
        c.update(linear_num_key_heads=m["hk"], linear_num_value_heads=m["hv"], linear_key_head_dim=m["dk"],
                 linear_value_head_dim=m["dv"], linear_conv_kernel_dim=CONV_K,
                 layer_types=["full_attention" if is_full(m, i) else "linear_attention" for i in range(m["layers"])])
    config, model = {
        "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"), "qwen3moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
        "llama": ("LlamaConfig", "LlamaForCausalLM"), "qwen35": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
        "qwen35moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM"), "qwen3next": ("Qwen3NextConfig", "Qwen3NextForCausalLM"),
    }[arch]
    modules = [t] + [__import__(f"transformers.models.{x}", fromlist=["x"]) for x in ("qwen3_5", "qwen3_5_moe")]
    find = lambda name: next(getattr(x, name) for x in modules if hasattr(x, name))
    made = find(config)(**c)
    made._attn_implementation = made._experts_implementation = "eager"
    return made, find(model)


def hf_model(arch, m):
    import torch
    config, cls = hf_config(arch, m)
    model = cls(config).to(torch.float32).eval()
    want, found = hf_shapes(arch, m), {k: tuple(v.shape) for k, v in model.state_dict().items()}
    assert found == want, f"{arch}: state dict differs: {set(found.items()) ^ set(want.items())}"
    return model


def hf_run(model, m, weights, prompt):
    """Logits of every prompt position, greedy ids, the least logit gap of the greedy steps and of the routers."""
    import torch
    with torch.no_grad():
        model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in weights.items()})
        if m["tied"]:
            model.tie_weights()
        router_gap = [float("inf")]

        def watch(module, _inputs, output):
            top = output[0].float().sort(dim=-1, descending=True).values
            router_gap[0] = min(router_gap[0], float((top[:, m["used"] - 1] - top[:, m["used"]]).min()))

        hooks = [x.register_forward_hook(watch) for x in model.modules() if type(x).__name__.endswith("TopKRouter")]
        assert bool(hooks) == ("experts" in m)
        ids, logits, gap = list(prompt), None, float("inf")
        for _ in range(GREEDY):
            out = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
            logits = out.numpy().copy() if logits is None else logits
            best = out[-1].topk(2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            if gap < GAP:
                break
            ids.append(int(best.indices[0]))
        for hook in hooks:
            hook.remove()
    return logits, ids[len(prompt):], gap, router_gap[0]


def write_expect(path, prompt, greedy, logits):
    with open(path, "wb") as file:
        file.write(b"KVTINY1\0" + struct.pack("<3i", len(prompt), VOCAB, len(greedy)))
        file.write(struct.pack(f"<{len(prompt)}i", *prompt) + struct.pack(f"<{len(greedy)}i", *greedy))
        file.write(np.ascontiguousarray(logits, dtype="<f4").tobytes())


def make(arch, out, fake):
    m = MODELS[arch]
    model = None if fake else hf_model(arch, m)
    for seed in range(1, 200):
        weights = random_weights(arch, m, seed)
        rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(arch.encode())]))
        prompt = [int(x) for x in rng.integers(0, 271, PROMPT)]
        if fake:
            logits, greedy, gap, router_gap = np.zeros((PROMPT, VOCAB), np.float32), [0] * GREEDY, 0.0, 0.0
            break
        logits, greedy, gap, router_gap = hf_run(model, m, weights, prompt)
        print(f"{arch}: seed {seed}: greedy gap {gap:.4f}, router gap {router_gap:.2e}, logits std {logits.std():.3f}, "
              f"{len(set(greedy))} distinct ids", flush=True)
        if gap >= GAP and router_gap >= ROUTER_GAP and len(set(greedy)) >= 8:
            break
    else:
        sys.exit(f"{arch}: no seed passed")
    write_gguf(os.path.join(out, f"{arch}.gguf"), gguf_keys(arch, m), gguf_tensors(arch, m, weights))
    write_expect(os.path.join(out, f"{arch}.expect"), prompt, greedy, logits)
    return dict(shape=m, seed=seed, greedy=greedy, greedy_gap=gap, router_gap=router_gap if "experts" in m else None,
                logits_std=float(logits.std()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", help="comma separated architectures")
    parser.add_argument("--fake", action="store_true", help="no Transformers: random weights, zero logits")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    summary = dict(tool="tools/make_tiny_models.py", numpy=np.__version__, python=platform.python_version())
    if not args.fake:
        import torch
        import transformers
        torch.set_num_threads(min(8, os.cpu_count() or 1))
        summary.update(torch=torch.__version__, transformers=transformers.__version__)
    failed = []
    for arch in args.only.split(",") if args.only else MODELS:
        try:
            summary[arch] = make(arch, args.out, args.fake)
        except Exception as error:      # the other models are still worth having
            import traceback
            traceback.print_exc()
            failed.append(f"{arch}: {error}")
    with open(os.path.join(args.out, "summary.json"), "w") as file:
        json.dump(summary, file, indent=1)
        file.write("\n")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
