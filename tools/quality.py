#!/usr/bin/env python3
"""Measures what compressed caches change, and writes the tables of docs/quality.md and docs/kl.md.

    tools/quality.py measure --kvant build/release/bin/kvant --models DIR --text valid.txt --set pairs  --out docs/evidence/kl-pairs.json
    tools/quality.py measure ...                                                           --set formats --out docs/evidence/kl-formats.json
    tools/quality.py measure ...                                                           --set needle  --out docs/evidence/needle.json
    tools/quality.py render        # docs/kl.md and docs/quality.md from the JSON files in docs/evidence

Set `pairs`: novella-dense, 2048-token chunks: every K with V=f16, K=f16 with every V and the diagonal at 40 chunks, all other pairs
at 8; exact tail 0 and 64, both encoders, prefill and decode paths.  Set `formats`: every cache format as K, as V and as both, on the
dense and the hybrid model at 4096, tails 0, 64, 128, both encoders; the diagonal also at 1024, 8192 and 16384.  Set `needle`:
retrieval accuracy for every format.  --jobs runs that many kvant processes side by side, one thread each; results do not depend on
it.  --budget SECONDS: what has not ended by then is left out and named in the output. 
"""
import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

FIRST = ["f32", "f16", "bf16", "q8_0", "q4_0", "tbq4_0", "tbq3_0"]
ALL = FIRST + ["turbo3", "turbo4", "turbo4_66", "turbo3_tcq", "qjl1_256", "q4_polar", "q4_polar_r", "f8_e4m3"]
WIDE = {"f32", "f16", "bf16"}


def kl_job(model, ctx, chunks, pair, tails, encoders, path):
    if set(pair) <= WIDE:
        tails, encoders = "0", "best"
    return dict(kind="kl", model=model, ctx=ctx, chunks=chunks, pair=":".join(pair), tails=tails, encoders=encoders, path=path)


def jobs_pairs():
    both = "best,upstream"
    line = [(k, "f16") for k in FIRST] + [("f16", v) for v in FIRST if v != "f16"] + [(t, t) for t in FIRST if t != "f16"]
    rest = [(k, v) for k in FIRST for v in FIRST if (k, v) not in line]
    jobs = [kl_job("dense", 2048, 16, ("tbq4_0", "tbq4_0"), "0,64", both, "prefill")]
    jobs += [kl_job("dense", 2048, 40, p, "0,64", both, "prefill") for p in line]
    jobs += [kl_job("dense", 2048, 40, p, t, both, "decode") for p in line for t in (("0",) if set(p) <= WIDE else ("0", "64"))]
    return jobs + [kl_job("dense", 2048, 8, p, "0,64", both, path) for p in rest for path in ("prefill", "decode")]


def jobs_formats():
    jobs, both = [], "best,upstream"
    small = [t for t in ALL if t not in WIDE]
    for model in ("dense", "hybrid"):
        for t in small:
            for pair in ((t, "f16"), ("f16", t), (t, t)):
                jobs.append(kl_job(model, 4096, 4, pair, "0,64,128", both, "prefill"))
                jobs.append(kl_job(model, 4096, 4, pair, "64", "best", "decode"))
            for ctx, chunks in ((1024, 16), (8192, 2), (16384, 1)):
                jobs.append(kl_job(model, ctx, chunks, (t, t), "64", "best", "prefill"))
    return jobs


def jobs_needle():
    return [dict(kind="needle", model=m, pair=f"{t}:{t}", tails="64", encoders="best", lengths=n)
            for n in ("8192", "4096", "1024") for m in ("dense", "hybrid") for t in ALL]


def command(args, job):
    model = os.path.join(args.models, f"novella-{job['model']}-bf16.gguf")
    cmd = [args.kvant, "eval", job["kind"], "-m", model, "-f", args.text, "--pairs", job["pair"], "--kv-tail", job["tails"],
           "--kv-encoder", job["encoders"], "--json", "-t", str(args.threads)]
    if job["kind"] == "kl":
        return cmd + ["-c", str(job["ctx"]), "--chunks", str(job["chunks"]), "--path", job["path"]]
    return cmd + ["--lengths", job["lengths"], "--seeds", "1-20"]


def run_job(args, job, start):
    left = args.budget - (time.time() - start) if args.budget else None
    if left is not None and left <= 0:
        return dict(job, skipped="time budget")
    t = time.time()
    try:
        out = subprocess.run(command(args, job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=left)
    except subprocess.TimeoutExpired:
        return dict(job, skipped="time budget")
    if out.returncode != 0:
        return dict(job, error=out.stderr[-300:])
    return dict(job, seconds=round(time.time() - t, 1), output=json.loads(out.stdout))


def cost(job):
    """Rough seconds of a job, to start the long ones first."""
    n = job.get("ctx", 8192) * job.get("chunks", 2) / 1000
    variants = len(job["tails"].split(",")) * len(job["encoders"].split(","))
    return n * variants * (3 if job.get("path") in ("both", "decode") else 1) * (4 if "tcq" in job["pair"] else 1)


def measure(args):
    jobs = {"pairs": jobs_pairs, "formats": jobs_formats, "needle": jobs_needle}[args.set]()
    have = [m for m in ("dense", "hybrid") if os.path.exists(os.path.join(args.models, f"novella-{m}-bf16.gguf"))]
    jobs = [j for j in jobs if j["model"] in have and (not args.types or set(j["pair"].split(":")) <= set(args.types))]
    jobs.sort(key=cost, reverse=True)       # the long ones first, so that the end is even
    start, done = time.time(), []
    with ThreadPoolExecutor(args.jobs) as pool:
        for r in pool.map(lambda j: run_job(args, j, start), jobs):
            done.append(r)
    version = subprocess.run([args.kvant, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip().split("\n")[0]
    with open(args.out, "w") as f:
        json.dump(dict(set=args.set, version=version, cpu=cpu_name(), mask=os.environ.get("KVANT_CPU", ""),
                       seconds=round(time.time() - start), jobs=done), f, separators=(",", ":"))
    bad = [j for j in done if "output" not in j]
    print(f"{args.set}: {len(done) - len(bad)} jobs measured, {len(bad)} missing, {time.time() - start:.0f} s")
    for j in bad[:5]:
        print("  ", j)


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


# ---- tables ----

def load(name):
    path = os.path.join("docs/evidence", name)
    return json.load(open(path)) if os.path.exists(path) else None


def rows_of(data):
    for job in data["jobs"]:
        for r in job.get("output", {}).get("results", []):
            yield job, r


def sci(x):
    return f"{x:.3g}"


def head(data, what):
    missing = {}
    for j in data["jobs"]:
        if "output" not in j:
            missing.setdefault(" ".join(str(j[k]) for k in ("model", "path", "lengths", "ctx", "chunks") if k in j), []).append(j["pair"])
    text = [f"{what}. {data['version']}; {data['cpu']}" + (f", KVANT_CPU={data['mask']}" if data["mask"] else "") + "."]
    for group, pairs in missing.items():
        text += ["", f"Not measured ({group}): {', '.join(sorted(set(pairs)))}."]
    return text + [""]


def render_kl(data):
    out = ["# KL divergence of cache pairs, novella-dense", "",
           "Generated by `tools/quality.py render` from docs/evidence/kl-pairs.json; made by `tools/quality.py measure --set pairs`.", ""]
    out += head(data, "Base: the f16 cache, prefill path. Mean KL divergence over positions 1024 to 2046 of each 2048-token chunk of valid.txt,"
                " with its standard error; z = difference of the two paths in combined standard errors")
    worst = 0.0
    for chunks in (40, 16, 8):
        table, seen = {}, []
        for job, r in rows_of(data):
            if job["chunks"] != chunks:
                continue
            key = (r["type_k"], r["type_v"], r["kv_tail"], r["kv_encoder"])
            table.setdefault(key, {})[r["path"]] = r
        if not table:
            continue
        out += [f"## {chunks} chunks", "", "| K | V | tail | encoder | prefill | ± | decode | ± | z | 99.9 % | max | same top | PPL ratio |",
                "|---|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
        for key in sorted(table, key=lambda k: (FIRST.index(k[0]), FIRST.index(k[1]), k[2], k[3])):
            p, d = table[key].get("prefill"), table[key].get("decode")
            z = ""
            if p and d:
                se = (p["mean_err"] ** 2 + d["mean_err"] ** 2) ** 0.5
                zv = abs(d["mean"] - p["mean"]) / se if se else 0.0
                worst, z = max(worst, zv), f"{zv:.2f}"
            cells = [sci(p["mean"]), sci(p["mean_err"])] if p else ["", ""]
            cells += [sci(d["mean"]), sci(d["mean_err"])] if d else ["", ""]
            q = p or d
            both_wide = key[0] in WIDE and key[1] in WIDE
            out.append(f"| {key[0]} | {key[1]} | {'-' if both_wide else key[2]} | {'-' if both_wide else key[3]} | " + " | ".join(cells) + f" | {z} "
                       f"| {sci(q['p99_9'])} | {sci(q['max'])} | {100 * q['same_top']:.2f} % | {q['ppl_ratio']:.5f} |")
        out.append("")
    out += [f"Largest difference of the two paths: {worst:.2f} combined standard errors (wanted: at most 3).", ""]
    return out


def render_formats(data, needle):
    out = ["# What each cache format costs", "",
           "Generated by `tools/quality.py render` from docs/evidence/kl-formats.json and needle.json; measured by `tools/quality.py measure`.", ""]
    out += head(data, "Base: f16 cache. Mean KL divergence, 4096-token chunks of valid.txt, prefill path; columns are exact tail / encoder")
    cols = [(t, e) for e in ("upstream", "best") for t in (0, 64, 128)]
    for model in ("dense", "hybrid"):
        out += [f"## novella-{model}, context 4096", "",
                "| K | V | " + " | ".join(f"{t} {e}" for t, e in cols) + " | decode path, 64 best | same top, 64 best | PPL ratio, 64 best |",
                "|---|---|" + "--:|" * (len(cols) + 3)]
        table = {}
        for job, r in rows_of(data):
            if job["model"] == model and job["ctx"] == 4096:
                table.setdefault((r["type_k"], r["type_v"]), {})[(r["kv_tail"], r["kv_encoder"], r["path"])] = r
        for t in ALL:
            for pair in ((t, "f16"), ("f16", t), (t, t)):
                g = table.get(pair)
                if not g:
                    continue
                cells = [sci(g[(a, e, "prefill")]["mean"]) if (a, e, "prefill") in g else "" for a, e in cols]
                d, b = g.get((64, "best", "decode")), g.get((64, "best", "prefill"))
                cells += [sci(d["mean"]) if d else "", f"{100 * b['same_top']:.2f} %" if b else "", f"{b['ppl_ratio']:.5f}" if b else ""]
                out.append(f"| {pair[0]} | {pair[1]} | " + " | ".join(cells) + " |")
        out.append("")
    out += ["## By context length: K and V alike, tail 64, encoder best, mean KL divergence", "",
            "| model | type | 1024 | 4096 | 8192 | 16384 |", "|---|---|--:|--:|--:|--:|"]
    for model in ("dense", "hybrid"):
        for t in ALL:
            cells = []
            for ctx in (1024, 4096, 8192, 16384):
                got = [r for j, r in rows_of(data) if j["model"] == model and j["ctx"] == ctx and r["type_k"] == r["type_v"] == t
                       and (r["kv_tail"], r["kv_encoder"], r["path"]) == (64, "best", "prefill")]
                cells.append(sci(got[0]["mean"]) if got else "")
            if any(cells):
                out.append(f"| {model} | {t} | " + " | ".join(cells) + " |")
    return out + [""] + (render_needle(needle) if needle else [])


def render_needle(data):
    out = ["## Retrieval", ""] + head(data, "Share of runs (seeds 1-20) whose five digits are all right; tail 64, encoder best")
    out += ["| model | type | 1024 | 4096 | 8192 |", "|---|---|--:|--:|--:|"]
    table = {}
    for job, r in rows_of(data):
        table[(job["model"], job["pair"].split(":")[0], str(r["length"]))] = r["accuracy"]
    for model in ("dense", "hybrid"):
        for t in ALL:
            cells = [f"{table[(model, t, n)]:.2f}" if (model, t, n) in table else "" for n in ("1024", "4096", "8192")]
            if any(cells):
                out.append(f"| {model} | {t} | " + " | ".join(cells) + " |")
    return out + [""]


def render(_args):
    pairs, formats, needle = load("kl-pairs.json"), load("kl-formats.json"), load("needle.json")
    if pairs:
        open("docs/kl.md", "w").write("\n".join(render_kl(pairs)))
    if formats:
        notes = open("docs/quality-notes.md").read() if os.path.exists("docs/quality-notes.md") else ""
        open("docs/quality.md", "w").write("\n".join(render_formats(formats, needle)) + notes)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="what", required=True)
    m = sub.add_parser("measure")
    m.add_argument("--kvant", default="build/release/bin/kvant")
    m.add_argument("--models", default="../shared/models")
    m.add_argument("--text", default="../shared/models/valid.txt")
    m.add_argument("--set", choices=["pairs", "formats", "needle"], required=True)
    m.add_argument("--types", nargs="+", help="only pairs of these formats")
    m.add_argument("--jobs", type=int, default=os.cpu_count())
    m.add_argument("--threads", type=int, default=1)
    m.add_argument("--budget", type=float, default=0)
    m.add_argument("--out", required=True)
    m.set_defaults(run=measure)
    sub.add_parser("render").set_defaults(run=render)
    args = p.parse_args()
    args.run(args)


if __name__ == "__main__":
    sys.exit(main())
