#!/usr/bin/env python3
"""check_serve_answers: whole answers that nobody reads, or slowly: their bytes are counted, of a connection, a key and all, and go.

Two keys, budgets of 1 MiB (--max-body-memory).  What a reader gets is whole, whatever its size; what is not read costs the others nothing;
a reader below the least rate is cut; a body's work ends with its client, its fuel or the server."""
import hashlib
import json
import os
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, SLOW, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_answers")
MODEL = os.path.join(ROOT, "tests", "golden", "tiny", "qwen35.gguf")
A, B = ({"Authorization": f"Bearer key-{k}-of-the-answers"} for k in "ab")
TEMPLATE = "{% for m in messages %}{{ m.role }}{{ m.content[:10] }}{% endfor %}"
MOST, BODY = 1 << 20, 400 << 10


def tokenize(n):
    """A body whose answer has about 26 n bytes."""
    return {"content": "a" * n, "with_pieces": True}


def unread(s, path, body, headers, n):
    """n connections that send a request and read nothing."""
    data = json.dumps(body).encode() if body is not None else None
    head = f"{'GET' if data is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {headers['Authorization']}\r\n"
    if data is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    out = []
    for _ in range(n):
        k = socket.socket()
        k.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        k.connect(("127.0.0.1", s.port))
        k.sendall(head.encode() + b"\r\n" + (data or b""))
        out.append(k)
    return out


def close(sockets):
    for k in sockets:
        k.close()


def check_sizes(s):
    """Answers around the sizes at which the way changes, each read whole and the same each time."""
    for n in (0, 1, 100, 155, 156, 157, 158, 159, 160, 312, 313, 314, 315, 316, 630, 2000, 5000, 20000):
        got = [s.request("POST", "/tokenize", tokenize(n), headers=A) for _ in range(2)]
        C.ok(all(status == 200 and int(h["content-length"]) == len(data) for status, h, data in got), f"{n}: {[x[0] for x in got]}")
        C.ok(len(json.loads(got[0][2])["tokens"]) == json.loads(got[0][2])["count"], f"{n}: all tokens")
        C.ok(hashlib.sha256(got[0][2]).digest() == hashlib.sha256(got[1][2]).digest(), f"{n}: the same bytes")
    status, _, data = s.request("POST", "/tokenize", tokenize(80000), headers=A)
    C.ok(status == 400 and b"--max-body-memory" in data, f"larger than all answers together: {status} {data[:200]}")


def check_unread(s):
    """Key A reads none of its answers: key B gets its own, A too, and memory stays."""
    before = s.memory_kb()
    held = unread(s, "/tokenize", tokenize(12000), A, 60)       # 60 x 310 KB
    time.sleep(2.5 * SLOW)
    for n in (100, 2000, 5000):
        C.ok(s.request("POST", "/tokenize", tokenize(n), headers=B)[0] == 200, f"B's answer for {n}")
    C.ok(s.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2}, headers=B)[0] == 200, "B's completion")
    status = s.request("POST", "/tokenize", tokenize(12000), headers=A)[0]
    C.ok(status == 200, f"A reads the next one: those that nobody reads go first: {status}")
    grown = s.memory_kb() - before
    C.ok(s.sanitized or grown < 16 << 10, f"{grown} KiB more for 60 answers of 310 KB that nobody reads")
    close(held)


def check_stored(s):
    """Stored responses: readers share the text; a salt and the key say whose it is; ids do not tell the next one."""
    ids = []
    for salt in ("", "one", "two"):
        body = {"input": "x", "max_output_tokens": 2, "metadata": {"a": "y" * 150000}, **({"cache_salt": salt} if salt else {})}
        status, r = s.post("/v1/responses", body, headers=A)
        C.ok(status == 200, f"{status} {str(r)[:200]}")
        ids.append((salt, r["id"]))
    C.ok(len({i[:12] for _, i in ids}) == 3, f"ids have no common beginning: {ids}")
    for salt, i in ids:
        for other in ("", "one", "two", "three"):
            path = f"/v1/responses/{i}" + (f"?cache_salt={other}" if other else "")
            C.ok(s.request("GET", path, headers=A)[0] == (200 if other == salt else 404), f"stored with {salt!r}, asked for with {other!r}")
            follow = {"input": "y", "max_output_tokens": 1, "previous_response_id": i, **({"cache_salt": other} if other else {})}
            C.ok(s.request("POST", "/v1/responses", follow, headers=A)[0] == (200 if other == salt else 400), f"follows {salt!r} with {other!r}")
        C.ok(s.request("GET", f"/v1/responses/{i}" + (f"?cache_salt={salt}" if salt else ""), headers=B)[0] == 404, "another key's")
    before = s.memory_kb()
    held = unread(s, f"/v1/responses/{ids[0][1]}", None, A, 100)
    time.sleep(1 * SLOW)
    C.ok(s.sanitized or s.memory_kb() - before < 8 << 10, f"{s.memory_kb() - before} KiB more for 100 readers of one text")
    C.ok(len(s.request("GET", f"/v1/responses/{ids[0][1]}", headers=A)[2]) > 150000, "it is read beside them")
    C.ok(s.request("DELETE", f"/v1/responses/{ids[0][1]}", headers=A)[0] == 200, "dropped while it is sent")
    close(held)


def check_slow(s):
    """4 KB/s is less than the least rate: cut after the grace time; its answer is not whole."""
    k = unread(s, "/tokenize", tokenize(11000), B, 1)[0]
    begun, got = time.time(), 0
    k.settimeout(30 * SLOW)
    try:
        while time.time() - begun < 40 * SLOW:
            more = k.recv(1024)
            if not more:
                break
            got += len(more)
            time.sleep(0.25)
    except ConnectionError:
        pass
    took = time.time() - begun
    C.ok(9 < took and got < 250000, f"closed after {took:.1f} s and {got} bytes")
    C.ok(s.request("GET", "/health")[0] == 200, "/health afterwards")


def check_end(s):
    """SIGTERM while bodies are under work and answers are not read: two seconds after the drain it has ended."""
    held = unread(s, "/tokenize", tokenize(30000), A, 8) + unread(s, "/tokenize", {"content": "<|im_start" * 30000}, B, 40)
    time.sleep(0.3)
    begun = time.time()
    s.process.terminate()
    code = s.process.wait(60)
    C.ok(code == 0 and time.time() - begun < 1 + 2 * SLOW, f"code {code} after {time.time() - begun:.1f} s, --drain-seconds 1")
    close(held)


def main():
    if not built(BUILD):
        print("SKIP check_serve_answers: built without the server")
        print("check_serve_answers: 0 passed, 0 failed")
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f, tempfile.NamedTemporaryFile("w", suffix=".jinja") as t:
        f.write("\n".join(h["Authorization"][7:] for h in (A, B)) + "\n")
        f.flush()
        t.write(TEMPLATE)
        t.flush()
        args = ("--api-key-file", f.name, "--chat-template-file", t.name, "--max-body", str(BODY), "--max-body-memory", str(MOST), "-np", "4",
                "-c", "2048", "--kv-pool-size", "600000", "--drain-seconds", "1")
        with Server(BUILD, *args, model=MODEL) as s:
            slow = threading.Thread(target=check_slow, args=(s,))
            slow.start()
            check_sizes(s)
            check_unread(s)
            check_stored(s)
            slow.join()
            check_end(s)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
