#!/usr/bin/env python3
"""check_convert_fp8 BUILD: a folder of tests/convert with its matrices as FP8 and scales becomes the file that the same values in F32
become, byte for byte, by blocks and by tensors, experts and latent attention too; wrong scales and blocks are refused by name."""
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

from support.serve import Checks
from support.tensors import load, store

KVANT = os.path.join(sys.argv[1] if len(sys.argv) > 1 else "build/release", "bin", "kvant")
C = Checks("check_convert_fp8")
check = C.ok


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def e4m3(b):
    e, m = b >> 3 & 15, b & 7
    if b & 127 == 127:
        return math.copysign(math.nan, -1 if b & 128 else 1)
    return (-1 if b & 128 else 1) * ((8 + m) * 2.0 ** (e - 10) if e else m * 2.0 ** -9)


def pack(values):
    return struct.pack(f"<{len(values)}f", *values)


def bf16(values):
    """Rounded towards zero; the bytes, and what they stand for."""
    data = b"".join(struct.pack("<f", v)[2:] for v in values)
    return data, [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def quantized(tensors, block, nan=False, short=False):
    """The tensors with FP8 matrices, and the same values as F32.  nan: some codes are NaN; short: the scales are BF16."""
    rng, low, wide = random.Random(1), {}, {}
    for name, (dtype, shape, data) in tensors.items():
        low[name] = wide[name] = (dtype, shape, data)
        if len(shape) not in (2, 3) or "_proj" not in name:
            continue
        height, width = shape[-2:]
        rows, cols = block or shape[-2:]
        across, down, experts = -(-width // cols), -(-height // rows), shape[0] if len(shape) == 3 else 1
        scales = [f32(rng.uniform(.001, .01)) for _ in range(experts * down * across)]
        data = pack(scales)
        if short:
            data, scales = bf16(scales)
        codes = [rng.choice([c for c in range(256) if nan or c & 127 != 127]) for _ in range(experts * height * width)]
        values = [f32(e4m3(c) * scales[(i // (height * width) * down + i // width % height // rows) * across + i % width // cols])
                  for i, c in enumerate(codes)]
        low[name] = ("F8_E4M3", shape, bytes(codes))
        low[name + "_scale_inv"] = ("BF16" if short else "F32", ([experts] if len(shape) == 3 else []) +
                                     ([down, across] if block else [1, 1] if short and len(shape) == 3 else []), data)
        wide[name] = ("F32", shape, pack(values))
    return low, wide


def stacked(tensors):
    """The matrices of single experts as experts.gate_up_proj and experts.down_proj of three dimensions."""
    out = {k: v for k, v in tensors.items() if ".experts." not in k}
    for prefix in sorted({k.split(".experts.")[0] for k in tensors if ".experts." in k}):
        of = lambda e, part: tensors.get(f"{prefix}.experts.{e}.{part}.weight")
        n = sum(of(e, "down_proj") is not None for e in range(1000))
        high, wide = of(0, "gate_proj")[1]
        dtype = of(0, "gate_proj")[0]
        out[prefix + ".experts.gate_up_proj"] = (dtype, [n, 2 * high, wide], b"".join(of(e, p)[2] for e in range(n) for p in ("gate_proj", "up_proj")))
        out[prefix + ".experts.down_proj"] = (dtype, [n, *of(0, "down_proj")[1]], b"".join(of(e, "down_proj")[2] for e in range(n)))
    return out


def convert(source, tensors, config, folder, out, outtype="f32"):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    store(os.path.join(folder, "model.safetensors"), tensors)
    path = os.path.join(folder, "config.json")
    text = json.load(open(path))
    text.update({"quantization_config": config} if config else {})
    json.dump(text, open(path, "w"))
    done = subprocess.run([KVANT, "convert", folder, out, "--outtype", outtype], capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    source, work = "tests/convert/llama", tempfile.mkdtemp()
    tensors = load(os.path.join(source, "model.safetensors"))
    folder, out = os.path.join(work, "model"), os.path.join(work, "out.gguf")
    name = next(k for k in tensors if k.endswith("down_proj.weight"))

    for model in ("llama", "stacked deepseek2", "deepseek2"):
        path = os.path.join("tests/convert", model.split()[-1])
        whole = load(os.path.join(path, "model.safetensors"))
        whole = stacked(whole) if "stacked" in model else whole
        for block, nan, short in (([16, 24], False, False), ([128, 128], False, True), ([5, 7], True, False), (None, True, False), (None, False, True)):
            low, wide = quantized(whole, block, nan, short)
            config = {"quant_method": "fp8", "weight_block_size": block}
            code, text = convert(path, low, config, folder, out)
            check(code == 0, f"{model}, {block}: exit code {code}: {text}")
            got = open(out, "rb").read() if code == 0 else b""
            code, text = convert(path, wide, None, folder, out)
            check(code == 0 and got == open(out, "rb").read(), f"{model}, {block}: other bytes than from F32 ({code}: {text})")

    low, _ = quantized(whole, [16, 24], short=True)
    low = {k: v if v[0] != "BF16" or k.endswith("_scale_inv") else
           ("F32", v[1], b"".join(b"\0\0" + v[2][i:i + 2] for i in range(0, len(v[2]), 2))) for k, v in low.items()}
    code, text = convert(path, low, {"quant_method": "fp8", "weight_block_size": [16, 24]}, folder, out, "auto")
    check(code == 0 and open(out, "rb").read().find(b"general.file_type\x04\0\0\0\x01\0\0\0") > 0,
          f"auto: not F16, where only scales have 16 bits ({code}: {text})")

    low, wide = quantized(tensors, None)
    low = {k.replace("weight_scale_inv", "weight_scale"): v for k, v in low.items()}
    low[name.replace("weight", "input_scale")] = ("F32", [], pack([1.0]))
    code, text = convert(source, low, {"quant_method": "fp8"}, folder, out)
    got = open(out, "rb").read() if code == 0 else b""
    check(convert(source, wide, None, folder, out)[0] == 0 and got == open(out, "rb").read(), f"weight_scale: other bytes ({code}: {text})")

    low, wide = quantized(stacked(whole), None)
    low = {k.replace("_scale_inv", "_scale"): v for k, v in low.items()}
    one = next(k for k in low if k.endswith("gate_up_proj"))
    low[one + "_activation_scale"] = low[one + "_scale"]
    code, text = convert(path, low, {"quant_method": "fp8"}, folder, out)
    got = open(out, "rb").read() if code == 0 else b""
    check(convert(path, wide, None, folder, out)[0] == 0 and got == open(out, "rb").read(), f"gate_up_proj_scale: other bytes ({code}: {text})")
    low[one + "_scale"] = ("F32", low[one + "_scale"][1] + [2], low[one + "_scale"][2] * 2)
    code, text = convert(path, low, {"quant_method": "fp8"}, folder, out)
    check(code > 1 and "1 x 1 for each expert wanted" in text, f"two scales for an expert: exit code {code}: {text}")

    low, _ = quantized(tensors, [16, 24])
    scales = low[name + "_scale_inv"]
    fp8 = {"quant_method": "fp8", "weight_block_size": [16, 24]}
    bad = [
        ("without scales", {k: v for k, v in low.items() if k != name + "_scale_inv"}, fp8, f"{name}: FP8 without scales"),
        ("a row of scales too many", {**low, name + "_scale_inv": ("F32", [scales[1][0] + 1, scales[1][1]],
                                                                    scales[2] + bytes(4 * scales[1][1]))}, fp8, "scales, "),
        ("whole numbers as scales", {**low, name + "_scale_inv": ("I32", scales[1], scales[2])}, fp8, "scales are I32"),
        ("scales of a norm", {**low, "model.norm.weight_scale_inv": ("F32", [1, 1], bytes(4))}, fp8, "F8_E4M3 wanted"),
        ("scales of nothing", {**low, "model.nothing.weight_scale_inv": ("F32", [1, 1], bytes(4))}, fp8, "not there"),
        ("scales of blocks for a tensor", low, {"quant_method": "fp8"}, "1 x 1 wanted"),
        ("a block of 0", low, {**fp8, "weight_block_size": [0, 24]}, "weight_block_size"),
        ("a block of three", low, {**fp8, "weight_block_size": [1, 2, 3]}, "weight_block_size"),
        ("a word as block", low, {**fp8, "weight_block_size": "big"}, "weight_block_size"),
        ("another method", low, {**fp8, "quant_method": "fp9"}, "quant_method"),
    ]
    for what, files, config, says in bad:
        if os.path.exists(out):
            os.unlink(out)
        code, text = convert(source, files, config, folder, out)
        check(code not in (0, 1) and code > 0 and says in text, f"{what}: exit code {code}: {text}, wanted \"{says}\"")
        check(not os.path.exists(out), f"{what}: a file was left")
    shutil.rmtree(work)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
