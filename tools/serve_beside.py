#!/usr/bin/env python3
"""Servers beside each other: speed of kvant and of other servers on one machine, in one run, with gates before and after.

    tools/serve_beside.py --kvant build/release/bin/kvant --model 8b.gguf --device cuda --out bench/results/serve-NAME \\
        --server 'kvant={kvant} serve -m {model} --port {port} -np 128 -c 4096' \\
        --server 'llama-server=llama-server -m {model} --port {port} -np 128 -c 524288 -ngl 99' --streams 8,32,128

Each server is started alone, asked until it answers, loaded by `kvant bench-serve` with every number of streams, and stopped; --rounds
goes through all of them again (A B A B).  Before the first and behind the last: the gates (`kvant verify --quick` of the device, or
those of --gate) and the files' MD5, which must be what they were.  A GPU that others use is refused: --allow-busy measures there, and
the report says so.  Writes OUT.json (machine, gates, commands, every run) and OUT.md, which begins with the ratios to the first server.
"""
import argparse
import hashlib
import json
import os
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

COLUMNS = [("agg_tps", "tokens/s"), ("ttft_p50", "first token, median ms"), ("ttft_p99", "p99 ms"), ("itl_p50", "gap, median ms"), ("itl_p99", "p99 ms")]


def fail(text, code=2):
    print(f"serve_beside: {text}", file=sys.stderr)
    sys.exit(code)


def said(command):
    """Standard output of a command, or None where it cannot run."""
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return out.stdout.strip() if out.returncode == 0 else None


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")), "unknown")
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo", encoding="utf-8") if line.startswith("MemTotal"))
    gpus = said(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    return {"cpu": cpu, "cpus": os.cpu_count(), "memory_gib": round(memory / 2**20, 1), "gpus": gpus.splitlines() if gpus else [],
            "load": os.getloadavg()[0], "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def users_of_gpus():
    """Processes that hold memory of a GPU, as nvidia-smi names them."""
    text = said(["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"])
    return text.splitlines() if text else []


def md5(path):
    h = hashlib.md5()
    with open(path, "rb") as f:
        while block := f.read(1 << 24):
            h.update(block)
    return h.hexdigest()


def gates(args, commands):
    """Runs every gate; the first that fails ends the comparison."""
    results = []
    for command in commands:
        began = time.monotonic()
        out = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
        last = (out.stdout.strip() or out.stderr.strip()).splitlines()[-1:] or [""]
        results.append({"command": command, "code": out.returncode, "says": last[0], "seconds": round(time.monotonic() - began, 1)})
        if out.returncode != 0:
            fail(f"gate {command!r}: exit {out.returncode}: {last[0]}", 6)
    results.append({"md5": {path: md5(path) for path in [args.model, *args.file]}})
    return results


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Running:
    """A server by its command, until the block ends."""

    def __init__(self, name, command, patience):
        self.name, self.command, self.patience = name, command, patience

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, start_new_session=True)
        except OSError as e:
            fail(f"server {self.name}: {self.command[0]}: {e.strerror}")
        return self

    def wait(self, url):
        began = time.monotonic()
        while time.monotonic() - began < self.patience:
            if self.process.poll() is not None:
                fail(f"server {self.name} ended with code {self.process.returncode} before it answered: {self.tail()}", 1)
            try:
                with urllib.request.urlopen(url + "/v1/models", timeout=5):
                    return time.monotonic() - began
            except urllib.error.HTTPError as e:
                if 400 <= e.code < 500:
                    fail(f"server {self.name} answers {url}/v1/models with {e.code}, wanted 200 without a key", 1)
                time.sleep(0.2)
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        fail(f"server {self.name} did not answer {url}/v1/models in {self.patience:.0f} s: {self.tail()}", 1)

    def tail(self):
        self.log.seek(0)
        return " / ".join(self.log.read().decode("utf-8", "replace").strip().splitlines()[-3:])[-400:]

    def __exit__(self, *_):
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sign)
                self.process.wait(20)
                break
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.log.close()


def load(args, url, name):
    command = [args.kvant, "bench-serve", url, "-c", args.streams, "-p", str(args.prompt_tokens), "-n", str(args.gen_tokens), "-r", "1", "--json"]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode != 0:
        fail(f"bench-serve of {name}: exit {out.returncode}: {out.stderr.strip()[-400:]}", 1)
    runs = json.loads(out.stdout)["runs"]
    wrong = [f"{r['errors']} of {r['reqs']} requests with {r['n']} streams" for r in runs if r["errors"]]
    if wrong:
        fail(f"server {name} failed {', '.join(wrong)}", 1)
    return runs


def filled(template, values):
    """The words of a command, {port}, {model} and {kvant} filled in; other braces stay."""
    return [re.sub(r"\{(port|model|kvant)\}", lambda m: values[m[1]], word) for word in shlex.split(template)]


def measure(args, servers):
    runs = []
    for number in range(args.rounds):
        for name, template in servers:
            port = free_port()
            command = filled(template, {"port": str(port), "model": args.model, "kvant": args.kvant})
            with Running(name, command, args.patience) as server:
                started = server.wait(f"http://127.0.0.1:{port}")
                for run in load(args, f"http://127.0.0.1:{port}", name):
                    runs.append({"server": name, "round": number, "ready_s": round(started, 2), **run})
    return runs


def median(runs, server, streams, field):
    return statistics.median(r[field] for r in runs if r["server"] == server and r["n"] == streams)


def table(runs, servers):
    first = servers[0][0]
    lines = ["| streams | server | times " + first + " | " + " | ".join(title for _, title in COLUMNS) + " |", "|--:|---|--:|" + "--:|" * len(COLUMNS)]
    for streams in dict.fromkeys(r["n"] for r in runs):
        base = median(runs, first, streams, "agg_tps")
        for name, _ in servers:
            values = [median(runs, name, streams, field) for field, _ in COLUMNS]
            ratio = values[0] / base if base else 0
            lines.append(f"| {streams} | {name} | {ratio:.2f} | {values[0]:.1f} | " + " | ".join(f"{v:.4g}" for v in values[1:]) + " |")
    return lines


def report(args, servers, facts):
    m = facts["machine"]
    busy = [f"**Others used the GPU meanwhile**: {'; '.join(facts['others'])}.", ""] if facts["others"] else []
    text = [f"# Servers beside each other: {os.path.basename(args.model)}", "", *table(facts["runs"], servers), "", *busy,
            f"{m['cpu']}, {m['cpus']} CPUs, {m['memory_gib']} GiB; {', '.join(m['gpus']) or 'no GPU'}; {m['time']}. Prompts of {args.prompt_tokens} words, "
            f"{args.gen_tokens} tokens each, {args.rounds} rounds by turns, medians.", "", "```sh", *[f"# {name}\n{template}" for name, template in servers],
            "```", "", "Gates before and after: " + "; ".join(f"`{g['command']}` {g['says']}" for g in facts["before"] if "command" in g) +
            f". MD5 of the files before and after: {'equal' if facts['before'][-1] == facts['after'][-1] else 'differ'}.", ""]
    with open(args.out + ".json", "w", encoding="utf-8") as f:
        json.dump(facts, f, indent=1)
        f.write("\n")
    with open(args.out + ".md", "w", encoding="utf-8") as f:
        f.write("\n".join(text))
    print("\n".join(table(facts["runs"], servers)))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kvant", required=True, help="the program that makes the load and runs the gates")
    p.add_argument("--model", required=True, help="file that every server serves: {model} of the commands")
    p.add_argument("--server", action="append", required=True, metavar="NAME=COMMAND", help="a server; {port}, {model}, {kvant} are filled in")
    p.add_argument("--out", required=True, help="OUT.json and OUT.md are written")
    p.add_argument("--file", action="append", default=[], help="a further file whose MD5 must stay")
    p.add_argument("--gate", action="append", default=[], metavar="COMMAND", help="must end with 0 before and after, for example kvant eval kl --max-kl; may be repeated "
                   "[kvant verify --quick --device DEVICE]")
    p.add_argument("--device", default="cpu", help="device that is verified [cpu]")
    p.add_argument("--streams", default="8,32,128", help="requests in flight [8,32,128]")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--prompt-tokens", type=int, default=512)
    p.add_argument("--gen-tokens", type=int, default=128)
    p.add_argument("--patience", type=float, default=300, help="seconds until a server must answer [300]")
    p.add_argument("--allow-busy", action="store_true", help="measure although others use the GPU")
    return p.parse_args()


def server_of(text):
    name, equals, command = text.partition("=")
    if not name or not equals or "{port}" not in command:
        fail(f"--server: found {text!r}, wanted NAME=COMMAND with {{port}}")
    return name, command


def main():
    args = arguments()
    servers = [server_of(s) for s in args.server]
    if len({name for name, _ in servers}) < len(servers):
        fail("--server: two have one name")
    if args.rounds < 1:
        fail(f"--rounds: found {args.rounds}, wanted at least 1")
    folder = os.path.dirname(args.out) or "."
    if not os.access(folder, os.W_OK):
        fail(f"--out: {folder} is not a folder that can be written to")
    if not os.path.isfile(args.model):
        fail(f"--model: {args.model} is not a file")
    others = users_of_gpus()
    if others and not args.allow_busy:
        fail(f"the GPU is in use: {'; '.join(others)} (--allow-busy measures all the same)", 3)
    checks = args.gate or [f"{shlex.quote(args.kvant)} verify --quick --device {shlex.quote(args.device)}"]
    facts = {"machine": machine(), "others": others, "servers": dict(servers), "before": gates(args, checks)}
    facts["runs"] = measure(args, servers)
    facts["after"] = gates(args, checks)
    if facts["after"][-1] != facts["before"][-1]:
        fail("a file changed while the servers ran: its MD5 differs", 6)
    report(args, servers, facts)


if __name__ == "__main__":
    main()
