#!/usr/bin/env python3
"""check_serve_limits: what one client may take of the server, and what a page of another site may do: bodies, connections, rates, origins,
descriptors, messages that nobody reads.  Numbers such as A2 are those of docs/evidence/findings-2026-11.md."""
import http.client
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import DEMO, ROOT, SLOW, Checks, Server, built, read_all, unchunk    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_limits")
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
BEARER = {"Authorization": "Bearer key-a"}, {"Authorization": "Bearer key-b"}


def status_of(data):
    m = re.match(rb"HTTP/1\.1 (\d+)", data)
    return int(m.group(1)) if m else 0


class Keys:
    """A file with two keys, key-a and key-b."""

    def __enter__(self):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".keys", encoding="ascii")
        self.file.write("key-a\nkey-b\n")
        self.file.flush()
        return self.file.name

    def __exit__(self, *unused):
        self.file.close()


def flood(s, head, n=40, size=1 << 20):
    """n connections that send head and then up to size bytes of a body that never ends; what each was answered."""
    socks = [s.connect() for _ in range(n)]
    for k in socks:
        k.setblocking(False)
    left, got = {k: head + b" " * size for k in socks}, {k: b"" for k in socks}
    end = time.time() + 4
    while time.time() < end and any(left.values()):
        readable, writable, _ = select.select(socks, [k for k in socks if left[k]], [], 0.5)
        for k in writable:
            try:
                left[k] = left[k][k.send(left[k][:65536]):]
            except OSError:
                left[k] = b""
        for k in readable:
            try:
                more = k.recv(65536)
            except OSError:
                more = b""
            got[k] += more
            if not more:
                left[k] = b""
    time.sleep(0.3)
    for k in socks:
        try:
            got[k] += k.recv(65536)
        except OSError:
            pass
    return socks, list(got.values())


# ---- A2: memory before trust ----

def check_bodies():
    body = b"Content-Length: 8388608\r\n\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n100000\r\n"
    with Keys() as keys, Server(BUILD, "-c", "512", "-np", "2", "--max-body-memory", "10M", "--api-key-file", keys) as s:
        cases = [("GET of a public route", b"GET /health HTTP/1.1\r\n" + HOST + body, 413),
                 ("chunked GET", b"GET /health HTTP/1.1\r\n" + HOST + chunked, 413),
                 ("POST without a key", b"POST /tokenize HTTP/1.1\r\n" + HOST + JSON + body, 401),
                 ("GET without a key", b"GET /metrics HTTP/1.1\r\n" + HOST + body, 401)]
        for name, head, want in cases:
            before = s.memory_kb()
            socks, got = flood(s, head)
            grown = s.memory_kb() - before
            C.ok(grown < 5000, f"A2 {name}: 40 unfinished bodies: {grown} kB more")
            C.ok(sum(status_of(x) == want for x in got) > 0 and not any(status_of(x) == 200 for x in got), f"A2 {name}: {[x[:20] for x in got[:4]]}")
            for k in socks:
                k.close()
            one = s.raw(head, 2)        # nothing of the body was sent: the answer is there at once
            C.ok(status_of(one) == want and b"onnection: close" in one, f"A2 {name}: {one[:100]}")
        C.ok(status_of(s.raw(b"GET /health HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n", 2)) == 200, "A2 a body of no bytes is none")
        key = b"Authorization: Bearer key-a\r\n"
        for kind, tail in (("declared", body), ("chunked", b"Transfer-Encoding: chunked\r\n\r\n800000\r\n")):
            before = s.memory_kb()
            socks, got = flood(s, b"POST /tokenize HTTP/1.1\r\n" + HOST + JSON + key + tail)
            grown = s.memory_kb() - before
            C.ok(grown < 10240 + 40 * 24 + 5000, f"A2 one key's {kind} bodies: {grown} kB more")
            refused = [x for x in got if status_of(x) == 429]
            C.ok(refused and all(b"Retry-After: 1" in x and b"--max-body-memory" in x for x in refused), f"A2 {kind}: {[x[:20] for x in got[:4]]}")
            C.ok(s.post("/tokenize", {"content": "The sea"}, headers=BEARER[1])[0] == 200, f"A2 {kind}: another key's body has room")
            C.ok(s.request("GET", "/health")[0] == 200, "A2 alive")
            for k in socks:
                k.close()
            end, large = time.time() + 10 * SLOW, b'{"content":"a"}' + b" " * 4000000
            while (code := s.request("POST", "/tokenize", large, headers=BEARER[0])[0]) != 200 and time.time() < end:
                time.sleep(0.05)
            C.ok(code == 200, f"A2 {kind}: what was taken came back: {code}")


# ---- A13: least rate of a body ----

def check_body_rate(s):
    """Two bodies of 60 kB side by side: 2 kB/s go on, 100 B/s are cut (the rule: 1 KiB/s after the first 10 s)."""
    head = b"POST /tokenize HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 60000\r\n\r\n"
    slow, fast = s.connect(), s.connect()
    t0, cut, alive = time.time(), None, True
    slow.sendall(head)
    fast.sendall(head)
    for k in (slow, fast):
        k.setblocking(False)
    while time.time() - t0 < 15 * SLOW and cut is None:
        for k, n in ((slow, 20), (fast, 400)):
            try:
                k.send(b" " * n)
                if not k.recv(100) and k is slow:
                    cut = time.time() - t0
            except BlockingIOError:
                pass
            except OSError:
                cut = cut if k is fast else time.time() - t0
                alive = alive and k is slow
        time.sleep(0.2)
    C.ok(cut is not None and 9.5 < cut < 15 * SLOW, f"A13 100 bytes per second: cut after {cut} s")
    try:
        fast.send(b" ")
        fast.recv(1)
        alive = False
    except BlockingIOError:
        pass
    except OSError:
        alive = False
    C.ok(alive, "A13 2,000 bytes per second go on")
    slow.close()
    fast.close()


# ---- A3, A12: connections ----

def check_connections():
    with Server(BUILD, "-c", "512", "-np", "2", "--max-connections", "8") as s:
        idle = [s.connect() for _ in range(300)]
        t0 = time.time()
        C.ok(s.request("GET", "/health", timeout=20)[0] == 200 and time.time() - t0 < 1 * SLOW,
             f"A12 300 idle clients at 8 connections: /health after {time.time() - t0:.2f} s")
        for k in idle:
            k.close()
        used = http.client.HTTPConnection("127.0.0.1", s.port, timeout=10)      # one that was served outlives those that never asked
        used.request("GET", "/v1/models")
        used.getresponse().read()
        idle = [s.connect() for _ in range(40)]
        time.sleep(0.3)
        used.request("GET", "/v1/models")
        C.ok(used.getresponse().status == 200, "A12 who was served goes last")
        for k in idle:
            k.close()
    with Keys() as keys, Server(BUILD, "-c", "2048", "-np", "2", "--max-connections", "8", "--api-key-file", keys) as s:
        body = {"prompt": "The sea", "max_tokens": 2000, "stream": True, "ignore_eos": True}
        held = [s.open("/v1/completions", body, BEARER[0]) for _ in range(12)]
        for k in held:
            k.settimeout(5 * SLOW)
        first = [status_of(k.recv(1000)) for k in held]
        C.ok(first.count(200) == 6 and first.count(429) > 0 and set(first) <= {200, 429, 0}, f"A3 busy connections of one key: {first}")
        t0 = time.time()
        C.ok(s.request("GET", "/v1/models", headers=BEARER[1])[0] == 200 and s.request("GET", "/health")[0] == 200, "A3 another key is served")
        C.ok(time.time() - t0 < 2 * SLOW, f"A3 after {time.time() - t0:.2f} s")
        for k in held:
            k.close()


# ---- A3, A13: the queue ----

def check_queue():
    """A13: exactly --max-queue requests wait, one more is refused; of one key exactly its share."""
    body = {"prompt": "The sea", "max_tokens": 4000, "stream": True, "ignore_eos": True}
    with Keys() as keys:
        for args, queue, limit in (((), 5, "queue: full"), (("--api-key-file", keys), 2, "share is full"),
                                   (("--api-key-file", keys, "--max-queue-per-key", "3"), 3, "share is full")):
            with Server(BUILD, "-c", "8192", "-np", "2", "--max-queue", "5", *args) as s:
                headers = BEARER[0] if args else {}
                held = []
                for n in range(2 + queue):
                    held.append(s.open("/v1/completions", body, headers))
                    end = time.time() + 20 * SLOW
                    want = (min(n + 1, 2), max(n - 1, 0))
                    while (s.metric("num_requests_running", headers), s.metric("num_requests_waiting", headers)) != want and time.time() < end:
                        time.sleep(0.01)
                more = s.open("/v1/completions", body, headers)
                more.settimeout(10 * SLOW)
                answer = more.recv(2000)
                C.ok(s.metric("num_requests_waiting", headers) == queue, f"A13 {args}: {s.metric('num_requests_waiting', headers)} wait, want {queue}")
                C.ok(status_of(answer) == 429 and limit.encode() in answer, f"A13 {args}: {answer[:300]}")
                if args:
                    k = s.open("/v1/completions", body, BEARER[1])
                    k.settimeout(10 * SLOW)
                    C.ok(status_of(k.recv(1000)) == 200, "A3 another key's share is its own")
                    k.close()
                for k in (*held, more):
                    k.close()


def check_greedy_key():
    """A3: one key with 80 connections that never stop and a salt of its own for each request: another key's requests all come through, and
    are not behind those of the first."""
    stop, times = threading.Event(), ([], [])
    with Keys() as keys, Server(BUILD, "-c", "512", "-np", "2", "--max-queue", "32", "--api-key-file", keys) as s:
        codes = {200: 0, 429: 0}

        def greedy(i):
            n = 0
            while not stop.is_set():
                n += 1
                try:
                    (code, _), took = timed(lambda: s.post("/v1/completions", {"prompt": "The sea", "max_tokens": 16, "ignore_eos": True,
                                                                               "cache_salt": f"{i} {n}"}, headers=BEARER[0]))
                except (OSError, http.client.HTTPException):
                    continue
                codes[code] += 1
                if code == 200:
                    times[0].append(took)
                else:
                    time.sleep(0.1)
        threads = [threading.Thread(target=greedy, args=(i,), daemon=True) for i in range(80)]
        for t in threads:
            t.start()
        end = time.time() + 20 * SLOW
        while len(times[0]) < 10 and time.time() < end:
            time.sleep(0.1)
        got = []
        for i in range(12):
            (code, _), took = timed(lambda i=i: s.post("/v1/completions", {"prompt": f"The town {i}", "max_tokens": 16, "ignore_eos": True}, headers=BEARER[1]))
            got.append(code)
            times[1].append(took)
        stop.set()
        C.ok(got == [200] * 12, f"A3 beside 80 connections of another key: {got}")
        C.ok(codes[429] > 0 and codes[200] > 0, f"A3 the greedy key meets its own limit: {codes}")
        a, b = sorted(times[0])[len(times[0]) // 2], sorted(times[1])[6]
        C.ok(b < a / 2, f"A3 p50 {b:.3f} s, of the greedy key {a:.3f} s")
        for t in threads:
            t.join()


# ---- A5: slow readers ----

class SlowReaders:
    """Clients that read 9 KB/s of streams that are made much faster."""
    BODY = {"messages": [{"role": "user", "content": "The sea"}], "max_tokens": 4000, "logprobs": True, "top_logprobs": 20, "ignore_eos": True, "stream": True}

    def __init__(self, s, n, headers):
        self.socks, self.stop, self.cut = [], False, 0
        for _ in range(n):
            k = socket.socket()
            k.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            k.connect(("127.0.0.1", s.port))
            data = json.dumps(self.BODY).encode()
            k.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n" + JSON + b"Authorization: " + headers["Authorization"].encode() +
                      b"\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            k.setblocking(False)
            self.socks.append(k)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while not self.stop:
            for k in list(self.socks):
                try:
                    if not k.recv(int(900 / SLOW)):
                        raise ConnectionError
                except BlockingIOError:
                    pass
                except OSError:
                    self.cut += 1
                    self.socks.remove(k)
            time.sleep(0.1)

    def close(self):
        self.stop = True
        self.thread.join()
        for k in self.socks:
            k.close()


def check_slow_readers():
    """A5: four of them at -np 4 do not keep another key from its answer: either their slots are taken, or they are cut."""
    with Keys() as keys, Server(BUILD, "-c", "8192", "-np", "4", "--stream-timeout", str(int(6 * SLOW)), "--api-key-file", keys) as s:
        readers = SlowReaders(s, 4, BEARER[0])
        end = time.time() + 20 * SLOW
        while (s.metric("num_requests_running", BEARER[0]) < 4 or s.metric("num_requests_paused", BEARER[0]) < 1) and time.time() < end:
            time.sleep(0.05)
        C.ok(time.time() < end, "A5 four streams run, and are read too slowly")
        try:
            (code, _), took = timed(lambda: s.post("/v1/completions", {"prompt": "The town", "max_tokens": 8}, headers=BEARER[1], timeout=20))
        except OSError:
            code, took = 0, 20
        C.ok(code == 200, f"A5 another key's request beside four slow readers: {code} after {took:.1f} s")
        readers.close()


# ---- A6: long bodies ----

def timed(call):
    t0 = time.time()
    out = call()
    return out, time.time() - t0


def check_long_bodies():
    """A body of 2 MB takes a worker's time, not the loop's, and not that of short bodies; keys take turns; who left is passed over."""
    text = {"content": "The sea and the town " * 100000}
    with Keys() as keys, Server(BUILD, "-c", "512", "-np", "2", "--max-body-memory", "400M", "--api-key-file", keys) as s:
        one, alone = timed(lambda: s.post("/tokenize", text, headers=BEARER[0]))
        C.ok(one[0] == 200 and one[1]["count"] > 100000, f"A6 2 MB are made into tokens: {one[0]}")
        done = threading.Event()
        status = []

        def long():
            status.append(s.post("/tokenize", text, headers=BEARER[0])[0])
            done.set()
        threading.Thread(target=long, daemon=True).start()
        health, short = [], []
        while not done.is_set():
            health.append(timed(lambda: s.request("GET", "/health"))[1])
            short.append(timed(lambda: s.post("/tokenize", {"content": "The sea"}, headers=BEARER[1]))[1])
        for name, times in (("/health", sorted(health)), ("/tokenize of one word", sorted(short))):
            late = times[len(times) * 9 // 10]
            C.ok(len(times) >= 8 and late < alone / 5, f"A6 {name} beside 2 MB ({alone:.2f} s alone): {len(times)} answered, p90 {late:.3f} s")
        C.ok(status == [200], f"A6 {status}")
        body = {"prompt": text["content"], "max_tokens": 1}
        code, r = s.post("/v1/completions", body, headers=BEARER[0])
        C.ok(code == 400 and r["error"]["type"] == "exceed_context_size_error" and "at least" in r["error"]["message"], f"A6 {r}")
        chat = {"messages": [{"role": "user", "content": text["content"]}], "max_tokens": 1}
        code, r = s.post("/v1/chat/completions", chat, headers=BEARER[0])
        C.ok(code == 400 and r["error"]["type"] == "exceed_context_size_error" and "at least" in r["error"]["message"], f"A6 {r}")
        r = s.post("/v1/completions", {"prompt": "The sea and the town " * 200, "max_tokens": 1}, headers=BEARER[0])[1]
        C.ok("error" in r and " tokens" in r["error"]["message"] and "bytes" not in r["error"]["message"], f"A6 a text that may fit is counted: {r}")
        order, threads = [], []
        for name, key in (("a", 0), ("a", 0), ("a", 0), ("a", 0), ("a", 0), ("b", 1)):
            threads.append(threading.Thread(target=lambda name=name, key=key: (s.post("/tokenize", text, headers=BEARER[key]), order.append(name))))
            threads[-1].start()
            time.sleep(alone / 12)
        for t in threads:
            t.join()
        C.ok("b" in order[:4], f"A6 keys take turns: {order}")
        gone = [s.open("/tokenize", text, BEARER[0]) for _ in range(6)]
        time.sleep(alone / 4)
        for k in gone:
            k.close()
        C.ok(timed(lambda: s.post("/tokenize", text, headers=BEARER[0]))[1] < 4 * alone, "A6 clients that left are passed over")
        C.ok(s.stop() == 0, "A6 ends")


# ---- A10: other sites ----

def check_origins():
    data = b'{"content":"a"}'
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\nContent-Length: %d\r\n"
    with Server(BUILD, "-c", "512", "-np", "2", "--cors-origins", "https://a.example") as s:
        own = b"Origin: http://localhost:%d\r\n" % s.port
        head = head % (s.port, len(data))
        cases = [(b"", 415), (JSON, 200), (b"Content-Type: text/plain\r\n", 415), (b"Content-Type: application/jsonp\r\n", 415),
                 (b"Content-Type: application/json; charset=utf-8\r\n", 200), (JSON + own, 200), (JSON + own + b"Sec-Fetch-Site: same-origin\r\n", 200),
                 (JSON + b"Origin: https://a.example\r\n", 200), (JSON + b"Origin: https://a.example\r\nSec-Fetch-Site: cross-site\r\n", 200),
                 (JSON + b"Origin: https://evil.example\r\n", 403), (JSON + b"Origin: null\r\n", 403), (JSON + b"Origin: http://localhost:1\r\n", 403),
                 (JSON + b"Sec-Fetch-Site: cross-site\r\n", 403), (JSON + b"Sec-Fetch-Site: none\r\n", 200)]
        for fields, want in cases:
            got = status_of(s.raw(head + fields + b"\r\n" + data, 3))
            C.ok(got == want, f"A10 {fields}: {got}, want {want}")
        evil = {"Origin": "https://evil.example"}
        for method, path in (("POST", "/cache?action=clear"), ("POST", "/slots/0?action=erase"), ("GET", "/metrics"), ("GET", "/slots"), ("GET", "/debug/trace"),
                             ("GET", "/v1/models"), ("POST", "/v1/completions")):
            status, _, answer = s.request(method, path, b"{}" if method == "POST" else None, headers=evil)
            C.ok(status == 403 and json.loads(answer)["error"]["type"] == "permission_error", f"A10 {method} {path}: {status}")
        C.ok(s.request("GET", "/health", headers=evil)[0] == 200 and s.request("GET", "/", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200,
             "A10 public routes, and links to the page")
        for host, want in ((b"[::1]evil", 400), (b"[::1]", 200), (b"[::1]:80", 200), (b"[::1", 400), (b"localhost:80x", 400), (b"localhost:123456", 400),
                           (b"127.0.0.1:1", 200), (b"localhost.evil", 400)):
            got = status_of(s.raw(b"GET /version HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", 2))
            C.ok(got == want, f"A12 Host {host}: {got}, want {want}")
    with Server(BUILD, "-c", "512", "-np", "2", env={"KVANT_ARG_API_KEY": "key-a"}) as s:
        head = b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Connection: close\r\nAuthorization: Bearer key-a\r\nContent-Length: %d\r\n" % len(data)
        for fields in (b"", JSON, JSON + b"Origin: https://evil.example\r\n"):      # the key says who asks
            C.ok(status_of(s.raw(head + fields + b"\r\n" + data, 3)) == 200, f"A10 with a key: {fields}")


# ---- A12: descriptors, messages, signals ----

def check_descriptors():
    def start(n, *more):
        return subprocess.run([os.path.join(BUILD, "bin", "kvant"), "serve", "-m", DEMO, "--port", "0", *more], capture_output=True, text=True, check=False,
                              timeout=20 * SLOW, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
    for n in (10, 64, 90):
        try:
            r = start(n)
            C.ok(r.returncode == 2 and f"allows {n}" in r.stderr and "ulimit -n" in r.stderr, f"A12 {n} descriptors: {r.returncode} {r.stderr[-200:]}")
        except subprocess.TimeoutExpired:
            C.ok(False, f"A12 {n} descriptors: it started")
    s = Server(BUILD, "-c", "512", "-np", "2", "--max-connections", "64", limits={resource.RLIMIT_NOFILE: 120})
    C.ok(any("at most 40 connections instead of 64" in x for x in s.lines), f"A12 fewer connections are told: {s.lines}")
    idle = [s.connect() for _ in range(100)]
    C.ok(s.request("GET", "/health")[0] == 200, "A12 answers with 120 descriptors and 100 clients")
    for k in idle:
        k.close()
    s.stop()


def check_silent_log():
    """Nobody reads standard error: the pipe fills up, and the server goes on."""
    s = Server(BUILD, "-c", "512", "-np", "2", "-lv", "3")
    s.pause_log()
    done = 0
    try:
        for _ in range(40):
            conn = http.client.HTTPConnection("127.0.0.1", s.port, timeout=3 * SLOW)
            for _ in range(50):
                conn.request("GET", "/health?" + "x" * 80)
                done += conn.getresponse().read() != b""
            conn.close()
    except OSError:
        pass
    C.ok(done == 2000, f"A12 a full pipe: {done} of 2000 requests answered")
    if done == 2000:
        C.ok(s.post("/v1/completions", {"prompt": "The sea", "max_tokens": 8})[0] == 200, "A12 the engine goes on")
    s.go_on_log()
    end = time.time() + 5 * SLOW
    while not any("messages dropped" in x for x in s.lines) and time.time() < end and done == 2000:
        s.request("GET", "/health")
        time.sleep(0.05)
    C.ok(any(re.search(r"[1-9]\d* messages dropped", x) for x in s.lines), "A12 it says that messages were dropped")
    s.process.kill()
    s.process.wait()


def check_hangup():
    s = Server(BUILD, "-c", "2048", "-np", "2")
    k = s.open("/v1/completions", {"prompt": "The sea", "max_tokens": 300, "stream": True, "ignore_eos": True})
    k.recv(10)
    s.process.send_signal(signal.SIGHUP)
    data = unchunk(b"HTTP/1.1 200 OK\r\n" + read_all(k))
    C.ok(data.endswith(b"data: [DONE]\n\n"), f"A12 SIGHUP: the running stream ends: {data[-80:]}")
    code = s.wait()
    C.ok(code == 0, f"A12 SIGHUP: exit code {code}")


def check_memory():
    """Nobody asks for a context: a machine with little memory gets a shorter one, then fewer snapshots, and a server."""
    found = []
    for mib in (60, 90, 400):
        with Server(BUILD, "-np", "1", env={"KVANT_MEMORY": f"{mib}M"}) as s:
            m = re.search(r"at most (\d+) tokens, pool of (\d+) tokens, (\d+) snapshots", "\n".join(s.lines))
            found.append(tuple(map(int, m.groups())) if m else (0, 0, 0))
            C.ok(s.request("POST", "/v1/completions", {"prompt": "The sea", "max_tokens": 2})[0] == 200, f"{mib} MiB: no answer")
    C.ok(1024 <= found[0][0] < 8192 and found[0][1] == found[0][0] // 64 * 64, f"60 MiB: {found[0]}")
    C.ok(found[1][0] == 8192 and found[1][2] > 0, f"90 MiB: {found[1]}, wanted 8192 tokens beside snapshots")
    C.ok(found[2][:2] == (32768, 32768) and found[2][2] == 33, f"400 MiB: {found[2]}, wanted the training context")


def main():
    if not built(BUILD):
        print("SKIP check_serve_limits: this build has no server")
        return C.end()
    with Server(BUILD, "-c", "512", "-np", "2") as s:
        rate = threading.Thread(target=check_body_rate, args=(s,))      # 12 s of waiting
        rate.start()
        check_bodies()
        check_connections()
        check_queue()
        check_greedy_key()
        check_slow_readers()
        check_long_bodies()
        check_origins()
        check_descriptors()
        check_memory()
        check_silent_log()
        check_hangup()
        rate.join()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
