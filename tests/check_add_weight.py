#!/usr/bin/env python3
"""check_add_weight BUILD: a weight type that nobody has heard of is added by its card, its reference and one line of the list, in a copy
of those: 5-bit codes in groups of 16, whose 4-bit scales lie in nibbles.  What depends on the cards is compiled again beside BUILD and
linked with the rest of it; then `kvant verify` multiplies with the new type on the CPU (every instruction set that this machine has) and,
where there is one, on a Vulkan device.  With nvcc, a CUDA kernel over it compiles."""
import os
import re
import shutil
import sys
import tempfile

from support.beside import Beside, run
from support.chosen import cases
from support.serve import ROOT, Checks

ELSEWHERE = [f"turn {i}" for i in range(7)]         # while nothing changed it builds in one turn of eight
CARD = """name = "MADE5"
gguf = 999
file_type = 999
values = 128
bytes = 86
scale = { at = 0, type = "f16" }
sub = { values = 16, type = "fields", low = { bit = 16, bits = 4, step = 4 }, centre = 8 }
codes = { at = 6, bits = 5, order = "stream" }
centre = 16
"""
REFERENCE = """/* wtype_made5.c: f16 d | 8 nibbles of scales, 8 is zero | 128 codes of 5 bits, 16 is zero. */
#include "formats/weights/wtype_internal.h"

enum { N = 128, SUB = 16, BYTES = 86 };

static int code_at(const uint8_t *q, int i)
{
    int v = 0;

    for (int b = 0; b < 5; b++)
        v |= (q[(5 * i + b) / 8] >> (5 * i + b) % 8 & 1) << b;
    return v;
}

void wtype_made5_dequant(const uint8_t *src, float *dst, int64_t n)
{
    for (; n >= N; n -= N, src += BYTES, dst += N)
        for (int i = 0; i < N; i++) {
            const int k = i / SUB, s = (src[2 + k / 2] >> 4 * (k % 2) & 15) - 8;
            dst[i] = half_to_f32(load_u16(src)) * (float)s * (float)(code_at(src + 6, i) - 16);
        }
}

void wtype_made5_quant(const float *src, uint8_t *dst, int64_t n)
{
    for (; n >= N; n -= N, src += N, dst += BYTES) {
        const float d = wtype_round_half(wtype_amax(src, N) / 112.0f), inv = d > 0.0f ? 1.0f / (7.0f * d) : 0.0f;
        memset(dst, 0, BYTES);
        store_u16(dst, f32_to_half(d));
        memset(dst + 2, 0xff, 4);           /* every scale is 7 */
        for (int i = 0; i < N; i++)
            for (int b = 0, q = wtype_clamp_round(src[i] * inv, -16, 15) + 16; b < 5; b++)
                dst[6 + (5 * i + b) / 8] |= (uint8_t)((q >> b & 1) << (5 * i + b) % 8);
    }
}
"""
checks = Checks("check_add_weight")


class Copy(Beside):
    """The cards and references with the new type, and what the build does with them."""

    def __init__(self, build, to):
        super().__init__(build, to, checks)
        shutil.copytree(os.path.join(ROOT, "src", "formats"), os.path.join(to, "src", "formats"))
        weights = os.path.join(to, "src", "formats", "weights")
        for name, text in (("wtype_made5.toml", CARD), ("wtype_made5.c", REFERENCE)):
            with open(os.path.join(weights, name), "w", encoding="utf-8") as f:
                f.write(text)
        with open(os.path.join(weights, "wtypes.def"), "a", encoding="utf-8") as f:
            f.write("KVANT_WTYPE(made5)\n")
        os.makedirs(self.out)
        rc, text = run([sys.executable, "-B", os.path.join(ROOT, "tools", "gen_tables"), self.out, to])
        checks.ok(rc == 0, f"the generator: {text}")
        self.changed = [os.path.join("cards", n) for n in os.listdir(os.path.join(self.out, "cards")) if self.differs(n)]

    def differs(self, name):
        with open(os.path.join(self.out, "cards", name), "rb") as a, open(os.path.join(self.build, "generated", "cards", name), "rb") as b:
            return a.read() != b.read()

    def dependents(self):
        """Outputs of the build by what they include."""
        found, name = {}, None
        for line in self.ninja("-t", "deps"):
            if line[:1].strip():
                name = line.split(":")[0]
                found[name] = ""
            elif name:
                found[name] += line.strip() + "\n"
        return {n: t for n, t in found.items() if any(f"generated/{c}\n" in t for c in self.changed) or "weights/wtypes.def" in t}

    def decodes_weights(self, shader):
        with open(os.path.join(self.build, shader + ".d"), encoding="utf-8") as f:
            return "wt.glsl" in f.read()

    def program(self):
        """Builds kvant; its path."""
        dependents, shaders, objects = self.dependents(), [], []
        if os.path.isdir(os.path.join(self.build, "vulkan")):
            shutil.copytree(os.path.join(self.build, "vulkan"), os.path.join(self.out, "vulkan"))
        for c, output in self.commands("bin/kvant"):
            if output.endswith(".inc") and self.decodes_weights(output):
                shaders.append(self.here(c, output, os.path.join(self.out, output)))
            elif output in dependents and output.endswith(".o"):
                self.objects[output] = os.path.join(self.out, output.replace("/", "_"))
                objects.append(self.here(c, output, self.objects[output]))
                if output.endswith("formats/weights/wtype.c.o"):
                    new = os.path.join(self.to, "src", "formats", "weights", "wtype_made5.c")
                    self.objects["new"] = os.path.join(self.out, "wtype_made5.o")
                    objects.append(re.sub(r" -c \S+", f" -c {new}", self.here(c, output, self.objects["new"])))
        checks.ok(len(objects) > 5 and "new" in self.objects, f"{len(objects)} objects depend on the cards")
        self.compile(shaders)
        self.compile(objects)
        return self.link("bin/kvant", os.path.join(self.to, "kvant"))


def verify(program, device):
    rc, text = run([program, "verify", "--device", device, "--formats", "MADE5", "--ops", "matmul,matmul_id,embed", "--quick"], cwd=ROOT)
    last = text.strip().splitlines()[-1] if text.strip() else "nothing"
    count = re.match(r"(\d+) passed, 0 failed", last)
    checks.ok(rc == 0 and count and int(count[1]) >= 10, f"kvant verify --device {device}: status {rc}, {last}")


def cuda(copy, build):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        print("SKIP check_add_weight: no nvcc")
        return
    rc, text = run([nvcc, "-std=c++20", "-ptx", "-O0", "-fmad=false", "-arch=sm_90a", "-w", f"-I{copy.to}/src", f"-I{copy.out}", f"-I{ROOT}/src", f"-I{build}/generated/include",
                    f"-I{ROOT}/include", os.path.join(ROOT, "src", "devices", "cuda", "matmul", "matmul.cu"), "-o", f"{copy.out}/matmul.ptx"])
    checks.ok(rc == 0, f"nvcc: {text[-800:]}")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    with tempfile.TemporaryDirectory() as to:
        copy = Copy(build, to)
        if "build" not in cases("additions", ["generator", "build", *ELSEWHERE]):
            return checks.end()
        program = copy.program()
        if checks.failed == 0:
            verify(program, "cpu")
            if "vulkan:0" in run([program, "--list-devices"])[1]:
                verify(program, "vulkan:0")
            cuda(copy, build)
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
