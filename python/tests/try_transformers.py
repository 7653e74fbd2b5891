"""try_transformers: KvantCache in transformers against the engine, on the tiny qwen3moe of tests/golden: try_transformers.py REPOSITORY.
A model with another order of the values of a head (llama's GGUF) would have other rows; this one has the same."""
import os
import sys

import gguf
import numpy as np
import torch
from transformers import DynamicCache, Qwen3MoeConfig, Qwen3MoeForCausalLM

import kvant
from kvant.transformers import KvantCache, logits

PATH = os.path.join(sys.argv[1], "tests", "golden", "tiny", "qwen3moe.gguf")
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate_inp": "mlp.gate"}
TOKENS = [int(i) for i in np.random.default_rng(0).integers(0, 512, 300)]


def config(reader):
    def field(key):
        return reader.get_field("qwen3moe." + key).contents()
    theta = float(field("rope.freq_base"))
    return Qwen3MoeConfig(
        vocab_size=512, hidden_size=field("embedding_length"), moe_intermediate_size=field("expert_feed_forward_length"),
        num_experts=field("expert_count"), num_experts_per_tok=field("expert_used_count"), norm_topk_prob=True,
        num_hidden_layers=field("block_count"), num_attention_heads=field("attention.head_count"),
        num_key_value_heads=field("attention.head_count_kv"), head_dim=64, rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        tie_word_embeddings=True, max_position_embeddings=field("context_length"), rope_parameters={"rope_type": "default", "rope_theta": theta})


def model():
    reader, state = gguf.GGUFReader(PATH), {}
    made = Qwen3MoeForCausalLM(config(reader)).float().eval()
    w = {t.name: torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32)) for t in reader.tensors}
    for name, x in w.items():
        parts = name.split(".")
        layer, kind = (f"model.layers.{parts[1]}.", parts[2]) if parts[0] == "blk" else ("", parts[0])
        if kind == "ffn_gate_exps":
            state[layer + "mlp.experts.gate_up_proj"] = torch.cat([x, w[name.replace("gate", "up")]], 1)
        elif kind == "ffn_down_exps":
            state[layer + "mlp.experts.down_proj"] = x
        elif kind != "ffn_up_exps":
            state[layer + NAMES[kind] + ".weight"] = x
    missing, unexpected = made.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
    made.tie_weights()
    return made


def theirs(m, cache):
    return torch.log_softmax(logits(m, torch.tensor([TOKENS]), cache)[0].double(), -1).numpy()


def ours(name, tail=None):
    return kvant.Engine(PATH, n_ctx=512, k=name, exact=True, exact_tail=tail).logprobs(TOKENS).astype(float)


def kl(p, q):
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def main():
    m = model()
    exact, base = ours("f32"), theirs(m, DynamicCache(config=m.config))
    assert np.abs(exact - base).max() < 1e-3, np.abs(exact - base).max()
    for name in ("tbq4_0", "tbq3_0", "q8_0"):
        cache = KvantCache(m.config, k=name)
        rows, engine = theirs(m, cache), ours(name)
        a, b, between = kl(exact, engine), kl(base, rows), kl(engine, rows)
        print(f"{name}: mean KL of the engine {a:.7f}, in transformers {b:.7f}, between them {between:.2e}, {cache.nbytes} bytes")
        # A code at a tie, or a router's choice, may fall otherwise; the first pages, before any code does, are equal.
        assert abs(a - b) < 0.1 * a + 1e-7 and between < 0.1 * a + 1e-7, name
        assert np.abs(engine[:64] - rows[:64]).max() < 2e-3, name
    rows, engine = theirs(m, KvantCache(m.config, k="tbq4_0", exact_tail=0)), ours("tbq4_0", 0)
    assert np.abs(engine[:64] - rows[:64]).max() < 1e-3, "without an exact tail"
    assert kl(exact, theirs(m, KvantCache(m.config, k="tbq3_0"))) > 1.3 * kl(exact, theirs(m, KvantCache(m.config, k="tbq4_0"))), "a coarser format is told apart"
    out = m.generate(torch.tensor([TOKENS[:70]]), past_key_values=KvantCache(m.config, k="q8_0"), max_new_tokens=3, do_sample=False)
    assert out.shape == (1, 73), out.shape
    try:
        KvantCache(m.config, k="tbq4_0", exact_tail=10)
    except ValueError as e:
        assert "multiple of 64" in str(e), e
    else:
        raise AssertionError("exact_tail 10 was taken")
    print("try_transformers: passed")


main()
