#!/usr/bin/env python3
"""check_add_fused BUILD: what docs/howto-op.md promises of fused forms.  A made-up form is added to a copy by one line of the table and
its kernels for Vulkan and for the portable devices; nothing else is touched.  What knows the table is compiled again beside BUILD.  A
program of this test holds the form on every device of software that is here: the bits of its ops one by one, and of the references, which a
kernel that does something else has not."""
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
FORM = "zz_scale_add"
TABLE = "src/ops/fuse/fused.def"
LINE = """FUSED(ZZ_SCALE_ADD, zz_scale_add, gpus, IN(0, SCALE, s) IN(1, ADD, a), SAME(s->x, a->y) GONE(s->x), s->n == a->n && s->d == a->d)

"""
SHADER = """#version 450
#define SLOTS 2
#define ARGS ARGPTR z; ARGPTR x; float s; uint n;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

void main()
{
    const uint i = group_at() * GROUP + gl_LocalInvocationIndex;
    precise float scaled = args.s * ldf(P(1, x), i);
    precise float sum = ldf(P(0, z), i) + scaled;
    if (i < args.n)
        stf(P(0, z), i, sum);
}
"""
VULKAN = """#include "devices/vulkan/core/vk_dev.h"

static int zz_scale_add_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    const kvant_op *ops = args;
    const kvant_scale_args *s = ops[0].args;
    const kvant_add_args *a = ops[1].args;
    const size_t values = (size_t)a->n * (size_t)a->d;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_zz_scale_add);
    vk_ptr(&c, a->x, values * 4, VK_WRITE);
    vk_ptr(&c, s->x, values * 4, VK_READ);
    vk_float(&c, s->s);
    vk_uint(&c, (int64_t)values);
    return vk_dispatch(d, l, &c, (values + VK_GROUP - 1) / VK_GROUP, 1, 1, diag);
}

const vk_op vk_fused_zz_scale_add = { .name = "zz_scale_add", .run = zz_scale_add_run };
"""
KERNEL = """#include "devices/portable/core/k_dialect.h"
#include "devices/portable/fused/zz_scale_add.h"

KERNEL(zz_scale_add)(BUFFER(float, z, 0) BUFFER(const float, x, 1) PARAMS(zz_scale_add, 2))
{
    OPEN(float, z) OPEN(const float, x)
    for (int e = THREAD; e < p.d; e += THREADS) {
        const float scaled = p.s * x[(int64_t)GROUP_X * p.d + e];
        z[(int64_t)GROUP_X * p.d + e] += scaled;
    }
}
"""
PARAMS = "struct p_zz_scale_add { float s; int32_t d; };\n"
PORTABLE = """#include "devices/portable/core/port_dev.h"
#include "devices/portable/fused/zz_scale_add.h"

static int zz_scale_add_run(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_op *ops = args;
    const kvant_scale_args *s = ops[0].args;
    const kvant_add_args *a = ops[1].args;
    const size_t bytes = (size_t)a->n * (size_t)a->d * 4;
    const struct p_zz_scale_add p = { s->s, a->d };
    port_call c = PORT_CALL(zz_scale_add, p);
    port_write(&c, a->x, bytes);
    port_read(&c, s->x, bytes);
    return port_dispatch(d, &c, a->n, 1, 1, diag);
}

const port_op port_fused_zz_scale_add = { .name = "zz_scale_add", .run = zz_scale_add_run };
"""
# x *= s; z += x; and then x is written again, so that the form may drop it.
DRIVER = """/* Runs the list as one submission and op by op. */
#include <stdio.h>
#include <string.h>
#include "devices/device.h"
#include "ops/fuse/fuse.h"

enum { N = 3, D = 150, VALUES = N * D };
static float start[3 * VALUES], whole[3 * VALUES], single[3 * VALUES], want[3 * VALUES];

static int submit(kvant_device *dev, float *at, const kvant_op *ops, int n, int each, float *got)
{
    kvant_diag diag = { "" };
    int rc = dev->vt->copy_in(dev, at, start, sizeof start, &diag);
    for (int i = 0; rc == 0 && i < n; i += each)
        rc = dev->vt->submit(dev, ops + i, each, 0, &diag);
    if (rc == 0)
        rc = dev->vt->copy_out(dev, got, at, sizeof start, &diag);
    if (rc)
        printf("%s\\n", diag.text);
    return rc;
}

int main(int argc, char **argv)
{
    const kvant_device_config config = { .threads = 1 };
    kvant_diag diag = { "" };
    kvant_device *dev;
    void *memory = NULL;
    if (argc < 2 || device_open(argv[1], &config, &dev, &diag) || dev->vt->alloc(dev, sizeof start, &memory, &diag)) {
        printf("skipped: %s\\n", diag.text);
        return 0;
    }
    for (int i = 0; i < 3 * VALUES; i++)
        start[i] = (float)((i * 7919) % 1000) / 333.0f - 1.5f;
    float *x = memory, *z = x + VALUES, *b = z + VALUES;
    const kvant_scale_args s = { x, 1.7f, N, D };
    const kvant_add_args a = { z, x, N, D };
    const kvant_rows_copy_args c = { .x = b, .y = x, .n = N, .h = 1, .d = D, .ldx = D, .gx = D, .ldy = D, .gy = D };
    const kvant_op ops[] = { { KVANT_OP_SCALE, &s }, { KVANT_OP_ADD, &a }, { KVANT_OP_ROWS_COPY, &c } };
    kvant_op first, ended;
    const int took = device_next_op(dev, ops, 3, 0, &first), read_later = device_next_op(dev, ops, 2, 0, &ended);
    if (submit(dev, memory, ops, 3, 3, whole) || submit(dev, memory, ops, 3, 1, single))
        return 1;
    memcpy(want, start, sizeof want);
    for (int i = 0; i < VALUES; i++) {
        volatile float scaled = start[i] * 1.7f;
        want[VALUES + i] = start[VALUES + i] + scaled;
        want[i] = start[2 * VALUES + i];
    }
    printf("took %d %s, %d; whole %s; single %s\\n", took, fuse_get(first.id) ? fuse_get(first.id)->name : "-", read_later,
           memcmp(whole, want, sizeof want) ? "differs" : "equal", memcmp(single, want, sizeof want) ? "differs" : "equal");
    return 0;
}
"""
FILES = {f"src/devices/vulkan/fused/{FORM}.comp": SHADER, f"src/devices/vulkan/fused/vk_{FORM}.c": VULKAN, f"src/devices/portable/fused/{FORM}.k": KERNEL,
         f"src/devices/portable/fused/{FORM}.h": PARAMS, f"src/devices/portable/fused/port_{FORM}.c": PORTABLE}
WRONG = {f"src/devices/vulkan/fused/{FORM}.comp": SHADER.replace("+ scaled", "- scaled"), f"src/devices/portable/fused/{FORM}.k": KERNEL.replace("+= scaled", "-= scaled")}
# Sources that know the table, or how many shaders and kernels there are.
LISTS = re.compile(r"src/(devices/(portable|opencl|hip|vulkan|metal/shim)/|ops/fuse/|devices/device\.c)")
# A new source by one that is compiled like it; the driver instead of the program's main.
LIKE = {"src/cli/main.c": "src/driver.c", "src/devices/vulkan/core/vk_list.c": f"src/devices/vulkan/fused/vk_{FORM}.c",
        "src/devices/portable/core/port_text.c": f"src/devices/portable/fused/port_{FORM}.c"}
KERNELS = re.compile(r"/(port_text|vk_shaders)\.c")
checks = Checks("check_add_fused")


class Copy(Beside):
    def __init__(self, build, to):
        super().__init__(build, to, checks)
        os.makedirs(self.out)
        with open(os.path.join(ROOT, TABLE), encoding="utf-8") as f:
            table = f.read()
        self.put(TABLE, table.replace("#undef TURN\n", LINE + "#undef TURN\n"))
        checks.ok(table.count("#undef TURN\n") == 1, "the table's end")
        for path, text in FILES.items():
            self.put(path, text)
        self.put("src/driver.c", DRIVER)
        self.target = "bin/kvant-metal-shim" if os.path.exists(os.path.join(build, "bin", "kvant-metal-shim")) else "bin/kvant"
        self.commanded = list(self.commands(self.target))
        self.vulkan = bool(shutil.which("glslc")) and os.path.isdir(os.path.join(build, "vulkan"))
        if self.vulkan:
            shutil.copytree(os.path.join(build, "vulkan"), os.path.join(self.out, "vulkan"))
            self.append("vk_shader_list.inc", f"VK_SHADER({FORM})\n")
            self.append("vk_shader_code.inc", "".join(f'static const uint32_t {FORM}_{form}_code[] =\n#include "{FORM}_{form}.inc"\n;\n' for form in ("fast", "plain")))

    def put(self, path, text):
        path = os.path.join(self.to, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def append(self, name, text):
        with open(os.path.join(self.out, "vulkan", name), "a", encoding="utf-8") as f:
            f.write(text)

    def texts(self):
        """The kernels' texts: those of the tree and the made-up one."""
        tree = os.path.join(self.to, "texts")
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(os.path.join(ROOT, "src", "devices", "portable"), os.path.join(tree, "devices", "portable"))
        shutil.copy(os.path.join(ROOT, "src", "devices", "portable.h"), os.path.join(tree, "devices"))
        shutil.copytree(os.path.join(self.to, "src", "devices", "portable", "fused"), os.path.join(tree, "devices", "portable", "fused"), dirs_exist_ok=True)
        rc, text = run([sys.executable, "-B", os.path.join(ROOT, "tools", "embed_kernels"), os.path.join(self.out, "port_texts.inc"), tree, os.path.join(self.build, "generated")])
        checks.ok(rc == 0, f"the portable kernels' texts: {text}")

    def shaders(self):
        return [f"{shutil.which('glslc')} --target-env=vulkan1.1 -O -D{form.upper()} -I {ROOT}/src -I {self.build}/generated -mfmt=c {self.to}/src/devices/vulkan/fused/{FORM}.comp "
                f"-o {self.out}/vulkan/{FORM}_{form}.inc" for form in ("fast", "plain")] if self.vulkan else []

    def new(self, name, source, command, output):
        """A source of the copy, by the command of another of the same kind; name: the object that it replaces, or a new one."""
        self.objects[name] = os.path.join(self.out, os.path.basename(source) + ".o")
        return re.sub(r" -c \S+", f" -c {os.path.join(self.to, source)}", self.here(command, output, self.objects[name], "-O0"))

    def sources(self, wanted, new):
        commands = []
        for c, output in self.commanded:
            source = (re.search(r" -c \S*?(src/\S+\.c)$", c) or [None, ""])[1]
            if output.endswith(".o") and wanted.search(source):
                self.objects[output] = os.path.join(self.out, output.replace("/", "_"))
                commands.append(self.here(c, output, self.objects[output], "-O0"))
            if new and source in LIKE:
                commands.append(self.new(output if source == "src/cli/main.c" else source, LIKE[source], c, output))
        return commands

    def program(self, wanted, new):
        self.texts()
        self.compile(self.shaders())
        self.compile(self.sources(wanted, new))
        return self.link(self.target, os.path.join(self.to, "driver"))


def devices(copy):
    names = ["vulkan"] if copy.vulkan else print("SKIP check_add_fused: no glslc, or this build has no Vulkan") or []
    names += ["opencl"] if any("devices/opencl/" in o for _, o in copy.commanded) else print("SKIP check_add_fused: this build has no OpenCL") or []
    return names + (["metal-shim"] if copy.target.endswith("shim") else print("SKIP check_add_fused: this build has no Metal shim") or [])


def driven(program, device, **more):
    env = {**os.environ, **more, **({"VK_ICD_FILENAMES": LAVAPIPE} if os.path.exists(LAVAPIPE) and "VK_DRIVER_FILES" not in os.environ else {})}
    rc, text = run([program, device], cwd=ROOT, env=env)
    return rc, text.strip()


def on_hip(copy, program):
    """hip_check.c stands for AMD's runtime: the form is taken and its kernel compiles with hiprtc; nothing is computed."""
    if not any("devices/hip/" in o for _, o in copy.commanded):
        return print("SKIP check_add_fused: this build has no HIP")
    library = os.path.join(copy.out, "hip_check.so")
    rc, text = run(["cc", "-shared", "-fPIC", "-O1", "-o", library, os.path.join(ROOT, "tests", "hip", "hip_check.c"), "-ldl"])
    checks.ok(rc == 0, text)
    rc, text = driven(program, "hip", KVANT_HIP_LIBRARY=library)
    found = re.search(r"hip-check: hiprtc (\w+), (\d+) compiled, (\d+) refused", text)
    checks.ok(rc == 0 and f"took 2 {FORM}, 1;" in text and found and found[3] == "0", f"hip: status {rc}: {text}")
    return None if found and found[1] == "found" else print("SKIP check_add_fused: no hiprtc: the kernel was not compiled for HIP")


def hold(copy):
    program = copy.program(LISTS, True)
    found = []
    if checks.failed:
        return
    for device in devices(copy):
        rc, text = driven(program, device)
        if text.startswith("skipped"):
            print(f"SKIP check_add_fused: {device}: {text[:120]}")
            continue
        found.append(device)
        checks.ok(rc == 0 and text == f"took 2 {FORM}, 1; whole equal; single equal", f"{device}: status {rc}: {text}")
    on_hip(copy, program)
    for path, text in WRONG.items():
        copy.put(path, text)
    program = copy.program(KERNELS, False)
    for device in found:
        rc, text = driven(program, device)
        checks.ok(rc == 0 and text == f"took 2 {FORM}, 1; whole differs; single equal", f"{device}, a wrong kernel: status {rc}: {text}")


def one_line(to):
    """The copy's table has one line more; every other file of the copy is a kernel's."""
    with open(os.path.join(ROOT, TABLE), encoding="utf-8") as a, open(os.path.join(to, TABLE), encoding="utf-8") as b:
        more = [line for line in b.read().replace(a.read().split("#undef TURN")[0], "").split("#undef TURN")[0].splitlines() if line]
    checks.ok(len(more) == 1 and FORM in more[0], f"the table: {more}")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    with tempfile.TemporaryDirectory() as to:
        copy = Copy(build, to)
        one_line(to)
        if "build" in cases("additions", ["table", "build", *ELSEWHERE]):
            hold(copy)
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
