#!/usr/bin/env python3
"""check_opencl.py BUILD: the device "opencl" on a software driver (pocl), or on what OCL_ICD_VENDORS names.

It owns: the op harness on reduced sizes (every op, format and weight type; attention with every format as K and as V; chosen by
support/chosen.py: all where the device changed); small allocations by a mask (KVANT_CL_MAX_ALLOC); no word of an extension
in the kernels; what is said where there is no device; the loss by a compressed cache beside the CPU's;
greedy ids of whole models beside the CPU's and, of the novella models, beside the recorded ones.  Without an OpenCL driver it says so
and passes.

    python3 tests/check_opencl.py build/release [PART ...]         ctest runs every part as a test, check_opencl_<part>"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from support.chosen import cases, each_side, run_cases
from support.gguf_edit import fill
from support.serve import ROOT, Server, built

BUILD = sys.argv[1]
PARTS = sys.argv[2:] or ["attn", "caches", "golden", "kl", "limits", "models", "ops", "weights"]
KVANT = os.path.join(BUILD, "bin", "kvant")
TINY = "tests/golden/tiny"
DEMO = "models/novella-hybrid-q8_0.gguf"
passed = failed = 0


def check(ok, text):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAIL", text, flush=True)


def program(path, *args, **env):
    r = subprocess.run([path, *args], env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       errors="replace", check=False)
    return r.returncode, r.stdout + r.stderr


def run(*args, **env):
    return program(KVANT, *args, **env)


def verify(what, *args, **env):
    """Runs kvant verify; its cases count as ours."""
    global passed, failed
    code, text = run("verify", "--device", "opencl", "--quick", *args, **env)
    last = re.findall(r"^(\d+) passed, (\d+) failed$", text, re.M)
    check(code == 0 and last and int(last[-1][0]) > 0, f"{what}: exit {code}: {text[-600:]}")
    for line in re.findall(r"^FAILED .*$", text, re.M):
        print("FAIL", line)
    if last:
        passed, failed = passed + int(last[-1][0]), failed + int(last[-1][1])


def ops_of_the_contract():
    with open(os.path.join(BUILD, "generated", "include", "kvant", "ops.def"), encoding="utf-8") as f:
        return re.findall(r"^KVANT_OP\(\w+,\s+(\w+)", f.read(), re.M)


def formats():
    return re.search(r"^Cache formats: (.*)$", run("verify", "--help")[1], re.M).group(1).split()


def ops():
    heavy = {"embed", "matmul", "matmul_id", "cache_write", "page_seal", "cache_read", "attn_score", "attn"}
    verify("ops", "--ops", ",".join(cases("opencl", (n for n in ops_of_the_contract() if n not in heavy), 4)))


def weights():
    with open("src/formats/weights/wtypes.def", encoding="utf-8") as f:
        names = [n.upper() for n in re.findall(r"^KVANT_WTYPE\((\w+)\)", f.read(), re.M)]
    verify("weights", "--ops", "embed,matmul,matmul_id", "--formats", ",".join(cases("opencl", names, 2)))


def caches():
    """Every format written, read, scored and sealed."""
    verify("caches", "--ops", "cache_write,cache_read,attn_score,page_seal", "--formats", ",".join(cases("opencl", formats(), 2)))


def attn():
    pairs = ["f16:f16", "qjl1_256:q4_polar"]
    pairs += [p for p in each_side(formats()) if p not in pairs]
    verify("attention", "--ops", "attn", "--pairs", ",".join(cases("opencl", pairs)))


def generate(device, model, *args, **env):
    path = model if model.endswith(".gguf") else f"{TINY}/{model}.gguf"
    return run("run", "--device", device, "-m", path, "-n", "12", "-p", "Once upon a time", "--temp", "0", "--compute", "f32",
               "-lv", "0", *args, **env)


# A page is sealed behind the tail of 64 tokens, and read: with ptcq2 the ids are not those of f16.
PAGES = ("-p", "Once upon a time there was a little girl who lived in a small house near the forest. " * 2, "--kv-tail", "64")


def same_ids(model, k, v, *args):
    want, got = (generate(d, model, "-ctk", k, "-ctv", v, *args) for d in ("cpu", "opencl"))
    check(want[0] == 0 and got == want, f"{model} {k} {v}: {got} is not {want}")


def experts_apart(model, *args):
    """The CPU has the experts, the device the rest."""
    want, got = generate("cpu", model), generate("opencl", model, *args)
    check(want[0] == 0 and got == want, f"{model} {args}: {got} is not {want}")


def models():
    run_cases("opencl-models", [lambda m=m: same_ids(*m) for m in (
        ("qwen3", "f32", "f32"), ("llama", "ptcq2", "ptcq2", *PAGES), ("qwen3moe", "tbq4_0", "tbq3_0"), ("qwen35", "turbo4", "q8_0"), ("qwen35moe", "f16", "f16"))]
        + [lambda a=a: experts_apart(*a) for a in (("qwen3moe", "--cpu-moe"), ("qwen35moe", "-ncmoe", "1"), ("qwen3next", "-ot", "exps=CPU"))])


# Of what devices may lack: no kernel speaks of it.
LACKING = r"\b(half\d*|double\d*|sub_group\w*|intel_\w+|cl_khr_\w+|atom(ic)?_\w+|image[123]d\w*|printf)\b"


def plain_words():
    for path in glob.glob("src/devices/portable/*/*.k") + [os.path.join(BUILD, "generated/ops/elements.k")] + glob.glob("src/devices/portable/core/*.h"):
        with open(path, encoding="utf-8") as f:
            found = re.search(LACKING, re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S))
        check(not found or path.endswith("port_dev.h"), f"{path}: {found}")


def limits():
    """Weights lie in parts of the largest allocation, those of experts too; what cannot be cut is refused in one line."""
    plain_words()
    for model, kib in ((DEMO, "4096"), ("qwen3moe", "512")):
        args = (model, "-ub", "64", "-c", "256")
        want, got = generate("cpu", *args), generate("opencl", *args, KVANT_CL_MAX_ALLOC=kib)
        check(want[0] == 0 and got == want, f"{model} in parts of {kib} KiB: {got} is not {want}")
    for code, words, where, env in ((4, "allocates at most 1.0 MiB", "opencl", {"KVANT_CL_MAX_ALLOC": "1024"}),
                                    (4, "30 MiB are free on device opencl", "opencl", {"KVANT_MEMORY": "30M"}),
                                    (2, "wanted KiB, 1 to", "opencl", {"KVANT_CL_MAX_ALLOC": "much"}),
                                    (5, "numbered from 0", "opencl:77", {}),
                                    (5, "no OpenCL device on this machine", "opencl", {"OCL_ICD_VENDORS": "/nowhere"})):
        rc, text = generate(where, DEMO, "-ub", "64", "-c", "4096", "--fit", "off", **env)
        check(rc == code and words in text and text.count("\n") == 1, f"{where} {env}: exit {rc}: {text}")
    rc, text = run("run", "--device", "opencl", "-m", DEMO, "-p", "x", "-n", "1", KVANT_MEMORY="60M")
    check(rc == 0 and "tokens, what fits in memory (training context 32768)" in text, f"a context that fits: exit {rc}: {text}")
    want, got = generate("cpu", DEMO, "-ub", "64", "-c", "256"), generate("opencl", DEMO, "-ub", "64", "-c", "256", "--device-memory", "16M", "-lv", "2")
    check(got[0] == 0 and "placement: the model is larger" in got[1] and want[1] in got[1], f"a model larger than the device: {got}")
    if built(BUILD):
        warm_up()


def warm_up():
    """A server's first passes are before its first request, and none where nobody wants them or on the CPU."""
    model = os.path.join(ROOT, TINY, "llama.gguf")
    for passes, args in ((True, ("opencl",)), (False, ("opencl", "--no-warmup")), (False, ("cpu",))):
        s = Server(BUILD, "-np", "1", "-ub", "128", "--device", *args, model=model)
        lines = [line for line in s.lines if "warm-up: " in line]
        code, answer = s.post("/v1/completions", {"prompt": "x", "max_tokens": 2})
        s.stop()
        check(bool(lines) == passes and (not passes or re.search(r" of up to \d+ tokens", lines[0])), f"{args}: {lines}")   # fewer after a second
        check(code == 200 and answer["usage"]["completion_tokens"] == 2, f"{args}: {code} {answer}")
    with tempfile.TemporaryDirectory() as folder:       # a model without finite logits: its requests fail, not the start
        nan = os.path.join(folder, "nan.gguf")
        fill(model, nan, "output_norm.weight", float("nan"))
        s = Server(BUILD, "-np", "1", "-ub", "128", "--device", "opencl", model=nan)
        code, answer = s.post("/v1/completions", {"prompt": "x", "max_tokens": 2})
        s.stop()
        check(any("warm-up: " in line for line in s.lines) and code == 500 and "finite" in str(answer), f"NaN: {code} {answer}")


def loss(device):
    """Mean divergence of each pair from a cache of f16 on the same device, with its standard error."""
    code, text = run("eval", "kl", "-m", DEMO, "-f", "models/demo-filler.txt", "-c", "64", "--chunks", "2", "--device", device, "--pairs",
                     "tbq4_0:tbq4_0,q8_0:turbo3", "--path", "prefill", "--kv-tail", "0", "--compute", "f32", "-lv", "0", "--json")
    check(code == 0, f"kl on {device}: exit {code}: {text[-300:]}")
    return [(r["type_k"], r["mean"], r["mean_err"]) for r in json.loads(text)["results"]] if code == 0 else []


def kl():
    """The same tokens: what differs is how sums are rounded, and a code at a boundary now and then."""
    for (name, got, _), (_, want, err) in zip(loss("opencl"), loss("cpu")):
        check(abs(got - want) <= err, f"kl {name}: {got} beside the CPU's {want} +- {err}")


def recorded():
    """One recorded prompt of each novella model, 48 greedy ids; models that are not there are skipped."""
    global passed
    code, text = program(os.path.join(BUILD, "bin", "check_golden"), "opencl", "first")
    last = re.findall(r"^check_golden: (\d+) passed, 0 failed$", text, re.M)
    check(code == 0 and last, f"golden ids: exit {code}: {text[-600:]}")
    for line in re.findall(r"^.*(?:greedy ids equal|SKIP|skipped).*$", text, re.M):
        print(line)
    passed += int(last[0]) if last else 0


def golden():
    run_cases("opencl-models", [recorded], 0)


def main():
    code, text = run("verify", "--device", "opencl", "--quick", "--ops", "add")
    if code == 5:
        check("device opencl" in text or "unknown; this build has" in text, f"no reason given: {text}")
        print("skipped:", text.strip().splitlines()[-1] if text.strip() else "no device")
    else:
        for part in PARTS:
            globals()[part]()
    print(f"{'_'.join(['check_opencl', *sys.argv[2:]])}: {passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
