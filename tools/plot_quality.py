#!/usr/bin/env python3
"""Draws what a cache format costs: bits per value against KL divergence, from docs/evidence (Python standard library only).

    tools/plot_quality.py            writes docs/quality.svg, the picture of README.md
    tools/plot_quality.py --check    1 if that file is not what the evidence says"""
import math
import os
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import quality_pages as pages    # noqa: E402

OUT = os.path.join("docs", "quality.svg")
W, H, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 76, 736, 46, 346
LOW, HIGH, BITS = -5.0, 0.0, 10.0                  # powers of ten of the divergence; bits per value
COLOURS = {"recommended": "#1a6fb5", "usable where memory decides": "#b5801a", "not recommended": "#b5331a"}
# Where the names of points that lie close together go, so that none covers another: dx, dy, anchor.
NAMES = {"qjl1_256 + tbq3_0": (0, 20, "middle"), "qjl1_256 + q4_polar": (8, -8, "start"), "turbo3": (8, -4, "start"),
         "tbq3_0": (8, 12, "start"), "turbo3_tcq": (-9, 4, "end"), "turbo4_66": (-9, 4, "end"), "q4_0": (-2, -9, "middle"),
         "tbq4_0, turbo4": (-4, 20, "middle")}
SAME = {"turbo4": "tbq4_0", "q4_polar_r": "q4_polar"}   # the same point but for the third digit


def points():
    """(bits, worst KL divergence, verdict, name) of every format in both sides, and of the two fused pairs."""
    bits, table, needles = pages.format_bits(), pages.formats_table(pages.load("kl-formats.json")), pages.needle_cells(pages.load("needle.json"))
    for pair in [(t, t) for t in pages.ALL if t not in pages.WIDE and t not in SAME] + pages.FUSED:
        v = pages.verdict(table, needles, pair)
        if v:
            also = [t for t, of in SAME.items() if of == pair[0] == pair[1]]
            name = ", ".join([pair[0]] + also) if pair[0] == pair[1] else f"{pair[0]} + {pair[1]}"
            yield (bits[pair[0]] + bits[pair[1]]) / 2, v[1], v[0], name


def place(bits, kl):
    return (LEFT + bits / BITS * (RIGHT - LEFT),
            TOP + (HIGH - math.log10(kl)) / (HIGH - LOW) * (BOTTOM - TOP))


def text(x, y, words, anchor="start", size=12, colour="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{words}</text>'


def grid():
    for e in range(int(LOW), int(HIGH) + 1):
        y = place(0, 10.0 ** e)[1]
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        yield text(LEFT - 8, y + 4, f"{10.0 ** e:g}", "end", 11)
    for b in range(0, int(BITS) + 1):
        x = place(b, 1.0)[0]
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM}" stroke="#f0f0f0"/>'
        yield text(x, BOTTOM + 16, str(b), "middle", 11)


def svg():
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" height="{H}" viewBox="0 0 {W} {H}" font-family="sans-serif">',
           '<rect width="100%" height="100%" fill="white"/>',
           text(LEFT, 24, "What a cache format costs: mean KL divergence to an f16 cache, by bits per value (f16: 16)", size=14),
           text(RIGHT, TOP + 14, "context 4096, the worse of two small models", "end", 11, "#666")]
    out += grid()
    for bits, kl, verdict, name in points():
        x, y = place(bits, kl)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{COLOURS[verdict]}"/>')
        dx, dy, anchor = NAMES.get(name, (8, 4, "start"))
        out.append(text(x + dx, y + dy, name, anchor, colour=COLOURS[verdict]))
    at = LEFT
    for verdict, colour in COLOURS.items():
        out.append(f'<circle cx="{at + 5:.1f}" cy="{H - 18}" r="4.5" fill="{colour}"/>')
        out.append(text(at + 14, H - 14, verdict, colour=colour))
        at += 30 + 7 * len(verdict)
    return "\n".join(out + ["</svg>"]) + "\n"


def main(argv):
    if argv not in ([], ["--check"]):
        sys.stderr.write(__doc__ + "\n")
        return 2
    os.chdir(ROOT)
    drawn = svg()
    if argv:
        with open(OUT, encoding="utf-8") as f:
            return 0 if f.read() == drawn else 1
    with open(OUT, "w", encoding="utf-8") as f:
        f.write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
