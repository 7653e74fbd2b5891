#!/usr/bin/env python3
"""check_gen_ops: the generator of the ops (tools/gen_ops).  Cards that do not add up are refused by path and field; a made-up op gets its
struct, its check and its operands from its card alone: C that compiles and refuses what the card says."""
import os
import shutil
import subprocess
import sys
import tempfile

from support.serve import ROOT, Checks

GENERATOR = os.path.join(ROOT, "tools", "gen_ops")
MADE = '''text = "y = a x + b"
tolerance = "EXACT"
cases = "elementwise"
about = "y[i] = a * x[i] + b[i]; rows of d, ldy apart."
fields = """
y      w f32 [n @ ldy][d]
x      r f32 [n][d]
b      r f32 [d] optional
a      float [-8, 8]
n      count
d      size
ldy    stride
"""
rules = [["d % 4 == 0", "d = 5"], ["y != x", "x = good.y"]]
'''
# What is wrong, the made-up card with it, what the message says.
BAD = [
    ("key", MADE + "colour = 3\n", "'colour' is unknown"), ("no text", MADE.replace("text = ", "# "), "'text' is missing"),
    ("type", MADE.replace("r f32 [n][d]", "r f64 [n][d]"), "field x: 'r f64 [n][d]' is no operand"),
    ("access", MADE.replace("w f32 [n @ ldy]", "write f32 [n @ ldy]"), "field y:"), ("interval", MADE.replace("[-8, 8]", "-8 to 8"), "field a:"),
    ("size", MADE.replace("[n][d]\nb", "[n][m]\nb"), "names m, which is no field"), ("rule", MADE.replace("y != x", "y != z"), "names z, which is no field"),
    ("rows", MADE.replace("n      count", "n      size"), "no field is a count or seqs"),
]
BAD += [(f"formula {f}", MADE.replace('cases = "elementwise"', f'formula = "{f}"'), wanted) for f, wanted in (
    ("y = a * x", "formula: b does not occur"), ("y = a * x + c", "'c' is no field that has a value"), ("y = sin(x) + b", "sin is no function"),
    ("y = x + float(b)", "float of f32"), ("y = x + n + b", "+ between f32 and a whole number"), ("z = a * x + b", "the last line gives an operand"),
    ("y = x + b)", "')' is too much"), ("y = (x + b", "')' is missing"), ("y = x % b", "is no part of an expression"),
    ("y = a * x + b", "tolerance EXACT: only one + - or *"), ("y = x ? b : a", "? after f32, wanted a truth"), ("y = x[b]", "b is no i32 operand"),
    ("y = d", "a whole number, wanted f32"))]
BAD += [("groups", MADE + 'groups = "n * h"\n', "names h, which is no field"), ("threads", MADE + 'threads = "n * h"\n', "names h, which is no field"), ("threads and groups", MADE + 'groups = "n"\nthreads = "n"\n', "groups are given as well"), ("groups of a formula", MADE + 'groups = "n"\nformula = "y = x + b"\n', "groups: a formula has kernels")]
BAD += [("shape of an operand", MADE.replace('cases = "elementwise"', 'formula = "y = x + b"').replace("b      r f32 [d]", "b      r f32 [n + 1][d]"), "the size 'n + 1' is no field"),
        ("class", MADE.replace('cases = "elementwise"', 'formula = "y = x + b"').replace("EXACT", "CODE"), "tolerance CODE: wanted EXACT or NMSE")]
USE = r"""
#include <limits.h>
#include <stdio.h>
#include "base/error.h"
#include "kvant/ops.h"
#include "ops/operands.h"
#include "ops/arg_check.h"
int main(void)
{
    static float x[64], y[64];
    kvant_made_up_args a = { .y = y, .x = x, .a = 1.0f, .n = 2, .d = 8, .ldy = 8 };
    kvant_diag diag = { "" };
    int bad = check_made_up_args(&a, &diag) != KVANT_OK;
    const op_operands o = op_operands_of(KVANT_OP_MADE_UP, &a);
    bad += o.n != 3 || o.list[0].bytes != 64 || !o.list[0].dense || o.list[0].access != OPERAND_WRITE;
    a.ldy = 7, bad += 2 * (check_made_up_args(&a, &diag) != KVANT_EINVAL);
    a.ldy = 8, a.d = 6, bad += 4 * (check_made_up_args(&a, &diag) != KVANT_EINVAL);
    a.d = 8, a.a = 9.0f, bad += 8 * (check_made_up_args(&a, &diag) != KVANT_EINVAL);
    a.a = 1.0f, a.x = y, bad += 16 * (check_made_up_args(&a, &diag) != KVANT_EINVAL);
    a.x = NULL, bad += 32 * (check_made_up_args(&a, &diag) != KVANT_EINVAL);
    printf("%d %s\n", bad, diag.text);
    return bad;
}
"""
checks = Checks("check_gen_ops")


def generate(root, card):
    with open(os.path.join(root, "src", "ops", "cards", "made_up.toml"), "w", encoding="utf-8") as f:
        f.write(card)
    return subprocess.run([sys.executable, "-B", GENERATOR, os.path.join(root, "out"), root], capture_output=True, text=True, check=False)


def check_made(root, build):
    r = generate(root, MADE)
    checks.ok(r.returncode == 0, f"the made-up card: {r.stderr[-300:]}")
    with open(os.path.join(root, "out", "ops", "refusals.inc"), encoding="utf-8") as f:
        tests = f.read()
    for what in ("y NULL", "x NULL", "a above", "n negative", "d 0", "ldy too small for y", "not (d % 4 == 0)", "not (y != x)"):
        checks.ok(f'refuse(id, &b, "{what}")' in tests, f"no test for: {what}")
    source, program = os.path.join(root, "use.c"), os.path.join(root, "use")
    with open(source, "w", encoding="utf-8") as f:
        f.write(USE)
    made = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", f"-I{root}/out", f"-I{root}/out/include", f"-I{ROOT}/src", f"-I{ROOT}/include",
                           f"-I{build}/generated", source, f"{ROOT}/src/ops/check.c", f"{ROOT}/src/ops/arg_check.c", "-L" + os.path.join(build, "lib"),
                           "-Wl,--unresolved-symbols=ignore-all", "-l:libkvant-formats-all.a", "-lm", "-lpthread", "-o", program],
                          capture_output=True, text=True, check=False)
    checks.ok(made.returncode == 0, f"cc: {made.stderr[-600:]}")
    if made.returncode == 0:
        ran = subprocess.run([program], capture_output=True, text=True, check=False)
        checks.ok(ran.returncode == 0, f"refusals: {ran.stdout}")


def check_columns(root):
    """Columns and heads that need no other are listed with their fields; rows of two kinds and sums over a row are not."""
    alone = MADE.replace('cases = "elementwise"', 'formula = "y = x * x + b"').replace("r f32 [n][d]", "r f32 [n @ ldx][d]").replace(
        "ldy    stride", "ldy    stride\nldx    stride").replace("EXACT", "NMSE(1e-7)")
    heads = MADE.replace("w f32 [n @ ldy][d]", "w f32 [n @ ldy][n_h @ d][d]").replace("ldy    stride", "ldy    stride\nn_h    size") + 'groups = "n * n_h"\n'
    heads = heads.replace("r f32 [n][d]", "r f32 [n @ ldy][n_h @ d][d]").replace('"d % 4 == 0", "d = 5"', '"d % 4 == 0 && n_h > 0", "d = 5"')
    for name, card, wanted in (("columns", alone, ("count = offsetof(kvant_made_up_args, d)", "n = 2", "x), offsetof(kvant_made_up_args, ldx), -1 }")),
                               ("heads", heads, ("count = offsetof(kvant_made_up_args, n_h)", "n = 2", "y), offsetof(kvant_made_up_args, ldy), offsetof(")),
                               ("rows with and without a distance", alone.replace("[n @ ldx]", "[n]").replace("\nldx    stride", ""), ()),
                               ("a sum over a row", MADE + 'groups = "n"\n', ())):
        r = generate(root, card)
        with open(os.path.join(root, "out", "ops", "columns.inc"), encoding="utf-8") as f:
            line = f.read().partition("KVANT_OP_MADE_UP")[2].partition("KVANT_OP_")[0]
        checks.ok(r.returncode == 0 and bool(line) == bool(wanted) and all(w in line for w in wanted), f"columns.inc, {name}: {line} {r.stderr[-200:]}")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(os.path.join(ROOT, "src", "ops", "cards"), os.path.join(root, "src", "ops", "cards"))
        for what, card, wanted in BAD:
            r = generate(root, card)
            checks.ok(r.returncode != 0 and "made_up.toml" in r.stderr and wanted in r.stderr, f"{what}: {r.returncode} {r.stderr.strip()[-200:]}")
        check_made(root, build)
        check_columns(root)
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
