#!/usr/bin/env python3
"""check_isa.py: code of an instruction set is reached through the dispatch alone.

    tools/check_isa.py BUILD...    for each build folder: every symbol that an object of an ISA (foo_avx512.c, ...) defines may
                                   be used by the three registries and by objects of the same ISA or of a higher one, and an
                                   object of no ISA holds none of its instructions.  Ends with `N passed, M failed`."""
import os
import re
import subprocess
import sys

# What a rung may use: itself and the rungs that its mask includes.
BELOW = {"avx2": {"avx2"}, "avx512": {"avx2", "avx512"}, "avx512vnni": {"avx2", "avx512", "avx512vnni"},
         "neon": {"neon"}, "dotprod": {"neon", "dotprod"}, "i8mm": {"neon", "dotprod", "i8mm"}}
REGISTRIES = {"registry", "op_registry", "peak", "score_i8", "qjl"}      # each chooses by a mask of features
TOOLS = {"x86": ("nm", "objdump", re.compile(r"\t(v[a-z]\w+)\s")),
         "arm": ("aarch64-linux-gnu-nm", "aarch64-linux-gnu-objdump", re.compile(r"\t([su]dot|[su]mmla|usdot|bfdot|bfmmla)\s"))}


def isa_of(name):
    m = re.search(r"_(avx2|avx512|avx512vnni|neon|dotprod|i8mm)$", name)
    return m.group(1) if m else None


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check(build):
    objects = []
    for target in ("kvant_formats_objects", "kvant_objects", "kvant"):
        for folder, _, names in os.walk(os.path.join(build, f"CMakeFiles/{target}.dir")):
            objects += [os.path.join(folder, n) for n in names if n.endswith(".c.o")]
    stem = {o: os.path.basename(o)[:-4] for o in objects}
    arm = any(isa_of(s) == "neon" for s in stem.values())
    nm, objdump, instruction = TOOLS["arm" if arm else "x86"]
    owner, used = {}, []
    for o in objects:
        for line in run(nm, "-g", o).splitlines():
            kind, symbol = line[17:18], line[19:]
            if kind == "U":
                used.append((o, symbol))
            else:
                owner[symbol] = o
    passed, bad = 0, []
    for o, symbol in used:
        isa = isa_of(stem[owner[symbol]]) if symbol in owner else None
        if isa is None or stem[o] in REGISTRIES:
            continue
        if isa in BELOW.get(isa_of(stem[o]), ()):
            passed += 1
        else:
            bad.append(f"{stem[o]}.c uses {symbol} of {stem[owner[symbol]]}.c")
    for o in objects:
        isa = isa_of(stem[o])
        if isa is None or (arm and isa == "neon"):      # NEON itself belongs to every arm64 CPU
            m = instruction.search(run(objdump, "-d", "--no-show-raw-insn", o))
            if m:
                bad.append(f"{stem[o]}.c holds the instruction {m.group(1)}")
            else:
                passed += 1
    return passed, bad


def main():
    passed, bad = 0, []
    for build in sys.argv[1:]:
        p, b = check(build)
        passed, bad = passed + p, bad + [f"{build}: {text}" for text in b]
    for text in bad:
        print("FAIL", text)
    print(f"check_isa: {passed} passed, {len(bad)} failed")
    sys.exit(1 if bad or not passed else 0)


main()
