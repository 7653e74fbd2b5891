#!/usr/bin/env python3
"""loop_counts.py: the instructions of the innermost loops of compiled functions: what can be said of speed where no hardware
is at hand.  docs/evidence/neon.md quotes it.

    tools/loop_counts.py [--objdump PROGRAM] OBJECT [PATTERN]     functions whose name matches PATTERN (default: all)

A loop is a backward branch to an address of the same function; loops that hold another loop are not printed.  stack: loads and
stores relative to sp, mostly registers that did not suffice."""
import argparse
import re
import subprocess

KINDS = (("fma", r"fml[as]"), ("sdot", r"sdot"), ("smmla", r"smmla"), ("mull", r"s?mul|sml|sadalp"), ("tbl", r"tb[lx]"),
         ("load", r"ld"), ("store", r"st"))


def instructions(text):
    """(address, mnemonic, operands) of one function's disassembly."""
    found = (re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)", line) for line in text.split("\n"))
    return [(int(m.group(1), 16), m.group(2), m.group(3)) for m in found if m]


def loops(code, name):
    """(first, last) indices of the innermost loops."""
    at = {address: i for i, (address, _, _) in enumerate(code)}
    found = set()
    for i, (address, op, args) in enumerate(code):
        m = re.search(r"([0-9a-f]+) <" + re.escape(name), args) if re.match(r"b(\.\w+)?$|cbn?z$|tbn?z$", op) else None
        if m and int(m.group(1), 16) in at and int(m.group(1), 16) <= address:
            found.add((at[int(m.group(1), 16)], i))
    return sorted(a for a in found if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in found))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("object")
    p.add_argument("pattern", nargs="?", default=".")
    p.add_argument("--objdump", default="aarch64-linux-gnu-objdump")
    args = p.parse_args()
    text = subprocess.run([args.objdump, "-d", "--no-show-raw-insn", args.object], capture_output=True, text=True, check=True)
    for function in text.stdout.split("\n\n"):
        m = re.search(r"<([\w.]+)>:\n", function)
        if not m or not re.search(args.pattern, m.group(1)):
            continue
        code = instructions(function)
        for first, last in loops(code, m.group(1)):
            body = code[first:last + 1]
            counts = [f"{kind} {n}" for kind, r in KINDS if (n := sum(re.match(r, op) is not None for _, op, _ in body))]
            stack = sum(op.startswith(("ld", "st")) and "[sp" in operands for _, op, operands in body)
            print(f"{m.group(1)}: {len(body)} instructions: {', '.join(counts)}" + (f"; stack {stack}" if stack else ""))


main()
