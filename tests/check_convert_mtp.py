#!/usr/bin/env python3
"""check_convert_mtp BUILD: a folder with a block behind the trunk for further tokens (MTP), as each family publishes it, becomes a file that has
the block under the field's names, with the values it had; --spec mtp and quantize take it, and what is left out is named."""
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from support.serve import Checks
from support.tensors import load, store

KVANT = os.path.join(sys.argv[1] if len(sys.argv) > 1 else "build/release", "bin", "kvant")
C = Checks("check_convert_mtp")
check = C.ok
DEEPSEEK = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "norm": "shared_head.norm", "head": "shared_head.head", "embed": "embed_tokens"}
QWEN = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "norm": "norm"}
GLM = {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_size": 32, "intermediate_size": 32, "head_dim": 16, "num_attention_heads": 2,
       "num_key_value_heads": 1, "num_hidden_layers": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1,
       "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0, "num_nextn_predict_layers": 1,
       "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "vocab_size": 272, "max_position_embeddings": 1024, "hidden_act": "silu",
       "attention_bias": False, "attention_dropout": 0.0, "use_qk_norm": False, "tie_word_embeddings": False, "eos_token_id": 261, "pad_token_id": None,
       "dtype": "bfloat16", "initializer_range": 0.02, "rope_scaling": None, "use_cache": True}


def run(*words):
    done = subprocess.run([KVANT, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def made(rng, *shape, norm=False):
    """Values that 16 bits hold."""
    n = 1
    for d in shape:
        n *= d
    values = [rng.randrange(1, 64) / 64 if norm else rng.randrange(-64, 64) / 256 for _ in range(n)]
    return "BF16", list(shape), b"".join(struct.pack("<f", v)[2:] for v in values)


def wide(tensor, plus=0.0):
    data = tensor[2]
    values = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] + plus for i in range(0, len(data), 2)]
    return struct.pack(f"<{len(values)}f", *values)


def glm(rng):
    """Tensors of a GLM-4.5 of two layers, the second a mixture."""
    out = {"model.embed_tokens.weight": made(rng, 272, 32), "model.norm.weight": made(rng, 32, norm=True), "lm_head.weight": made(rng, 272, 32)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[f"{at}{name}.weight"] = made(rng, 32, norm=True)
        for name, rows, cols in (("q", 32, 32), ("k", 16, 32), ("v", 16, 32), ("o", 32, 32)):
            out[f"{at}self_attn.{name}_proj.weight"] = made(rng, rows, cols)
        parts = ["mlp"] if layer == 0 else ["mlp.shared_experts"] + [f"mlp.experts.{e}" for e in range(4)]
        for part in parts:
            wide_of = 32 if part == "mlp" else 16
            for name, shape in (("gate_proj", (wide_of, 32)), ("up_proj", (wide_of, 32)), ("down_proj", (32, wide_of))):
                out[f"{at}{part}.{name}.weight"] = made(rng, *shape)
        if layer == 1:
            out[at + "mlp.gate.weight"] = made(rng, 4, 32)
            out[at + "mlp.gate.e_score_correction_bias"] = made(rng, 4)
    return out


def with_block(tensors, names, rng):
    """The tensors and a block behind them: the last layer's, and what a block for further tokens has beside."""
    qwen, out = names is QWEN, {k: v for k, v in tensors.items() if "mtp." not in k and "layers.2." not in k}
    last = [k for k in out if ".layers.1." in k]
    at = "mtp.layers.0." if qwen else "model.layers.2."
    for name in last:
        out[at + name.split(".layers.1.")[1]] = out[name]
    own = {"eh_proj": (32, 64), "enorm": (32,), "hnorm": (32,), "norm": (32,), "head": (272, 32), "embed": (272, 32)}
    new = {part: ("mtp." if qwen else at) + name + ".weight" for part, name in names.items()}
    for part, name in new.items():
        out[name] = made(rng, *own[part], norm=len(own[part]) == 1)
    return out, new


def folder_of(work, source, tensors, config=None):
    folder = os.path.join(work, "model")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join("tests/convert", source), folder)
    store(os.path.join(folder, "model.safetensors"), tensors)
    if config:
        json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    return folder


def listed(path):
    """Names and numbers of values of a file's tensors, and its keys."""
    code, text, _ = run("inspect", "-m", path, "--tensors")
    keys = run("inspect", "-m", path, "--keys")[1]
    return dict(re.findall(r"^(\S+\.(?:weight|bias)|\S+ssm_a) .*(\[.*\])$", text, re.M)) if code == 0 else {}, keys


def check_file(family, out, more):
    names, keys = listed(out)
    block = {n.replace("blk.2.", "") for n in names if n.startswith("blk.2.")}
    trunk = {n.replace("blk.1.", "") for n in names if n.startswith("blk.1.")}
    check(trunk and block == trunk | {f"nextn.{n}.weight" for n in more}, f"{family}: the block has {sorted(block ^ trunk)} more or less than layer 1")
    check(re.search(r"\.block_count +u32 +3\n", keys) and re.search(r"\.nextn_predict_layers +u32 +1\n", keys), f"{family}: keys {keys}")


def check_use(family, out, work):
    text = ["-p", "one two three four five six seven", "-n", "24", "--temp", "0", "--ignore-eos", "-t", "1", "-c", "128"]
    small = os.path.join(work, "small.gguf")
    code, _, err = run("quantize", out, small, "Q8_0")
    check(code == 0, f"{family}: quantize: {err}")
    check({n for n in listed(small)[0]} == {n for n in listed(out)[0]}, f"{family}: quantize has other tensors")
    for path in (out, small):
        plain, drafts = run("run", "-m", path, "--spec", "off", *text), run("run", "-m", path, "--spec", "mtp", "--draft-max", "2", "--draft-p-min", "0", *text)
        check(plain[0] == 0 and drafts[0] == 0 and plain[1] == drafts[1], f"{family}: {plain}, with the block {drafts}")
        seen = re.search(r"drafts: (\d+) tokens", drafts[2])
        check(seen and int(seen[1]) > 10, f"{family}, {os.path.basename(path)}: drafts: {drafts[2][-300:]}")


def check_family(family, source, tensors, names, config, work):
    rng, out = random.Random(family), os.path.join(work, "out.gguf")
    both, new = with_block(tensors, names, rng)
    folder = folder_of(work, source, both, config)
    code, text, err = run("convert", folder, out, "--outtype", "f32")
    check(code == 0 and "1 of its blocks predicts further tokens" in text and "(MTP)" not in err, f"{family}: exit code {code}: {text}{err}")
    if code:
        return
    here = {"norm": "shared_head_norm", "head": "shared_head_head", "embed": "embed_tokens"}
    check_file(family, out, [here.get(part, part) for part in names])
    data = open(out, "rb").read()
    for part, name in new.items():
        check(wide(both[name], 1.0 if names is QWEN and "norm" in part else 0.0) in data, f"{family}: other values of {name}")
    check_use(family, out, work)
    code, text, err = run("convert", folder, out, "--outtype", "f32", "--no-mtp")
    check(code == 0 and "predict" not in text and "(MTP)" not in err and not any(n.startswith("blk.2.") for n in listed(out)[0]), f"{family}, --no-mtp: {text}{err}")
    for part in ("eh_proj", "enorm", "hnorm"):
        store(os.path.join(folder, "model.safetensors"), {k: v for k, v in both.items() if k != new[part]})
        code, text, err = run("convert", folder, out, "--outtype", "f32")
        check(code == 0 and f"no {part}.weight" in err and "predict" not in text, f"{family} without {part}: {text}{err}")


def main():
    work = tempfile.mkdtemp()
    for source, names in (("qwen3next", QWEN), ("qwen35", QWEN), ("deepseek2", DEEPSEEK)):
        check_family(source, source, load(f"tests/convert/{source}/model.safetensors"), names, None, work)
    check_family("glm4moe", "deepseek2", glm(random.Random(1)), DEEPSEEK, GLM, work)
    shutil.rmtree(work)
    return C.end()


sys.exit(main())
