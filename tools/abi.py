#!/usr/bin/env python3
"""abi: what programs built against kvant rely on: functions, struct sizes and offsets, values of constants, by the public headers.

    tools/abi.py [BUILD]            prints the list (BUILD: a build folder, for generated headers; default build/release)
    tools/abi.py [BUILD] --renew    writes it to tests/inventory/abi.txt; a change that breaks programs wants another version there

docs/decisions/0011-abi.md has the rule; tests/check_abi.py compares.  Sizes are those of 64-bit Linux (x86-64 and arm64 alike)."""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from c_headers import read_api      # noqa: E402

LIST = os.path.join(ROOT, "tests", "inventory", "abi.txt")


def public_headers(include):
    """Those of libkvant and libkvant-formats."""
    return sorted("kvant/" + name for name in os.listdir(os.path.join(include, "kvant")) if name.endswith(".h"))


def measured(api, folders, headers):
    """What the compiler says of structs and constants, as lines."""
    out = ["#include <stdio.h>", "#include <stddef.h>"] + [f"#include <{h}>" for h in headers] + ["int main(void) {"]
    for name, fields in sorted(api.structs.items()):
        if fields is not None:
            out.append(f'printf("struct {name} %zu:", sizeof(struct {name}));')
            out += [f'printf(" {f.name} %zu", offsetof(struct {name}, {f.name}));' for f in fields] + ['puts("");']
    for values in api.enums.values():
        out += [f'printf("constant {name} %lld\\n", (long long){name});' for name in values]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "sizes.c"), os.path.join(folder, "sizes")
        with open(source, "w", encoding="utf-8") as f:
            f.write("\n".join(out + ["return 0; }", ""]))
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", source, "-o", program] + ["-I" + f for f in folders], check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


def version(include):
    with open(os.path.join(include, "kvant", "kvant.h"), encoding="utf-8") as f:
        found = dict(re.findall(r"#define KVANT_VERSION_(\w+) (\d+)", f.read()))
    return f"version {found['MAJOR']}.{found['MINOR']}"


def abi(include, generated):
    """The list, one line per promise, sorted; the version first."""
    folders, headers = [include, generated], public_headers(include) + ["qjl.h"]
    api = read_api(folders, headers)
    functions = [f"function {f.result} {name}({', '.join(kind for kind, _ in f.parameters) or 'void'})" for name, f in api.functions.items()]
    return [version(include)] + sorted(functions + measured(api, folders, headers))


def breaks(old, new, api_sized):
    """Lines of the old list that programs built with it would miss.  A struct that begins with its size may grow at its end."""
    missing, now = [], {" ".join(line.split(" ")[:2]): line for line in new if line.startswith("struct ")}
    for line in set(old) - set(new):
        words = line.split(" ")
        if line.startswith("version"):
            continue
        grown = now.get(" ".join(words[:2]), "")
        if not (words[0] == "struct" and words[1] in api_sized and grown.split(": ")[-1].startswith(line.split(": ")[-1] + " ")):
            missing.append(line)
    return sorted(missing)


def sized(lines):
    return {line.split(" ")[1] for line in lines if re.match(r"struct \w+ \d+: size 0 ", line)}


def main():
    arguments = [a for a in sys.argv[1:] if a != "--renew"]
    build = arguments[0] if arguments else os.path.join(ROOT, "build", "release")
    lines = abi(os.path.join(ROOT, "include"), os.path.join(build, "generated", "include"))
    if "--renew" not in sys.argv:
        print("\n".join(lines))
        return 0
    if os.path.exists(LIST):
        with open(LIST, encoding="utf-8") as f:
            old = f.read().splitlines()
        gone = breaks(old, lines, sized(old))
        if gone and old[0] == lines[0] and "0.1" not in lines[0]:       # 0.1 is not released yet
            print(f"abi: {len(gone)} promises of {old[0]} are gone, another version wanted in kvant.h: {gone[0]}", file=sys.stderr)
            return 1
    with open(LIST, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
