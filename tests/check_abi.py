#!/usr/bin/env python3
"""check_abi: what programs built against kvant rely on is what tests/inventory/abi.txt says (docs/decisions/0011-abi.md); shared
libraries and installed archives alike have the functions of the public headers as their only global names.  Planted: an archive with
internal names, a header with a field more in the middle."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import abi      # noqa: E402
from serve import ROOT, Checks, is_sanitized      # noqa: E402

C = Checks("check_abi")
# libkvant calls these of libkvant-formats; no header has them.
BETWEEN = {"kvant_cpu_features", "kvant_cpu_text", "kvant_fail", "kvant_wtype_sample", "kvant_wtype_set_halves"}


def globals_of(library):
    """Names that a program linked with this library cannot have itself."""
    how = ["-D"] if library.endswith(".so") else ["-g"]
    r = subprocess.run(["nm", "--defined-only", *how, library], capture_output=True, text=True, check=True)
    return set(re.findall(r"^[0-9a-f]+ [A-Z] (\w+)", r.stdout, re.M))


def check_names(build, functions, small):
    """small: the functions of qjl.h."""
    lib = os.path.join(build, "lib")
    for form in ("so", "a"):
        names = [globals_of(os.path.join(lib, f"lib{name}.{form}")) for name in ("kvant", "kvant-formats")]
        C.ok(not names[0] & names[1], f"both libraries have: {sorted(names[0] & names[1])[:5]} ({form})")
        found = names[0] | names[1]
        C.ok(found == functions | BETWEEN, f"{form}: more {sorted(found - functions - BETWEEN)[:5]}, less {sorted((functions | BETWEEN) - found)[:5]}")
    for form in ("so", "a"):
        found = globals_of(os.path.join(lib, f"libqjl.{form}"))
        C.ok(len(small) >= 10 and found == small, f"libqjl.{form}: more {sorted(found - small)[:5]}, less {sorted(small - found)[:5]}")
    planted = globals_of(os.path.join(lib, "libkvant-all.a"))       # with all internal names
    C.ok("sha256" in planted and not planted <= functions, "planted: internal names of an archive were not noticed")


def check_list(generated, now):
    with open(abi.LIST, encoding="utf-8") as f:
        listed = f.read().splitlines()
    C.ok(len(listed) > 300, f"{abi.LIST}: {len(listed)} lines")
    gone = abi.breaks(listed, now, abi.sized(listed))
    C.ok(not gone, f"{len(gone)} promises are gone, docs/decisions/0011-abi.md: {gone[:2]}")
    more = sorted(set(now) - set(listed))
    C.ok(not more, f"{len(more)} lines are not in {os.path.relpath(abi.LIST, ROOT)} (tools/abi.py --renew): {more[:2]}")
    with tempfile.TemporaryDirectory() as folder:       # a field in the middle
        include = shutil.copytree(os.path.join(ROOT, "include"), os.path.join(folder, "include"))
        header = os.path.join(include, "kvant", "engine.h")
        with open(header, encoding="utf-8") as f:
            text = f.read()
        with open(header, "w", encoding="utf-8") as f:
            f.write(text.replace("    int prompt;\n", "    int planted;\n    int prompt;\n"))
        gone = abi.breaks(now, abi.abi(include, generated), abi.sized(now))
        C.ok(any("struct kvant_item" in line for line in gone), f"planted: a field in the middle of kvant_item was not noticed: {gone[:2]}")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    generated = os.path.join(build, "generated", "include")
    now = abi.abi(os.path.join(ROOT, "include"), generated)
    check_list(generated, now)
    if is_sanitized(build):
        print("SKIP check_abi: names of libraries: a sanitizer adds its own")
    else:
        check_names(build, *(set(re.findall(rf"^function .*?\b({prefix}_\w+)\(", "\n".join(now), re.M)) for prefix in ("kvant", "qjl")))
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
