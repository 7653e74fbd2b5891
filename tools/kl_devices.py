#!/usr/bin/env python3
"""kl_devices: does a device lose as much, and no more, by compressing the cache as the CPU does?

    tools/kl_devices.py --kvant build/release/bin/kvant -m MODEL.gguf -f TEXT [--device cuda] [-c 256] [--chunks 8] [--compute f32] [--jobs 2] [--json FILE]

Runs `kvant eval kl` for every pair of cache formats, on the prefill and on the 1-token decode path, once per device, a process for
each format of K, on the same tokens, each against its own f16 cache, and compares the mean divergences.  A pair agrees when they differ by at most
three standard errors of both means, or 5 % of the larger one, or 2e-6.  Exit code 6 when a pair does not.  Standard library only."""
import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def measure(args, device, type_k):
    command = [args.kvant, "eval", "kl", "-m", args.model, "-f", args.text, "-c", str(args.ctx), "--chunks", str(args.chunks), "-ctk",
               type_k, "-ctv", args.formats, "--path", "both", "--kv-tail", args.tail, "--compute", args.compute, "--device", device, "--threads", "1",
               "--json", "-lv", "0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 6):
        raise SystemExit(f"kl_devices: kvant eval kl --device {device} -ctk {type_k} ended with code {done.returncode}")
    keys = ("type_k", "type_v", "kv_tail", "kv_encoder", "path")
    return {tuple(r[k] for k in keys): r for r in json.loads(done.stdout)["results"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvant", default="build/release/bin/kvant")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--text", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-c", "--ctx", type=int, default=256)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--formats", default="f32,f16,bf16,q8_0,q4_0,tbq4_0,tbq3_0,turbo3,turbo4,turbo4_66,turbo3_tcq,qjl1_256,q4_polar,"
                        "q4_polar_r,f8_e4m3")
    parser.add_argument("--tail", default="64")
    parser.add_argument("--compute", default="f32", help="f32; auto lets a device round activations to 16 bits, which alone costs 4e-5")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, of one thread each on the CPU")
    parser.add_argument("--json")
    args = parser.parse_args()
    cpu, gpu = {}, {}
    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = [(into, pool.submit(measure, args, d, k)) for k in args.formats.split(",") for into, d in ((cpu, "cpu"), (gpu, args.device))]
        for into, job in jobs:
            into.update(job.result())
    if not cpu or cpu.keys() != gpu.keys():
        sys.exit(f"kl_devices: {len(cpu)} results on the CPU, {len(gpu)} on {args.device}")
    rows, bad = [], 0
    for key in sorted(cpu):
        a, b = cpu[key], gpu[key]
        allowed = max(3 * (a["mean_err"] + b["mean_err"]), 0.05 * max(a["mean"], b["mean"]), 2e-6)
        ok = abs(a["mean"] - b["mean"]) <= allowed
        bad += not ok
        rows.append(dict(zip(("k", "v", "tail", "encoder", "path"), key), cpu=a["mean"], device=b["mean"], allowed=allowed, agrees=ok))
        if not ok:
            print(f"differs: {' '.join(map(str, key))}: CPU {a['mean']:.4g}, {args.device} {b['mean']:.4g}, allowed {allowed:.2g}")
    by_path = {}
    for r in rows:
        by_path.setdefault(r["path"], []).append(abs(r["cpu"] - r["device"]) / max(r["allowed"], 1e-30))
    for path, worst in sorted(by_path.items()):
        print(f"{path}: {len(worst)} pairs, largest difference {max(worst):.2f} of what noise allows")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(dict(ctx=args.ctx, chunks=args.chunks, tail=args.tail, device=args.device, results=rows), file, indent=1)
    print(f"{len(rows) - bad} agree, {bad} differ")
    return 6 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
