#!/usr/bin/env python3
"""soak_serve: `./dev soak [MINUTES]`: kvant serve with a page pool that is always full and more requests than its queue takes,
clients that leave, grammars, several choices, embeddings, statistics, for MINUTES (10).  A canary's answer must stay the same;
memory, descriptors and pages must not grow.  The last line is a JSON object: what docs/evidence keeps."""
import json
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, Server    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
MINUTES = float(sys.argv[2]) if len(sys.argv) > 2 else 10
C = Checks("soak_serve")
WORDS = "river stone garden winter letter market window mountain silver morning captain engine".split()
CLIENTS = 32       # with a place each, so that requests wait for pages and for nothing else
PAGES = 48         # a sequence wants up to 15
TAIL = (CLIENTS + 512 // 64 + 2) * 64 * 2048       # the exact tail: a page each, and those of a pass
CANARY = {"prompt": "The captain of the ship", "max_tokens": 24, "temperature": 0, "ignore_eos": True}


class Load:
    def __init__(self, server, end):
        self.s, self.end, self.lock = server, end, threading.Lock()
        self.count = {"ok": 0, "refused": 0, "left": 0, "failed": 0, "canaries": 0, "tokens": 0}
        self.bad = []
        self.canary = self.s.post("/v1/completions", CANARY)[1]["choices"][0]["text"]

    def note(self, what, text=None, n=1):
        with self.lock:
            self.count[what] += n
            if text and len(self.bad) < 20:
                self.bad.append(text)

    def body(self, r):
        prompt = " ".join(r.choice(WORDS) for _ in range(r.choice((3, 20, 60, 150))))
        b = {"prompt": prompt, "max_tokens": r.choice((4, 60, 200, 700)), "ignore_eos": True, "seed": r.randrange(1000), "stream": r.random() < 0.7}
        if r.random() < 0.1:
            b.update(n=2, logprobs=2)
        if r.random() < 0.1:
            b.update(grammar='root ::= "[" [0-9]+ ("," [0-9]+)* "]"', ignore_eos=False)
        if r.random() < 0.1:
            b.update(stop=["the", "and"])
        return b

    def leave(self, r):
        """A client that closes somewhere on the way."""
        k = self.s.open("/v1/completions", self.body(r))
        k.settimeout(r.random() * 0.5 + 0.01)
        try:
            for _ in range(r.randrange(4)):
                k.recv(300)
        except TimeoutError:
            pass
        k.close()
        self.note("left")

    def ask(self, r):
        if r.random() < 0.05:
            status, answer = self.s.post("/v1/embeddings", {"input": "a small text"})
        else:
            status, _, answer = self.s.request("POST", "/v1/completions", self.body(r))
        if status == 200 and b'"error"' not in (answer if isinstance(answer, bytes) else b""):
            self.note("ok")
        elif status == 429:
            self.note("refused")
            time.sleep(0.02)
        else:
            self.note("failed", f"status {status}: {str(answer)[-200:]}")

    def check_canary(self):
        status, answer = self.s.post("/v1/completions", CANARY)
        if status == 429:
            self.note("refused")
        elif status != 200 or answer["choices"][0]["text"] != self.canary:
            self.note("failed", f"canary: {status} {str(answer)[:200]}")
        else:
            self.note("canaries")

    def client(self, i):
        r = random.Random(i)
        while time.time() < self.end:
            try:
                x = r.random()
                if x < 0.1:
                    self.leave(r)
                elif x < 0.2:
                    self.check_canary()
                elif x < 0.22:
                    self.s.get(r.choice(("/slots", "/props", "/v1/models")))
                else:
                    self.ask(r)
            except OSError as e:
                self.note("failed", f"{type(e).__name__}: {e}")


def median(values):
    return sorted(values)[len(values) // 2]


def slope(points):
    """Least squares, units per minute."""
    n = len(points)
    mx, my = sum(p[0] for p in points) / n, sum(p[1] for p in points) / n
    d = sum((p[0] - mx) ** 2 for p in points)
    return sum((p[0] - mx) * (p[1] - my) for p in points) / d if d else 0.0


def main():
    with Server(BUILD, "-c", "1024", "-np", str(CLIENTS), "--max-queue", "8", "-ctk", "tbq4_0", "-ctv", "tbq4_0",
                "--kv-pool-size", str(PAGES * 64 * 576 + TAIL), "-lv", "2", "--snapshots", "8") as s:
        C.ok(s.metric("kv_pages") == PAGES, f"{s.metric('kv_pages')} pages")
        end = time.time() + MINUTES * 60
        load = Load(s, end)
        threads = [threading.Thread(target=load.client, args=(i,)) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        samples, health = [], []
        while time.time() < end:
            time.sleep(min(5, MINUTES * 60 / 40))
            t0 = time.time()
            C.ok(s.request("GET", "/health")[0] == 200, "health")
            health.append(time.time() - t0)
            samples.append((time.time() / 60, s.memory_kb(), s.fds(), s.metric("kv_cache_usage_perc"),
                            s.metric("num_requests_waiting") > 0))
        for t in threads:
            t.join(120)
        C.ok(s.idle(30), "everything ended")
        half = samples[len(samples) // 3:]
        result = dict(load.count, minutes=MINUTES, requests_per_second=round((load.count["ok"] + load.count["canaries"]) / MINUTES / 60, 1),
                      preemptions=s.metric("num_preemptions_total"), gone=s.metric("clients_gone_total"), rejected=s.metric("requests_rejected_total"),
                      generated=s.metric("generation_tokens_total"), rss_kb=[p[1] for p in samples[:: max(1, len(samples) // 10)]],
                      rss_slope_kb_per_minute=round(slope([(p[0], p[1]) for p in half]), 1), fds=[samples[0][2], s.fds()],
                      pool_in_use_median=round(median([p[3] for p in samples]), 3), pool_in_use_most=max(p[3] for p in samples),
                      waited_for_pages=round(sum(p[4] for p in samples) / len(samples), 3), requests_lost=load.count["failed"],
                      health_ms_most=round(max(health) * 1e3, 1))
        C.ok(load.count["failed"] == 0, f"{load.count['failed']} requests failed: {load.bad[:5]}")
        C.ok(load.count["canaries"] > 0, "canaries ran")
        C.ok(result["waited_for_pages"] > 0.9 and s.metric("num_preemptions_total") > 0, "the page pool was full")
        C.ok(s.metric("kv_pages_free") + s.metric("kv_pages_cached") == s.metric("kv_pages"), "all pages are back")
        asked = sum(load.count[k] for k in ("ok", "refused", "left", "canaries")) / MINUTES
        C.ok(result["rss_slope_kb_per_minute"] < max(256, asked / 100), f"memory grows: {result}")      # 10 bytes per request; the heap widens in steps
        code = s.stop()
        C.ok(code == 0, f"exit code {code}")
        failed = C.end()
        print(json.dumps(result))
    return failed


if __name__ == "__main__":
    sys.exit(main())
