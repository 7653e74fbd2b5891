#!/usr/bin/env python3
"""cluster.py: three workers behind vllm-router on this machine: cluster.py BUILD PYTHON [OUT.json].  16 conversations of 12 turns, four at a time:
which share of the prompt tokens the workers had already, by vllm-router's kv_aware (by KV events) and by round_robin; then with a shared
folder of prefixes a worker is killed in the middle, and all are restarted one after the other.  PYTHON has the package vllm-router.
Prints a table, writes OUT.json.  Exit code 1: less than 90 % by kv_aware, or a request was lost."""
import concurrent.futures
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
MODEL = os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf")
NAME = "novella-hybrid-q8_0"
WORKERS, CONVERSATIONS, TURNS, AT_ONCE, ANSWER = 3, 16, 12, 4, 12
SYSTEM = "You answer questions about a harbour town. " + " ".join(
    f"Rule {i}: a ship of the line number {i * 37 % 101} lies at pier {i % 9}, its captain is called {'Anna Bert Carl Dora Emil'.split()[i % 5]}." for i in range(45))


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def wait_for(url, process, what, seconds=90):
    end = time.time() + seconds
    while time.time() < end:
        if process.poll() is not None:
            raise SystemExit(f"cluster: {what} ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit(f"cluster: {what} did not become ready")


def post(url, body, seconds=120):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=seconds) as r:
        return json.load(r)


class Worker:
    def __init__(self, build, log, folder=None):
        self.http, self.events, self.again = free_ports(3)
        self.url = f"http://127.0.0.1:{self.http}"
        self.command = [os.path.join(build, "bin", "kvant"), "serve", "-m", MODEL, "-np", "4", "-c", "4096", "-t", "1", "--kv-pool-size", "64M",
                        "--snapshots", "128", "--port", str(self.http), "--kv-events", f"tcp://127.0.0.1:{self.events}",
                        "--kv-events-replay", f"tcp://127.0.0.1:{self.again}", "--metrics-compat", "vllm", "--drain-seconds", "20",
                        *(["--kv-store", folder] if folder else [])]
        self.log, self.process = log, None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=self.log, stdout=self.log)
        wait_for(self.url + "/ready", self.process, "a worker")

    def stop(self, sig):
        self.process.send_signal(sig)
        self.process.wait(60)

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics", timeout=10) as r:
            return float(re.search(rf"^kvant:{name}\{{[^}}]*\}} (\S+)$", r.read().decode(), re.M).group(1))


class Router:
    def __init__(self, python, policy, workers, log):
        port, metrics = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        events = [x for w in workers for x in ("--kv-event-source", f"{w.url}=tcp://127.0.0.1:{w.events}",
                                               "--kv-event-replay-source", f"{w.url}=tcp://127.0.0.1:{w.again}")]
        kv = [*events, "--kv-event-block-size", "64", "--kv-event-model", NAME] if policy == "kv_aware" else []
        command = [python, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics),
                   "--policy", policy, "--worker-urls", *[w.url for w in workers], "--worker-startup-check-interval", "1",
                   "--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--health-success-threshold", "1",
                   "--retry-max-retries", "5", "--retry-initial-backoff-ms", "100", *kv]
        self.process = subprocess.Popen(command, stderr=log, stdout=log)
        wait_for(self.url + "/health", self.process, "vllm-router")
        time.sleep(2)       # its subscriptions

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Conversation:
    def __init__(self, i):
        self.messages = [{"role": "system", "content": SYSTEM}]
        self.i, self.turn = i, 0

    def ask(self, url):
        """(prompt tokens, of them cached), or None: the request was lost."""
        self.turn += 1
        self.messages.append({"role": "user", "content": f"Guest {self.i * 7919} asks for the {self.turn}th time about pier {(self.i + self.turn) % 9}."})
        body = {"model": NAME, "messages": self.messages, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True}
        try:
            r = post(url + "/v1/chat/completions", body)
        except (urllib.error.URLError, OSError) as e:
            print(f"cluster: conversation {self.i}, turn {self.turn}: {e}", file=sys.stderr)
            return None
        self.messages.append({"role": "assistant", "content": r["choices"][0]["message"]["content"]})
        return r["usage"]["prompt_tokens"], r["usage"]["prompt_tokens_details"]["cached_tokens"]


def talk(url, conversations, turns, after=None):
    """Turns of all conversations, a turn of each after the other; `after` is called once, when a third of them is done."""
    out, t0, done = [], time.time(), 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for turn in range(turns):
            todo = [pool.submit(c.ask, url) for c in conversations]
            if after and turn == turns // 3:
                after()
            out += [f.result() for f in todo]
            done += 1
    lost = sum(x is None for x in out)
    prompt, cached = (sum(x[k] for x in out if x) for k in (0, 1))
    return {"requests": len(out), "lost": lost, "prompt_tokens": prompt, "reused_tokens": cached, "share": round(cached / max(prompt, 1), 4),
            "seconds": round(time.time() - t0, 1)}


def run(build, python, policy, folder, log, after=None, then=None):
    workers = [Worker(build, log, folder) for _ in range(WORKERS)]
    router = Router(python, policy, workers, log)
    try:
        conversations = [Conversation(i) for i in range(CONVERSATIONS)]
        found = {"policy": policy, "folder": bool(folder), **talk(router.url, conversations, TURNS, (lambda: after(workers)) if after else None)}
        rows = [found]
        if then:
            rows.append({"policy": policy, "folder": bool(folder), **then(workers, router, conversations)})
        if folder:
            rows[-1]["blocks_from_folder"] = sum(w.metric("kv_store_hits_total") for w in workers if w.process.poll() is None)
        return rows
    finally:
        router.stop()
        for w in workers:
            if w.process.poll() is None:
                w.stop(signal.SIGKILL)


def kill_one(workers):
    workers[1].stop(signal.SIGKILL)


def restart_all(workers, router, conversations):
    """Drained and started again, one after the other, while the conversations go on."""
    workers[1].start()
    time.sleep(3)

    def roll():
        for w in workers:
            w.stop(signal.SIGTERM)
            w.start()
            time.sleep(2)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        rolling = pool.submit(roll)
        found = talk(router.url, conversations, 4)
        rolling.result()
    return found


def main():
    build, python = sys.argv[1:3]
    out = sys.argv[3] if len(sys.argv) > 3 else None
    version = subprocess.run([python, "-c", "import importlib.metadata as m; print(m.version('vllm-router'))"], capture_output=True, text=True,
                             check=False).stdout.strip()
    if not version:
        print(f"SKIP cluster: {python} has no vllm-router (pip install vllm-router)")
        return 0
    log = tempfile.TemporaryFile()
    rows = []
    for policy in ("round_robin", "kv_aware"):
        rows += [{"what": policy, **r} for r in run(build, python, policy, None, log)]
    with tempfile.TemporaryDirectory() as folder:
        killed, restarted = run(build, python, "kv_aware", folder, log, kill_one, restart_all)
    rows += [{"what": "a worker killed", **killed}, {"what": "rolling restart", **restarted}]
    for r in rows:
        print(f"{r['what']:16} {r['requests']:4} requests, {r['lost']} lost, {r['reused_tokens']:7} of {r['prompt_tokens']:7} prompt tokens reused: "
              f"{100 * r['share']:.1f} %, {r['seconds']} s" + (f", {r['blocks_from_folder']:.0f} blocks from the folder" if "blocks_from_folder" in r else ""))
    if out:
        with open(out, "w", encoding="utf-8") as f:
            machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
            json.dump({"command": "./dev cluster", "vllm_router": version, "model": NAME, "workers": WORKERS, "conversations": CONVERSATIONS,
                       "turns": TURNS, "machine": machine, "rows": rows}, f, indent=1)
            f.write("\n")
    by = {r["what"]: r for r in rows}
    return int(any(by[k]["share"] < 0.9 for k in ("kv_aware", "a worker killed")) or any(r["lost"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
