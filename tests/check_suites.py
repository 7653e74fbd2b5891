#!/usr/bin/env python3
"""check_suites: what changed is tested whole (tests/support/suites.py).  No source of a device belongs to no suite; one wrong constant in a
copy of the tree, in a file of any kind that a suite is made of, makes that suite whole and no other than those it belongs to; eight turns
run every case; the ledger's lines are read strictly, and old ones refused."""
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile

from support import plan, suites
from support.serve import ROOT, Checks

C = Checks("check_suites")
check = C.ok
ALL = set(suites.SUITES)
ADDED = {"additions"}
CPU = {"cpu"}
HIP = {"hip"}
CHOOSE = ("check_vulkan.py", "check_metal.py", "check_opencl.py", "check_hip.py", "check_add_format.py", "check_add_op.py",
          "check_add_weight.py", "check_add_fused.py")
VULKAN, METAL, OPENCL = ({name, f"{name}-models"} for name in ("vulkan", "metal", "opencl"))
# path, suites that must run whole.
CHANGES = [
    ("src/devices/vulkan/attn/attn_tile.comp", VULKAN | ADDED),
    ("src/devices/vulkan/core/kv.glsl", VULKAN | ADDED),
    ("src/devices/vulkan/core/vk_dev.h", VULKAN | ADDED),
    ("src/devices/portable/attn/attn.k", METAL | OPENCL | HIP | ADDED),
    ("src/devices/portable/core/k_dialect.h", METAL | OPENCL | HIP | ADDED),
    ("src/devices/portable.h", METAL | OPENCL | HIP | {"cuda", "arm64"} | ADDED | CPU),
    ("src/devices/metal/shim/metal_stdlib.h", METAL | ADDED),
    ("src/devices/opencl/cl_queue.c", OPENCL | ADDED),
    ("src/devices/hip/hip_device.c", HIP | ADDED),
    ("src/devices/cuda/attn/attn.cu", {"cuda"} | ADDED),
    ("src/devices/cuda/core/halves.cuh", {"cuda"} | ADDED),
    ("src/devices/cpu/matmul/matmul_neon.c", {"arm64"} | ADDED | CPU),
    ("src/devices/cpu/matmul/matmul_avx2.c", {"arm64"} | ADDED | CPU),
    ("src/base/simd/vf_avx512.h", {"arm64"} | CPU),
    ("src/formats/tbq/tbq4_0.toml", ALL),
    ("tools/cards/glsl.py", ALL),
    ("tools/gen_tables", ALL),
    ("src/verify/vscene.c", ALL - {"cuda"}),
    ("src/ops/cards/rows/rope.toml", ALL),
    ("tools/gen_ops", ALL),
    ("src/model/blocks/block_ffn.c", {"vulkan-models", "metal-models", "opencl-models"}),
    ("tests/check_vulkan.py", VULKAN),
    ("tests/check_metal.py", METAL),
    ("tests/check_add_weight.py", ADDED),
    ("tests/support/suites.py", ALL),
    ("tools/spirv_khr.py", VULKAN),
    ("cmake/cuda.cmake", {"cuda"} | ADDED),
    ("src/server/masks.c", set()),
    ("README.md", set()),
]


def copy_of_inputs(folder):
    names = suites.files(ROOT)
    for name in names:
        if name.startswith(("src/", "include/", "tools/", "cmake/", "tests/check_", "tests/support/")) or name == "README.md":
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, name), os.path.join(folder, name))
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a"]):
        subprocess.run(["git", *command], cwd=folder, check=True, stdin=subprocess.DEVNULL)


def write_ledger(folder, lines):
    with open(os.path.join(folder, suites.LEDGER), "w", encoding="utf-8") as f:
        f.writelines(line + "\n" for line in lines)


def whole_suites(folder):
    return {suite for suite in suites.SUITES if suites.whole(suite, folder)}


def wrong_constant(path):
    """One digit of the file, or where it has none one letter of it, is another; the bytes as they were are returned."""
    with open(path, "rb") as f:
        text = f.read()
    at = [m.start() for m in re.finditer(rb"[0-8]", text)]
    at = at[len(at) // 2] if at else len(text) // 2
    with open(path, "wb") as f:
        f.write(text[:at] + bytes([text[at] + 1]) + text[at + 1:])
    return text


def changes(folder):
    today = datetime.date.today()
    check(whole_suites(folder) == ALL, "without a ledger every suite runs whole")
    write_ledger(folder, [f"{s} {suites.digest(s, folder)} {today} abc 10 a machine" for s in suites.SUITES])
    check(whole_suites(folder) == set(), f"with a ledger of these inputs none does: {whole_suites(folder)}")
    for name, wanted in CHANGES:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            check(False, f"{name} is no longer a file of the tree: choose another of its kind")
            continue
        text = wrong_constant(path)
        found = whole_suites(folder)
        check(found == wanted, f"one wrong constant in {name}: whole are {sorted(found)}, wanted {sorted(wanted)}")
        with open(path, "wb") as f:
            f.write(text)
    check(whole_suites(folder) == set(), "put back, none runs whole")
    with open(os.path.join(folder, "src/devices/vulkan/ops/new_one.comp"), "w", encoding="utf-8") as f:
        f.write("#version 450\n")
    check(whole_suites(folder) == VULKAN | ADDED, f"a file that nobody has added yet: {sorted(whole_suites(folder))}")
    os.remove(os.path.join(folder, "src/devices/vulkan/ops/new_one.comp"))
    os.remove(os.path.join(folder, "src/devices/opencl/cl_queue.c"))
    check(whole_suites(folder) == OPENCL | ADDED, f"a file less: {sorted(whole_suites(folder))}")
    os.environ["KVANT_WHOLE"] = "1"
    check(whole_suites(folder) == ALL, "KVANT_WHOLE: all")
    del os.environ["KVANT_WHOLE"]


def every_source():
    """Of all devices; what is left belongs to the CPU's own tests, which always run whole."""
    names = suites.files(ROOT)
    covered = {suite: set(suites.inputs(suite, ROOT, names)) for suite in suites.SUITES}
    everything = set().union(*covered.values())
    for name in names:
        if name.startswith("src/devices/") and name.count("/") > 2:
            check(name in everything, f"{name} belongs to no suite of tests/support/suites.py")
    folders = {name.split("/")[2] for name in names if name.startswith("src/devices/") and name.count("/") > 2}
    check(folders == {"cpu", "cuda", "hip", "metal", "opencl", "portable", "vulkan"}, f"devices: {sorted(folders)}: a new one wants a suite")
    for suffix, suite in ((".comp", "vulkan"), (".glsl", "vulkan"), (".k", "metal"), (".k", "opencl"), (".cu", "cuda"), (".cuh", "cuda"),
                          ("_neon.c", "arm64"), ("_dotprod.c", "arm64"), ("_i8mm.c", "arm64")):
        lost = [n for n in names if n.endswith(suffix) and n.startswith("src/devices/") and n not in covered[suite]]
        check(not lost and any(n.endswith(suffix) for n in covered[suite]), f"{suffix}: not of {suite}: {lost}")
    for suite, patterns in suites.SUITES.items():
        for pattern in patterns:
            check(suites.matching(names, [pattern]), f"{suite}: no file matches {pattern}")


def cpu_rungs():
    """No test of the CPU asks which cases to run: a wrong constant in a rung meets all of them."""
    for name in os.listdir(os.path.join(ROOT, "tests")):
        if name.endswith(".py") and name != "check_suites.py":
            with open(os.path.join(ROOT, "tests", name), encoding="utf-8") as f:
                asks = "support.chosen" in f.read()
            check(asks == (name in CHOOSE), f"{name}: chooses cases: {asks}")
    for name in ("check_kernels", "check_variants", "check_ops", "check_matmul", "check_attn", "check_gdn"):
        check(os.path.exists(os.path.join(ROOT, "tests", f"{name}.c")), f"{name}.c runs every case of the CPU's rungs")


def turns():
    turn, now = suites.turn, [0]
    suites.turn = lambda below: now[0] % below
    try:
        for count in (1, 2, 7, 9, 16, 31, 100):
            names = [f"n{i}" for i in range(count)]
            seen = set()
            for now[0] in range(8):
                some = suites.part(names)
                check(some[0] == "n0" and len(some) <= 1 + (count + 6) // 8 + (count > 1), f"{count}: turn {now[0]}: {some}")
                seen |= set(some)
            check(seen == set(names), f"{count} cases, eight turns: never {sorted(set(names) - seen)}")
            check(suites.part(names, 0) != [] and set(suites.part(names, 0)) <= set(names), f"{count}: no smoke case")
    finally:
        suites.turn = turn


def ledger_lines(folder):
    today, hashed = datetime.date.today(), "0123456789abcdef01234567"
    good = f"metal {hashed} {today} abc 10 CPU of some kind, 2 CPUs"
    for lines, words in (([good], ""), ([f"metal {hashed} {today - datetime.timedelta(30)} abc 10 m"], ""), (["# nothing", ""], ""),
                         ([f"metal {hashed} {today - datetime.timedelta(31)} abc 10 m"], "is 31 days older"), ([good, good], "there twice"),
                         ([good.replace("metal", "metla")], "suite metla is unknown"), (["metal"], "wanted: suite hash date"),
                         ([good.replace(hashed, "zz")], "wanted: suite hash date"), ([good.replace(" 10 ", " 0 ")], "wanted: suite hash date"),
                         ([good.replace(str(today), "yesterday")], "wanted: suite hash date"), ([f"metal {hashed} {today} abc ten m"], "wanted: suite")):
        write_ledger(folder, lines)
        found = suites.check(folder)
        check(len(found) == (words != "") and words in "".join(found), f"{lines}: {found}, wanted {words!r}")
    write_ledger(folder, [good])
    suites.record("opencl", "77", "Some CPU, 2 CPUs", folder)
    check(set(suites.ledger(folder)) == {"metal", "opencl"} and not suites.check(folder) and not suites.whole("opencl", folder), "recorded")


def plans():
    """Every group of the one ctest, of builds that need not be there."""
    tests = list(plan.group_tests("fuzz", "5")) + list(plan.group_tests("neon", "x86,max")) + list(plan.group_tests("lint", ""))
    names = [name for name, _, _ in tests]
    sources = [n for n in os.listdir(os.path.join(ROOT, "tests", "fuzz")) if n.endswith(".c")]
    check(len([n for n in names if n.startswith("fuzz.")]) == len(sources) >= 12 and {"neon.x86", "neon.max", "lint"} <= set(names), f"{names}")
    again = [(f"san.{n}", [], {}) for n in (*suites.CPU_AGAIN, "check_cli")]
    check(plan.again(again, True) == again, "the CPU's kernels changed: all of their tests run again")
    some = [name for name, _, _ in plan.again(again, False)]
    check({"san.check_attn", "san.check_ops", "san.check_cli"} < set(some) and len(some) < 7, f"nothing of the CPU changed: {some}")
    text = plan.lines_of("san.check_kernels", ["a b", "c"], {"ENVIRONMENT": ["A=1", "B=2"]}, {"check_kernels": 7})
    check("COST [==[21]==]" in text and "[==[a b]==] [==[c]==]" in text and "[==[A=1;B=2]==]" in text, text)


def main():
    with tempfile.TemporaryDirectory() as folder:
        copy_of_inputs(folder)
        changes(folder)
        ledger_lines(folder)
    every_source()
    cpu_rungs()
    turns()
    plans()
    return C.end()


sys.exit(main())
