#!/usr/bin/env python3
"""run.py: three workers behind other projects' routers on this machine: run.py BUILD OUT.json [--vllm-router PYTHON] [--dynamo PYTHON].  16 conversations
of 12 turns, four at a time: which share of the prompt tokens the workers had already.  vllm-router: by kv_aware (by KV events) and by round_robin;
then with a shared folder of prefixes a worker is killed in the middle, and all are restarted one after the other.  NVIDIA Dynamo: its KV routing as it is and
with prompts that weigh four times; then a worker killed.  PYTHON has the package vllm-router, or ai-dynamo and kvant; a router without its PYTHON is a SKIP.
Prints a table, writes OUT.json.  Exit code 1: less than 90 % in a row of NINETY, a request that was
lost, or a restart after which no block came from the folder."""
import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile

import dynamo_frontend
import vllm_router
from load import CONVERSATIONS, NAME, TURNS, WORKERS

#: Rows that find 90 % at least.  The others are measured beside them: round_robin, and Dynamo as it is, which spreads more.
NINETY = ("kv_aware", "a worker killed", "dynamo, prompts weigh 4", "dynamo, a worker killed")


def version(python, package):
    """The package's version there, or None."""
    code = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    r = subprocess.run([python, "-c", code, package], capture_output=True, text=True, check=False) if python else None
    if r is None or r.returncode != 0:
        print(f"SKIP cluster: no {package}" + (f" in {python}" if python else ""))
        return None
    return r.stdout.strip()


def line(r):
    found = f"{r['reused_tokens']:7} of {r['prompt_tokens']:7} prompt tokens reused: {100 * r['share']:.1f} %"
    blocks = f", {r['blocks_from_folder']} blocks from the folder" if "blocks_from_folder" in r else ""
    return f"{r['what']:24} {r['requests']:4} requests, {r['lost']} lost, {found}, {r['seconds']} s{blocks}"


def faults(rows):
    few = [r["what"] for r in rows if r["what"] in NINETY and r["share"] < 0.9]
    lost = [r["what"] for r in rows if r["lost"]]
    unread = [r["what"] for r in rows if r.get("blocks_from_folder") == 0]
    return ([f"{x}: less than 90 % reused" for x in few] + [f"{x}: requests lost" for x in lost] +
            [f"{x}: no block came from the folder" for x in unread])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("out")
    p.add_argument("--vllm-router", metavar="PYTHON")
    p.add_argument("--dynamo", metavar="PYTHON")
    a = p.parse_args()
    versions = {"vllm_router": version(a.vllm_router, "vllm-router"), "ai_dynamo": version(a.dynamo, "ai-dynamo")}
    if not any(versions.values()):
        return 0
    with tempfile.TemporaryFile() as log:
        rows = vllm_router.rows(a.build, a.vllm_router, log) if versions["vllm_router"] else []
        rows += dynamo_frontend.rows(a.dynamo, log) if versions["ai_dynamo"] else []
    print("\n".join(map(line, rows)))
    with open(a.out, "w", encoding="utf-8") as f:
        machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        json.dump({"command": "./dev cluster", **{k: v for k, v in versions.items() if v}, "model": NAME, "workers": WORKERS,
                   "conversations": CONVERSATIONS, "turns": TURNS, "machine": machine, "rows": rows}, f, indent=1)
        f.write("\n")
    for text in faults(rows):
        print(f"FAIL cluster: {text}")
    return int(bool(faults(rows)))


if __name__ == "__main__":
    sys.exit(main())
