#!/usr/bin/env python3
"""check_hip.py BUILD: the device "hip" where no AMD GPU is: tests/hip/hip_check.c stands for the runtime.

It owns: every program that the device makes for the chosen ops, formats and weight types compiles with ROCm's hiprtc (Debian:
libamdhip64-5), for gfx90a and gfx1030 by turns, and each is launched inside its allocations; memory is given back; what is said of a
runtime that is absent or lacks functions, of a text that does not compile and of too little memory.  Nothing is computed: what
kernels compute is checked on OpenCL and Metal's shim, which read the same files, and by tests/hip/hip_on_cuda.c.

    python3 tests/check_hip.py build/release [PART ...]         ctest runs every part as a test, check_hip_<part>"""
import os
import re
import subprocess
import sys
import tempfile

from support.chosen import cases, each_side

BUILD = sys.argv[1]
PARTS = sys.argv[2:] or ["programs", "faults"]
KVANT = os.path.join(BUILD, "bin", "kvant")
DEMO = "models/novella-hybrid-q8_0.gguf"
SUMMARY = r"^hip-check: hiprtc (\w+), (\d+) compiled, (\d+) refused, (\d+) launched, (\d+) bytes held$"
passed = failed = 0


def check(ok, text):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAIL", text, flush=True)


def run(library, *args, **env):
    r = subprocess.run([KVANT, *args], env={**os.environ, "KVANT_HIP_LIBRARY": library, **env}, stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, errors="replace", check=False)
    return r.returncode, r.stdout + r.stderr


def names(path, pattern, root="."):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return re.findall(pattern, f.read(), re.M)


def compiles(library, *args):
    """Results are wrong on purpose: no GPU computed them.  A message of the device is a fault."""
    global passed
    _, text = run(library, "verify", "--device", "hip", "--quick", *args)
    seen = re.findall(SUMMARY, text, re.M)
    check(seen, f"{args}: no summary: {text[-600:]}")
    found, compiled, refused, launched, held = seen[-1] if seen else ("absent", "0", "1", "0", "0")
    check("device hip: " not in text and refused == "0" and held == "0" and int(launched) > 0,
          f"{args}: {re.findall(r'^.*(?:device hip: |REFUSED).*$', text, re.M)[:3]} {seen}")
    if found == "found":
        check(int(compiled) > 0, f"{args}: nothing was compiled")
        passed += int(compiled)
    return found


def programs(library):
    heavy = {"embed", "matmul", "matmul_id", "cache_write", "page_seal", "cache_read", "attn_score", "attn"}
    ops = [n for n in names("generated/include/kvant/ops.def", r"^KVANT_OP\(\w+,\s+(\w+)", BUILD) if n not in heavy]
    types = [n.upper() for n in names("src/formats/weights/wtypes.def", r"^KVANT_WTYPE\((\w+)\)")]
    formats = re.search(r"^Cache formats: (.*)$", run(library, "verify", "--help")[1], re.M).group(1).split()
    found = compiles(library, "--ops", ",".join(cases("hip", ops, 4)))
    compiles(library, "--ops", "embed,matmul,matmul_id", "--formats", ",".join(cases("hip", types, 1)))
    compiles(library, "--ops", "cache_write,cache_read,attn_score,page_seal", "--formats", ",".join(cases("hip", formats, 1)))
    compiles(library, "--ops", "attn", "--pairs", ",".join(cases("hip", each_side(formats))))
    if found != "found":
        print("skipped: no program was compiled: libamdhip64.so.5 is not here (Debian: libamdhip64-5)")


def generate(library, **env):
    return run(library, "run", "--device", "hip", "-m", DEMO, "-n", "2", "-p", "x", "--temp", "0", "-c", "256", "-lv", "0", **env)


def faults(library):
    with tempfile.TemporaryDirectory() as folder:
        bare = os.path.join(folder, "bare.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", bare, "-"], input="int hipInit(unsigned f) { return (int)f; }", text=True,
                       check=True)
        for code, words, path, env in ((5, "no HIP runtime on this machine", "/nowhere.so", {}), (5, "have no hipDriverGetVersion", bare, {}),
                                       (5, "no AMD GPU on this machine", library, {"HIP_CHECK": "no-gpu"}),
                                       (5, "does not compile here", library, {"HIP_CHECK": "spoil"}),
                                       (4, "MiB are free on device hip", library, {"HIP_CHECK": "small"})):
            rc, text = generate(path, **env)
            text = "".join(line for line in text.splitlines(True) if not line.startswith("hip-check"))
            check(rc == code and words in text and text.strip().count("\n") == 0, f"{words}: exit {rc}: {text}")
        rc, text = run(library, "verify", "--device", "hip:3", "--ops", "add")
        check(rc == 5 and "device hip:3: this machine has 1 device, numbered from 0" in text, f"hip:3: exit {rc}: {text}")


def main():
    if "unknown; this build has" in run("", "verify", "--device", "hip", "--ops", "add")[1]:
        print("skipped: this build has no device hip (KVANT_HIP)")
    else:
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "hip_check.so")
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, "tests/hip/hip_check.c", "-ldl"], check=True)
            for part in PARTS:
                globals()[part](library)
    print(f"{'_'.join(['check_hip', *sys.argv[2:]])}: {passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
