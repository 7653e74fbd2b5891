#!/usr/bin/env python3
"""check_gen_tables: the generator of the decoders (tools/gen_tables).  Cards that do not add up are refused by name; a made-up format of
five bits gets decoders from its card and one line in formats.def alone: C that computes what the card says, GLSL that compiles."""
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from support.serve import ROOT, Checks

GENERATOR = os.path.join(ROOT, "tools", "gen_tables")
MADE = """values = 32
bytes = 22
scale = { at = 0, type = "f16" }
codes = { at = 2, bits = 5, order = "stream" }
centre = 16
space = "real"
"""
# What is wrong, the made-up card with it, what the message says.
BAD = [
    ("field", MADE + "colour = 3\n", "unknown field colour"), ("space", MADE.replace('"real"', '"r64"'), "space: r64"),
    ("size", MADE.replace("bytes = 22", "bytes = 21"), "codes end at byte 22 of 21"), ("order", MADE.replace("stream", "river"), "codes.order: river"),
    ("scale", MADE.replace('"f16"', '"f12"'), "scale.type: f12"), ("table", MADE + 'levels = "none"\n', "no table none"),
    ("levels", MADE + 'levels = "tbq4_centroids"\n', "16 levels for codes of 5 bits"),
    ("grid", re.sub("codes.*", "grid = {}", MADE.replace("centre = 16\n", "")), "a grid: wanted in weight types only"),
    ("both", MADE + 'float = "f32"\n', "wanted"), ("boundaries", MADE.replace("bits = 5", "bits = 4") +
                                                    'levels = "tbq4_centroids"\nboundaries = "turbo3_midpoints"\n', "7 boundaries between 16"),
]
checks = Checks("check_gen_tables")


def copy_cards(to):
    """The cards and lists of this tree, with a line for made5."""
    shutil.copytree(os.path.join(ROOT, "src", "formats"), os.path.join(to, "src", "formats"),
                    ignore=lambda folder, names: [n for n in names if n.endswith((".c", ".h", ".inc"))])
    with open(os.path.join(to, "src", "formats", "formats.def"), "a", encoding="utf-8") as f:
        f.write("KVANT_FORMAT(made5)\n")


def generate(root, card):
    path = os.path.join(root, "src", "formats", "plain", "made5.toml")
    if card:
        with open(path, "w", encoding="utf-8") as f:
            f.write(card)
    elif os.path.exists(path):
        os.remove(path)
    return subprocess.run([sys.executable, "-B", GENERATOR, os.path.join(root, "out"), root], capture_output=True, text=True, check=False)


def check_refused(root):
    for what, card, wanted in BAD:
        r = generate(root, card)
        checks.ok(r.returncode != 0 and "made5.toml" in r.stderr and wanted in r.stderr, f"{what}: {r.returncode} {r.stderr.strip()[-200:]}")
    r = generate(root, None)
    checks.ok(r.returncode != 0 and "made5 has no card" in r.stderr, f"no card: {r.stderr.strip()[-200:]}")


def half(x):
    return struct.pack("<e", x)


def check_c(root):
    """Random records through the C decoder and through the card's words."""
    r = random.Random(5)
    source, program = os.path.join(root, "made.c"), os.path.join(root, "made")
    with open(source, "w", encoding="utf-8") as f:
        f.write('#include <stdio.h>\n#include "cards/decode.h"\nint main(void)\n{\n    uint8_t b[22];\n'
                '    while (fread(b, 1, 22, stdin) == 22)\n        for (int j = 0; j < 32; j++)\n            printf("%.9g\\n", (double)fmt_made5(b, j, 1));\n}\n')
    made = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", f"-I{root}/out", f"-I{ROOT}/src", f"-I{ROOT}/include", source, "-o", program],
                          capture_output=True, text=True, check=False)
    if not made.returncode == 0:
        checks.ok(False, f"cc: {made.stderr[-400:]}")
        return
    data, want = b"", []
    for _ in range(50):
        scale, codes = struct.unpack("<e", half(r.uniform(-2, 2)))[0], [r.randrange(32) for _ in range(32)]
        data += half(scale) + sum(c << 5 * j for j, c in enumerate(codes)).to_bytes(20, "little")
        want += [scale * (c - 16) for c in codes]
    got = [float(x) for x in subprocess.run([program], input=data, capture_output=True, check=True).stdout.split()]
    checks.ok(len(got) == len(want) and all(struct.pack("<f", a) == struct.pack("<f", b) for a, b in zip(got, want)), "C decodes the made-up format otherwise")


def check_glsl(root):
    glslc, vulkan = shutil.which("glslc"), os.path.join(ROOT, "src", "devices", "vulkan")
    for name in ("attn/attn_score", "encode/cache_read", "encode/cache_write") if glslc else ():
        r = subprocess.run([glslc, "--target-env=vulkan1.1", "-O", "-DFAST", f"-I{root}/out", f"-I{ROOT}/src",
                            os.path.join(vulkan, name + ".comp"), "-o", os.path.join(root, "made.spv")], capture_output=True, text=True, check=False)
        checks.ok(r.returncode == 0, f"{name}.comp: {r.stderr[-400:]}")


def main():
    with tempfile.TemporaryDirectory() as root:
        copy_cards(root)
        check_refused(root)
        r = generate(root, MADE)
        checks.ok(r.returncode == 0, f"made5: {r.stderr[-400:]}")
        check_c(root)
        check_glsl(root)
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
