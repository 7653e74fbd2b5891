#!/usr/bin/env python3
"""check_spec_auto BUILD: --spec auto loads the block for further tokens where the device has room for it and all layers, and says which; plans
count the block, and a text is that without it."""
import json
import os
import subprocess
import sys

from support.serve import Checks

KVANT = os.path.join(sys.argv[1] if len(sys.argv) > 1 else "build/release", "bin", "kvant")
MODEL, LINE = "tests/mtp/qwen35.gguf", "the block that predicts further tokens is "
C = Checks("check_spec_auto")
check = C.ok


def run(device, spec, *words, model=MODEL, memory=None):
    env = dict(os.environ, **({"KVANT_MEMORY": str(memory)} if memory else {}))
    done = subprocess.run([KVANT, "run", "-m", model, "-dev", device, "--spec", spec, "-p", "one two", "-n", "24", "--temp", "0", "--ignore-eos", "-c", "1024", *words],
                          capture_output=True, text=True, env=env)
    return done.returncode, done.stdout, done.stderr


def total(device, spec):
    done = subprocess.run([KVANT, "plan", "-m", MODEL, "-dev", device, "-c", "1024", "--spec", spec, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)["run"]["total"]


def check_device(device):
    plain, auto = run(device, "off"), run(device, "auto")
    if "no device" in plain[2] or f"device {device}: unknown" in plain[2]:
        print(f"skipped: {device} is not here")
        return
    check(auto[0] == 0 and LINE + "loaded\n" in auto[2] and plain[1] == auto[1], f"{device}: {plain}, auto {auto}")
    check(LINE not in plain[2] and LINE not in run(device, "ngram")[2], f"{device}: told without auto")
    check(LINE not in run(device, "auto", model="tests/archs/qwen2vl.gguf")[2], f"{device}: told of a model without one")
    without, block = total(device, "off"), total(device, "auto")
    check(without + 30000 < block == total(device, "mtp"), f"{device}: plans of {without} bytes, {block} with the block")
    if device == "cpu":
        return
    for memory, loads in ((4 * block, True), ((without + block) // 2, False)):
        code, text, said = run(device, "auto", memory=memory)
        check(code == 0 and text == plain[1] and (LINE + "loaded\n" in said) == loads and (LINE + "not loaded: the device's memory" in said) != loads,
              f"{device}, {memory} bytes: {code}, {text}, {said}")
    code, text, said = run(device, "auto", "-ngl", "2")
    check(code == 0 and LINE + "not loaded: one device with all layers" in said, f"{device} with two layers: {code}, {said}")


for name in ("cpu", "vulkan", "opencl"):
    check_device(name)
sys.exit(C.end())
