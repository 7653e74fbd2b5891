#!/usr/bin/env python3
"""check_serve_neighbours: what hostile clients (support/neighbours.py) can do to a key that is not theirs: nothing but take their share.

A hybrid model in 36 pages, eight places.  A third key's 60 requests, two at a time (no more than its part of the places), are sent alone and
beside the neighbours.  They all end, with the same bytes; the 99th percentile of their times to the first token is at most three times that
without the neighbours, or 0.1 s, which is what programs beside the test move it by; the server's memory stays within the budgets of
docs/server-limits.md."""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import ROOT, SLOW, Checks, Server, built, events, unchunk    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_neighbours")
KEYS = ["key-a-of-the-neighbours", "key-b-of-the-neighbours", "key-of-the-bystander"]
REQUESTS, AT_ONCE = 60, 2
FLOOR_S = 0.1           # starved it waited 4 to 52 s
MODEL = os.path.join(ROOT, "tests", "golden", "tiny", "qwen35.gguf")
# ChatML with tools as Hermes calls them; a prompt says no more of them than their names, so that it stays short.
TEMPLATE = ("{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
            "{% if m.tool_calls %}{% for t in m.tool_calls %}{{ '<tool_call>\\n{\"name\": \"' + t.function.name + '\", \"arguments\": ' + "
            "t.function.arguments | tojson + '}\\n</tool_call>' }}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
# docs/server-limits.md: bodies in flight, buffers of connections, queued and running requests; and 32 MiB for all else that grows.
MEMORY_KB = (64 + 32 + 32) << 10


def body(i):
    """The same prompts in both runs: four beginnings, then a tail of their own."""
    begin = [3 + (11 * (i % 4) + k) % 90 for k in range(64 * (1 + i % 3))]
    return {"prompt": begin + [5 + (i * 7 + k) % 80 for k in range(10 + i % 30)], "max_tokens": 24, "temperature": 0, "ignore_eos": True,
            "stream": True}


def ask(s, i):
    """Text and seconds to the first token."""
    t0, first, data = time.perf_counter(), None, b""
    with s.open("/v1/completions", body(i), {"Authorization": f"Bearer {KEYS[2]}", "Connection": "close"}) as k:
        while True:
            more = k.recv(65536)
            if not more:
                break
            data += more
            if first is None and b"data: " in data:
                first = time.perf_counter() - t0
    if not data.startswith(b"HTTP/1.1 200"):
        return data[-300:].decode(errors="replace"), None
    got = events(unchunk(data))
    bad = [e for e in got if "error" in e]
    return (str(bad[0]), None) if bad else ("".join(e["choices"][0]["text"] for e in got if e["choices"]), first)


def run_all(s):
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda i: ask(s, i), range(REQUESTS)))


def p99(answers):
    times = sorted(t for _, t in answers if t is not None)
    return times[int(len(times) * 0.99) - 1] if times else float("nan")


def with_neighbours(s):
    """The answers beside the neighbours, what those got, and the most memory that the server took, in KiB."""
    load = subprocess.Popen([sys.executable, os.path.join(HERE, "support", "neighbours.py"), str(s.port), *KEYS[:2]],
                            stdout=subprocess.PIPE, text=True)
    load.stdout.readline()
    time.sleep(3)               # all of them are at it
    most = [s.memory_kb()]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(run_all, s)
        while not job.done():
            most.append(s.memory_kb())
            time.sleep(0.05)
    load.terminate()
    return job.result(), json.loads(load.communicate(timeout=30)[0]), max(most)


def main():
    if not built(BUILD):
        print("SKIP check_serve_neighbours: built without the server")
        print("check_serve_neighbours: 0 passed, 0 failed")
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f, tempfile.NamedTemporaryFile("w", suffix=".jinja") as t:
        f.write("\n".join(KEYS) + "\n")
        f.flush()
        t.write(TEMPLATE)
        t.flush()
        args = ("--api-key-file", f.name, "--chat-template-file", t.name, "--kv-pool-size", "600000", "-np", "8", "-c", "2048", "--max-queue", "64", "--target-itl", "10")
        with Server(BUILD, *args, model=MODEL) as s:
            run_all(s)          # warm: the prefixes are in the index in both runs
            alone, before = run_all(s), s.memory_kb()
            beside, neighbours, most = with_neighbours(s)
            C.ok(s.process.poll() is None, "the server lives")
            C.ok(s.request("GET", "/health")[0] == 200, "/health afterwards")
    lost = [text for text, t in beside if t is None]
    C.ok(not lost, f"{len(lost)} of {REQUESTS} requests of the bystander were lost, the first: {lost[:1]}")
    C.ok(all(t is not None for _, t in alone), "alone, all requests end")
    different = sum(a[0] != b[0] for a, b in zip(alone, beside) if b[1] is not None)
    C.ok(different == 0, f"{different} answers differ from those alone")
    seen = f"p99 of the time to the first token: {p99(alone) * 1e3:.0f} ms alone, {p99(beside) * 1e3:.0f} ms beside the neighbours"
    C.ok(p99(beside) <= max(3 * p99(alone), FLOOR_S * SLOW), seen)
    C.ok(most - before <= MEMORY_KB, f"resident memory grew from {before} to {most} KiB, budget {MEMORY_KB} KiB")
    shared = neighbours["counts"].get("shared", {})
    C.ok(set(shared) <= {"ok", "refused"} and shared.get("ok", 0) > 0, f"valid requests of key A: {shared} {neighbours['errors']}")
    tools = neighbours["counts"].get("tools", {})
    C.ok(set(tools) <= {"ok", "refused", "failed", "400"} and sum(tools.values()) > 0, f"calls of tools: {tools} {neighbours['errors']}")
    print(f"check_serve_neighbours: {seen}, memory +{(most - before) / 1024:.0f} MiB, {neighbours['counts']}")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
