#!/usr/bin/env python3
"""Writes tests/inventory/gguf-package.txt: the keys of the gguf package's constants, and the tensors that it gives the
architectures kvant has.  check_unread wants a decision on each.  Needs: pip install gguf."""
import glob
import importlib.metadata
import inspect
import os
import re

from gguf import constants

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
OUT = os.path.join(TOP, "tests", "inventory", "gguf-package.txt")


def keys(group):
    """Every text of a class of keys and of the classes in it."""
    for name, value in vars(group).items():
        if inspect.isclass(value):
            yield from keys(value)
        elif isinstance(value, str) and not name.startswith("_"):
            yield re.sub(r"\{(?!arch)\w+\}", "*", value)


def kvant_archs():
    """Names of the architectures in src/model/archs."""
    found = set()
    for path in glob.glob(os.path.join(TOP, "src", "model", "archs", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as f:
            found.update(re.findall(r'const arch_def arch_\w+ = \{ "([^"]+)"', f.read()))
    return found


def main():
    mine = kvant_archs()
    lines = [f"# gguf {importlib.metadata.version('gguf')}, by tools/make_gguf_inventory.py"]
    lines += [f"key {k}" for k in sorted(set(keys(constants.Keys)))]
    for arch, name in sorted(constants.MODEL_ARCH_NAMES.items(), key=lambda a: a[1]):
        if name in mine:
            tensors = {constants.TENSOR_NAMES[t].replace("{bid}", "#") for t in constants.MODEL_TENSORS[arch]}
            lines += [f"tensor {name} {t}" for t in sorted(tensors)]
            mine.discard(name)
    if mine:
        raise SystemExit(f"not in the package: {sorted(mine)}")
    with open(OUT, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    print(f"{OUT}: {len(lines) - 1} lines")


if __name__ == "__main__":
    main()
