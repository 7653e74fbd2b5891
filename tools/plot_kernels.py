#!/usr/bin/env python3
"""plot_kernels.py: the picture and the list of one `kvant bench-kernels --json` run.  Standard library only.

    tools/plot_kernels.py bench/results/kernels-<machine>.json      writes .svg and .csv beside it

Left: rows per second of score + axpy (integer path where there is one) against f16, for the largest row count and for the
smallest.  Right: squared error on Gaussian rows against bits per value, with the rate-distortion bound 4^-bits."""
import csv
import json
import math
import os
import sys

W, H, LEFT, TOP, BOTTOM = 1060, 470, 110, 60, 60
COLOURS = ("#1f6fb4", "#d9822b")


def text(x, y, s, anchor="start", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>{s}</text>'


def speeds(data, queries, rows):
    """format -> ns of score plus axpy, integer path where the machine took one"""
    out = {}
    for r in data["results"]:
        if r["queries"] == queries and r["rows"] == rows and r["op"] in ("score_q8", "axpy_q8"):
            out.setdefault(r["format"], {})[r["op"]] = r["median_ns"]
    return {f: sum(v.values()) for f, v in out.items() if len(v) == 2}


def bars(data):
    rows = sorted({r["rows"] for r in data["results"]})
    queries = max(r["queries"] for r in data["results"] if r["op"] == "score_q8" and r["queries"] <= 4)
    sets = [(n, speeds(data, queries, n)) for n in (rows if len(rows) == 1 else [rows[0], rows[-1]])]
    names = [f["name"] for f in data["formats"] if f["name"] in sets[0][1]]
    ratio = [{f: s["f16"] / s[f] for f in s} for _, s in sets]
    top = max(max(r.values()) for r in ratio) * 1.08
    width, step = 430.0, (H - TOP - BOTTOM) / len(names)
    out = [text(LEFT, 24, f"score + axpy, {queries} queries per key: speed against f16", size=14)]
    for i, name in enumerate(names):
        y = TOP + i * step
        out.append(text(LEFT - 8, y + step * 0.62, name, "end"))
        for k, r in enumerate(ratio):
            w = r[name] / top * width
            out.append(f'<rect x="{LEFT}" y="{y + step * (0.1 + 0.4 * k):.1f}" width="{w:.1f}" height="{step * 0.38:.1f}" '
                       f'fill="{COLOURS[k]}"/>')
            out.append(text(LEFT + w + 4, y + step * (0.42 + 0.4 * k), f"{r[name]:.2f}", size=10))
    x1 = LEFT + width / top
    out.append(f'<line x1="{x1:.1f}" y1="{TOP - 4}" x2="{x1:.1f}" y2="{H - BOTTOM}" stroke="#444" stroke-dasharray="4 3"/>')
    for k, (n, _) in enumerate(sets):
        out.append(f'<rect x="{LEFT + 170 * k}" y="{H - 40}" width="12" height="12" fill="{COLOURS[k]}"/>')
        out.append(text(LEFT + 18 + 170 * k, H - 30, f"{n} rows per format"))
    return out


def errors(data):
    x0, x1, y0, y1 = 640.0, 1030.0, float(TOP), float(H - BOTTOM)
    lo, hi = -5.0, 0.0
    def at(bits, err):
        return x0 + bits / 9.0 * (x1 - x0), y0 + (hi - math.log10(err)) / (hi - lo) * (y1 - y0)
    out = [text(x0, 24, "squared error of Gaussian rows against bits per value", size=14)]
    for e in range(int(lo), 1):
        y = at(0, 10.0 ** e)[1]
        out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x1}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(text(x0 - 6, y + 4, f"1e{e}" if e else "1", "end", 10))
    for b in range(0, 10):
        x = at(b, 1.0)[0]
        out.append(f'<line x1="{x:.1f}" y1="{y0}" x2="{x:.1f}" y2="{y1}" stroke="#eee"/>')
        out.append(text(x, y1 + 16, str(b), "middle", 10))
    bound = " ".join("%.1f,%.1f" % at(b / 10.0, 4.0 ** (-b / 10.0)) for b in range(0, 84))
    out.append(f'<polyline points="{bound}" fill="none" stroke="#888" stroke-dasharray="5 4"/>')
    out.append(text(at(6.2, 1)[0], at(1, 4.0 ** -6.0)[1], "bound 4^-bits", size=10, extra='fill="#666"'))
    shown = [f for f in data["formats"] if f["bits"] < 9 and 10.0 ** lo < f["error_best"] < 1.0]
    shown.sort(key=lambda f: -f["error_best"])
    last = -100.0
    for f in shown:
        x, y = at(f["bits"], f["error_best"])
        u = at(f["bits"], min(f["error_upstream"], 1.0))[1]
        out.append(f'<line x1="{x:.1f}" y1="{u:.1f}" x2="{x:.1f}" y2="{y:.1f}" stroke="{COLOURS[0]}"/>')
        out.append(f'<circle cx="{x:.1f}" cy="{u:.1f}" r="3" fill="white" stroke="{COLOURS[0]}"/>')
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[0]}"/>')
        if f["bits"] > 7:
            out.append(text(x - 8, y + 4, f["name"], "end", 11))
            continue
        last = max(y + 4, last + 13)            # labels in a column, so that none covers another
        out.append(f'<line x1="{x + 5:.1f}" y1="{y:.1f}" x2="{x1 - 96}" y2="{last - 4:.1f}" stroke="#bbb" stroke-width="0.7"/>')
        out.append(text(x1 - 92, last, f["name"], size=11))
    out.append(text(x0, H - 30, "full: encoder best; hollow: upstream", size=11))
    return out


def svg(data):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" height="{H + 20}" viewBox="0 0 {W} {H + 20}" '
            f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>')
    foot = text(LEFT, H + 4, f'{data["cpu"]}, one thread; medians of {data["rounds"]} interleaved rounds', size=11,
                extra='fill="#444"')
    return "\n".join([head] + bars(data) + errors(data) + [foot, "</svg>"]) + "\n"


def main(argv):
    if len(argv) != 1:
        sys.stderr.write(__doc__)
        return 2
    base = os.path.splitext(argv[0])[0]
    with open(argv[0]) as f:
        data = json.load(f)
    with open(base + ".svg", "w") as f:
        f.write(svg(data))
    with open(base + ".csv", "w", newline="") as f:
        out = csv.DictWriter(f, fieldnames=list(data["results"][0]), lineterminator="\n")
        out.writeheader()
        out.writerows(data["results"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
