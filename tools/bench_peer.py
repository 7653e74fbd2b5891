#!/usr/bin/env python3
"""Speed of kvant next to another llama.cpp-family program, on one machine, in one run.

Alternates the two programs (A B A B ...), `--pairs` times, and reports medians and the median of the paired ratios.
The peer is any llama-bench binary: it is named on the command line and is not part of this repository.

    tools/bench_peer.py --kvant build/release/bin/kvant --peer /path/to/llama-bench --peer-name "elizaOS/llama.cpp@96dd1a84" \
        --models ../shared/models/novella-*-bf16.gguf --out bench/results/cpu-NAME

writes NAME.csv (every sample) and NAME.md (the table).  Without --peer only kvant's formats are measured.
Columns: test (pp512 = prompt of 512, tg64@d4096 = 64 decode tokens after 4096), tokens per second.
Tokenisation and sampling are excluded on both sides.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys

PREFILL = ["-p", "512,2048", "-n", "0"]
DECODE = ["-p", "0", "-n", "64", "-d", "0,1024,4096"]


def run(cmd, env=None):
    out = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True)
    if out.returncode != 0:
        sys.exit(f"{' '.join(cmd)}: exit {out.returncode}: {out.stderr[-400:]}")
    rows = json.loads(out.stdout)
    return rows if isinstance(rows, list) else rows["results"]


def name_of(row):
    kind = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
    return kind + (f"@d{row['n_depth']}" if row.get("n_depth") else "")


def measure(program, model, flags, extra, env=None):
    rows = []
    for tests in (PREFILL, DECODE):
        rows += run(program + ["-m", model, "-r", "1", "-o", "json"] + flags + tests + extra, env)
    return {name_of(r): float(r["avg_ts"]) for r in rows}


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    flags = open("/proc/cpuinfo").read()
    isa = "AVX-512" if " avx512f" in flags else "AVX2" if " avx2" in flags else "no AVX2"
    return f"{model}, {os.cpu_count()} CPUs, {isa}"


def peer_table(args, out, samples):
    env = dict(os.environ, LLAMA_ATTN_ROT_DISABLE="1")
    for model in args.models:
        a, b = [], []
        for i in range(args.pairs):
            b.append(measure([args.peer], model, ["-t", str(args.threads), "-fa", "1"], [], env))
            a.append(measure([args.kvant, "bench"], model, ["-t", str(args.threads)], ["-ctk", "f16", "-ctv", "f16"]))
            for side, got in (("peer", b[-1]), ("kvant", a[-1])):
                samples += [[os.path.basename(model), side, "f16", t, i, v] for t, v in got.items()]
            print(f"{os.path.basename(model)}: pair {i + 1} of {args.pairs}", file=sys.stderr)
        for test in a[0]:
            x, y = [r[test] for r in a], [r[test] for r in b]
            ratio = statistics.median(p / q for p, q in zip(x, y))
            spread = statistics.pstdev(p / q for p, q in zip(x, y))
            out.append(f"| {os.path.basename(model)} | {test} | {statistics.median(x):.1f} | {statistics.median(y):.1f} "
                       f"| {ratio:.2f} | {spread:.2f} |")


def format_table(args, out, samples):
    for model in args.models:
        base = {}
        runs = {t: [] for t in args.types}
        for i in range(args.rounds):
            for t in args.types:      # formats alternate inside a round, so drift hits all of them
                got = measure([args.kvant, "bench"], model, ["-t", str(args.threads)], ["-ctk", t, "-ctv", t])
                runs[t].append(got)
                samples += [[os.path.basename(model), "kvant", t, test, i, v] for test, v in got.items()]
            print(f"{os.path.basename(model)}: formats, round {i + 1} of {args.rounds}", file=sys.stderr)
        for t in args.types:
            med = {k: statistics.median(r[k] for r in runs[t]) for k in runs[t][0]}
            base = base or med
            tests = list(med)
            ratio = statistics.median(r["tg64@d4096"] / f["tg64@d4096"] for r, f in zip(runs[t], runs[args.types[0]]))
            out.append(f"| {os.path.basename(model)} | {t} | " + " | ".join(f"{med[k]:.0f}" for k in tests) + f" | {ratio:.2f} |")
    return


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kvant", default="build/release/bin/kvant")
    p.add_argument("--peer")
    p.add_argument("--peer-name", default="peer")
    p.add_argument("--models", nargs="+", required=True)
    p.add_argument("--types", nargs="+", default=["f16", "f32", "bf16", "q8_0", "q4_0", "tbq4_0", "tbq3_0"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--out", required=True)
    args = p.parse_args()
    samples, md = [], [f"# Speed, {machine()}, {args.threads} threads", ""]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
    md += [f"kvant {commit}; command: `{' '.join(sys.argv)}`", ""]
    if args.peer:
        md += [f"## f16 cache against {args.peer_name} (flash attention on), medians of {args.pairs} alternating pairs", "",
               "| model | test | kvant t/s | peer t/s | ratio | sd of ratio |", "|---|---|--:|--:|--:|--:|"]
        peer_table(args, md, samples)
        md.append("")
    md += [f"## kvant's cache formats (K and V alike), medians of {args.rounds} rounds; last column: decode at depth 4096 against f16", "",
           "| model | type | pp512 | pp2048 | tg64 | tg64@d1024 | tg64@d4096 | x f16 at 4096 |", "|---|---|--:|--:|--:|--:|--:|--:|"]
    format_table(args, md, samples)
    with open(args.out + ".md", "w") as f:
        f.write("\n".join(md) + "\n")
    with open(args.out + ".csv", "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["model", "program", "type", "test", "round", "tokens_per_second"])
        w.writerows(samples)
    print("\n".join(md))


if __name__ == "__main__":
    main()
