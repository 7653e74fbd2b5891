#!/usr/bin/env python3
"""check_serve_http: kvant serve over sockets: OpenAI's shapes, framing, errors, hostile HTTP, keys, clients that leave, drain.
Ids in the texts are those of the reliability tests."""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import DEMO, ROOT, SLOW, Checks, Server, built, events, read_all, unchunk    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_http")
CHAT = [{"role": "user", "content": "Tell me about the sea."}]


# ---- shapes ----

def check_completion(s):
    status, r = s.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0})
    C.ok(status == 200 and r["object"] == "text_completion" and r["id"].startswith("cmpl-"), r)
    c = r["choices"][0]
    C.ok(set(c) == {"index", "text", "logprobs", "finish_reason"} and c["finish_reason"] == "length" and c["logprobs"] is None, c)
    u = r["usage"]
    C.ok(u["completion_tokens"] == 12 and u["total_tokens"] == u["prompt_tokens"] + 12 and "cached_tokens" in u["prompt_tokens_details"], u)
    C.ok(r["created"] > 1.7e9 and r["model"] == "novella-hybrid-q8_0", r)
    text = c["text"]
    status, r = s.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "echo": True})
    C.ok(r["choices"][0]["text"] == "Once upon a time" + text, r["choices"][0]["text"])
    word = text.split()[2]
    status, r = s.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "stop": [word]})
    C.ok(r["choices"][0]["text"] == text[:text.index(word)] and r["choices"][0]["finish_reason"] == "stop", r["choices"][0])
    status, r = s.post("/v1/completions", {"prompt": ["Once upon", "The river"], "n": 2, "max_tokens": 4, "seed": 3})
    C.ok([c["index"] for c in r["choices"]] == [0, 1, 2, 3] and r["usage"]["completion_tokens"] == 16, r)
    C.ok(r["choices"][0]["text"] != r["choices"][1]["text"], "two choices of one prompt differ by their seeds")
    again = s.post("/v1/completions", {"prompt": ["Once upon", "The river"], "n": 2, "max_tokens": 4, "seed": 3})[1]
    C.ok([c["text"] for c in again["choices"]] == [c["text"] for c in r["choices"]], "the same seed gives the same text")
    status, r = s.post("/v1/completions", {"prompt": "Once", "max_tokens": 3, "logprobs": 2, "temperature": 0})
    lp = r["choices"][0]["logprobs"]
    C.ok(len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == len(lp["text_offset"]) == 3, lp)
    C.ok("".join(lp["tokens"]) == r["choices"][0]["text"] and lp["text_offset"][0] == 0, lp)
    C.ok(all(max(t.values()) == lp["token_logprobs"][i] for i, t in enumerate(lp["top_logprobs"])), "greedy is the likeliest")
    status, r = s.post("/v1/completions", {"prompt": "a", "max_tokens": 8, "logit_bias": {"7": 100}, "temperature": 0})
    ids = s.post("/tokenize", {"content": r["choices"][0]["text"]})[1]["tokens"]
    C.ok(status == 200 and len(set(ids)) <= 2, f"bias 100 wins every time: {ids}")


def check_chat(s):
    status, r = s.post("/v1/chat/completions", {"messages": CHAT, "max_completion_tokens": 6, "temperature": 0, "logprobs": True, "top_logprobs": 3})
    m = r["choices"][0]["message"]
    C.ok(status == 200 and r["object"] == "chat.completion" and r["id"].startswith("chatcmpl-"), r)
    C.ok(m["role"] == "assistant" and isinstance(m["content"], str) and m["refusal"] is None, m)
    lp = r["choices"][0]["logprobs"]["content"]
    C.ok(len(lp) == 6 and all(len(x["top_logprobs"]) == 3 and bytes(x["bytes"]) for x in lp), lp)
    C.ok(b"".join(bytes(x["bytes"]) for x in lp).decode(errors="replace") == m["content"], "bytes are the text")


def check_stream(s):
    body = {"messages": CHAT, "max_tokens": 8, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    status, headers, data = s.request("POST", "/v1/chat/completions", body)
    C.ok(status == 200 and headers["content-type"] == "text/event-stream" and headers["x-accel-buffering"] == "no", headers)
    C.ok(data.endswith(b"data: [DONE]\n\n") and all(x.startswith((b"data: ", b": ping")) for x in data.strip().split(b"\n\n")), data[-100:])
    e = events(data)
    C.ok(len({x["id"] for x in e}) == 1 and len({x["created"] for x in e}) == 1 and all(x["object"] == "chat.completion.chunk" for x in e), "ids")
    C.ok(e[0]["choices"][0]["delta"]["role"] == "assistant" and all("role" not in x["choices"][0]["delta"] for x in e[1:-1]), "role first")
    C.ok(e[-2]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}, e[-2])
    C.ok(e[-1]["choices"] == [] and e[-1]["usage"]["completion_tokens"] == 8 and all("usage" not in x for x in e[:-1]), e[-1])
    whole = s.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 8, "temperature": 0})[1]
    text = "".join(x["choices"][0]["delta"].get("content") or "" for x in e[:-1])
    C.ok(text == whole["choices"][0]["message"]["content"], f"{text!r}: streamed and whole are one text")
    _, _, data = s.request("POST", "/v1/completions", {"prompt": "x", "n": 3, "max_tokens": 4, "stream": True})
    e = events(data)
    C.ok({x["choices"][0]["index"] for x in e} == {0, 1, 2} and sum(x["choices"][0]["finish_reason"] is not None for x in e) == 3, "n=3")
    C.ok(all("usage" not in x for x in e), "no usage unless asked for")


def check_grammar(s):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 99}, "b": {"enum": ["x", "y"]}},
              "required": ["a", "b"], "additionalProperties": False}
    for seed in range(4):
        body = {"prompt": "Data:", "max_tokens": 80, "seed": seed, "temperature": 1.5,
                "response_format": {"type": "json_schema", "json_schema": {"name": "t", "strict": True, "schema": schema}}}
        r = s.post("/v1/completions", body)[1]["choices"][0]
        v = json.loads(r["text"]) if r["finish_reason"] == "stop" else {"a": 1, "b": "x"}
        C.ok(set(v) == {"a", "b"} and 1 <= v["a"] <= 99 and v["b"] in "xy", r)
    r = s.post("/v1/completions", {"prompt": "Answer:", "max_tokens": 8, "grammar": 'root ::= " yes" | " no"'})[1]["choices"][0]
    C.ok(r["text"] in (" yes", " no") and r["finish_reason"] == "stop", r)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:       # no more than the queue takes
        body = {"prompt": "Answer:", "max_tokens": 8, "grammar": 'root ::= [a-c]{3}', "temperature": 1}
        out = list(pool.map(lambda i: s.post("/v1/completions", dict(body, seed=i))[1]["choices"][0]["text"], range(8)))
    C.ok(all(re.fullmatch("[a-c]{3}", x) for x in out), out)
    status, r = s.post("/v1/completions", {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}})
    C.ok(status == 400 and "#/not" in r["error"]["message"] and r["error"]["param"] == "response_format", r)


def check_other_routes(s):
    r = s.get("/v1/models")[1]
    C.ok(r["data"][0]["id"] == "novella-hybrid-q8_0" and r["data"][0]["object"] == "model", r)
    t = s.post("/tokenize", {"content": "Hello wörld 🙂"})[1]["tokens"]
    C.ok(s.post("/detokenize", {"tokens": t})[1]["content"] == "Hello wörld 🙂", t)
    C.ok(s.post("/detokenize", {"tokens": t})[1]["prompt"] == "Hello wörld 🙂", "vLLM's name of the text")
    info = s.get("/tokenizer_info")[1]
    C.ok(info["eos_token"].startswith("<|") and "{%" in info["chat_template"] and "bos_token" in info and info["model_max_length"] > 0, info)
    props = s.get("/props")[1]
    C.ok(all(props[k] == info[k] for k in ("bos_token", "eos_token", "chat_template")), "/props has the same")
    C.ok(s.post("/tokenize", {"prompt": "Hello wörld 🙂", "add_special_tokens": False})[1]["tokens"] == t, "vLLM's name of a text")
    C.ok(s.post("/tokenize", {"prompt": 3})[1]["error"]["param"] == "prompt" and s.post("/tokenize", {})[1]["error"]["param"] == "content", "its name in an error")
    C.ok(s.post("/tokenize", {"content": "a b", "with_pieces": True})[1]["tokens"][0]["piece"] == "a", "pieces")
    C.ok("sea" in s.post("/apply-template", {"messages": CHAT})[1]["prompt"], "template")
    r = s.post("/v1/embeddings", {"input": ["a cat", "a dog"]})[1]
    v = [d["embedding"] for d in r["data"]]
    C.ok(len(v) == 2 and len(v[0]) == 384 and abs(sum(x * x for x in v[0]) - 1) < 1e-4 and v[0] != v[1], "embeddings of unit length")
    C.ok(r["usage"]["prompt_tokens"] > 0 and r["data"][1]["index"] == 1, r["usage"])
    p = s.get("/props")[1]
    C.ok(p["type_k"] == "f16" and p["kv_bytes_per_token"] > 0 and p["n_ctx"] == 2048, p)
    C.ok(len(s.get("/slots")[1]) == 4 and s.get("/version")[0] == 200 and s.get("/ready")[0] == 200, "slots, version, ready")
    trace = json.loads(s.request("GET", "/debug/trace")[2])["traceEvents"]
    C.ok(any(e["ph"] == "X" and "decode" in e["args"] for e in trace), "trace")
    st = s.stats()
    C.ok(st["pages"]["total"] > 0 and st["max_seqs"] == 4 and st["slots"] == [], st)
    text = s.request("GET", "/metrics")[2].decode()
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        C.ok(re.search(rf"^kvant:{name}_count\{{.*\}} [1-9]", text, re.M) and f"vllm:{name}_bucket" in text, name)
    check_models(s)
    C.ok(s.request("GET", "/nowhere")[0] == 404 and s.request("DELETE", "/health")[0] == 405, "404 and 405")
    kinds, size = {"html": "text/html", "js": "text/javascript", "css": "text/css"}, 0
    for name in os.listdir(os.path.join(ROOT, "src", "server", "ui")):
        status, headers, data = s.request("GET", "/" + name)
        size += len(data)
        C.ok(status == 200 and headers["content-type"].startswith(kinds[name.split(".")[1]]) and not re.search(rb"https?://(?!www\.w3)", data), name)
    C.ok(s.request("GET", "/")[2] == s.request("GET", "/index.html")[2] and size < 120000, f"the page has {size} bytes")


def check_models(s):
    one = s.get("/v1/models")[1]["data"][0]
    for path in (f"/v1/models/{one['id']}", f"/models/{one['id']}", f"/v1/models/{one['id'].replace('-', '%2D')}"):
        C.ok(s.get(path) == (200, one), path)
    for name in ("other", one["id"] + "x", one["id"][:-1], "%00", "x" * 2000):
        status, r = s.get(f"/v1/models/{name}")
        C.ok(status == 404 and one["id"] in r["error"]["message"] and r["error"]["param"] == "model", (name[:40], r))
    C.ok('"other"' in s.get("/v1/models/other")[1]["error"]["message"] and s.request("GET", "/v1/models/")[0] == 404, "names")
    C.ok(s.request("POST", f"/v1/models/{one['id']}", {})[0] == 405, "method")


def check_nothing(s):
    """max_tokens 0: the prompt is read and cached, nothing is written."""
    body = {"prompt": "The keeper of the lighthouse wrote " * 12, "max_tokens": 0}
    r = s.post("/v1/completions", body)[1]
    C.ok(r["choices"][0]["text"] == "" and r["choices"][0]["finish_reason"] == "length" and r["usage"]["completion_tokens"] == 0, r)
    C.ok(s.post("/v1/completions", {**body, "echo": True})[1]["choices"][0]["text"] == body["prompt"], "echo")
    data = s.request("POST", "/v1/completions", {**body, "stream": True})[2]
    C.ok(data.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in data, data)
    usage = s.post("/v1/completions", {**body, "max_tokens": 1})[1]["usage"]
    C.ok(usage["completion_tokens"] == 1 and usage["prompt_tokens_details"]["cached_tokens"] > 0, usage)
    status, r = s.post("/v1/chat/completions", {"messages": CHAT, "max_completion_tokens": 0, "response_format": {"type": "json_object"}})
    C.ok(status == 200 and r["choices"][0]["message"]["content"] == "" and r["choices"][0]["finish_reason"] == "length", r)


def check_errors(s):
    cases = [("/v1/completions", {}, 400, "invalid_request_error", "prompt"),
             ("/v1/completions", {"prompt": "a b " * 3000}, 400, "exceed_context_size_error", "prompt"),
             ("/v1/chat/completions", {"messages": CHAT, "tools": [{"type": "function"}]}, 400, "invalid_request_error", "tools"),
             ("/v1/embeddings", {"input": []}, 400, "invalid_request_error", "input"),
             ("/slots/99?action=save", {"filename": "x"}, 400, "invalid_request_error", None),
             ("/slots/0?action=dance", {}, 400, "invalid_request_error", None)]
    for path, body, want, kind, param in cases:
        status, r = s.post(path, body)
        e = r["error"]
        C.ok(status == want and e["type"] == kind and e["code"] == want and (param is None or e["param"] == param), (path, status, e))
        C.ok(not re.search(r"0x[0-9a-f]{6,}|/work|\.c:\d", json.dumps(e)), f"H-12: {e}")


# ---- hostile HTTP ----

def status_of(data):
    m = re.match(rb"HTTP/1\.1 (\d+)", data)
    return int(m.group(1)) if m else 0


def check_framing(s):
    body = b'{"prompt":"a","max_tokens":1}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    n = str(len(body)).encode()
    cases = {   # H-05: what could be read in two ways is refused
        b"Content-Length: " + n + b"\r\nTransfer-Encoding: chunked": 400, b"Content-Length: " + n + b"\r\nContent-Length: 5": 400,
        b"Content-Length: +5": 400, b"Content-Length: 5,5": 400, b"Content-Length: 0x1d": 400, b"Content-Length: -1": 400,
        b"Transfer-Encoding: gzip, chunked": 400, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked": 400,
        b"Transfer-Encoding: xchunked": 400, b"Content-Length: 99999999999999999999": 400, b"Content-Length: 2147483648": 413,
        b"Content-Length: 9223372036854775807": 413, b"Content-Length: " + n + b"\r\nContent-Encoding: gzip": 415,
    }
    for header, want in cases.items():
        got = status_of(s.raw(head + header + b"\r\n\r\n" + body, 2))
        C.ok(got in (want, 0) or (want == 400 and 400 <= got < 500), f"H-05 {header}: {got}")
    good = s.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), 10)
    C.ok(status_of(good) == 200, f"chunked body: {good[:80]}")
    for size in (b"-5", b"+5", b"zz", b"FFFFFFFFFFFFFFFFF", b" 1d"):
        got = status_of(s.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + body + b"\r\n0\r\n\r\n", 2))
        C.ok(got != 200, f"H-05 chunk size {size}: {got}")
    smuggled = s.raw(head + b"Content-Length: " + n + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 2)
    C.ok(smuggled.count(b"HTTP/1.1") <= 1, f"H-05 smuggled request answered: {smuggled[:200]}")


def check_heads(s):
    before = s.memory_kb()
    big = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    cases = {"1 MB header": big + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n", "1 MB URI": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
             "10,000 headers": big + b"".join(b"X%d: y\r\n" % i for i in range(10000)) + b"\r\n",
             "no Host": b"GET /health HTTP/1.1\r\n\r\n", "NUL": b"GET /hea\0lth HTTP/1.1\r\nHost: localhost\r\n\r\n",
             "bare LF header": b"GET /v1/models HTTP/1.1\nHost: evil.example\n\n", "obs-fold": big + b"X: a\r\n b\r\n\r\n",
             "TRACE": b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", "CONNECT": b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
             "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
             "garbage": b"\xff" * 200 + b"\r\n\r\n"}
    for name, data in cases.items():
        got = status_of(s.raw(data, 1))
        C.ok(got == 0 or got >= 400, f"H-03 {name}: {got}")
    C.ok(s.memory_kb() - before < 4096, f"H-03 memory grew by {s.memory_kb() - before} kB")
    C.ok(s.request("GET", "/health")[0] == 200, "H-03 alive")
    C.ok(status_of(s.raw(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 2)) == 400, "A-04 another site's name")
    C.ok(status_of(s.raw(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", 2)) == 200, "A-04 own address")
    for host, want in ((b"localhost", 200), (b"LOCALHOST:80", 200), (b"a.localhost", 200), (b"localhosx", 400), (b"locaevil.", 400), (b"locaxxxxx", 400),
                       (b"xxxxlhost", 400), (b"localhost.evil", 400), (b"evil-localhost", 400), (b"host.docker.internax", 400),
                       (b"host.dockerxevil.com", 400), (b"a.locaevil", 400), (b"127.0.0.1.evil.com", 400), (b"127.0.0", 400)):
        got = status_of(s.raw(b"GET /health HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n", 2))
        C.ok(got == want, f"A-04 {host}: {got}")


def check_bodies(s):
    for path in ("/v1//completions", "/v1/completions/", "/V1/completions", "/v1/completion%73", "/./v1/models", "//v1/models"):
        C.ok(s.request("POST", path, {"prompt": "a"})[0] == 404, f"A-02 {path}")
    C.ok(s.request("POST", "/v1/completions", b"{}", headers={"Content-Type": "text/plain"})[0] == 415, "H-06 type")
    over = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 70000\r\n\r\n" + b" " * 70000, 3)
    C.ok(status_of(over) == 413, f"H-04 max + 1: {over[:60]}")
    with s.connect() as k:      # a chunked body without end: cut, and nothing is kept
        k.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent, before = 0, s.memory_kb()
        try:
            while sent < 64 << 20:
                k.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
                sent += 65536
        except OSError:
            pass
        C.ok(sent < 32 << 20 and s.memory_kb() - before < 4096, f"H-04 endless chunks: {sent} bytes taken")
    pipelined = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
    with s.connect() as k:
        k.sendall(pipelined)
        data = b""
        k.settimeout(5 * SLOW)
        while data.count(b"HTTP/1.1 200") < 50:
            more = k.recv(65536)
            if not more:
                break
            data += more
        C.ok(data.count(b'{"status":"ok"}') == 50, f"H-07 pipelined: {data.count(b'HTTP/1.1 200')} of 50 answered")
    body = b'{"prompt":"ab","max_tokens":1,"temperature":0}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    whole, texts = head + body, set()
    for cut in range(1, len(whole), 9):     # H-08
        with s.connect() as k:
            k.sendall(whole[:cut])
            time.sleep(0.002)
            k.sendall(whole[cut:])
            data = read_all(k)
        texts.add(json.loads(data.partition(b"\r\n\r\n")[2])["choices"][0]["text"])
    C.ok(len(texts) == 1, f"H-08 cut requests: {texts}")
    expect = head.replace(b"Connection: close\r\n", b"Expect: 100-continue\r\nConnection: close\r\n")
    with s.connect() as k:
        k.sendall(expect)
        time.sleep(0.1)
        k.sendall(body)
        C.ok(b"200 OK" in read_all(k), "H-07 Expect")


# ---- clients that leave ----

def check_gone(s):
    s.idle()
    before = s.metric("clients_gone_total")
    for i in range(6):
        k = s.open("/v1/completions", {"prompt": "The sea", "max_tokens": 1500, "stream": True, "ignore_eos": True})
        got = b""
        while got.count(b"data:") < i:
            got += k.recv(4096)
        k.close()
        t0 = time.time()
        while s.metric("num_requests_running") and time.time() - t0 < 5 * SLOW:
            time.sleep(0.01)
        C.ok(time.time() - t0 < 1.0 * SLOW, f"H-13 client left at event {i}: {time.time() - t0:.2f} s until it was cancelled")
    k = s.open("/v1/completions", {"prompt": "The sea", "max_tokens": 1500, "ignore_eos": True})       # not a stream
    while not s.metric("num_requests_running"):
        time.sleep(0.01)
    k.close()
    C.ok(s.idle(3), "H-13 whole response: cancelled")
    C.ok(s.metric("clients_gone_total") - before == 7, f"H-13 counted: {s.metric('clients_gone_total') - before}")
    C.ok(s.metric("kv_pages_free") + s.metric("kv_pages_cached") == s.metric("kv_pages"), "H-13 pages are back")


def check_overload(s):
    """More than fits: the queue takes 6, the rest gets 429 at once; those inside finish."""
    body = {"prompt": "The sea", "max_tokens": 60, "ignore_eos": True}

    def one(_):
        t0 = time.time()
        status, headers, _ = s.request("POST", "/v1/completions", body)
        return status, time.time() - t0, headers.get("retry-after")
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        out = list(pool.map(one, range(40)))
    good, refused = [x for x in out if x[0] == 200], [x for x in out if x[0] == 429]
    C.ok(len(good) + len(refused) == 40 and len(good) >= 6 and len(refused) >= 20, f"S-08 {len(good)} done, {len(refused)} refused")
    C.ok(all(x[2] == "1" for x in refused), "S-08 Retry-After")
    C.ok(s.idle() and s.metric("requests_rejected_total") == len(refused), "S-08 counted, and nothing is left")


def check_ping():
    """Comment lines while a request waits behind another: ten seconds where 3,000 tokens take one.  That is no stream: one that nobody
    reads would be paused, and the next would take its place."""
    with Server(BUILD, "-c", "32768", "-np", "1", "--sse-ping-interval", "1") as s:
        hold = s.open("/v1/completions", {"prompt": "x", "max_tokens": 32000, "ignore_eos": True})
        time.sleep(0.3)
        with s.open("/v1/completions", {"prompt": "x", "max_tokens": 1, "stream": True}) as k:
            k.settimeout(15 * SLOW)
            got = b""
            t0 = time.time()
            while b": ping\n\n" not in got and b"data:" not in got and time.time() - t0 < 10 * SLOW:
                got += k.recv(4096)
            C.ok(b": ping\n\n" in got, f"keep-alive comment: {got[-100:]}")
        hold.close()
        C.ok(s.idle(), "left")


def slow_reader(s, body):
    """A stream whose client takes nothing: its receive buffer is as small as it can be."""
    k = socket.socket()
    k.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    k.settimeout(60 * SLOW)
    k.connect(("127.0.0.1", s.port))
    data = json.dumps(body).encode()
    k.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(data) + data)
    return k


def check_slow_reader():
    """H-14: the request of a client that does not read stands still, alone; it goes on where the client does, or is cut."""
    body = {"messages": CHAT, "max_tokens": 900, "temperature": 0, "logprobs": True, "top_logprobs": 20, "ignore_eos": True, "stream": True}
    other = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}
    with Server(BUILD, "-c", "1024", "-np", "4", "--stream-timeout", str(int(5 * SLOW)), "-lv", "2") as s:
        alone = s.post("/v1/completions", other)[1]["choices"][0]["text"]
        k = slow_reader(s, body)
        end = time.time() + 20 * SLOW
        while not s.metric("num_requests_paused") and time.time() < end:
            time.sleep(0.02)
        made = s.metric("generation_tokens_total")
        C.ok(s.metric("num_requests_paused") == 1 and made < 900, f"H-14 paused after {made} tokens")
        C.ok(s.post("/v1/completions", other)[1]["choices"][0]["text"] == alone, "H-14 the batch goes on")
        C.ok(s.metric("generation_tokens_total") == made + 40, f"H-14 paused at {made}, then {s.metric('generation_tokens_total')}")
        C.ok(s.request("GET", "/health")[0] == 200, "H-14 healthy")
        data = read_all(k)
        k.close()
        e = events(unchunk(data))
        text = "".join(x["choices"][0]["delta"].get("content") or "" for x in e)
        C.ok(b"data: [DONE]" in data and sum("finish_reason" in x["choices"][0] for x in e) > 900, f"H-14 read to the end: {data[-80:]}")
        body.update(stream=False, logprobs=False)
        del body["top_logprobs"]
        C.ok(text == s.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"], "H-14 the text is whole")
        body.update(stream=True, logprobs=True, top_logprobs=20)
        k, t0 = slow_reader(s, body), time.time()
        while not s.metric("num_requests_running") and time.time() - t0 < 5 * SLOW:
            time.sleep(0.01)
        C.ok(s.idle(20) and 4 < time.time() - t0 < 20 * SLOW, f"H-14 cut after {time.time() - t0:.1f} s")
        C.ok(s.metric("clients_gone_total") == 1, "H-14 counted")
        C.ok(s.metric("kv_pages_free") + s.metric("kv_pages_cached") == s.metric("kv_pages"), "H-14 pages are back")
        k.close()


def check_slots(s):
    """Save, restore, erase: the same continuation; refused names and damaged files."""
    text = s.post("/v1/completions", {"prompt": "The captain of the old ship " * 20, "max_tokens": 8, "temperature": 0})[1]["choices"][0]["text"]
    status, r = s.post("/cache?action=save", {"filename": "all"})
    if status == 400 and "not supported" in r["error"]["message"]:
        print("SKIP check_serve_http: saving and restoring are not in this build")
        return
    C.ok(status == 200 and r["n_saved"] > 0 and r["n_written"] > 0, r)
    C.ok(s.post("/cache?action=clear", {})[0] == 200, "clear")
    status, r = s.post("/cache?action=restore", {"filename": "all"})
    C.ok(status == 200 and r["n_restored"] > 0, r)
    r = s.post("/v1/completions", {"prompt": "The captain of the old ship " * 20, "max_tokens": 8, "temperature": 0})[1]
    C.ok(r["choices"][0]["text"] == text and r["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64, r["usage"])
    C.ok(s.post("/cache?action=restore", {"filename": "absent"})[0] == 404, "absent file")
    for name in ("../x", "a/b", ".", "", "a" * 65, "x\0y", "ü"):
        C.ok(s.post("/cache?action=save", {"filename": name})[0] == 400, f"A-05 {name!r}")


def check_main(s):
    check_completion(s)
    check_nothing(s)
    check_chat(s)
    check_stream(s)
    check_grammar(s)
    check_other_routes(s)
    check_errors(s)


def check_hostile(s):
    check_framing(s)
    check_heads(s)
    check_bodies(s)


# ---- other servers ----

def check_keys():
    with Server(BUILD, "-c", "512", "-np", "2", "--cors-origins", "https://a.example,https://b.example",
                env={"KVANT_ARG_API_KEY": "s3cret"}) as s:
        key = {"Authorization": "Bearer s3cret"}
        source = open(os.path.join(ROOT, "src", "server", "routes", "routes.c"), encoding="utf-8").read()
        table = re.findall(r'    LOOP\("(\w+)", "([^"]+)", \w+, (.+)\),', source) + [("POST", path, "") for path in re.findall(r'    WORKER\("([^"]+)"', source)]
        C.ok(len(table) == len(re.findall(r"^    [A-Z]+\(", source, re.M)) > 50, f"routes: {len(table)}")
        public = {(method, path) for method, path, flags in table if "ROUTE_PUBLIC" in flags}
        for method, path, flags in table:       # the table itself
            path += "0?action=erase" if "ROUTE_SLOT" in flags else ""
            want_key = "ROUTE_PUBLIC" not in flags
            for m in {method, "PUT", "HEAD"}:
                status = s.request(m, path, b"{}" if m != "HEAD" else None)[0]
                free = m == "HEAD" and ("GET", path) in public      # "/": the page by GET, an answer by POST
                C.ok((status == 401) == (want_key and not free or m == "PUT"), f"A-02 {m} {path}: {status}")
            if want_key:
                C.ok(s.request(method, path, b"{}", headers={"Authorization": "Bearer s3creT"})[0] == 401, f"A-02 wrong key {path}")
        C.ok(s.request("GET", "/v1/models", headers=key)[0] == 200, "right key")
        C.ok(s.request("GET", "/v1/models", headers={"X-Api-Key": "s3cret"})[0] == 200, "right key, other header")
        big = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        C.ok(status_of(s.raw(big, 2)) == 401, "A-02 refused before the body")
        _, h, _ = s.request("GET", "/health", headers={"Origin": "https://b.example"})
        C.ok(h.get("access-control-allow-origin") == "https://b.example", h)
        _, h, _ = s.request("GET", "/health", headers={"Origin": "https://evil.example"})
        C.ok("access-control-allow-origin" not in h, "A-04 foreign origin")
        C.ok(s.request("OPTIONS", "/v1/completions", headers={"Origin": "https://a.example"})[0] == 200, "preflight")
        C.ok(not any("s3cret" in line for line in s.lines), "A-03 the key is in no message")


def check_end_of_input():
    """--end-with-stdin: bytes there mean nothing, its end is SIGTERM's; a standard input that never ends is told at the start."""
    s = Server(BUILD, "-c", "4096", "-np", "2", "--end-with-stdin", stdin=subprocess.PIPE)
    s.process.stdin.write("x" * 9000)
    s.process.stdin.flush()
    k = s.open("/v1/completions", {"prompt": "The sea", "max_tokens": 1000, "stream": True, "ignore_eos": True})
    k.recv(10)
    C.ok(s.process.poll() is None and s.get("/health")[0] == 200, "it runs")
    s.process.stdin.close()
    data = unchunk(b"HTTP/1.1 200 OK\r\n" + read_all(k))
    C.ok(data.endswith(b"data: [DONE]\n\n") and s.wait() == 0, f"the running stream ends, then the server: {data[-80:]}")
    r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "serve", "-m", DEMO, "--port", "0", "--end-with-stdin"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, check=False, timeout=60 * SLOW)
    C.ok(r.returncode not in (0, -11) and "no pipe" in r.stderr, (r.returncode, r.stderr))


def check_drain():
    s = Server(BUILD, "-c", "16384", "-np", "2", "--drain-seconds", "300")     # 3,000 tokens take a second and more
    k = s.open("/v1/completions", {"prompt": "The sea", "max_tokens": 3000, "stream": True, "ignore_eos": True})
    k.recv(10)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    status, r = s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    C.ok(status == 503 and r["error"]["type"] == "unavailable_error", f"A-07 while draining: {status}")
    C.ok(s.request("GET", "/ready")[0] == 503 and s.request("GET", "/health")[0] == 200, "A-07 ready and health")
    data = unchunk(b"HTTP/1.1 200 OK\r\n" + read_all(k))
    C.ok(data.endswith(b"data: [DONE]\n\n"), f"A-07 the running stream ends: {data[-80:]}")
    C.ok(s.wait() == 0, "A-07 exit code 0")
    s = Server(BUILD, "-c", "16384", "-np", "2", "--drain-seconds", "1")       # the deadline cuts, with one terminal event
    k = s.open("/v1/completions", {"prompt": "The sea", "max_tokens": 16000, "stream": True, "ignore_eos": True})
    k.recv(10)
    t0 = time.time()
    s.process.send_signal(signal.SIGTERM)
    data = unchunk(b"HTTP/1.1 200 OK\r\n" + read_all(k))
    last = (events(data) or [{}])[-1]
    C.ok(last.get("error", {}).get("type") == "unavailable_error" and b"[DONE]" not in data,
         f"A-07 {time.time() - t0:.1f} s after the signal: {data[-200:]} {s.lines[-3:]}")
    code = s.wait()
    C.ok(code == 0 and time.time() - t0 < 4 * SLOW, f"A-07 cut after {time.time() - t0:.1f} s, exit code {code}")
    s = Server(BUILD, "-c", "16384", "-np", "2")
    k = s.open("/v1/completions", {"prompt": "The sea", "max_tokens": 16000, "stream": True, "ignore_eos": True})
    k.recv(10)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    C.ok(s.stop() == 143, "A-07 second signal")


def check_engine_lost():
    """D-04: the model's file is cut while it is in use, as good as a lost device: whoever is served gets an error once, then the
    program ends with a code that a supervisor acts on."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        shutil.copy(DEMO, path)
        with Server(BUILD, "-c", "4096", "-np", "4", model=path) as s:
            streams = [s.open("/v1/completions", {"prompt": f"The sea {i}", "max_tokens": 4000, "stream": True, "ignore_eos": True}) for i in range(3)]
            for k in streams:
                k.recv(1000)
            os.truncate(path, 4096)
            t0 = time.time()
            for k in streams:
                data = read_all(k)
                C.ok(data.count(b'"error"') == 1 and b"[DONE]" not in data, f"D-04 one error: {data[-200:]}")
            try:
                code = s.process.wait(10 * SLOW)
            except Exception:       # pylint: disable=broad-except
                code = None
            C.ok(code == 1 and time.time() - t0 < 6 * SLOW, f"D-04 exit code {code} after {time.time() - t0:.1f} s: {s.lines[-2:]}")


def check_last_bytes():
    """D-04: whoever is slow has 0.7 s to take all that was for him, and the error, although a request that comes in meanwhile wakes the server."""
    body = {"messages": CHAT, "max_tokens": 900, "logprobs": True, "top_logprobs": 20, "ignore_eos": True, "stream": True}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        shutil.copy(DEMO, path)
        with Server(BUILD, "-c", "4096", "-np", "4", model=path) as s, s.connect() as late:
            slow = slow_reader(s, body)
            while not s.metric("num_requests_paused"):
                time.sleep(0.02)
            late.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{")
            other = s.open("/v1/completions", {"prompt": "The sea", "max_tokens": 4000, "stream": True, "ignore_eos": True})
            other.recv(1000)
            os.truncate(path, 4096)
            while s.process.poll() is None and not any("shutting down:" in x for x in s.lines):
                time.sleep(0.005)
            t0 = time.time()
            late.sendall(b"\"prompt\":\"a\"}")
            C.ok(b" 503 " in late.recv(100), "D-04 the late one")
            time.sleep(0.1)
            data = read_all(slow)
            C.ok((data.count(b'"error"') == 1 and data.endswith(b"0\r\n\r\n")) or time.time() - t0 > 0.6, f"D-04 the slow one's last bytes: {data[-200:]}")
            C.ok(s.wait() == 1, "D-04 exit code")


def check_start():
    """A-10: a wrong configuration ends at once, with code 2 and a sentence."""
    import subprocess
    cases = [(["--port", "70000"], 2, "--port"), (["--host", "0.0.0.0"], 2, "needs --api-key"), (["--api-key", "a b"], 2, "API key"),
             (["--grammar", "x"], 2, "brings its own"), (["-np", "0"], 2, "found 0"), (["--ssl-key-file", "x"], 2, "proxy"), (["--nonsense"], 2, "nonsense"),
             (["--api-prefix", "llm"], 2, "--api-prefix"), (["-m", "/nonexistent/x.gguf"], 3, "error: /nonexistent/x.gguf: no such file"),
             (["--cors-credentials"], 2, "--cors-credentials: it wants --cors-origins"), (["--cors-headers", "x"], 2, "--cors-headers: it wants --cors-origins"),
             (["--cors-methods", "GET"], 2, "--cors-methods: it wants --cors-origins"), (["--cors-origins", "*", "--cors-headers", "x;y"], 2, 'found "x;y", wanted names'),
             (["--cors-origins", "*", "--cors-methods", "GET\r\nX: y"], 2, "--cors-methods: found"), (["--kv-store-size", "1G"], 2, "it wants --kv-store"),
             (["--api-key-file", "/nonexistent"], 3, "nonexistent"), (["--kv-pool-size", "1"], 2, "--kv-pool-size"),
             (["--kv-pool-size", "1000000", "-ctk", "tbq4_0"], 2, "exact tail")]
    for args, code, part in cases:
        model = [] if "-m" in args else ["-m", DEMO]
        r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "serve", "--port", "0", *model, *args], capture_output=True, text=True,
                           timeout=30 * SLOW, check=False)
        C.ok(r.returncode == code and part in r.stderr, f"A-10 {args}: {r.returncode} {r.stderr[-200:]}")


def main():
    if not built(BUILD):
        print("SKIP check_serve_http: this build has no server")
        return C.end()
    with tempfile.TemporaryDirectory() as folder:
        check_ping()
        with Server(BUILD, "-c", "2048", "-np", "4", "--max-queue", "6", "--metrics-compat", "vllm",
                    "--slot-save-path", folder, "--max-body", "65536", "-lv", "2") as s:
            fds = s.fds()
            check_main(s)
            check_hostile(s)
            check_gone(s)
            check_overload(s)
            check_slots(s)
            time.sleep(0.5)
            C.ok(s.fds() - fds <= 3, f"descriptors: {fds} before, {s.fds()} after")
            code = s.stop()
            C.ok(code == 0, f"exit code {code}: {s.lines[-3:]}")
    check_slow_reader()
    check_keys()
    check_end_of_input()
    check_drain()
    check_engine_lost()
    check_last_bytes()
    check_start()
    return C.end()


if __name__ == "__main__":
    threading.excepthook = lambda args: sys.__excepthook__(args.exc_type, args.exc_value, args.exc_traceback)
    sys.exit(main())
