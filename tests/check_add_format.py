#!/usr/bin/env python3
"""check_add_format.py: what docs/howto-format.md promises.  A made-up cache format of five bits is added to a copy of the tree by its
card, its reference, its specification, its golden file and one line in formats.def; nothing else is touched.  The copy builds, golden
vectors hold, every rung of this CPU runs it (the vectorised ones as `kvant verify` reports them), the Vulkan device on lavapipe does, and
its CUDA decoder compiles."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from support.chosen import cases
from support.serve import ROOT, Checks

LAVAPIPE = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"
NAME = "made5"
ELSEWHERE = [f"turn {i}" for i in range(7)]         # while nothing changed it builds in one turn of eight
CARD = """# made5: [d f16][20 bytes]: code j at bits 5j .. 5j+4 of the stream; 16 is zero.
values = 32
bytes = 22
scale = { at = 0, type = "f16" }
codes = { at = 2, bits = 5, order = "stream" }
centre = 16
space = "real"
"""
REFERENCE = r"""/* made5: 22 bytes per 32 values: [d fp16][qs u8 x 20], x = d*(n - 16); code j at bits 5j .. 5j+4 of qs.
 * upstream: d = (value of largest magnitude)/-16, n = min(31, trunc(x*(1/d) + 16.5)).  best: search.h. */
#include <math.h>
#include "base/half.h"
#include "formats/encoders/search.h"
#include "formats/format.h"

static const search_book book = { .lo = -16, .hi = 15 };

static int made5_code(float v)
{
    float t = v + 16.5f;
    if (!(t >= 0.0f))
        return t != t ? 16 : 0;
    return t >= 31.0f ? 31 : (int)t;
}

static void made5_encode_group(const void *param, const float *x, uint8_t *bytes, int encoder)
{
    float amax = 0.0f, top = 0.0f;
    int code[32];
    (void)param;
    for (int j = 0; j < 32; j++)
        if (fabsf(x[j]) > amax) {
            amax = fabsf(x[j]);
            top = x[j];
        }
    float d = top / -16.0f, id = d != 0.0f ? 1.0f / d : 0.0f;
    for (int j = 0; j < 32; j++)
        code[j] = made5_code(x[j] * id) - 16;
    uint16_t scale = format_norm(d, encoder);
    if (encoder == KVANT_ENCODER_BEST) {
        search_scale(&book, x, 32, d, code, &scale);
        search_scale(&book, x, 32, -d, code, &scale);
        scale = search_unbiased(&book, x, 32, code, scale);
    }
    memset(bytes, 0, 22);
    store_u16(bytes, scale);
    for (int j = 0; j < 32; j++)
        for (int k = 0; k < 5; k++)
            bytes[2 + (5 * j + k) / 8] |= (uint8_t)(((code[j] + 16) >> k & 1) << (5 * j + k) % 8);
}

static void made5_decode_group(const void *param, const uint8_t *bytes, float *acc)
{
    float d = half_to_f32(load_u16(bytes));
    (void)param;
    for (int j = 0; j < 32; j++) {
        int code = 0;
        for (int k = 0; k < 5; k++)
            code |= (bytes[2 + (5 * j + k) / 8] >> (5 * j + k) % 8 & 1) << k;
        acc[j] = d * (float)(code - 16);
    }
}

KVANT_FORMAT_REAL_SPACE(made5, 32)
KVANT_FORMAT_DEFINE(made5, "", 32, 22, 32, 0);
"""
CUDA = '#include "cards/decode.h"\n__global__ void f(const uint8_t *row, float *x)\n{\n    x[threadIdx.x] = fmt_made5(row, (int)threadIdx.x, 1.0f);\n}\n'
checks = Checks("check_add_format")
begun = time.monotonic()


def said(what):
    print(f"{time.monotonic() - begun:.0f} s: {what}", flush=True)


def floats(values):
    return struct.pack(f"<{len(values)}f", *values).hex()


def golden():
    """Rows whose arithmetic is exact: multiples of a quarter of a power of two, so that codes and values follow from the card alone."""
    vectors = []
    for i, d in enumerate((1.0, 0.25, -2.0)):
        codes = [(7 * j + 5 * i) % 31 + 1 for j in range(128)]
        for b in range(4):
            codes[32 * b + 3 * i] = 0                                # the value of largest magnitude
        enc = b""
        for b in range(4):
            enc += struct.pack("<e", d) + sum(c << 5 * j for j, c in enumerate(codes[32 * b:32 * b + 32])).to_bytes(20, "little")
        x = [d * (c - 16) + (d / 4 if 0 < c < 31 else 0) for c in codes]
        vectors.append({"name": f"row {i}", "x_f32": floats(x), "enc": enc.hex(), "dec_f32": floats([d * (c - 16) for c in codes])})
    return json.dumps({"format": f"{NAME} (22 bytes per 32)", "block_bytes": 22, "blocks_per_row": 4, "vectors": vectors})


def add_format(tree):
    for path, text in ((f"src/formats/plain/{NAME}.toml", CARD), (f"src/formats/plain/{NAME}.c", REFERENCE), (f"tests/golden/{NAME}.json", golden()),
                       (f"docs/formats/{NAME}.md", f"# {NAME}\n\n22 bytes per 32 values: a scale in fp16, then 32 codes of 5 bits.\n")):
        with open(os.path.join(tree, path), "x", encoding="utf-8") as f:
            f.write(text)
    with open(os.path.join(tree, "src/formats/formats.def"), "a", encoding="utf-8") as f:
        f.write(f"KVANT_FORMAT({NAME})\n")


def copy_tree(to):
    def leave(folder, names):
        return [n for n in names if n == "__pycache__" or folder == ROOT and n in (".git", "build", "models", "bench", "docs")]
    shutil.copytree(ROOT, to, symlinks=True, ignore=leave, ignore_dangling_symlinks=True)
    shutil.copytree(os.path.join(ROOT, "docs", "formats"), os.path.join(to, "docs", "formats"))


def run(*command, **env):
    r = subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    return r.returncode, r.stdout + r.stderr


def build(tree):
    """The program, without optimisation, of the shaders too: what counts here is that it builds and computes the right thing."""
    folder, glslc = os.path.join(tree, "build", "debug"), os.path.join(tree, "glslc")
    with open(glslc, "w", encoding="utf-8") as f:
        f.write('#!/bin/sh\nfor a; do shift; [ "$a" = -O ] || set -- "$@" "$a"; done\nexec glslc "$@"\n')
    os.chmod(glslc, 0o755)
    options = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O0", "-DKVANT_CUDA=OFF", "-DKVANT_TESTS=OFF", "-DKVANT_SERVER=OFF"]
    options += [f"-DKVANT_GLSLC={glslc}"] if shutil.which("glslc") else ["-DKVANT_VULKAN=OFF"]
    code, text = run("cmake", "-S", tree, "-B", folder, "-G", "Ninja", *options)
    if code == 0:
        code, text = run("cmake", "--build", folder, "--target", "kvant")
    return folder, code, text


def check_cpu(kvant, tree):
    alone = os.path.join(tree, "golden")                           # the other files are check_golden's
    os.mkdir(alone)
    shutil.copy(os.path.join(tree, "tests", "golden", f"{NAME}.json"), alone)
    code, text = run(kvant, "verify", "--golden", alone)
    checks.ok(code == 0 and f"{NAME}.json" in text, f"golden: {code}: {text[-600:]}")
    report = os.path.join(tree, "report.json")
    code, text = run(kvant, "verify", "--quick", "--formats", NAME, "--json", report)
    if not checks.ok(code == 0, f"verify: {code}: {text[-600:]}"):
        return
    with open(report, encoding="utf-8") as f:
        kernels = [k for k in json.load(f)["kernels"] if k["format"] == NAME]
    rungs = {k["variant"] for k in kernels if k["state"] == "verified" and k["cases"] > 0}
    wanted = {"avx2"} if os.uname().machine == "x86_64" else {"neon"}
    checks.ok(wanted <= rungs, f"rungs {sorted(rungs)}, wanted {sorted(wanted)}")
    print(f"rungs of {NAME}: {' '.join(sorted(rungs))}")


def check_vulkan(kvant):
    devices = run(kvant, "run", "--list-devices", VK_ICD_FILENAMES=LAVAPIPE)[1]
    if not os.path.exists(LAVAPIPE) or "vulkan" not in devices:
        print("SKIP: no lavapipe")
        return
    for ops in (("cache_write,page_seal,cache_read,attn_score", "--formats", NAME), ("attn", "--pairs", f"{NAME}:{NAME}")):
        code, text = run(kvant, "verify", "--device", "vulkan", "--quick", "--ops", *ops, VK_ICD_FILENAMES=LAVAPIPE)
        checks.ok(code == 0 and " passed, 0 failed" in text, f"vulkan {ops[0]}: {code}: {text[-600:]}")


def check_cuda(tree, folder):
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not nvcc:
        print("SKIP: no nvcc")
        return
    source = os.path.join(tree, "made5_device.cu")
    with open(source, "w", encoding="utf-8") as f:
        f.write(CUDA)
    code, text = run(nvcc, "-std=c++20", "-arch=sm_80", "-ptx", f"-I{folder}/generated", f"-I{folder}/generated/include", f"-I{tree}/src", f"-I{tree}/include", source, "-o", source + ".ptx")
    checks.ok(code == 0, f"nvcc: {text[-600:]}")


def main():
    with tempfile.TemporaryDirectory() as parent:
        tree = os.path.join(parent, "tree")
        copy_tree(tree)
        add_format(tree)
        code, text = run(sys.executable, "-B", os.path.join(tree, "tools", "gen_tables"), os.path.join(parent, "generated"))
        checks.ok(code == 0 and any(NAME in name for _, _, names in os.walk(os.path.join(parent, "generated")) for name in names), f"the generator: {text}")
        if "build" not in cases("additions", ["generator", "build", *ELSEWHERE]):
            return checks.end()
        folder, code, text = build(tree)
        if checks.ok(code == 0, f"build: {text[-1500:]}"):
            kvant = os.path.join(folder, "bin", "kvant")
            said("built")
            check_cpu(kvant, tree)
            said("CPU")
            check_vulkan(kvant)
            said("Vulkan")
            check_cuda(tree, folder)
    return checks.end()


sys.exit(main())
