#!/usr/bin/env python3
"""check_bench_kernels.py BUILD: `kvant bench-kernels --cases` on the CPU and on software drivers of Vulkan and OpenCL.

Each case tells a time, the bytes that its op must move and whose clock it was, at 1, 128 and 257 rows; a case that is unknown is refused
by name.  A device that this build or machine has not is said and passes.  The CPU runs all of the cases; software drivers take
minutes for scores and products, so they run the others."""
import json
import os
import subprocess
import sys

from support.serve import Checks

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build/release"
COUNTS = (1, 128, 257)
NORMS = {"norm_rms": 2, "norm_layer": 2, "norm_add_rms": 4, "norm_l2": 2, "norm_gated": 3}      # rows that each moves
# What each case has, and its bytes.
WANTED = {("norms", f"{norm}, {n} rows"): 4 * 4096 * n * moved for n in COUNTS for norm, moved in NORMS.items()}
WANTED |= {("conv", f"{n} sequences"): 4 * 8192 * (2 * n + 4 + 6 * n) for n in COUNTS}
WANTED |= {("conv", f"a prompt of {n} tokens"): 4 * 8192 * (2 * n + 4 + 6) for n in COUNTS}
WANTED |= {("attn_score", f"{name}, {n} queries"): 2048 * 8 * row + 4 * n * 32 * (128 + 2048)
           for name, row in (("f16", 256), ("q8_0", 136), ("tbq4_0", 72)) for n in COUNTS}
EXPERTS = {"BF16": 2, "Q8_0": 34 / 32, "Q4_K": 144 / 256, "MXFP4": 17 / 32}                      # bytes of a weight
checks = Checks("check_bench_kernels")


def run(*args):
    r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "bench-kernels", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return r.returncode, r.stdout + r.stderr


def check_products(device, rows):
    for name, size in EXPERTS.items():
        found = {int(what.split()[1]): (int(what.split()[3]), r["bytes"]) for (case, what), r in rows.items() if case == "matmul_id" and
                 what.upper().startswith(name + ",")}
        checks.ok(set(found) == set(COUNTS), f"{device} matmul_id {name}: {sorted(found)}, wanted tokens {COUNTS}")
        for n, (used, moved) in found.items():
            wanted = used * 2048 * 1024 * size + 4 * n * (2048 + 4 * 1024)
            checks.ok(used == (4 if n == 1 else 32) and abs(moved - wanted) < 1, f"{device} matmul_id {name}, {n}: {used} experts, {moved}, wanted {wanted}")


def check_device(device, clock, cases):
    code, text = run("--device", device, "--cases", ",".join(cases), "-r", "1", "--json")
    if code == 5 and ("device " + device in text or "this build has" in text):
        print(f"skipped {device}: {text.strip().splitlines()[-1]}")
        return
    begin = text.find("{")
    if not checks.ok(code == 0 and begin >= 0, f"{device}: exit {code}: {text[-600:]}"):
        return
    report = json.JSONDecoder().raw_decode(text[begin:])[0]
    rows = {(r["case"], r["what"]): r for r in report["results"]}
    checks.ok(report["clock"] == clock and report["copy_tbs"] > 0, f"{device}: clock {report['clock']}, wanted {clock}; copy {report['copy_tbs']}")
    for key, moved in ((k, v) for k, v in WANTED.items() if k[0] in cases):
        checks.ok(key in rows and rows[key]["bytes"] == moved, f"{device} {key}: {rows.get(key)}, wanted {moved} bytes")
    if "matmul_id" in cases:
        check_products(device, rows)
    for key, r in rows.items():
        checks.ok(0 < r["least_us"] <= r["us"], f"{device} {key}: {r['least_us']} us at the least, {r['us']} us")


def check_text():
    """The table for people; a case that is none."""
    code, text = run("--cases", "norms", "-r", "1")
    checks.ok(code == 0 and "by the host's clock" in text and "of copy" in text and text.count("norm_gated") == 3, f"exit {code}: {text[-400:]}")
    code, text = run("--cases", "norms,nothing", "-r", "1")
    checks.ok(code != 0 and '"nothing"' in text and "matmul_id attn_score conv norms" in text, f"an unknown case: exit {code}: {text}")


os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
check_text()
for name, told, cases in (("cpu", "host", ("attn_score", "matmul_id", "conv", "norms")), ("vulkan", "device", ("norms",)), ("opencl", "host", ("conv", "norms"))):
    check_device(name, told, cases)
sys.exit(checks.end())
