#!/usr/bin/env python3
"""check_add_op BUILD: what docs/howto-op.md promises.  A made-up element-wise op is added to a copy by two files, its card and its
reference; nothing else is touched.  Kernels, dispatch, checks and cases are made of the card: for CUDA (compiled where nvcc is), Vulkan,
OpenCL and Metal.  What depends on the list of ops is compiled again beside BUILD and linked with the rest of it; `kvant verify` holds the
kernels against the reference on the CPU and on every device of software that is here.  A formula that says something else than the
reference is found on each of them but the CPU, which has the reference alone."""
import filecmp
import os
import re
import shutil
import sys
import tempfile

from support.beside import Beside, run
from support.chosen import cases
from support.serve import ROOT, Checks

ELSEWHERE = [f"turn {i}" for i in range(7)]         # while nothing changed it builds in one turn of eight
LAVAPIPE = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"
OP = "zz_made_up"                                   # the last of the list: the others keep their numbers
CARD = '''text = "a made-up unit"
tolerance = "NMSE(1e-7)"
about = "y of x, its column's w (NULL: 0) and its row's b[ids]; level counts in whole steps."
formula = """
t = a * x + w + b[ids] * float(level / step)
y = t > 0 ? sqrt(t) * sigmoid(x) : abs(tanh(t)) - exp(-x * x) + log(1 + x * x)
"""
tries = { a = "0.75f", step = "3", m = "5", level = 2 }
fields = """
x      r f32 [n @ ldx][h @ gx][d]
w      r f32 [d] optional
b      r f32 [m][d]
ids    r i32 [n]
level  r i32 [n]
y      w f32 [n @ ldy][h @ gy][d]
a      float [-8, 8]
step   size
n      count
h      size
d      size
m      size
ldx    stride
gx     stride
ldy    stride
gy     stride
"""
'''
REFERENCE = """/* zz_made_up.c: scalar reference of a made-up unit. */
#include <math.h>
#include "ops/op_util.h"

static float one(float x, float t)
{
    if (t > 0.0f)
        return sqrtf(t) / (1.0f + expf(-x));
    return fabsf(tanhf(t)) - expf(-x * x) + logf(1.0f + x * x);
}

static void zz_made_up(const void *args, int part, int parts, const kvant_work *work)
{
    const kvant_zz_made_up_args *a = args;
    int64_t lo, hi;

    (void)work;
    part_range(a->n, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int j = 0; j < a->h; j++)
            for (int e = 0; e < a->d; e++) {
                const float x = a->x[i * a->ldx + j * a->gx + e], b = a->b[(int64_t)a->ids[i] * a->d + e];
                const float t = a->a * x + (a->w ? a->w[e] : 0.0f) + b * (float)(a->level[i] / a->step);
                a->y[i * a->ldy + j * a->gy + e] = one(x, t);
            }
}

const kvant_cpu_kernel kvant_zz_made_up_ref = { .stages = 1, .fn = { zz_made_up } };
"""
WRONG = ("sigmoid(x)", "sigmoid(-x)")
FILES = {f"src/ops/cards/rows/{OP}.toml": CARD, f"src/ops/{OP}.c": REFERENCE}
# What the list of ops, of shaders or of portable kernels is compiled into.
LISTS = re.compile(r"src/(verify/(v|cases|report)|devices/(portable|opencl|hip|vulkan|metal/shim)/|devices/(device|cpu/cpu_device)\.c|ops/(op_registry|check)\.c)")
KERNELS = re.compile(r"/(port_text|vk_shaders)\.c")            # and what a formula alone changes
checks = Checks("check_add_op")


class Copy(Beside):
    def __init__(self, build, to):
        super().__init__(build, to, checks)
        shutil.copytree(os.path.join(ROOT, "src", "ops"), os.path.join(to, "src", "ops"))
        for path, text in FILES.items():
            self.put(path, text)
        self.target = "bin/kvant-metal-shim" if os.path.exists(os.path.join(build, "bin", "kvant-metal-shim")) else "bin/kvant"
        self.commanded = list(self.commands(self.target))
        self.vulkan = bool(shutil.which("glslc")) and os.path.isdir(os.path.join(build, "vulkan"))
        if self.vulkan:
            os.makedirs(self.out)
            shutil.copytree(os.path.join(build, "vulkan"), os.path.join(self.out, "vulkan"))
            self.append("vk_shader_list.inc", f"VK_SHADER({OP})\n")
            self.append("vk_shader_code.inc", "".join(f'static const uint32_t {OP}_{form}_code[] =\n#include "{OP}_{form}.inc"\n;\n' for form in ("fast", "plain")))

    def put(self, path, text):
        with open(os.path.join(self.to, path), "w", encoding="utf-8") as f:
            f.write(text)

    def append(self, name, text):
        with open(os.path.join(self.out, "vulkan", name), "a", encoding="utf-8") as f:
            f.write(text)

    def generate(self):
        rc, text = run([sys.executable, "-B", os.path.join(ROOT, "tools", "gen_ops"), self.out, self.to])
        checks.ok(rc == 0, f"the generator: {text}")
        if not os.path.exists(os.path.join(self.out, "cards")):
            os.symlink(os.path.join(self.build, "generated", "cards"), os.path.join(self.out, "cards"))
        rc, text = run([sys.executable, "-B", os.path.join(ROOT, "tools", "embed_kernels"), os.path.join(self.out, "port_texts.inc"), os.path.join(ROOT, "src"), self.out])
        checks.ok(rc == 0, f"the portable kernels' texts: {text}")

    def shaders(self):
        glslc = shutil.which("glslc")
        return [f"{glslc} --target-env=vulkan1.1 -O -D{form.upper()} -I {ROOT}/src -I {self.out} -mfmt=c {self.out}/ops/shaders/{OP}.comp "
                f"-o {self.out}/vulkan/{OP}_{form}.inc" for form in ("fast", "plain")] if self.vulkan else []

    def sources(self, wanted):
        commands = []
        for c, output in self.commanded:
            source = (re.search(r" -c \S*?(src/\S+\.c)$", c) or [None, ""])[1]
            if output.endswith(".o") and wanted.search(source):
                self.objects[output] = os.path.join(self.out, output.replace("/", "_"))
                commands.append(self.here(c, output, self.objects[output], "-O0"))
                if source == "src/ops/check.c" and "new" not in self.objects:
                    self.objects["new"] = os.path.join(self.out, f"{OP}.o")
                    commands.append(re.sub(r" -c \S+", f" -c {self.to}/src/ops/{OP}.c", self.here(c, output, self.objects["new"], "-O0")))
        return commands

    def program(self, wanted):
        """Builds the program; its path."""
        self.generate()
        self.compile(self.shaders())
        self.compile(self.sources(wanted))
        return self.link(self.target, os.path.join(self.to, "kvant"))


def only_two_files(to):
    def walk(found):
        new = found.left_only + found.diff_files + found.right_only + found.funny_files
        return len(new) + sum(walk(d) for d in found.subdirs.values())
    checks.ok(walk(filecmp.dircmp(os.path.join(to, "src", "ops"), os.path.join(ROOT, "src", "ops"))) == len(FILES) == 2, "more than two files differ from the tree")


def everywhere(copy):
    """A kernel in every dialect, a check, its tests and cases."""
    for name, text in (("ops/elements.cuh", f"{OP}_kernel"), (f"ops/shaders/{OP}.comp", "void main"), ("ops/elements.k", f"KERNEL({OP})"),
                       ("ops/elements_vulkan.inc", f"vk_op_{OP}"), ("ops/elements_portable.inc", f"PORT_OP({OP},"), ("ops/checks.inc", f"check_{OP}_args"),
                       ("ops/refusals.inc", f"refuse_{OP}"), ("ops/cases_formula.inc", f"case_{OP}")):
        path = os.path.join(copy.out, name)
        checks.ok(os.path.exists(path) and text in open(path, encoding="utf-8").read(), f"{name}: {text} is missing")


def verify(program, device):
    env = {**os.environ, **({"VK_ICD_FILENAMES": LAVAPIPE} if os.path.exists(LAVAPIPE) and "VK_DRIVER_FILES" not in os.environ else {})}
    rc, text = run([program, "verify", "--device", device, "--ops", OP, "--quick"], cwd=ROOT, env=env)
    last = re.search(r"^(\d+) passed, (\d+) failed$", text, re.M)
    if "opening" in text and not last or "no device" in text or rc == 5:
        print(f"SKIP check_add_op: {device}: {text.strip().splitlines()[-1][:120]}")
        return None
    return (rc, int(last[1]), int(last[2]), text) if last else (rc, 0, 0, text)


def devices(copy):
    names = ["vulkan"] if copy.vulkan else print("SKIP check_add_op: no glslc, or this build has no Vulkan") or []
    names += ["opencl"] if any("devices/opencl/" in o for _, o in copy.commanded) else print("SKIP check_add_op: this build has no OpenCL") or []
    return names + (["metal-shim"] if copy.target.endswith("shim") else print("SKIP check_add_op: this build has no Metal shim") or [])


def hold(copy):
    program, found = copy.program(LISTS), []
    if checks.failed:
        return
    for device in ["cpu", *devices(copy)]:
        r = verify(program, device)
        if r:
            found.append(device)
            checks.ok(r[0] == 0 and r[1] >= 8 and r[2] == 0, f"{device}: status {r[0]}, {r[1]} passed, {r[2]} failed: {r[3][-600:]}")
    checks.ok("cpu" in found, "the CPU ran it")
    copy.put(f"src/ops/cards/rows/{OP}.toml", CARD.replace(*WRONG))
    program = copy.program(KERNELS)
    for device in [d for d in found if d != "cpu"]:
        r = verify(program, device)
        checks.ok(r and r[0] != 0 and r[2] > 0, f"{device}: a wrong formula passes: {r and r[:3]}")


def cuda(copy):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        print("SKIP check_add_op: no nvcc")
        return
    to = os.path.join(copy.out, "elementwise.ptx")
    rc, text = run([nvcc, "-std=c++20", "-ptx", "-O0", "-fmad=false", "-arch=sm_90a", "-w", f"-I{copy.out}", f"-I{copy.out}/include", f"-I{ROOT}/src", f"-I{ROOT}/include",
                    os.path.join(ROOT, "src", "devices", "cuda", "ops", "elementwise.cu"), "-o", to])
    checks.ok(rc == 0 and f"{OP}_kernel" in open(to, encoding="utf-8").read(), f"nvcc: {text[-800:]}")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    with tempfile.TemporaryDirectory() as to:
        copy = Copy(build, to)
        only_two_files(to)
        copy.generate()
        everywhere(copy)
        if "build" in cases("additions", ["generator", "build", *ELSEWHERE]):
            cuda(copy)
            hold(copy)
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
