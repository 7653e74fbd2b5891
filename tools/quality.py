#!/usr/bin/env python3
"""Measures what compressed caches change, and writes the tables of docs/kl.md, docs/needle.md and docs/quality.md.

    tools/quality.py measure --sets pairs,needle,formats       # docs/evidence/{kl-pairs,needle,kl-formats}.json
    tools/quality.py render                                    # the pages, from those files

Set `pairs`: novella-dense, 2048-token chunks: every K with V=f16, K=f16 with every V and the diagonal at 40 chunks, all other pairs
at 8; exact tail 0 and 64, both encoders, prefill and decode paths; five formats also at 16 chunks.  Set `formats`: every cache format as K, as V and as both, on the
dense and the hybrid model at 4096, tails 0, 64, 128, both encoders; the diagonal also at 1024, 8192 and 16384.  Set `needle`:
retrieval accuracy for every format as K and V (20 seeds; 5 at 16384), and as K or V alone at 4096.

--jobs runs that many kvant processes side by side, one thread each; results do not depend on it.  What a file already holds is not
measured again, and files are written as jobs end, so a run may be stopped and started.  --budget SECONDS: what has not ended by then
is left for the next run; the pages name what is missing.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

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
    for t in ("tbq4_0", "tbq3_0", "turbo3", "turbo4_66", "turbo3_tcq"):      # the bars on 16 chunks, both paths, K and V alike
        jobs += [kl_job("dense", 2048, 16, (t, t), "0,64", "best", "prefill")] + [kl_job("dense", 2048, 16, (t, t), a, "best", "decode") for a in ("0", "64")]
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


def needle_jobs(model, pair, length):
    seeds = {"8192": ["1-7", "8-14", "15-20"], "16384": ["1-2", "3-4", "5"]}.get(length, ["1-20"])
    return [dict(kind="needle", model=model, pair=pair, tails="64", encoders="best", lengths=length, seeds=s) for s in seeds]


def jobs_needle():
    jobs = []
    for types in (FIRST, [t for t in ALL if t not in FIRST]):
        for n in ("8192", "4096", "1024"):
            jobs += [j for m in ("dense", "hybrid") for t in types for j in needle_jobs(m, f"{t}:{t}", n)]
    for t in (t for t in ALL if t not in WIDE):
        jobs += [j for m in ("dense", "hybrid") for p in (f"{t}:f16", f"f16:{t}") for j in needle_jobs(m, p, "4096")]
    return jobs + [j for m in ("dense", "hybrid") for t in ALL for j in needle_jobs(m, f"{t}:{t}", "16384")]


SETS = {"pairs": (jobs_pairs, "kl-pairs.json"), "needle": (jobs_needle, "needle.json"), "formats": (jobs_formats, "kl-formats.json")}
RESULT_KEYS = {"output", "seconds", "skipped", "error", "version", "cpu", "mask", "device"}


def key_of(job):
    return tuple(sorted((k, v) for k, v in job.items() if k not in RESULT_KEYS))


def command(args, job):
    model = os.path.join(args.models, f"novella-{job['model']}-bf16.gguf")
    cmd = [args.kvant, "eval", job["kind"], "-m", model, "-f", args.text, "--pairs", job["pair"], "--kv-tail", job["tails"],
           "--kv-encoder", job["encoders"], "--json", "-t", str(args.threads), "--device", args.device]
    if job["kind"] == "kl":
        return cmd + ["-c", str(job["ctx"]), "--chunks", str(job["chunks"]), "--path", job["path"]]
    return cmd + ["--lengths", job["lengths"], "--seeds", job["seeds"]]


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
    return dict(job, seconds=round(time.time() - t, 1), version=args.version, cpu=cpu_name(), device=args.device,
                mask=os.environ.get("KVANT_CPU", ""), output=json.loads(out.stdout))


class Store:
    """The results of one set: the file's own, and those that are added; written after each."""

    def __init__(self, name, path):
        self.name, self.path, self.lock = name, path, Lock()
        self.jobs = SETS[name][0]()
        old = json.load(open(path))["jobs"] if os.path.exists(path) else []
        self.done = {key_of(j): j for j in old if "output" in j}

    def todo(self):
        return [j for j in self.jobs if key_of(j) not in self.done]

    def add(self, result):
        with self.lock:
            if "output" not in result:
                return
            self.done[key_of(result)] = result
            jobs = [self.done.get(key_of(j), dict(j, skipped="not measured yet")) for j in self.jobs]
            with open(self.path + ".tmp", "w") as f:
                json.dump(dict(set=self.name, jobs=jobs), f, separators=(",", ":"))
            os.replace(self.path + ".tmp", self.path)


def measure(args):
    have = [m for m in ("dense", "hybrid") if os.path.exists(os.path.join(args.models, f"novella-{m}-bf16.gguf"))]
    args.version = subprocess.run([args.kvant, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip().split("\n")[0]
    stores = [Store(s, os.path.join(args.out, SETS[s][1])) for s in args.sets.split(",")]
    todo = [(s, j) for s in stores for j in s.todo() if j["model"] in have]
    todo = [(s, j) for s, j in todo if not args.types or set(j["pair"].split(":")) <= set(args.types)]
    start, failed = time.time(), []

    def one(item):
        result = run_job(args, item[1], start)
        item[0].add(result)
        if "output" not in result:
            failed.append(result)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, todo))
    print(f"{args.sets}: {len(todo) - len(failed)} jobs measured, {len(failed)} missing, {time.time() - start:.0f} s")
    for j in [j for j in failed if "error" in j][:5]:
        print("  ", j)
    return 1 if any("error" in j for j in failed) else 0


def cpu_name():
    facts = {}
    for line in open("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return f"{facts.get('model name', 'unknown')} (family {facts.get('cpu family')} model {facts.get('model')}, {os.cpu_count()} CPUs)"


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
            missing.setdefault(" ".join(str(j[k]) for k in ("kind", "model", "path", "lengths", "ctx", "chunks") if k in j), []).append(j["pair"])
    by = {}
    for j in data["jobs"]:
        if "output" in j:
            name = f"{j['version']} on {j['cpu']}" + (f", KVANT_CPU={j['mask']}" if j["mask"] else "") + ("" if j["device"] == "cpu" else f", {j['device']}")
            by[name] = by.get(name, 0) + 1
    text = [f"{what}. Measured by " + "; ".join(f"{n} ({k} jobs)" for n, k in by.items()) + "."]
    for group, pairs in missing.items():
        text += ["", f"Not measured ({group}): {', '.join(sorted(set(pairs)))}."]
    return text + [""]


def render_kl(data):
    out = ["# KL divergence of cache pairs, novella-dense", "",
           "Generated by `tools/quality.py render` from docs/evidence/kl-pairs.json; made by `tools/quality.py measure --sets pairs`.", ""]
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
        for key in sorted(table, key=lambda k: (ALL.index(k[0]), ALL.index(k[1]), k[2], k[3])):
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


def render_formats(data):
    out = ["# What each cache format costs", "",
           "Generated by `tools/quality.py render` from docs/evidence/kl-formats.json; measured by `tools/quality.py measure --sets formats`.", ""]
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
    return out + [""]


def render_needle(data):
    out = ["# Retrieval by cache format", "",
           "Generated by `tools/quality.py render` from docs/evidence/needle.json; made by `tools/quality.py measure --sets needle`.", ""]
    out += head(data, "`kvant eval needle`: six notes at (i+.5)/6 of a document of valid.txt, one question at its end, greedy; share of"
                " documents whose five digits are all right (right/asked); seeds 1-20, at 16384 tokens 1-5; exact tail 64, encoder best")
    table = {}
    for job, r in rows_of(data):
        cell = table.setdefault((job["model"], job["pair"]), {}).setdefault(str(r["length"]), [0, 0])
        cell[0] += r["right"]
        cell[1] += r["documents"]
    lengths = ("1024", "4096", "8192", "16384")
    for model in ("dense", "hybrid"):
        out += [f"## novella-{model}", "", "| K | V | " + " | ".join(lengths) + " |", "|---|---|" + "--:|" * len(lengths)]
        for t in ALL:
            for pair in dict.fromkeys((f"{t}:{t}", f"{t}:f16", f"f16:{t}")):
                cells = table.get((model, pair))
                if cells:
                    texts = [f"{cells[n][0] / cells[n][1]:.2f} ({cells[n][0]}/{cells[n][1]})" if n in cells else "" for n in lengths]
                    out.append(f"| {' | '.join(pair.split(':'))} | " + " | ".join(texts) + " |")
        out.append("")
    return out


def render(_args):
    pages = [("kl.md", "kl-pairs.json", render_kl), ("needle.md", "needle.json", render_needle), ("quality.md", "kl-formats.json", render_formats)]
    for page, name, make in pages:
        data = load(name)
        if data:
            notes = f"docs/{page[:-3]}-notes.txt"
            with open(f"docs/{page}", "w") as f:
                f.write("\n".join(make(data)) + (open(notes).read() if os.path.exists(notes) else ""))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="what", required=True)
    m = sub.add_parser("measure")
    m.add_argument("--kvant", default="build/release/bin/kvant")
    m.add_argument("--models", default="../shared/models")
    m.add_argument("--text", default="../shared/models/valid.txt")
    m.add_argument("--sets", default="pairs,needle,formats", help="comma-separated: pairs needle formats")
    m.add_argument("--device", default="cpu")
    m.add_argument("--types", nargs="+", help="only pairs of these formats")
    m.add_argument("--jobs", type=int, default=os.cpu_count())
    m.add_argument("--threads", type=int, default=1)
    m.add_argument("--budget", type=float, default=0)
    m.add_argument("--out", default="docs/evidence", help="folder")
    m.set_defaults(run=measure)
    sub.add_parser("render").set_defaults(run=render)
    args = p.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
