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
W, H, LEFT, RIGHT, TOP, BOTTOM = 760, 580, 84, 736, 46, 466
LOW, HIGH, FEWEST, BITS = -5.0, 0.0, 2, 9          # powers of ten of the divergence; bits per value
# Classes of the style sheet below, which has a second set of colours for dark pages.
COLOURS = {"recommended": "good", "usable where memory decides": "fair", "not recommended": "poor"}
STYLE = """<style>
.back{fill:#fff}.ink{fill:#222}.soft{fill:#666}.line{stroke:#e4e4e4}.good{fill:#1a6fb5}.fair{fill:#b5801a}.poor{fill:#b5331a}
.page{fill:none;stroke:#1a6fb5;stroke-width:2}.name{fill:#1a6fb5}.other{fill:none;stroke:#777;stroke-width:2}
@media (prefers-color-scheme:dark){.back{fill:#0d1117}.ink{fill:#e6e6e6}.soft{fill:#9aa4af}.line{stroke:#2a3038}.good{fill:#6cb2f0}
.fair{fill:#e0b050}.poor{fill:#f08a70}.page{stroke:#6cb2f0}.name{fill:#6cb2f0}.other{stroke:#aaa}}
</style>"""
# Where the names of points that lie close together go, so that none covers another: dx, dy, anchor.
NAMES = {"qjl1_256 + tbq3_0": (0, 20, "middle"), "qjl1_256 + q4_polar": (8, -8, "start"), "turbo3": (8, -4, "start"),
         "tbq3_0": (8, 10, "start"), "turbo3_tcq": (-9, 0, "end"), "turbo4_66": (-9, 2, "end"), "q4_0": (8, -4, "start"),
         "tbq4_0, turbo4": (8, 12, "start")}
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
    return (LEFT + (bits - FEWEST) / (BITS - FEWEST) * (RIGHT - LEFT),
            TOP + (HIGH - math.log10(kl)) / (HIGH - LOW) * (BOTTOM - TOP))


def text(x, y, words, anchor="start", size=12, colour="ink", turn=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" class="{colour}"{turn}>{words}</text>'


def page_points():
    """(bits, KL divergence, tail, name) of the formats of page scope on the dense model, and KVarN's."""
    bits, kvarn = pages.format_bits(), pages.load("kvarn.json")
    for run in pages.load("kl-pages.json").get("runs", []):
        for r in run["results"]:
            if run["model"] == "dense" and r["type_k"].startswith("ptcq"):
                yield bits[r["type_k"]], r["mean"], r["kv_tail"], r["type_k"]
    for k, means in kvarn.get("kvarn", {}).items():
        yield int(k[5:]) + .375, sum(means) / len(means), kvarn["tail"], k


def page_marks():
    """Rings: page scope; squares: KVarN.  The name stands at the point of tail 128."""
    for bits, kl, tail, name in page_points():
        x, y = place(bits, kl)
        if name.startswith("kvarn"):
            yield f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" class="other"/>'
            yield text(x + 8, y + 6, name, colour="soft", size=11)
            continue
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if tail == 64 else 3.5}" class="page"/>'
        if tail == 128:
            yield text(x + 8, y + 12, name, colour="name")


def grid():
    for e in range(int(LOW), int(HIGH) + 1):
        y = place(FEWEST, 10.0 ** e)[1]
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" class="line"/>'
        yield text(LEFT - 8, y + 4, f"{10.0 ** e:g}", "end", 11)
    for b in range(FEWEST, BITS + 1):
        x = place(b, 1.0)[0]
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM}" class="line"/>'
        yield text(x, BOTTOM + 16, str(b), "middle", 11)
    yield text((LEFT + RIGHT) / 2, BOTTOM + 34, "bits per value, scales included", "middle", 12, "soft")
    middle = (TOP + BOTTOM) / 2
    yield text(16, middle, "mean KL divergence, nats, logarithmic", "middle", 12, "soft", f' transform="rotate(-90 16 {middle:.0f})"')


def svg():
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" height="{H}" viewBox="0 0 {W} {H}" font-family="sans-serif">',
           STYLE, '<rect width="100%" height="100%" class="back"/>',
           text(LEFT, 24, "What a cache format costs: mean KL divergence to an f16 cache, by bits per value (f16: 16)", size=14),
           text(LEFT, H - 46, "dots: context 4096, exact tail 64, the worse of two small models", size=11, colour="soft"),
           text(LEFT, H - 32, "rings: page scope, large with tail 64, small with 128; squares: KVarN, tail 128; both: context 2048, the dense model", size=11, colour="soft")]
    out += grid()
    for bits, kl, verdict, name in points():
        x, y = place(bits, kl)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="{COLOURS[verdict]}"/>')
        dx, dy, anchor = NAMES.get(name, (8, 4, "start"))
        out.append(text(x + dx, y + dy, name, anchor, colour=COLOURS[verdict]))
    out += page_marks()
    at = LEFT
    for verdict, colour in COLOURS.items():
        out.append(f'<circle cx="{at + 5:.1f}" cy="{H - 14}" r="4.5" class="{colour}"/>')
        out.append(text(at + 14, H - 10, verdict, colour=colour))
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
