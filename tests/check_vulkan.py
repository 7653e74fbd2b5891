#!/usr/bin/env python3
"""check_vulkan.py BUILD: the device "vulkan" on a software driver (lavapipe), or on what VK_DRIVER_FILES names.

It owns: the op harness on reduced sizes (every op; products of every weight type; every format read, written and sealed, in attention as K
and as V, and the pairs that shaders take by name); the plain form of every shader by masked capabilities (KVANT_VK_DISABLE); a lost
device; models of tests/archs; greedy ids of whole models beside the CPU's and, of the novella models, beside the recorded ones; the validation layer, core and synchronisation,
on both forms; spirv-val on every shader of the build.  Cases are
chosen by support/chosen.py: all of them where the device changed.  Without a Vulkan driver it says so and passes.

    python3 tests/check_vulkan.py build/release [PART ...]         ctest runs every part as a test, check_vulkan_<part>"""
import glob
import os
import re
import shutil
import struct
import subprocess
import sys

from support.chosen import cases, each_side, run_cases

BUILD = sys.argv[1]
PARTS = sys.argv[2:] or ["archs", "attn", "caches", "forms", "golden", "layers", "models", "ops", "plain", "profiles", "shaders"]
KVANT = os.path.join(BUILD, "bin", "kvant")
TINY = "tests/golden/tiny"
DEMO = "models/novella-hybrid-q8_0.gguf"
LAVAPIPE = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"
LAYER = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
         "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"}
HEAVY = {"embed", "matmul", "matmul_id", "cache_write", "page_seal", "cache_read", "attn_score", "attn"}
FIRST = "qwen35moe"
COMMON = ["F32", "BF16", "Q8_0", "Q6_K", "Q4_K", "MXFP4"]
OPS, MODELS = "vulkan", "vulkan-models"         # suites
passed = failed = 0


def check(ok, text):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAIL", text, flush=True)


def program(path, *args, **env):
    base = dict(os.environ)
    if "VK_DRIVER_FILES" not in base and os.path.exists(LAVAPIPE):
        base["VK_ICD_FILENAMES"] = LAVAPIPE
    r = subprocess.run([path, *args], env={**base, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       errors="replace", check=False)
    return r.returncode, r.stdout + r.stderr


def run(*args, **env):
    return program(KVANT, *args, **env)


def verify(what, *args, **env):
    """Runs kvant verify; its cases count as ours."""
    global passed, failed
    code, text = run("verify", "--device", "vulkan", "--quick", *args, **env)
    last = re.findall(r"^(\d+) passed, (\d+) failed$", text, re.M)
    check(code == 0 and last and int(last[-1][0]) > 0, f"{what}: exit {code}: {text[-600:]}")
    for line in re.findall(r"^FAILED .*$", text, re.M):
        print("FAIL", line)
    if last:
        passed, failed = passed + int(last[-1][0]), failed + int(last[-1][1])
    return text


def formats():
    return re.search(r"^Cache formats: (.*)$", run("verify", "--help")[1], re.M).group(1).split()


def weight_types():
    with open("src/formats/weights/wtypes.def", encoding="utf-8") as f:
        names = [n.upper() for n in re.findall(r"^KVANT_WTYPE\((\w+)\)", f.read(), re.M)]
    check(set(COMMON) < set(names), f"weight types: {COMMON} are not all among {names}")
    return COMMON + [n for n in names if n not in COMMON]


def small():
    with open(os.path.join(BUILD, "generated", "include", "kvant", "ops.def"), encoding="utf-8") as f:
        return [n for n in re.findall(r"^KVANT_OP\(\w+,\s+(\w+)", f.read(), re.M) if n not in HEAVY]


def ops():
    verify("ops", "--ops", ",".join(cases(OPS, small(), 4)))
    types = ",".join(cases(OPS, weight_types(), 2))
    verify("embed", "--ops", "embed", "--formats", types)
    verify("weights", "--ops", "matmul,matmul_id", "--formats", types)


def archs():
    """Logits and greedy ids of models of tests/archs; pages of windows that come and go; adapters."""
    global passed
    names = sorted(os.path.basename(p)[:-5] for p in glob.glob("tests/archs/*.json"))
    chosen = cases(MODELS, [FIRST] + ["check_windows", "check_lora"] + [n for n in names if n != FIRST])
    programs = [name for name in ("check_windows", "check_lora") if name in chosen]
    for name, models in [("check_archs", [n for n in chosen if n not in programs])] + [(p, []) for p in programs]:
        code, text = program(os.path.join(BUILD, "bin", name), "vulkan", *models)
        last = re.findall(rf"^{name}: (\d+) passed, 0 failed$", text, re.M)
        check(code == 0 and last and int(last[0]) > 0, f"{name}: exit {code}: {text[-900:]}")
        passed += int(last[0]) if last else 0


def caches():
    """Every format written, read, scored and sealed."""
    verify("caches", "--ops", "cache_write,cache_read,attn_score,page_seal", "--formats", ",".join(cases(OPS, formats(), 2)))


def attn():
    pairs = ["tbq4_0:tbq4_0", "f16:f16", "qjl1_256:tbq3_0", "qjl1_256:q4_polar"]
    pairs += [p for p in each_side(formats()) if p not in pairs]
    verify("attention", "--ops", "attn", "--pairs", ",".join(cases(OPS, pairs, 1)))


def plain():
    run_cases(OPS, [lambda: verify("plain form", "--ops", ",".join(cases(OPS, small())), KVANT_VK_DISABLE="bda")] + [
        lambda a=a: verify(f"plain {a[1]}", *a[0], KVANT_VK_DISABLE="bda", **a[2]) for a in (
            (("--ops", "cache_write,cache_read,attn_score", "--formats", "tbq4_0"), "cache tbq4_0", {}),
            (("--ops", "cache_write,cache_read,attn_score", "--formats", "turbo3_tcq"), "cache turbo3_tcq", {}),
            (("--ops", "cache_write,cache_read,attn_score", "--formats", "qjl1_256"), "cache qjl1_256", {}),
            (("--ops", "cache_write,cache_read,attn_score,page_seal", "--formats", "ptcq3"), "cache ptcq3", {}),
            (("--ops", "attn", "--pairs", "tbq4_0:tbq4_0"), "attention", {}),
            (("--ops", "attn", "--pairs", "turbo3_tcq:qjl1_256"), "attention", {}),
            (("--ops", "attn", "--pairs", "ptcq4:ptcq2"), "attention", {}),
            (("--ops", "attn", "--pairs", "tbq4_0:tbq4_0"), "matrices", {"KVANT_VK_FORCE": "matrix"}),
            (("--ops", "matmul,matmul_id", "--formats", "F32"), "matrix products", {"KVANT_VK_FORCE": "matrix"}),
            (("--ops", "matmul,matmul_id", "--formats", "Q4_K"), "matrix products", {"KVANT_VK_FORCE": "matrix"}))])


def masks():
    """Arguments and masks that are refused, in a second or two."""
    code, text = run("verify", "--device", "vulkan", "--quick", "--ops", "add", KVANT_VK_DISABLE="magic")
    check(code == 2 and '"magic", wanted bda, subgroup, half, ' in text and "radv, matrix or device:N" in text, f"unknown mask: exit {code}: {text}")
    code, text = run("verify", "--device", "vulkan", "--quick", "--ops", "add", KVANT_VK_FORCE="magic")
    check(code == 2 and 'KVANT_VK_FORCE: "magic", wanted matrix or gpu' in text, f"unknown form: exit {code}: {text}")
    code, text = run("verify", "--device", "vulkan:77", "--ops", "add")
    check(code == 5 and "numbered from 0" in text, f"device 77: exit {code}: {text}")
    code, text = generate("vulkan", DEMO, "-ub", "64", "-c", "256", KVANT_VK_DISABLE="bda,range:1")
    check(code == 2 and "this device binds at most 1.0 MiB" in text, f"range of 1 MiB: exit {code}: {text[-300:]}")
    code, text = generate("vulkan", "qwen3", KVANT_VK_DISABLE="device:4")
    check(code == 5 and "the device was lost" in text, f"lost device: exit {code}: {text[-300:]}")


def automatic(env, name):
    code, text = run("run", "--device", "auto", "-m", f"{TINY}/qwen3.gguf", "-n", "1", "-p", "Once", CUDA_VISIBLE_DEVICES="", **env)
    check(code == 0 and f"device auto: {name}\n" in text, f"device auto, {env}: exit {code}: {text[-600:]}")


def as_gpu():
    want, got = generate("cpu", "qwen3"), generate("auto", "qwen3", KVANT_VK_FORCE="gpu", CUDA_VISIBLE_DEVICES="")
    check(want[0] == 0 and got == want, f"device auto, a software driver taken for a GPU: {got} is not {want}")


def fused():
    """The table's forms are taken (inspect --program shows it), and none of them where they are masked: the same ids."""
    demo, alone = ("inspect", "-m", DEMO, "--program", "--device", "vulkan"), {"KVANT_VK_DISABLE": "fuse"}
    found, none = run(*demo), run(*demo, **alone)
    want = {"norm_rope_write 6/6", "matmul_norm 3/3", "matmul_norm_swiglu 4/4"}
    check(want <= set(re.findall(r"\[(\w+ \d/\d)\]", found[1])) and none[0] == 0 and "[" not in none[1], f"fused: {found[1][-600:]}")
    ids = [run("run", "--device", "vulkan", "-m", DEMO, "-n", "4", "-p", "Once", "--temp", "0", "-lv", "0", "-c", "256", **env) for env in ({}, alone)]
    check(ids[0][0] == 0 and ids[0] == ids[1], f"fused and one by one: {ids}")


def forms():
    decoders = [lambda t=t: verify(f"no subgroups, {t}", "--ops", "matmul,matmul_id,embed", "--formats", t, KVANT_VK_DISABLE="subgroup")
                for t in ("Q8_0", "Q6_K", "Q5_K", "Q5_1", "IQ4_XS", "MXFP4")]
    masked = [lambda a=a: verify("no 16-bit arithmetic, no dot products", *a, KVANT_VK_DISABLE="half,dot,matrix") for a in (
        ("--ops", "attn", "--pairs", "tbq4_0:tbq4_0"), *(("--ops", "matmul", "--formats", t) for t in ("Q8_0", "Q5_0", "IQ4_NL")))]
    run_cases(OPS, [
        masks, fused, lambda: automatic({"OCL_ICD_VENDORS": "/no/such"}, "cpu"), lambda: automatic({"KVANT_VK_FORCE": "gpu"}, "vulkan"), as_gpu,
        lambda: verify("no subgroups", "--ops", "norm_rms,moe_route", KVANT_VK_DISABLE="subgroup"),
        lambda: verify("sizes of a GPU", "--ops", "gdn_chunk", KVANT_VK_FORCE="gpu"), *decoders, *masked], 2)


def profile_runs(profile):
    demo = (DEMO, "-ub", "64", "-c", "256")
    want, got = generate("cpu", *demo), generate("vulkan", *demo, KVANT_VK_DISABLE=profile)
    check(want[0] == 0 and got == want, f"demo model on {profile}: {got} is not {want}")


def refused():
    demo = (DEMO, "-ub", "64", "-c", "256")
    for mask, code, words in (("bda,bindings:16", 5, "binds 16 storage buffers, wanted 17"), ("push:64", 5, "64 bytes of push constants, wanted 128"),
                              ("bda,indexing", 5, "lacks shaderStorageBufferArrayDynamicIndexing"),
                              ("shared:8", 5, "8192 bytes of shared memory, wanted 128 and 16384"), ("minimum,alloc:1", 4, "allocates at most 1.0 MiB")):
        rc, text = generate("vulkan", *demo, KVANT_VK_DISABLE=mask)
        check(rc == code and words in text and text.count("\n") == 1, f"{mask}: exit {rc}: {text[-300:]}")


def profiles():
    """What drivers of other devices have: the least that Vulkan promises in more ops, the others, of which a software driver shows only what
    they lack, in a whole model; what cannot work is refused in one line."""
    least = [lambda a=a: verify("the least device", *a, KVANT_VK_DISABLE="minimum") for a in (
        ("--ops", "matmul", "--formats", "Q8_0"), ("--ops", "matmul", "--formats", "IQ1_S"), ("--ops", "attn", "--pairs", "tbq4_0:tbq4_0"),
        ("--ops", "gdn_chunk,conv_chunk"), ("--ops", "norm_rms,moe_route,top_k"), ("--ops", "cache_write", "--formats", "tbq4_0"))]
    run_cases(MODELS, [refused, *least, *(lambda p=p: profile_runs(p) for p in ("minimum", "moltenvk", "adreno", "mali", "intel", "radv"))])


def generate(device, model, *args, **env):
    path = model if model.endswith(".gguf") else f"{TINY}/{model}.gguf"
    return run("run", "--device", device, "-m", path, "-n", "12", "-p", "Once upon a time", "--temp", "0", "--compute",
               "f32", "-lv", "0", *args, **env)


def same_ids(model, mask, *args):
    want, got = generate("cpu", model, *args), generate("vulkan", model, *args, KVANT_VK_DISABLE=mask)
    check(want[0] == 0 and got == want, f"{model} {args[:2]} ({mask or 'all'}): {got} is not {want}")


# A page is sealed behind the tail of 64 tokens, and read: with ptcq2 the ids are not those of f16.
PAGES = ("-p", "Once upon a time there was a little girl who lived in a small house near the forest. " * 2, "--kv-tail", "64")


def models():
    f32, demo = ("-ctk", "f32", "-ctv", "f32"), ("-ub", "64", "-c", "256")
    run_cases(MODELS, [lambda r=r: same_ids(*r) for r in (
        ("qwen3", "", *f32), ("qwen3", "bda", *f32), ("qwen3moe", "", *f32), ("qwen35", "", "-ctk", "tbq4_0", "-ctv", "tbq3_0"),
        ("llama", "", "-ctk", "ptcq2", "-ctv", "ptcq2", *PAGES),
        ("qwen35moe", "", *f32), (DEMO, "", *demo), (DEMO, "bda,range:4", *demo))])     # its embedding, through windows of 4 MiB


def recorded():
    """One recorded prompt of each novella model, 48 greedy ids; models that are not there are skipped."""
    global passed
    code, text = program(os.path.join(BUILD, "bin", "check_golden"), "vulkan", "first")
    last = re.findall(r"^check_golden: (\d+) passed, 0 failed$", text, re.M)
    check(code == 0 and last, f"golden ids: exit {code}: {text[-600:]}")
    for line in re.findall(r"^.*(?:greedy ids equal|SKIP|skipped).*$", text, re.M):
        print(line)
    passed += int(last[0]) if last else 0


def golden():
    run_cases(MODELS, [recorded], 0)


def validated(mask, *args):
    """An op of the harness, or a whole model, under the validation layer."""
    text = verify("layer", *args, KVANT_VK_DISABLE=mask, **LAYER) if args else generate("vulkan", "qwen35moe", "-ctk", "tbq4_0", KVANT_VK_DISABLE=mask, **LAYER)[1]
    found = re.findall(r"(?:VUID|SYNC-HAZARD|UNASSIGNED)[\w-]*", text)
    check(not found, f"validation layer ({mask or 'all'}): {sorted(set(found))}")


def layers():
    if not glob.glob("/usr/share/vulkan/explicit_layer.d/*khronos_validation*"):
        print("skipped: the validation layer is not installed")
        return
    run_cases(OPS, [lambda m=m, a=a: validated(m, *a) for a in (
        ("--ops", "add,slot_copy,moe_route,gdn_step"), ("--ops", "matmul", "--formats", "Q8_0"), ("--ops", "cache_write", "--formats", "tbq3_0"),
        ("--ops", "attn", "--pairs", "tbq3_0:f16"), ()) for m in ("", "bda")])


def opcodes(words):
    """Of every instruction; None where lengths do not add up."""
    found, i = [], 5
    while i < len(words) and words[i] >> 16:
        found.append(words[i] & 0xffff)
        i += words[i] >> 16
    return found if i == len(words) else None


def shaders():
    """The code as glslc made it for the build: a list of numbers in braces; translated matrices, which validators before 2023.3 do
    not know: what they were made of is valid, and nothing of the older extension is left."""
    tool, out = shutil.which("spirv-val"), os.path.join(BUILD, "vulkan", "check.spv")
    for path in sorted(glob.glob(f"{BUILD}/vulkan/*_fast.inc") + glob.glob(f"{BUILD}/vulkan/*_plain.inc")) if tool else []:
        with open(path, encoding="utf-8") as f:
            words = [int(w, 16) for w in re.findall(r"0x[0-9a-f]+", f.read())]
        with open(out, "wb") as f:
            f.write(struct.pack(f"<{len(words)}I", *words))
        translated = path.endswith("_khr_fast.inc")
        code, text = program(tool, "--target-env", "vulkan1.1", f"{path}.spv" if translated else out)
        check(len(words) > 5 and code == 0, f"{path}: {text}")
        if translated:
            ops_of = opcodes(words) or []
            check({4456, 4457, 4458, 4459} <= set(ops_of), f"{path}: no matrices: {sorted(set(ops_of))}")
            check(not set(range(5358, 5363)) & set(ops_of), f"{path}: matrices of the older extension are left")


def main():
    if not os.path.isdir(os.path.join(BUILD, "vulkan")):
        print("skipped: built without the Vulkan device")
    else:
        code, text = run("verify", "--device", "vulkan", "--quick", "--ops", "add")
        if code == 5:
            check(text.count("device vulkan") >= 1, f"no reason given: {text}")
            print("skipped:", text.strip().splitlines()[-1] if text.strip() else "no device")
        else:
            for part in PARTS:
                globals()[part]()
    print(f"{'_'.join(['check_vulkan', *sys.argv[2:]])}: {passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
