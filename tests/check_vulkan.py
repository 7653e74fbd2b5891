#!/usr/bin/env python3
"""check_vulkan.py BUILD: the device "vulkan" on a software driver (lavapipe), or on what VK_DRIVER_FILES names.

It owns: the op harness on reduced sizes (every op and format; attention with each K beside f16, each V beside f16, the
named fusions, and 12 further pairs that the commit id chooses); the plain form of every shader by masked capabilities
(KVANT_VK_DISABLE); a lost device; greedy ids of whole models beside the CPU's and, of the novella models, beside the
recorded ones; the validation layer, core and
synchronisation, on both forms; spirv-val on every shader.  Without a Vulkan driver it says so and passes.

    python3 tests/check_vulkan.py build/release [ops|attn|forms|models|golden|layers|shaders ...]"""
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys

BUILD = sys.argv[1]
PARTS = sys.argv[2:] or ["shaders", "ops", "attn", "forms", "models", "golden", "layers"]
KVANT = os.path.join(BUILD, "bin", "kvant")
TINY = "tests/golden/tiny"
DEMO = "models/novella-hybrid-q8_0.gguf"
LAVAPIPE = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"
LAYER = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
         "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"}
SMALL = "add,swiglu,gate_mul,gate_add,gdn_gates,rows_gather,rope,argmax,top_k,norm_rms,norm_add_rms,norm_l2,norm_gated," \
        "moe_route,moe_combine,slot_copy,slot_zero,conv_step,conv_chunk,gdn_step,gdn_chunk"
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


def chosen_pairs(names):
    """12 pairs that no other list has, by the commit: over many commits every pair is run."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    commit = git.stdout.strip() or "none"
    left = [f"{k}:{v}" for k in names for v in names if "f16" not in (k, v)]
    return sorted(left, key=lambda p: hashlib.sha256((commit + p).encode()).hexdigest())[:12]


def ops():
    verify("ops", "--ops", SMALL)
    verify("weights", "--ops", "embed,matmul,matmul_id")
    verify("caches", "--ops", "cache_write,page_seal,cache_read,attn_score")


def attn():
    names = formats()
    pairs = [f"{k}:f16" for k in names] + [f"f16:{v}" for v in names if v != "f16"]
    pairs += ["qjl1_256:tbq3_0", "qjl1_256:q4_polar"]
    pairs += [p for p in chosen_pairs(names) if p not in pairs]
    verify("attention", "--ops", "attn", "--pairs", ",".join(pairs))


def forms():
    verify("plain form", "--ops", SMALL, KVANT_VK_DISABLE="bda")
    verify("no subgroups", "--ops", "norm_rms,moe_route,matmul,embed", "--formats", "Q8_0,Q6_K",
           KVANT_VK_DISABLE="subgroup")
    verify("plain caches", "--ops", "cache_write,cache_read,attn_score,attn", "--formats", "tbq4_0,turbo3_tcq,qjl1_256",
           "--pairs", "tbq4_0:tbq4_0,turbo3_tcq:qjl1_256", KVANT_VK_DISABLE="bda")
    verify("plain matrices", "--ops", "attn", "--pairs", "tbq4_0:tbq4_0", KVANT_VK_DISABLE="bda", KVANT_VK_FORCE="matrix")
    verify("no 16-bit arithmetic, no dot products", "--ops", "attn,matmul", "--formats", "tbq4_0,Q8_0", "--pairs", "tbq4_0:tbq4_0",
           KVANT_VK_DISABLE="half,dot,matrix")
    code, text = run("verify", "--device", "vulkan", "--quick", "--ops", "add", KVANT_VK_DISABLE="magic")
    check(code == 2 and "wanted bda, subgroup, half, dot, matrix, range:N or device:N" in text, f"unknown mask: exit {code}: {text}")
    code, text = run("verify", "--device", "vulkan", "--quick", "--ops", "add", KVANT_VK_FORCE="magic")
    check(code == 2 and 'KVANT_VK_FORCE: "magic", wanted matrix' in text, f"unknown form: exit {code}: {text}")
    code, text = run("verify", "--device", "vulkan:77", "--ops", "add")
    check(code == 5 and "numbered from 0" in text, f"device 77: exit {code}: {text}")
    code, text = generate("vulkan", DEMO, "-ub", "64", "-c", "256", KVANT_VK_DISABLE="bda,range:1")
    check(code == 2 and "this device binds at most 1.0 MiB" in text, f"range of 1 MiB: exit {code}: {text[-300:]}")
    code, text = generate("vulkan", "qwen3", KVANT_VK_DISABLE="device:4")
    check(code == 5 and "the device was lost" in text, f"lost device: exit {code}: {text[-300:]}")


def generate(device, model, *args, **env):
    path = model if model.endswith(".gguf") else f"{TINY}/{model}.gguf"
    return run("run", "--device", device, "-m", path, "-n", "12", "-p", "Once upon a time", "--temp", "0", "--compute",
               "f32", "-lv", "0", *args, **env)


def models():
    for model in ("qwen3", "qwen3moe", "qwen35", "qwen35moe"):
        cache = ("-ctk", "f32", "-ctv", "f32") if model != "qwen35" else ("-ctk", "tbq4_0", "-ctv", "tbq3_0")
        want = generate("cpu", model, *cache)
        for mask in ("", "bda"):
            got = generate("vulkan", model, *cache, KVANT_VK_DISABLE=mask)
            check(want[0] == 0 and got == want, f"{model} {cache[1]} ({mask or 'all'}): {got} is not {want}")
            if model != "qwen3":
                break
    demo = (DEMO, "-ub", "64", "-c", "256")
    want = generate("cpu", *demo)
    for mask in ("", "bda,range:4"):                       # its embedding is read through windows of 4 MiB
        got = generate("vulkan", *demo, KVANT_VK_DISABLE=mask)
        check(want[0] == 0 and got == want, f"demo model ({mask or 'all'}): {got} is not {want}")


def golden():
    """One recorded prompt of each novella model, 48 greedy ids; models that are not there are skipped."""
    global passed
    code, text = program(os.path.join(BUILD, "bin", "check_golden"), "vulkan", "first")
    last = re.findall(r"^check_golden: (\d+) passed, 0 failed$", text, re.M)
    check(code == 0 and last, f"golden ids: exit {code}: {text[-600:]}")
    for line in re.findall(r"^.*(?:greedy ids equal|SKIP|skipped).*$", text, re.M):
        print(line)
    passed += int(last[0]) if last else 0


def layers():
    if not glob.glob("/usr/share/vulkan/explicit_layer.d/*khronos_validation*"):
        print("skipped: the validation layer is not installed")
        return
    for mask in ("", "bda"):
        text = verify("layer", "--ops", "add,matmul,slot_copy,moe_route,gdn_step,cache_write,attn", "--formats",
                      "tbq3_0,Q8_0", "--pairs", "tbq3_0:f16", KVANT_VK_DISABLE=mask, **LAYER)
        text += generate("vulkan", "qwen35moe", "-ctk", "tbq4_0", KVANT_VK_DISABLE=mask, **LAYER)[1]
        found = re.findall(r"(?:VUID|SYNC-HAZARD|UNASSIGNED)[\w-]*", text)
        check(not found, f"validation layer ({mask or 'all'}): {sorted(set(found))}")


def shaders():
    tool, compiler = shutil.which("spirv-val"), shutil.which("glslc")
    folder = "src/devices/vulkan/shaders"
    for path in sorted(glob.glob(f"{folder}/*.comp")) if tool and compiler else []:
        for form in ("FAST", "PLAIN"):
            out = os.path.join(BUILD, "vulkan", "check.spv")
            made = subprocess.run([compiler, "--target-env=vulkan1.1", "-O", f"-D{form}", "-Isrc", f"-I{BUILD}/generated", f"-I{folder}",
                                   path, "-o",
                                   out], capture_output=True, text=True, check=False)
            r = subprocess.run([tool, "--target-env", "vulkan1.1", out], capture_output=True, text=True, check=False)
            check(made.returncode == 0 and r.returncode == 0, f"{path} {form}: {made.stderr}{r.stdout}{r.stderr}")


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
    print(f"check_vulkan: {passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
