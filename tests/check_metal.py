#!/usr/bin/env python3
"""check_metal.py BUILD: the Metal kernels without a Mac.

It owns: language (tools/check_msl on every kernel, and on kernels with one planted fault each; the syntax and types of the host file
against what it uses of Apple's headers, tests/metal/apple; skipped without clang), and the op harness on reduced sizes (every op with every
cache format and weight type; attention with every format as K and V at once and beside f16, and the fused pairs; with KVANT_LONG=1
every pair; chosen by support/chosen.py: all where the kernels changed) and whole tiny models on the device "metal-shim" of the program kvant-metal-shim, beside which
tests/check_metal_shim.c plants the faults that running finds; that the
program which is installed has no such device (it would start a compiler).

    python3 tests/check_metal.py build/release [PART ...]         ctest runs every part as a test, check_metal_<part>"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from support.chosen import cases, long, run_cases

BUILD = sys.argv[1]
PARTS = sys.argv[2:] or ["attn", "caches", "language", "models", "ops", "weights"]
SHIPPED = os.path.join(BUILD, "bin", "kvant")
KVANT = os.path.join(BUILD, "bin", "kvant-metal-shim")
HEAD = '#include "devices/portable/core/k_dialect.h"\nstruct p_t { int32_t n; };\n'
BODY = "KERNEL(t)(BUFFER(const float, x, 0) BUFFER(float, y, 1) PARAMS(t, 2))\n{\n    LOCAL_ARRAY(float, part, THREADS)\n    const int t = THREAD;\n%s}\n"
# (helper functions, the kernel's statements, what check_msl says)
PLANTED = (
    ("", "    y[t] = x[t];\n    part[t] = 1.0f;\n", None),
    ("", "    const double v = x[t];\n    y[t] = (float)v;\n", "MSL has no double"),
    ("", "    y[t] = x[t] * 2.0;\n", "2.0: a number without f"),
    ("FN int f(int n)\n{\n    return n < 2 ? n : f(n - 1);\n}\n", "    y[t] = (float)f(t);\n", "MSL has no recursion: f -> f"),
    ("FN int g(int n);\nFN int f(int n)\n{\n    return g(n);\n}\nFN int g(int n)\n{\n    return f(n);\n}\n", "    y[t] = (float)f(t);\n",
     "MSL has no recursion: f -> g -> f"),
    ("FN float f(LOCAL float *a)\n{\n    return a[0];\n}\n", "    y[t] = f(y);\n", "no matching function for call to 'f'"),
    ("FN float f(float *a)\n{\n    return a[0];\n}\n", "    y[t] = 1.0f;\n", "a pointer or reference without an address space"),
    ("FN void f(simdgroup_float8x8 *a)\n{\n    *a = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);\n}\n", "    y[t] = 1.0f;\n",
     "a pointer or reference without an address space"),
    ("", "    LOCAL float *a = y;\n    y[t] = a[0];\n", "cannot initialize a variable of type"),
    ("", "    OWN float *a = (OWN float *)part;\n    y[t] = a[0];\n", "a cast to a pointer of another address space"),
    ("", "    y[t] = *(new float);\n", "MSL has no dynamic allocation"),
    ("", "    y[t] = erf(x[t]);\n", "use of undeclared identifier 'erf'"),
    ("", "    static int calls = 0;\n    y[t] = (float)calls;\n", "MSL has no static variables in functions"),
    ("", "    if (t > 3)\n        goto end;\nend:\n    y[t] = 0.0f;\n", "MSL has no goto"),
    ("FN int f(int n)\n{\n    return n;\n}\n", "    int (*g)(int) = f;\n    y[t] = (float)g(t);\n", "MSL has no pointers to functions here"),
    ("KERNEL(many)(BUFFER(float, z, 31) PARAMS(t, 2))\n{\n    z[0] = 1.0f;\n}\n", "    y[t] = 0.0f;\n", "buffer 31: the highest is 30"),
    ("", "    simdgroup_float8x8 m;\n    simdgroup_load(m, part);\n    simdgroup_store(m, y);\n", None),
    ("", "    simdgroup_half8x8 m;\n    simdgroup_load(m, x);\n    y[t] = 0.0f;\n", "no matching function for call to 'simdgroup_load'"),
    ("", "    simdgroup_matrix<float, 4, 4> m;\n    y[t] = 0.0f;\n", "simdgroup matrices are 8 x 8"),
)
passed = failed = 0


def check(ok, text):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAIL", text, flush=True)


def program(*args):
    r = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    return r.returncode, r.stdout + r.stderr


def verify(wanted, *args):
    """Runs kvant verify; its cases count as ours.  wanted: what it must have run, and no others: ops, or pairs (op, subject);
    what else the report has was only asked for."""
    global passed, failed
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        code, text = program(KVANT, "verify", "--device", "metal-shim", "--jobs", "1", "--quick", *args, "--json", path)
        check(code == 0, f"verify {' '.join(args)}: exit {code}: {text[-600:]}")
        if not os.path.exists(path):
            return
        with open(path, encoding="utf-8") as f:
            report = json.load(f)
    for line in report["failures"]:
        print("FAIL", line.replace("rerun: kvant verify", "rerun: kvant-metal-shim verify"))
    passed, failed = passed + report["passed"], failed + report["failed"]
    each = all(isinstance(w, tuple) for w in wanted)
    ran = {(e["op"], e.get("subject", "")) for e in report["ops"] if e["state"] == "verified"}
    ran = ran if each else {op for op, _ in ran}
    check(ran == set(wanted), f"verify {' '.join(args)}: missing {sorted(set(wanted) - ran)[:4]}, more {sorted(ran - set(wanted))[:4]}")
    asked = {id(e) for e in report["ops"] if each and e["state"] == "supported" and (e["op"], e["subject"]) not in wanted}
    rest = {(e["op"], e.get("subject", ""), e.get("reason", "")) for e in report["ops"] if e["state"] != "verified" and id(e) not in asked}
    check(not rest, f"verify {' '.join(args)}: not verified: {sorted(rest)[:4]}")


def known(option):
    """The names that --ops or --formats knows."""
    return re.search(r"; known: (.*)$", program(KVANT, "verify", "--device", "cpu", f"--{option}", "?")[1], re.M).group(1).split()


def cache_formats():
    return re.search(r"^Cache formats: (.*)$", program(KVANT, "verify", "--help")[1], re.M).group(1).split()


def weight_types():
    with open("src/formats/weights/wtypes.def", encoding="utf-8") as f:
        return [n.upper() for n in re.findall(r"^KVANT_WTYPE\((\w+)\)", f.read(), re.M)]


# ---- language ----

def planted():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.k")
        for helpers, statements, want in PLANTED:
            with open(path, "w", encoding="utf-8") as file:
                file.write(HEAD + helpers + BODY % statements)
            code, text = program("python3", "-B", "tools/check_msl", BUILD, path)
            check((code == 0) == (want is None) and (want or "0 findings") in text, f"check_msl: wanted {want}: {text}")


def host():
    code, text = program("clang", "-x", "objective-c", "-std=gnu11", "-fobjc-arc", "-fobjc-runtime=macosx-13", "-fsyntax-only", "-Wall", "-Wextra",
                         "-Werror", "-Itests/metal/apple", "-Isrc", "-Iinclude", f"-I{BUILD}/generated", f"-I{BUILD}/generated/include", "src/devices/metal/metal_device.m")
    check(code == 0, f"metal_device.m: {text[:600]}")


def language():
    if not shutil.which("clang"):
        print("skipped: no clang")
        return
    code, text = program("python3", "-B", "tools/check_msl", BUILD)
    check(code == 0, f"check_msl: {text[-800:]}")
    planted()
    host()


# ---- on the shim ----

WEIGHTS = ["embed", "matmul", "matmul_id"]
CACHES = ["cache_write", "page_seal", "cache_read", "attn_score"]


def ops():
    """Those without formats."""
    names = [n for n in known("ops") if n not in WEIGHTS + CACHES + ["attn"]]
    check(len(names) > 20, f"ops: {names}")
    names = cases("metal", names, 4)
    verify(names, "--ops", ",".join(names))


def weights():
    types = cases("metal", ["Q8_0", "Q4_K", *(t for t in weight_types() if t not in ("Q8_0", "Q4_K"))], 2)
    verify({(op, t) for op in WEIGHTS for t in types}, "--ops", ",".join(WEIGHTS), "--formats", ",".join(types))


def caches():
    formats = cases("metal", cache_formats(), 2)
    verify({(op, f) for op in CACHES for f in formats}, "--ops", ",".join(CACHES), "--formats", ",".join(formats))


def attn():
    """A pair is a program to compile: every format with itself and beside f16, those of fused kernels; with KVANT_LONG=1 all pairs."""
    formats = cache_formats()
    if long():
        verify({("attn", f"{k}:{v}") for k in formats for v in formats}, "--ops", "attn", "--pairs", "all")
        return
    beside = [f"{k}:{v}" for k in formats for v in formats if k != v and "f16" in (k, v)]
    pairs = cases("metal", ["tbq4_0:tbq4_0", "qjl1_256:tbq3_0", "qjl1_256:q4_polar", *(f"{f}:{f}" for f in formats if f != "tbq4_0"), *beside])
    verify({("attn", p) for p in pairs}, "--ops", "attn", "--pairs", ",".join(pairs))


def generate(device, model, *args):
    return program(KVANT, "run", "--device", device, "-m", f"tests/golden/tiny/{model}.gguf", "-n", "6", "-p", "Once", "--temp", "0",
                   "--compute", "f32", "-lv", "0", *args)


def matrices(model):
    """With --compute auto a prompt's products, attention and gated delta rule go through matrices, and its ids stay those of f32."""
    want, got = (generate("metal-shim", model, "-p", "Once upon a time there was a little girl", "--compute", c) for c in ("f32", "auto"))
    check(want[0] == 0 and got == want, f"{model} auto: {got} is not {want}")


# A page is sealed behind the tail of 64 tokens, and read: with ptcq2 the ids are not those of f16.
PAGES = ("-p", "Once upon a time there was a little girl who lived in a small house near the forest. " * 2, "--kv-tail", "64")


def same_ids(model, k, v, *args):
    want, got = (generate(d, model, "-ctk", k, "-ctv", v, *args) for d in ("cpu", "metal-shim"))
    check(want[0] == 0 and got == want, f"{model} {k} {v}: {got} is not {want}")


def models():
    run_cases("metal-models", [lambda: same_ids("qwen3moe", "tbq4_0", "tbq3_0"), lambda: same_ids("qwen35", "turbo4", "q8_0"),
                               lambda: same_ids("llama", "ptcq2", "ptcq2", *PAGES), lambda: matrices("qwen3moe"), lambda: matrices("qwen35")])


def shipped():
    code, text = program(SHIPPED, "verify", "--device", "metal-shim", "--quick", "--ops", "add")
    check(code == 5 and "device metal-shim: unknown; this build has: cpu" in text, f"{SHIPPED} --device metal-shim: exit {code}: {text[:300]}")
    code, text = program(SHIPPED, "--list-devices")
    check(code == 0 and "metal-shim" not in text, f"{SHIPPED} --list-devices: exit {code}: {text[:300]}")


def wanted():
    """Whether this build was configured to have the shim: a program that is missing then is a failure, not a reason to skip."""
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        return re.search(r"^KVANT_METAL_SHIM:BOOL=(ON|1|TRUE|YES|Y)$", f.read(), re.M | re.I) is not None


def main():
    shipped()
    if not wanted():
        print("skipped: built without kvant-metal-shim (cmake -DKVANT_METAL_SHIM=ON)")
    else:
        for part in PARTS:
            globals()[part]()
    print(f"{'_'.join(['check_metal', *sys.argv[2:]])}: {passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
