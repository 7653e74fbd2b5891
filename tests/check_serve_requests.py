#!/usr/bin/env python3
"""check_serve_requests: HTTP as clients of this field speak it: forms of targets, names of hosts, methods, blanks, NUL; each API's own error
object; lists of models; and what a process is started with: closed descriptors, a limit on files, a full disk."""
import concurrent.futures
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import DEMO, ROOT, SLOW, Checks, Server, built, events    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
KVANT = os.path.join(BUILD, "bin", "kvant")
TINY = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")
C = Checks("check_serve_requests")
USER = [{"role": "user", "content": "q"}]


def head(s, data, wait=3):
    """Status and header lines (small letters) of the answer to these bytes."""
    r = s.raw(data, wait)
    if b"100 Continue\r\n\r\n" in r:
        r = r.split(b"100 Continue\r\n\r\n", 1)[1]
    lines = r.split(b"\r\n\r\n")[0].decode(errors="replace").split("\r\n")
    m = re.match(r"HTTP/1\.[01] (\d+)", lines[0])
    return int(m.group(1)) if m else 0, dict((x.split(": ", 1)[0].lower(), x.split(": ", 1)[1]) for x in lines[1:] if ": " in x)


# ---- the head of a request ----

def check_targets(s):
    end = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    good = [b"http://localhost/v1/models", b"HTTP://127.0.0.1:1/v1/models", b"https://localhost:8080/v1/models", b"http://localhost/v1/models?a=b",
            b"http://[::1]:80/health", b"http://localhost"]
    bad = [b"http://evil.example/v1/models", b"http:///v1/models", b"http://localhost.evil.example/v1/models", b"http://a@localhost/v1/models",
           b"http://" + b"a" * 300 + b"/v1/models"]
    for target in good:
        C.ok(head(s, b"GET " + target + end)[0] == 200, f"absolute form {target}")
    for target in bad:
        C.ok(head(s, b"GET " + target + end)[0] == 400, f"absolute form {target[:60]}")
    C.ok(head(s, b"GET http://localhost/v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")[0] == 400, "both names have to be ours")
    C.ok(head(s, b"GET ftp://localhost/v1/models" + end)[0] == 404, "another scheme")


def check_hosts(s):
    ours = ["localhost", "LOCALHOST:80", "host.docker.internal:8686", "host.containers.internal", "api.localhost:3000", "172.17.0.1:8686", "[fd00::1]:80",
            "10.0.0.7", "localhost."]
    others = ["evil.example", "localhost.evil.example", "docker.internal", "host.docker.internal.evil.example", "1.2.3.4.evil.example", "xlocalhost", ".localhost",
              "127.0.0.1:80x", "127.1.evil", "localhost:8080:9", "[::1", "::1]"]
    for name in ours:
        C.ok(head(s, f"GET /health HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())[0] == 200, f"Host {name}")
    for name in others:
        C.ok(head(s, f"GET /health HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())[0] == 400, f"Host {name}")


def check_methods(s):
    cases = {("GET", "/v1/chat/completions"): "POST, OPTIONS", ("POST", "/v1/models"): "GET, HEAD, OPTIONS", ("HEAD", "/tokenize"): "POST, OPTIONS",
             ("PUT", "/lora-adapters"): "GET, HEAD, POST, OPTIONS", ("PATCH", "/v1/responses/resp_1"): "GET, HEAD, DELETE, OPTIONS",
             ("DELETE", "/v1/models/x"): "GET, HEAD, OPTIONS", ("BREW", "/props"): "GET, HEAD, OPTIONS", ("get", "/health"): "GET, HEAD, OPTIONS",
             ("HEAD", "/debug/events"): "GET, OPTIONS"}
    for (method, path), allow in cases.items():
        status, h = head(s, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        C.ok(status == 405 and h.get("allow") == allow, f"{method} {path}: {status} {h.get('allow')}, wanted {allow}")
    for path, allow in {"/v1/completions": "POST, OPTIONS", "*": "GET, HEAD, POST, DELETE, OPTIONS"}.items():
        status, h = head(s, f"OPTIONS {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        C.ok(status == 200 and h.get("allow") == allow, f"OPTIONS {path}: {status} {h}")
    status, h = head(s, b"OPTIONS /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    C.ok(status == 404 and "allow" not in h, (status, h))
    body = b'{"content":"a"}'
    for more in (b"Expect: 100-continue\r\n", b"EXPECT: 100-Continue\r\n", b"Content-Encoding: identity\r\n"):
        got = head(s, b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n" + more +
                   b"Content-Length: 15\r\n\r\n" + body)
        C.ok(got[0] == 200, (more, got))
    chunks = b"POST /tokenize HTTP/1.1\r\nhOST: localhost\r\ncontent-type: Application/JSON ; charset=utf-8\r\ntransfer-encoding: Chunked\r\n"
    C.ok(head(s, chunks + b"connection: close\r\n\r\n5;a=b\r\n" + body[:5] + b"\r\na\r\n" + body[5:] + b"\r\n0\r\nX: y\r\n\r\n")[0] == 200, "chunks, in any letters")


def check_keys():
    with Server(BUILD, "-c", "256", "--api-key", "s3cret", model=TINY) as s:
        good = [b"Authorization: Bearer s3cret", b"Authorization: Bearer s3cret ", b"authorization:bearer \t s3cret\t ", b"X-Api-Key: s3cret \t", b"x-API-key:s3cret"]
        bad = [b"Authorization: Bearer s3cret\0", b"Authorization: Bearer s3cret\0x", b"X-Api-Key: s3cret\0", b"Authorization: Bearer\0s3cret", b"X-Api-Key: \0s3cret"]
        wrong = [b"Authorization: Bearers3cret", b"Authorization: Bearer s3 cret", b"Authorization: Basic s3cret", b"X-Api-Key: s3cre"]
        for last in (0, 1):         # NUL in the last header is another case
            tail = (b"Connection: close\r\n\r\n", b"\r\n")[last]
            first = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + (b"", b"Connection: close\r\n")[last]
            for list_, want in ((good, 200), (bad, 400), (wrong, 401)):
                for line in list_:
                    C.ok(head(s, first + line + b"\r\n" + tail)[0] == want, f"{line}: wanted {want} (last: {last})")
            for name in (b"localhost\0.evil.example", b"localhost\0"):
                host = b"Host: " + name + b"\r\n"
                request = b"GET /health HTTP/1.1\r\n" + (host + b"Connection: close\r\n", b"Connection: close\r\n" + host)[last] + b"\r\n"
                C.ok(head(s, request)[0] == 400, f"NUL in Host {name} (last: {last})")


# ---- each API's own shapes ----

def check_errors(s):
    cases = [("/v1/messages", {"messages": USER}, None, 400), ("/v1/messages", {"messages": 3, "max_tokens": 1}, "invalid_request_error", 400),
             ("/v1/messages/count_tokens", {"messages": []}, "invalid_request_error", 400), ("/v1/messages", b"{", "invalid_request_error", 400)]
    for path, body, kind, status in cases[1:]:
        st, r = s.post(path, body)
        C.ok(st == status and r["type"] == "error" and r["error"]["type"] == kind and r["error"]["message"] and "code" not in r["error"], (path, r))
    st, r = s.get("/v1/messages")
    C.ok(st == 405 and r["type"] == "error" and r["error"]["type"] == "invalid_request_error", r)
    long_one = {"messages": [{"role": "user", "content": "a b c d e f g h " * 9000}], "max_tokens": 1}
    st, r = s.post("/v1/messages", long_one)
    C.ok(st == 400 and r["type"] == "error" and r["error"]["type"] == "invalid_request_error" and r["error"]["n_ctx"] > 0, r)
    for path in ("/v1/responses", "/responses"):
        st, r = s.post(path, {"input": 3})
        C.ok(st == 400 and r["error"]["code"] is None and r["error"]["type"] == "invalid_request_error" and "type" not in r, r)
        st, r = s.post(path, {"input": "a b c d e f g h " * 9000})
        C.ok(r["error"]["code"] == "context_length_exceeded", r)
        C.ok(s.get(path + "/resp_none")[1]["error"]["code"] == "not_found", path)
    st, r = s.post("/v1/chat/completions", {"messages": 3})
    C.ok(r["error"]["code"] == 400 and "type" not in r, f"llama.cpp's clients look for the status: {r}")
    st, r = s.post("/v1/messages", {"messages": USER, "max_tokens": 2})
    C.ok(r["id"].startswith("msg_") and r["type"] == "message", r)
    data = s.request("POST", "/v1/messages", {"messages": USER, "max_tokens": 2, "stream": True})[2]
    C.ok(events(data)[0]["message"]["id"].startswith("msg_"), data[:200])


def check_lists(s):
    r = s.get("/v1/models", headers={"anthropic-version": "2023-06-01"})[1]
    one = r["data"][0]
    C.ok(one["type"] == "model" and one["id"] == one["display_name"] == r["first_id"] == r["last_id"] and r["has_more"] is False, r)
    C.ok(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one["created_at"]) and "object" not in r, one)
    C.ok(s.get("/v1/models/" + one["id"], headers={"Anthropic-Version": "2023-06-01"})[1] == one, "one model")
    st, r = s.get("/v1/models/other", headers={"anthropic-version": "2023-06-01"})
    C.ok(st == 404 and r["type"] == "error" and r["error"]["type"] == "not_found_error", r)
    r = s.get("/models")[1]
    C.ok(r["object"] == "list" and r["data"][0]["id"] in r["data"][0]["aliases"], r)
    m = r["models"][0]
    C.ok(m["name"] == m["model"] == one["id"] and "completion" in m["capabilities"] and m["details"]["format"] == "gguf", m)
    p = s.get("/props")[1]
    C.ok(p["modalities"] == {"vision": False, "audio": False} and p["chat_template_caps"]["supports_string_content"] is True, p["modalities"])
    C.ok("/" not in p["model_path"] and p["model_path"].endswith(".gguf") and p["model_ftype"] == "Q8_0", (p["model_path"], p["model_ftype"]))


def check_small_things(s):
    """What some clients send everywhere."""
    text = {"prompt": "a", "max_tokens": 2, "temperature": 0}
    usage = s.post("/v1/completions", text)[1]["usage"]
    for path, key in (("/v1/completions", "max_tokens"), ("/v1/completions", "max_completion_tokens"), ("/v1/chat/completions", "max_tokens"), ("/completion", "n_predict")):
        body = {"messages": USER} if "chat" in path else {"prompt": "a"}
        C.ok(s.post(path, {**body, key: -1, "stop": ["e"]})[0] == 200 and s.post(path, {**body, key: -2})[0] == 400, f"{path} {key}: -1")
    for path in ("/v1/completions", "/v1/chat/completions"):
        data = s.request("POST", path, {**text, "messages": USER, "stream": True, "stream_options": {"include_usage": True}}
                         if "chat" in path else {**text, "stream": True, "stream_options": {"include_usage": True}})[2]
        e = events(data)
        C.ok(all("usage" not in x for x in e[:-1]) and e[-1]["usage"]["completion_tokens"] == 2, e)
    n = [s.post("/v1/messages/count_tokens", {"messages": USER, **x})[1]["input_tokens"] for x in
         ({}, {"system": ""}, {"system": []}, {"system": [{"type": "text", "text": ""}]}, {"system": None}, {"system": "s"})]
    C.ok(len(set(n[:5])) == 1 and n[5] > n[0], f"an empty system message is none: {n}")
    n = [s.post("/v1/responses/input_tokens", {"input": "q", **x})[1]["input_tokens"] for x in ({}, {"instructions": ""}, {"instructions": None}, {"instructions": "s"})]
    C.ok(n[0] == n[1] == n[2] < n[3], f"empty instructions are none: {n}")
    call = [*USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]
    for content in (None, "", [], [{"type": "text", "text": ""}]):
        result = {"type": "tool_result", "tool_use_id": "t", "content": content}
        C.ok(s.post("/v1/messages", {"max_tokens": 1, "messages": [*call, {"role": "user", "content": [result]}]})[0] == 200, f"tool_result: {content}")
    C.ok(s.post("/v1/messages", {"max_tokens": 1, "messages": [*call, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]})[0] == 200, "none")
    C.ok(usage["prompt_tokens"] > 0, usage)
    r = s.post("/v1/responses", {"input": "q", "max_output_tokens": 2})[1]
    C.ok(r["usage"]["input_tokens_details"]["cache_write_tokens"] == 0, r["usage"])


def check_texts():
    """As many texts as OpenAI's clients send at once, through a queue that holds few."""
    with Server(BUILD, "-c", "256", "-np", "4", "--max-queue", "5", model=TINY) as s:
        words = [f"w{i} x" for i in range(2049)]
        st, r = s.post("/v1/embeddings", {"input": words[:2048]})
        C.ok(st == 200 and [d["index"] for d in r["data"]] == list(range(2048)), (st, r.get("error")))
        for i in (0, 1, 63, 64, 65, 1023, 2047):
            one = s.post("/v1/embeddings", {"input": words[i]})[1]["data"][0]["embedding"]
            C.ok(max(abs(a - b) for a, b in zip(one, r["data"][i]["embedding"])) < 1e-5, f"text {i} as alone")
        st, r = s.post("/v1/embeddings", {"input": words})
        C.ok(st == 400 and r["error"]["param"] == "input" and "2048" in r["error"]["message"], r)
        st, r = s.post("/v1/embeddings", {"input": [[5, 6]] * 300, "encoding_format": "base64"})
        C.ok(st == 200 and len({d["embedding"] for d in r["data"]}) == 1 and r["usage"]["prompt_tokens"] == 600, r.get("error"))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:      # beside each other; one place of the queue is enough for each
            got = list(pool.map(lambda i: s.post("/v1/embeddings", {"input": words[i:i + 200]})[0], range(4)))
        C.ok(200 in got and set(got) <= {200, 429}, got)
        k = s.open("/v1/embeddings", {"input": words[:2048]})       # a client that leaves
        time.sleep(0.05)
        k.close()
        C.ok(s.idle(20), "nothing of it runs on")
        C.ok(s.post("/v1/embeddings", {"input": "a"})[0] == 200, "and the next one is answered")


def check_pool():
    """max_tokens is a bound: of a pool smaller than the context too."""
    with Server(BUILD, "-c", "1024", "-np", "2", "--kv-pool-size", "700000", model=TINY) as s:
        body = {"prompt": [5] * 90, "temperature": 0, "ignore_eos": True}
        most = s.post("/v1/completions", body)[1]["usage"]["completion_tokens"]
        C.ok(10 < most < 900, f"the pool ends after {most} tokens")
        for n in (1, most - 1, most, most + 1, 2000, 32000, 1 << 30):
            st, r = s.post("/v1/completions", {**body, "max_tokens": n})
            C.ok(st == 200 and r["usage"]["completion_tokens"] == min(n, most) and r["choices"][0]["finish_reason"] == "length", (n, r))


# ---- what a process is started with ----

def run(args, closed=(), limits=None, **kw):
    def prepare():
        for fd in closed:
            os.close(fd)
        for k, n in (limits or {}).items():
            resource.setrlimit(k, (n, n))
    return subprocess.run([KVANT, *args], preexec_fn=prepare, timeout=120 * SLOW, check=False, **kw)


def check_descriptors(folder):
    """A file that is opened may get no number of the standard ones: what a program prints would go into it.  A report that a closed standard
    output loses is an error; the file is whole."""
    plain = os.path.join(folder, "plain.gguf")
    run(["quantize", TINY, plain, "q8_0"], capture_output=True)
    with open(plain, "rb") as f:
        want = f.read()
    for closed in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        path = os.path.join(folder, f"closed{len(closed)}{closed[0]}{closed[-1]}.gguf")
        r = run(["quantize", TINY, path, "q8_0"], closed=closed, capture_output=True)
        with open(path, "rb") as f:
            C.ok(r.returncode == (1 in closed) and f.read() == want, f"descriptors {closed} closed: exit code {r.returncode}")
    with open(TINY, "rb") as f:
        before = f.read()
    for args in (["inspect", TINY], ["plan", TINY, "--no-such-option"], ["run", "-m", TINY, "-p", "a", "-n", "2"]):
        run(args, closed=(0, 1, 2), capture_output=True)
    with open(TINY, "rb") as f:
        C.ok(f.read() == before, "the file that was read")


def check_full(folder):
    if os.path.exists("/dev/full"):
        for args in (["inspect", "--formats"], ["inspect", DEMO], ["plan", DEMO], ["--options-md"], ["--man"], ["--version"], ["--help"]):
            with open("/dev/full", "w", encoding="ascii") as f:
                r = run(args, stdout=f, stderr=subprocess.PIPE, text=True)
            C.ok(r.returncode != 0 and "No space left on device" in r.stderr, (args, r.returncode, r.stderr))
    for limit in (0, 1000, 20000):
        path = os.path.join(folder, f"limit{limit}.gguf")
        r = run(["quantize", TINY, path, "q8_0"], limits={resource.RLIMIT_FSIZE: limit}, capture_output=True, text=True)
        C.ok(r.returncode == 1 and "File too large" in r.stderr and not os.path.exists(path), (limit, r.returncode, r.stderr))
    with Server(BUILD, "-c", "512", "-np", "2", "--slot-save-path", folder, model=TINY, limits={resource.RLIMIT_FSIZE: 5000}) as s:
        s.post("/completion", {"prompt": [5] * 150, "n_predict": 5, "id_slot": 0})
        for path in ("/slots/0?action=save", "/cache?action=save"):
            st, r = s.post(path, {"filename": "y"})
            C.ok(st >= 400 and "File too large" in r["error"]["message"], (path, st, r))
        C.ok(s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200, "it lives")


def check_ready():
    for _ in range(8):
        with Server(BUILD, "-c", "256", model=TINY) as s:
            C.ok(s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200, "ready is ready")


def main():
    if not built(BUILD):
        print("SKIP check_serve_requests: this build has no server")
        return C.end()
    with Server(BUILD, "-c", "2048", "-np", "2") as s:
        for check in (check_targets, check_hosts, check_methods, check_errors, check_lists, check_small_things):
            check(s)
    check_keys()
    check_pool()
    check_texts()
    check_ready()
    with tempfile.TemporaryDirectory() as folder:
        check_descriptors(folder)
        check_full(folder)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
