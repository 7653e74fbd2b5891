#!/usr/bin/env python3
"""check_hf_configs.py: `kvant convert` against Transformers: small random models with published config.json files, and with every
field of every configuration class changed in turn.  Needs transformers and torch; not part of CI.

    python3 tools/check_hf_configs.py published [NAME...]     the configurations of tools/hf_configs.json
    python3 tools/check_hf_configs.py fields [CLASS...]       every field of the inventory, other values
    options before the words: --kvant PROGRAM, --json OUT     default build/release/bin/kvant; results as JSON

A model passes when every log-probability of a random text differs from Transformers' (eager attention, f32) by at most 4e-4, or
when convert refuses it and names the field.  Values that Transformers itself does not take are left out."""
import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")
import torch
import transformers
from transformers import AutoConfig

transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
LIMIT = 4e-4
TEXT = 160          # ids of the text, longer than every window and original context here
VOCABULARY = 320
ZERO_NORMS = ("gemma2", "gemma3", "gemma3_text", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    names = {b: chr(b) for b in plain}
    names.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return [names[b] for b in range(256)]


def write_tokenizer(folder, characters):
    tokens = {f"<0x{b:02X}>": b for b in range(256)} if characters else {t: b for b, t in enumerate(alphabet())}
    pair = ("a", "b") if characters else ("\u0120", "t")
    if characters:
        tokens.update(a=260, b=261)
    tokens["".join(pair)] = 262 if characters else 256
    merges = [list(pair)]
    special = [{"id": 257 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, t in enumerate(("<|a|>", "<|b|>", "<|c|>"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False, "byte_fallback": characters, "ignore_merges": False, "vocab": tokens, "merges": merges}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
             "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"} if characters else None,
             "pre_tokenizer": None if characters else {"type": "Sequence", "pretokenizers": [split, level]},
             "post_processor": None, "decoder": None if characters else level, "model": model}
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(whole, file)
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token": "<|c|>", "tokenizer_class": "PreTrainedTokenizerFast"}, file)


def fill(model, model_type, seed):
    torch.manual_seed(seed)
    zero = model_type in ZERO_NORMS
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() >= 2:
                p.normal_(0, p.shape[-1] ** -.5)
            elif "norm" in name:
                p.copy_(.2 * torch.randn_like(p) + (0 if zero and "linear_attn.norm" not in name else 1))
            elif "A_log" not in name and "dt_bias" not in name:
                p.normal_(0, .2)
        for name, b in model.named_buffers():
            if "e_score_correction_bias" in name or "expert_bias" in name:
                b.normal_(0, .2)


def make(folder, config, seed=0):
    """Writes the folder; Transformers' log-probabilities of ids[1:]."""
    parsed = AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config["architectures"][0])._from_config(parsed, attn_implementation="eager").float().eval()
    fill(model, parsed.model_type, seed)
    model.save_pretrained(folder)
    for extra in ("generation_config.json", "config.json"):
        if os.path.exists(f"{folder}/{extra}"):
            os.remove(f"{folder}/{extra}")
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    write_tokenizer(folder, parsed.model_type.startswith("gemma4"))
    g = torch.Generator().manual_seed(5)
    ids = [int(i) for i in torch.randint(0, 256, (TEXT,), generator=g)]
    with torch.no_grad():
        scores = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
    return ids, [float(scores[i, ids[i + 1]]) for i in range(len(ids) - 1)]


def ask(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def served(kvant, file, ids):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen([kvant, "serve", "-m", file, "--port", str(port), "-np", "1", "-c", "1024", "-t", "1",
                                   "--compute", "f32", "-ctk", "f32", "-ctv", "f32"], stdout=log, stderr=log)
        try:
            for _ in range(400):
                try:
                    ask(port, "/health")
                    break
                except OSError:
                    if server.poll() is not None:
                        log.seek(0)
                        return None, log.read().decode()[-300:]
                    time.sleep(.02)
            got = ask(port, "/v1/completions", {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0})
            return got["choices"][0]["logprobs"]["token_logprobs"][1:], ""
        finally:
            server.terminate()
            server.wait()


def check(kvant, config, fields=()):
    """(state, number or text): same, refused, other, failed; hf where Transformers does not take it."""
    root = tempfile.mkdtemp(prefix="kvant-hf-")
    folder, out = f"{root}/m", f"{root}/m.gguf"
    try:
        os.makedirs(folder)
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        run = subprocess.run([kvant, "convert", folder, out], capture_output=True, text=True, timeout=120)
        if "architecture " in run.stderr:
            return "refused", run.stderr.strip().splitlines()[-1][:100], None
        try:
            ids, want = make(folder, config)
        except Exception as error:  # whatever a class raises
            return "hf", f"{type(error).__name__}: {str(error)[:200]}", None
        if any(x != x for x in want):
            return "hf", "NaN", want
        run = subprocess.run([kvant, "convert", folder, out, "--outtype", "f32"], capture_output=True, text=True, timeout=120)
        if run.returncode:
            text = run.stderr.strip().splitlines()[-1]
            named = not fields or any(f in text for f in fields)
            return ("refused" if named else "failed"), text, want
        got, text = served(kvant, out, ids)
        if got is None:
            return "failed", text, want
        off = max(abs(a - b) for a, b in zip(got, want))
        return ("same" if off <= LIMIT else "other"), off, want
    finally:
        shutil.rmtree(root, ignore_errors=True)


# ---- every field ----

BASE = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "bos_token_id": 257, "eos_token_id": 259,
        "pad_token_id": None, "tie_word_embeddings": False}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MLA = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8,
       "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "head_dim": None,
       "num_key_value_heads": 4, "num_nextn_predict_layers": 0, "n_shared_experts": 1}
GDN = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "sliding_window": None,
       "layer_types": ["linear_attention", "full_attention"] * 2}
OWN = {
    "Qwen2MoeConfig": {**MOE, "shared_expert_intermediate_size": 48}, "Qwen3MoeConfig": MOE, "MixtralConfig": {"num_local_experts": 4},
    "GraniteMoeConfig": {"num_local_experts": 4}, "GraniteMoeSharedConfig": {"num_local_experts": 4, "shared_intermediate_size": 48},
    "Glm4MoeConfig": {**MOE, "n_routed_experts": 8, "num_experts": None, "n_group": 1, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0},
    "Dots1Config": {**MOE, "num_experts": None, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "sliding_window": None},
    "Ernie4_5_MoeConfig": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 1, "head_dim": None},
    "MiniMaxM2Config": {"num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 8}, "GptOssConfig": {"num_local_experts": 4, "num_experts_per_tok": 2,
    "sliding_window": 32}, "DeepseekV2Config": {**MLA, "topk_method": "group_limited_greedy"}, "DeepseekV3Config": MLA,
    "Lfm2Config": {"layer_types": ["conv", "full_attention"] * 2, "block_auto_adjust_ff_dim": False, "head_dim": None},
    "Lfm2MoeConfig": {**MOE, "layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1, "head_dim": None},
    "Qwen3NextConfig": {**GDN, **MOE, "shared_expert_intermediate_size": 48}, "Qwen3_5TextConfig": GDN,
    "Qwen3_5MoeTextConfig": {**GDN, **MOE, "shared_expert_intermediate_size": 48},
    "Gemma2Config": {"sliding_window": 32, "tie_word_embeddings": True}, "Gemma3TextConfig": {"sliding_window": 32, "tie_word_embeddings": True, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "Olmo3Config": {"sliding_window": 32}, "Exaone4Config": {"sliding_window": 32}, "Phi3Config": {"head_dim": None}, "MistralConfig": {"sliding_window": 32},
    "Olmo2Config": {"head_dim": None}, "Qwen2Config": {"head_dim": None}, "GraniteConfig": {"head_dim": None, "attention_multiplier": 0.25},
    "Gemma4TextConfig": {"sliding_window": 32, "hidden_size_per_layer_input": 0, "tie_word_embeddings": True, "global_head_dim": 32,
                         "vocab_size_per_layer_input": VOCABULARY, "num_kv_shared_layers": 0,
                         "layer_types": ["sliding_attention", "full_attention"] * 2},
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
NESTED = {"sliding_attention": {"rope_type": "default", "rope_theta": 300.0}, "full_attention": {**YARN, "rope_theta": 20000.0}}
ROPES = [NESTED, {**NESTED, "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}},
         {"full_attention": {"rope_type": "default", "rope_theta": 700.0}},
         {"rope_type": "linear", "factor": 2.5, "rope_theta": 20000.0}, YARN, {**YARN, "attention_factor": 0.7}, {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
         {**YARN, "mscale": 0.7, "mscale_all_dim": 0.9}, {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}, {**YARN, "truncate": False},
         {**YARN, "mscale_all_dim": 1.0}, {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
         {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0},
         {"rope_type": "default", "rope_theta": 777.0}, {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
         {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0, "half": True},
         {"rope_type": "longrope", "original_max_position_embeddings": 64, "rope_theta": 10000.0, "attention_factor": 1.3, "half": True},
         {"rope_type": "default", "rope_theta": 10000.0, "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
          "full_attention": {"rope_type": "default", "rope_theta": 10000.0}}]
VALUES = {
    "hidden_act": ["relu", "gelu", "gelu_pytorch_tanh", "swish"], "hidden_activation": ["gelu", "relu", "silu", "gelu_new", "gelu_fast"],
    "sliding_window": [32, None, 1], "num_key_value_heads": [None, 1, 4], "head_dim": [None, 8, 32, 24], "max_window_layers": [0, 2, 28],
    "layer_types": [None, ["full_attention"] * 4, ["sliding_attention"] * 4, ["full_attention", "sliding_attention"] * 2,
                    ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]],
    "n_group": [1, 2, 4], "topk_group": [1, 2, 3], "num_experts_per_tok": [1, 3], "topk_method": ["greedy", "group_limited_greedy"],
    "q_lora_rank": [None, 16], "rms_norm_eps": [1e-2], "norm_eps": [1e-2], "mlp_only_layers": [[1]], "decoder_sparse_step": [2],
    "query_pre_attn_scalar": [16, 40, 256], "attn_logit_softcapping": [None, 2.0], "final_logit_softcapping": [None, 1.5],
    "no_rope_layers": [[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 0]], "no_rope_layer_interval": [2], "first_k_dense_replace": [0, 2, 4],
    "full_attn_idxs": [[0, 2]], "moe_layer_end_index": [2, 3, -1], "moe_layer_start_index": [0, 2], "use_bidirectional_attention": [True, "all"],
    "num_nextn_predict_layers": [0, 1], "num_mtp_layers": [0, 1], "sliding_window_pattern": [2, 3, 1], "conv_L_cache": [4], "partial_rotary_factor": [0.5, 0.25],
    "rotary_dim": [16, 4], "shared_intermediate_size": [0, 32], "moe_num_shared_experts": [0, 2], "n_shared_experts": [None, 1, 2],
    "rope_theta": [500.0], "rope_local_base_freq": [300.0], "num_dense_layers": [0, 2], "block_ff_dim": [80], "tie_word_embeddings": [True, False],
    "num_attention_heads": [2, 8], "per_layer_config": [], "original_max_position_embeddings": [64], "vocab_size_per_layer_input": [], "eos_token_id": [[259, 258]],
    "kv_sharing_modes": [], "num_kv_shared_layers": [2], "full_attention_interval": [2], "moe_k": [1, 3],
}
TWO = [("use_sliding_window", "sliding_window"), ("use_sliding_window", "max_window_layers", "sliding_window"),
       ("use_sliding_window", "layer_types", "sliding_window")]
# Fields that a class may not have: then Transformers reads none of them.
FOREIGN = {"scoring_func": "sigmoid", "n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.0, "qk_rope_head_dim": 8, "rotary_dim": 8, "sliding_window": 32,
           "attn_logit_softcapping": 5.0, "final_logit_softcapping": 5.0, "attention_multiplier": 0.3, "embedding_multiplier": 3.0, "logits_scaling": 4.0,
           "residual_multiplier": 0.5, "query_pre_attn_scalar": 7, "norm_topk_prob": True, "use_sliding_window": True, "clip_qkv": 0.5, "alibi": True,
           "parallel_residual": True, "use_parallel_residual": True, "hidden_activation": "relu", "attention_bias": True, "mlp_bias": True, "use_qk_norm": True,
           "num_nextn_predict_layers": 1, "tie_embedding": True, "rope_local_base_freq": 50.0, "no_rope_layers": [0, 0, 0, 0], "qk_layernorm": True,
           "layer_norm_eps": 0.1, "norm_eps": 0.1, "activation_function": "relu", "n_head": 2, "attention_sinks": True, "num_experts": 3,
           "shared_intermediate_size": 8, "global_head_dim": 8, "max_window_layers": 1, "kv_lora_rank": 8, "logit_scale": 3.0, "use_mrope": True}
ABSENT = ["num_key_value_heads", "head_dim", "tie_word_embeddings", "sliding_window", "layer_types", "num_experts_per_tok", "n_group", "topk_group",
          "rotary_dim", "first_k_dense_replace", "q_lora_rank", "shared_intermediate_size", "attention_multiplier", "num_dense_layers", "moe_k",
          "n_shared_experts", "moe_num_shared_experts", "num_attention_heads", "max_position_embeddings", "topk_method", "vocab_size_per_layer_input"]
LEAVE = {"architectures", "transformers_version", "id2label", "label2id", "problem_type", "vocab_size", "num_hidden_layers", "text_config", "vision_config",
         "audio_config", "dtype", "torch_dtype", "return_dict", "output_hidden_states", "output_attentions", "is_encoder_decoder", "pad_token_id", "bos_token_id",
         "max_position_embeddings", "name_or_path", "num_labels", "chunk_size_feed_forward"}


def inventory():
    text = open("src/make/convert/fields/hf_classes.def", encoding="utf-8").read()

    def parsed(part):
        return json.loads("".join(json.loads(s) for s in re.findall(r'"(?:\\.|[^"\\])*"', part)))
    for m in re.finditer(r'HF_CLASS\("(\w+)", "(\w*)", "([^"]*)", "(\w*)",\n(.*?)\)\n(?=\n|\Z)', text, re.S):
        parts = re.split(r',\n(?=    "[\[{])', m[5])
        yield m[1], m[2], m[3].split(), parsed(parts[0]), parsed(parts[1])


def other_values(name, default):
    if name in VALUES:
        return VALUES[name]
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, float):
        return [default * 1.5 + 0.25]
    if isinstance(default, int):
        return [128] if default >= 512 else [default + 1, default * 2]
    return [0.5, 2, True] if default is None else []


def variants(fields, more, base):
    half = base.get("qk_rope_head_dim") or base.get("head_dim") or base["hidden_size"] // base["num_attention_heads"]
    for name in [*fields, *more]:
        if name in LEAVE or name.startswith("_"):
            continue
        if name == "rope_parameters":
            for rope in ROPES:
                value = dict(rope)
                if value.pop("half", False):
                    value.update(long_factor=[1 + .5 * i for i in range(half // 2)], short_factor=[1 + .1 * i for i in range(half // 2)])
                yield (name, "rope_type", "rope_theta", *rope), {name: value}
            continue
        if name == "rope_scaling":
            yield (name, "factor", "type"), {name: {"type": "linear", "factor": 3.0}}
            yield (name, "factor", "rope_type"), {name: {"rope_type": "linear", "factor": 3.0}}
            yield (name, "rope_type", "factor", "truncate"), {name: {k: v for k, v in YARN.items() if k != "rope_theta"}, "rope_theta": 5000.0}
            continue
        for value in other_values(name, fields.get(name)):
            yield (name,), {name: value}
    for name, value in FOREIGN.items():
        if name not in fields and name not in more:
            yield (name,), {name: value}
    for name in ABSENT:
        if base.get(name) is not None and (name in fields or name in more):
            yield (name,), {name: "(absent)"}
    for names in TWO:
        if all(n in fields for n in names):
            change = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1 if len(names) == 3 else 9,
                      "layer_types": ["full_attention", "sliding_attention"] * 2}
            yield names, {n: change[n] for n in names}


def sweep(kvant, wanted, results):
    bad = 0
    for cls, model_type, archs, fields, more in inventory():
        archs = [a for a in archs if hasattr(transformers, a)]
        if not archs or "text_config" in fields or (wanted and cls not in wanted):
            continue
        base = {**BASE, "architectures": archs[:1], "model_type": model_type, **OWN.get(cls, {})}
        base = {k: v for k, v in base.items() if v is not None or k in ("pad_token_id", "sliding_window")}
        state, value, plain = check(kvant, base)
        print(f"{cls}: base {state} {value}", flush=True)
        bad += state != "same"
        for names, change in variants(fields, more, base):
            config = {k: v for k, v in {**base, **change}.items() if v != "(absent)"}
            state, value, want = check(kvant, config, names)
            moved = want is not None and plain is not None and any(abs(a - b) > 1e-6 for a, b in zip(want, plain))
            results.append([cls, change, state, value if state != "same" else round(value, 8), bool(moved)])
            wrong = state in ("other", "failed")
            bad += wrong
            if wrong or "-v" in sys.argv:
                print(f"  {cls} {json.dumps(change)}: {state} {value}{'' if moved else ' (no change for Transformers)'}", flush=True)
    return bad


def published(kvant, wanted, results):
    bad = 0
    for name, config in json.load(open("tools/hf_configs.json", encoding="utf-8")).items():
        if wanted and name not in wanted:
            continue
        state, value, _ = check(kvant, config)
        results.append([name, state, value])
        wrong = state not in ("same", "refused")
        bad += wrong
        print(f"{name:28s} {state} {value}", flush=True)
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kvant", default="build/release/bin/kvant")
    p.add_argument("--json")
    p.add_argument("-v", action="store_true")
    p.add_argument("what", choices=("published", "fields"))
    p.add_argument("words", nargs="*")
    o = p.parse_args()
    results = []
    bad = (published if o.what == "published" else sweep)(o.kvant, o.words, results)
    states = {s: sum(1 for r in results if r[2 if o.what == "fields" else 1] == s) for s in ("same", "refused", "hf", "other", "failed")}
    print(f"{o.what}: {states}, {bad} wrong; transformers {transformers.__version__}")
    if o.json:
        with open(o.json, "w", encoding="utf-8") as file:
            json.dump({"transformers": transformers.__version__, "limit": LIMIT, "counts": states, "results": results}, file, indent=0)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
