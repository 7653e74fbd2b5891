#!/usr/bin/env python3
"""check_serve_hostile [BUILD [SECONDS [JSON]]]: eight keys, two of them hostile; the six others hardly notice.

A router with two models, of which one has a template that is slow on a word.  Six keys send chats one after the other, first alone, then
while two keys send bodies of 40,000 parts, leave answers unread, ask the slow template and flood the prefix cache.  Beside them the 99th
percentile of a chat's time is to be at most ten times that alone (or FLOOR_S, which programs beside the test take; `./dev hostile` judges
that), no chat waits longer than MOST_S, none is lost, memory stays within the budgets of docs/server-limits.md, and SIGTERM ends the server in time.  Times are judged on a machine
that had nothing else to do.  `./dev hostile` runs it for
minutes and writes its numbers."""
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
import gguf_edit    # noqa: E402
from serve import ROOT, SLOW, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 8
JUDGED = len(sys.argv) > 3      # ./dev hostile
C = Checks("check_serve_hostile")
KEYS = [f"key-{i}-of-eight" for i in range(8)]
MODEL = os.path.join(ROOT, "tests", "golden", "tiny", "qwen35.gguf")
GOOD = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
EVIL = ("{% if 'hang' in messages[-1].content %}{% for i in range(100000) %}{{ messages[-1].content.rfind('xy') }}{% endfor %}{% endif %}" + GOOD)
FLOOR_S, MOST_S = 0.2, 2.0
# Bodies, answers and streams (64 MiB each and half of it), four workers with a template's values (128 MiB) and a body's (64 MiB), 64 MiB for the rest.
MEMORY_KB = (64 + 64 + 32 + 4 * (128 + 64) + 64) << 10


def post(port, key, path, body, read=True, timeout=60):
    """Status, or the open socket when the answer is not read."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    k = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    if not read:
        k.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    k.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n"
               f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data)
    if not read:
        return k
    out = b""
    with k:
        while True:
            more = k.recv(65536)
            if not more:
                return int(out[9:12] or 0), out
            out = (out + more)[:1 << 20]


# ---- the hostile keys: a process of their own ----

def parts(n):
    return [{"type": "text", "text": "ab"}] * n


def hostile_bodies():
    user = [{"role": "user", "content": "x"}]
    yield "/v1/messages", {"model": "good", "max_tokens": 1, "system": parts(40000), "messages": user}
    yield "/v1/chat/completions", {"model": "good", "messages": [{"role": "user", "content": parts(40000)}]}
    yield "/v1/responses", {"model": "good", "input": [{"type": "reasoning", "content": parts(40000)}, *user]}
    yield "/v1/completions", {"model": "good", "prompt": [1, *["", 1] * 200000]}
    yield "/v1/chat/completions", {"model": "evil", "messages": [{"role": "user", "content": "hang" + "x" * 3000}]}
    yield "/v1/chat/completions", {"model": "evil", "messages": [{"role": "user", "content": "hang" + "x" * 3000000}]}
    yield "/tokenize", {"model": "good", "content": "a" * 300000}


def attack(port, key, which, counts):
    held, bodies = [], [(p, json.dumps(b).encode()) for p, b in hostile_bodies()]
    rnd = random.Random(which)
    while True:
        try:
            if which == 0:      # many parts, slow templates
                path, data = rnd.choice(bodies)
                status = post(port, key, path, data)[0]
            elif which == 1:    # answers that nobody reads
                held.append(post(port, key, "/tokenize", {"model": "good", "content": "a" * 400000, "with_pieces": True}, read=False))
                time.sleep(0.05)
                for k in held[:-40]:
                    k.close()
                held, status = held[-40:], 0
            else:               # prompts that nobody repeats
                prompt = [3 + rnd.randrange(90) for _ in range(600)]
                status = post(port, key, "/v1/completions", {"model": "good", "prompt": prompt, "max_tokens": 4, "cache_salt": str(rnd.random())})[0]
            counts[status] = counts.get(status, 0) + 1
        except OSError:
            counts[-1] = counts.get(-1, 0) + 1
            time.sleep(0.05)


def hostile_main():
    os.nice(19)
    port, counts = int(sys.argv[2]), {}
    for key in KEYS[:2]:
        for which in (0, 0, 0, 1, 2, 2):
            threading.Thread(target=attack, args=(port, key, which, counts), daemon=True).start()
    sys.stdin.read()
    print(json.dumps(counts))


# ---- the others ----

def friendly(s, key, until, times, lost):
    i = 0
    while time.time() < until:
        body = {"model": "good", "max_tokens": 8, "ignore_eos": True, "temperature": 0,
                "messages": [{"role": "system", "content": f"the rules of {key} " * 8}, {"role": "user", "content": f"question {i}"}]}
        begun = time.perf_counter()
        try:
            status, out = post(s.port, key, "/v1/chat/completions", body)
        except OSError as error:
            status, out = 0, str(error).encode()
        times.append(time.perf_counter() - begun)
        if status != 200:
            lost.append((status, out[-200:]))
        i += 1
        time.sleep(0.02)


def run_friends(s, seconds):
    times, lost, threads = [], [], []
    for key in KEYS[2:]:
        threads.append(threading.Thread(target=friendly, args=(s, key, time.time() + seconds, times, lost)))
        threads[-1].start()
    most = 0
    while any(t.is_alive() for t in threads):
        most = max(most, s.memory_kb())
        time.sleep(0.1)
    times.sort()
    return {"chats": len(times), "lost": len(lost), "p50_ms": round(times[len(times) // 2] * 1e3, 1),
            "p99_ms": round(times[int(len(times) * 0.99)] * 1e3, 1), "most_ms": round(times[-1] * 1e3, 1), "memory_mb": most >> 10}, lost


def main():
    if not built(BUILD):
        print("SKIP check_serve_hostile: built without the server")
        print("check_serve_hostile: 0 passed, 0 failed")
        return 0
    busy = os.getloadavg()[0] > 1.5 * os.cpu_count()
    with tempfile.TemporaryDirectory() as d:
        models, keys = os.path.join(d, "models"), os.path.join(d, "keys")
        os.mkdir(models)
        for name, template in (("good", GOOD), ("evil", EVIL)):
            gguf_edit.edit(MODEL, os.path.join(models, name + ".gguf"), [gguf_edit.key("tokenizer.chat_template", gguf_edit.STRING, template)])
        with open(keys, "w", encoding="utf-8") as f:
            f.write("\n".join(KEYS) + "\n")
        with Server(BUILD, "--models-dir", models, "--api-key-file", keys, "-np", "8", "-c", "2048", "--kv-pool-size", "2000000", "--target-itl", "10", "--drain-seconds", "1",
                    model=None) as s:
            run_friends(s, 1)       # warm
            alone, lost = run_friends(s, SECONDS / 2)
            C.ok(not lost, f"alone, lost: {lost[:2]}")
            load = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--hostile", str(s.port)], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True)
            time.sleep(2)
            beside, lost = run_friends(s, SECONDS)
            C.ok(not lost, f"beside them, lost: {lost[:2]}")
            seen = f"alone {alone}, beside {beside}"
            if busy:
                print(f"SKIP check_serve_hostile, times: the machine was busy before (load {os.getloadavg()[0]:.1f}): {seen}")
            print(f"p99 beside them is {beside['p99_ms'] / alone['p99_ms']:.0f} times that alone, at most 10 wanted")
            if JUDGED:      # ./dev hostile fails by it; the CI, which runs other tests at the same time, tells it
                C.ok(busy or beside["p99_ms"] <= max(10 * alone["p99_ms"], 1e3 * FLOOR_S * SLOW), f"the 99th percentile: {seen}")
            C.ok(busy or beside["most_ms"] <= 1e3 * MOST_S * SLOW, f"the longest: {seen}")
            C.ok(beside["memory_mb"] - alone["memory_mb"] <= MEMORY_KB >> 10, f"memory: {seen}")
            C.ok(s.request("GET", "/health")[0] == 200, "/health")
            begun = time.time()
            s.process.terminate()
            code = s.process.wait(60)
            ended = time.time() - begun
            C.ok(code == 0 and ended < 1 + 2 * SLOW, f"SIGTERM with --drain-seconds 1: code {code} after {ended:.1f} s")
            try:
                counts = json.loads(load.communicate("", timeout=30)[0])
            except subprocess.TimeoutExpired:
                load.kill()
                counts = {}
    result = {"seconds": SECONDS, "busy_before": busy, "alone": alone, "beside": beside, "hostile": counts, "ended_s": round(ended, 2)}
    print("check_serve_hostile:", json.dumps(result))
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
            f.write("\n")
    return C.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hostile"]:
        hostile_main()
        sys.exit(0)
    sys.exit(main())
