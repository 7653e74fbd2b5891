#!/usr/bin/env python3
"""Measures what compressed caches change, and writes the tables of docs/kl.md, docs/needle.md and docs/quality.md.

    tools/quality.py measure --sets pairs,needle,formats       # docs/evidence/{kl-pairs,needle,kl-formats}.json
    tools/quality.py render                                    # the pages, from those files

Set `pairs`: novella-dense, 2048-token chunks: every K with V=f16, K=f16 with every V and the diagonal at 40 chunks, all other pairs
at 8; exact tail 0 and 64, both encoders, prefill and decode paths; five formats also at 16 chunks.  Set `formats`: every cache format as K, as V and as both, on the
dense and the hybrid model at 4096, tails 0, 64, 128, both encoders, and on both paths at 1024; the diagonal also at 8192 and 16384.  Set `needle`:
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

import quality_pages
from quality_pages import ALL, FIRST, FUSED, PAGES, WIDE

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
        for pair in [p for t in small for p in ((t, "f16"), ("f16", t), (t, t))] + FUSED:
            jobs.append(kl_job(model, 4096, 4, pair, "0,64,128", both, "prefill"))
            jobs.append(kl_job(model, 1024, 16, pair, "64", "best", "both"))
        for t in small:
            for ctx, chunks in ((8192, 2), (16384, 1)):
                jobs.append(kl_job(model, ctx, chunks, (t, t), "64", "best", "prefill"))
    return jobs


def needle_jobs(model, pair, length):
    fours = ["1-4", "5-8", "9-12", "13-16", "17-20"] if pair.split(":")[0] in PAGES else ["1-7", "8-14", "15-20"]
    seeds = {"8192": fours, "16384": ["1-2", "3-4", "5"]}.get(length, ["1-20"])
    return [dict(kind="needle", model=model, pair=pair, tails="64", encoders="best", lengths=length, seeds=s) for s in seeds]


def jobs_needle():
    jobs = []
    for types in (FIRST, [t for t in ALL if t not in FIRST]):
        for n in ("8192", "4096", "1024"):
            jobs += [j for m in ("dense", "hybrid") for t in types for j in needle_jobs(m, f"{t}:{t}", n)]
    for t in (t for t in ALL if t not in WIDE):
        jobs += [j for m in ("dense", "hybrid") for p in (f"{t}:f16", f"f16:{t}") for j in needle_jobs(m, p, "4096")]
    jobs += [j for m in ("dense", "hybrid") for t in ALL for j in needle_jobs(m, f"{t}:{t}", "16384")]
    jobs += [j for n in ("4096", "8192") for m in ("dense", "hybrid") for p in FUSED for j in needle_jobs(m, ":".join(p), n)]
    return jobs + [j for m in ("dense", "hybrid") for t in PAGES for j in needle_jobs(m, f"{t}:{t}", "8192")]


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
    sub.add_parser("render").set_defaults(run=lambda _: quality_pages.render())
    args = p.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
