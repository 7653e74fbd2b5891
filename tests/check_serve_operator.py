#!/usr/bin/env python3
"""check_serve_operator: what who runs the server needs: the access log as text and as JSON, names of keys, counters of each key, SIGHUP that reads
the key files again while streams go on, kvant health."""
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, SLOW, Checks, Server, built, unchunk, read_all    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
TINY = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")
C = Checks("check_serve_operator")
BODY = {"prompt": "The sea", "max_tokens": 5, "ignore_eos": True, "temperature": 0}


def bearer(key):
    return {"headers": {"Authorization": f"Bearer {key}"}}


def lines_of(path, n, mark=""):
    """At least n lines that hold `mark`, as soon as they are there."""
    end = time.time() + 10 * SLOW
    while True:
        with open(path, encoding="utf-8") as f:
            lines = [x for x in f.read().split("\n") if x and mark in x]
        if len(lines) >= n or time.time() > end:
            return lines
        time.sleep(0.02)


def check_log(folder):
    keys, out = os.path.join(folder, "keys"), os.path.join(folder, "access")
    with open(keys, "w", encoding="utf-8") as f:
        f.write("alpha Alice's laptop\nbeta\t bob \n\ngamma\n")
    os.chmod(keys, 0o600)
    with open(out, "wb") as f, Server(BUILD, "-c", "512", "--log-access", "json", "--api-key-file", keys, model=TINY, stdout=f) as s:
        usage = s.post("/v1/completions", BODY, **bearer("alpha"))[1]["usage"]
        s.request("POST", "/v1/completions", {**BODY, "stream": True, "n": 2}, **bearer("beta"))
        s.get("/v1/models", **bearer("wrong"))
        s.request("GET", "/a%22b\\x", **bearer("gamma"))
        s.post("/v1/embeddings", {"input": ["a b", "c"]}, **bearer("alpha"))
        k = s.open("/v1/completions", {**BODY, "max_tokens": 400, "stream": True}, {"Authorization": "Bearer beta"})
        k.recv(10)
        k.close()
        got = [json.loads(x) for x in lines_of(out, 6)]
        for method, path in ("G" * 3000, "/v1/models"), ("GET", "/" + "\x01\"" * 400):
            s.raw(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer guess\r\nConnection: close\r\n\r\n".encode("latin-1"), wait=1)
        s.post("/v1/completions/render", {"prompt": ["a", "b"]}, **bearer("gamma"))
        with s.open("/v1/completions", {**BODY, "max_tokens": 400, "stream": True}, {"Authorization": "Bearer beta"}) as k:
            k.recv(10)
            k.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")    # a reset
        more = [json.loads(x) for x in lines_of(out, 10)[6:]]
    C.ok(len(more) == 4 and more[0]["method"] == "G" * 23 and more[1]["status"] >= 400 and more[1]["path"].startswith("/\x01\""), more)
    C.ok(all(x["client"] == "127.0.0.1" for x in more), f"the address, though the client has reset its connection: {more}")
    first, streamed, wrong, odd, vectors, left = got
    C.ok(first["key"] == "Alice's laptop" and first["status"] == 200 and first["path"] == "/v1/completions" and first["method"] == "POST" and first["complete"], first)
    C.ok(first["prompt_tokens"] == usage["prompt_tokens"] and first["completion_tokens"] == 5 and first["id"].startswith("cmpl-") and first["model"] == "llama", first)
    C.ok(first["client"] == "127.0.0.1" and 0 < first["ms"] < 60000 and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"]), first)
    C.ok(streamed["key"] == "bob" and streamed["completion_tokens"] == 10 and streamed["prompt_tokens"] == usage["prompt_tokens"], streamed)
    C.ok(wrong["status"] == 401 and wrong["key"] == "" and wrong["completion_tokens"] == 0, wrong)
    C.ok(odd["status"] == 404 and odd["path"] == "/a%22b\\x" and re.fullmatch("[0-9a-f]{8}", odd["key"]), odd)
    C.ok(vectors["prompt_tokens"] > 2 and vectors["completion_tokens"] == 0, vectors)
    C.ok(not left["complete"] and left["key"] == "bob" and left["status"] == 200, left)
    with open(out, "wb") as f, Server(BUILD, "-c", "512", "--log-access", "text", model=TINY, stdout=f) as s:
        s.post("/v1/completions", BODY)
        with s.connect() as k:
            k.sendall(b"GET /x\x1b[31mred HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            k.recv(1000)
        text = lines_of(out, 2)
    C.ok(re.fullmatch(r"\S+Z 127.0.0.1 - POST /v1/completions 200 [\d.]+ms cmpl-\S+ prompt=\d+ cached=0 completion=5", text[0]), text)
    C.ok("\x1b" not in "".join(text), f"an escape in the log: {text}")
    with open(out, "wb") as f, Server(BUILD, "-c", "512", "--server-header", "llama.cpp", "--max-body", "65536", model=TINY, stdout=f) as s:
        s.post("/v1/completions", BODY)
        C.ok([s.request("GET", p)[1].get("server") for p in ("/health", "/none")] == ["llama.cpp"] * 2, "--server-header")
        cut = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n" + b" " * 0x20000, 1)
        C.ok(cut.startswith(b"HTTP/1.1 413") and b"\r\nServer: llama.cpp\r\n" in cut, f"--server-header, of a body that is not read: {cut[:300]}")
    C.ok(os.path.getsize(out) == 0, "no log unless it is asked for")


def counters(s, key):
    text = s.request("GET", "/metrics", **bearer(key))[2].decode()
    return {(m[1], m[2]): int(m[3]) for m in re.finditer(r'^kvant_key_(\w+)_total\{key="([^"]*)"\} (\d+)$', text, re.M)}


def write_keys(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def hangup(s, mark):
    n = len(s.lines)
    s.process.send_signal(signal.SIGHUP)
    end = time.time() + 10 * SLOW
    while time.time() < end and not any(mark in x for x in s.lines[n:]):
        time.sleep(0.01)
    return C.ok(any(mark in x for x in s.lines[n:]), f"{mark}: {s.lines[n:]}")


def status(s, key):
    return s.get("/v1/models", **bearer(key))[0]


def check_keys(folder):
    keys, admin = os.path.join(folder, "users"), os.path.join(folder, "admin")
    write_keys(keys, "alpha ann\nbeta bob\n")
    write_keys(admin, "root chief\n")
    for path in (keys, admin):
        os.chmod(path, 0o600)
    with Server(BUILD, "-c", "2048", "-np", "2", "--api-key-file", keys, "--admin-key-file", admin, model=TINY) as s:
        r = s.post("/v1/completions", BODY, **bearer("alpha"))[1]
        s.post("/v1/completions", {**BODY, "temperature": "x"}, **bearer("alpha"))
        n = counters(s, "root")
        C.ok(n[("requests", "ann")] == 2 and n[("requests_failed", "ann")] == 1 and n[("generation_tokens", "ann")] == 5, n)
        C.ok(n[("prompt_tokens", "ann")] == r["usage"]["prompt_tokens"] and n[("requests", "bob")] == 0 and ("requests", "chief") in n, n)
        C.ok({k for _, k in counters(s, "beta")} == {"bob"}, "a key sees its own counters alone")
        stream = s.open("/v1/completions", {**BODY, "max_tokens": 1500, "stream": True}, {"Authorization": "Bearer alpha"})
        stream.recv(10)
        write_keys(keys, "beta robert\ndelta dora\n")
        hangup(s, "SIGHUP: 3 API keys, 1 of them admin keys")
        C.ok([status(s, k) for k in ("alpha", "beta", "delta", "root")] == [401, 200, 200, 200], "the new keys hold, the one taken back does not")
        data = unchunk(b"HTTP/1.1 200 OK\r\n" + read_all(stream))
        C.ok(data.endswith(b"data: [DONE]\n\n"), f"a stream goes on: {data[-80:]}")
        text = re.findall(r"^kvant_key_\w+\{.*?\}", s.request("GET", "/metrics", **bearer("root"))[2].decode(), re.M)
        C.ok(len(text) == len(set(text)), f"a series twice: {text}")
        n = counters(s, "root")
        C.ok(n[("generation_tokens", "ann")] == 1505 and n[("requests", "robert")] >= 1 and n[("requests", "dora")] == 1, n)
        C.ok(s.post("/v1/completions", BODY, **bearer("delta"))[0] == 200, "a new key generates")
        C.ok(s.request("GET", "/slots", **bearer("delta"))[0] == 403 and s.request("GET", "/slots", **bearer("root"))[0] == 200, "who administers")
        write_keys(admin, "delta dora\n")
        write_keys(keys, "alpha ann\nbeta robert\n")
        hangup(s, "SIGHUP: 3 API keys, 1 of them")
        C.ok([status(s, k) for k in ("alpha", "root")] == [200, 401] and s.request("GET", "/slots", **bearer("delta"))[0] == 200, "back, and another administrator")
        write_keys(admin, "delta dora\nzeta ann\n")
        write_keys(keys, "zeta ann\nalpha2 ann\nalpha ann\nbeta robert\n")
        hangup(s, "SIGHUP: 5 API keys, 2 of them")
        C.ok(s.request("GET", "/slots", **bearer("zeta"))[0] == 200, "a new key of both files administers")
        s.post("/v1/completions", BODY, **bearer("alpha2"))
        text = s.request("GET", "/metrics", **bearer("zeta"))[2].decode()
        C.ok(re.findall(r'^kvant_key_generation_tokens_total\{key="ann"\} (\d+)$', text, re.M) == ["1510"], "keys of one name have one series")
        for bad, why in (("", "no key in it"), ("key na\x01me\n", "byte 0x01 in its name"), ("x" * 600, "600 bytes"), ("\n".join(f"key{i}" for i in range(1100)), "more than")):
            write_keys(keys, bad)
            hangup(s, "SIGHUP: nothing is changed")
            C.ok(why in s.lines[-1] and status(s, "alpha") == 200, f"{bad[:20]!r}: {s.lines[-1]}")
        os.unlink(keys)
        hangup(s, "nothing is changed")
        C.ok(status(s, "alpha") == 200, "no file: the keys stay")
        stream = s.open("/v1/completions", {**BODY, "max_tokens": 1500, "stream": True}, {"Authorization": "Bearer alpha"})
        stream.recv(10)
        s.process.send_signal(signal.SIGTERM)
        end = time.time() + 10 * SLOW
        while time.time() < end and "shutting down" not in s.lines[-1]:
            time.sleep(0.005)
        hangup(s, "SIGHUP: nothing is read again, the server is shutting down")
        C.ok(unchunk(b"HTTP/1.1 200 OK\r\n" + read_all(stream)).endswith(b"data: [DONE]\n\n") and s.wait() == 0, "SIGHUP while it drains cuts nothing")


def check_share(folder):
    """Places of a key in the queue follow the number of keys."""
    keys = os.path.join(folder, "shares")
    write_keys(keys, "alpha ann\n")
    os.chmod(keys, 0o600)
    with Server(BUILD, "-c", "4096", "-np", "1", "--max-queue", "4", "--api-key-file", keys, model=TINY) as s:
        for text, places in (("alpha ann\nbeta bob\n", 2), ("alpha ann\nbeta bob\ngamma\ndelta\n", 1), ("alpha ann\n", 4)):
            write_keys(keys, text)
            hangup(s, "SIGHUP: ")
            runs = [s.open("/v1/completions", {**BODY, "max_tokens": 4000, "stream": True}, {"Authorization": "Bearer alpha"})]
            runs[0].recv(10)
            runs += [s.open("/v1/completions", {**BODY, "max_tokens": 4000}, {"Authorization": "Bearer alpha"}) for _ in range(places)]
            end = time.time() + 10 * SLOW
            while s.metric("num_requests_waiting", bearer("alpha")["headers"]) < places and time.time() < end:
                time.sleep(0.01)
            code, r = s.post("/v1/completions", BODY, **bearer("alpha"))
            C.ok(code in (429, 503) and ("share is full" in str(r) or places == 4), f"{places} places: {code} {r}")
            for k in runs:
                k.close()
            end = time.time() + 10 * SLOW
            while s.metric("num_requests_running", bearer("alpha")["headers"]) + s.metric("num_requests_waiting", bearer("alpha")["headers"]) and time.time() < end:
                time.sleep(0.01)


def check_dropped():
    """Nobody reads standard output: lines of the access log are dropped, and standard error says how many."""
    r, w = os.pipe()
    fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(r, "rb") as out, os.fdopen(w, "wb") as into, Server(BUILD, "-c", "512", "--log-access", "json", model=TINY, stdout=into) as s:
        into.close()
        for _ in range(60):
            s.get("/health")
        first = os.read(out.fileno(), 65536).decode()
        n, end = 0, time.time() + 10 * SLOW
        while time.time() < end and not any("lines of standard output dropped" in x for x in s.lines):
            s.get("/health")
            n += 1
            time.sleep(0.02)
        told = [x for x in s.lines if "dropped" in x]
        rest = os.read(out.fileno(), 65536).decode()
        lines = [json.loads(x) for x in (first + rest).splitlines()]
        C.ok(len(told) == 1 and f"{60 + n - len(lines)} lines of standard output" in told[0], f"{60 + n} requests, {len(lines)} lines: {told}")


def health(*args, env=None):
    r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "health", *args], capture_output=True, text=True, timeout=60 * SLOW, env={**os.environ, **(env or {})}, check=False)
    return r.returncode, r.stdout + r.stderr


def check_health(folder):
    with Server(BUILD, "-c", "512", "--api-prefix", "/llm", "--api-key", "k", model=TINY) as s:
        C.ok(health("--port", str(s.port), "--api-prefix", "/llm") == (0, "ok\n"), "health")
        C.ok(health(env={"KVANT_ARG_PORT": str(s.port), "KVANT_ARG_API_PREFIX": "/llm", "KVANT_ARG_HOST": "0.0.0.0"}) == (0, "ok\n"), "by the server's variables")
        code, text = health("--port", str(s.port), "--api-prefix", "/other")
        C.ok(code == 1 and "401" in text, text)
        port = str(s.port)
    C.ok(health("--port", port)[0] == 1, "nobody listens")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code, text = health("--port", str(silent.getsockname()[1]), "--wait", "1")
        C.ok(code == 1 and "no answer in time" in text, text)
    with socket.socket() as full:       # its queue of connections is full: connect itself waits
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        taken = [socket.socket() for _ in range(3)]
        for k in taken:
            k.setblocking(False)
            k.connect_ex(full.getsockname())
        begun = time.time()
        code, text = health("--port", str(full.getsockname()[1]), "--wait", "1")
        C.ok(code == 1 and "no answer in time" in text and time.time() - begun < 5 * SLOW, f"{time.time() - begun:.1f} s: {text}")
        for k in taken:
            k.close()
    code, text = health("--host", "no-such-host.invalid")
    C.ok(code == 1 and "no-such-host.invalid" in text and "Success" not in text and "no connection" not in text, text)
    for args, word in ((("--api-prefix", "/" + "x" * 1200), "1201 bytes"), (("--host", "/" + "x" * 150 + ".sock"), "156 bytes")):
        code, text = health(*args)
        C.ok(code != 0 and word in text, text)
    path = os.path.join(folder, "k.sock")
    process = subprocess.Popen([os.path.join(BUILD, "bin", "kvant"), "serve", "-m", TINY, "-c", "512", "--host", path], stderr=subprocess.DEVNULL)
    end = time.time() + 30 * SLOW
    while health("--host", path)[0] and time.time() < end:
        time.sleep(0.05)
    C.ok(health("--host", path) == (0, "ok\n"), "a socket")
    process.terminate()
    C.ok(process.wait(30 * SLOW) == 0, "")


def main():
    if not built(BUILD):
        print("SKIP check_serve_operator: this build has no server")
        return C.end()
    with tempfile.TemporaryDirectory() as folder:
        check_log(folder)
        check_keys(folder)
        check_share(folder)
        check_dropped()
        check_health(folder)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
