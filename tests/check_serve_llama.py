#!/usr/bin/env python3
"""check_serve_llama: what clients of llama-server find beyond the shapes of check_serve_native: fields, routes, headers and options that its own
tests ask for (docs/evidence/llama-server-tests.md has those tests themselves)."""
import concurrent.futures
import datetime
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import DEMO, ROOT, SLOW, Checks, Server, built           # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_llama")
CHAT = [{"role": "user", "content": "Tell me about the sea."}]


def events(s, path, body):
    data = s.request("POST", path, {**body, "stream": True})[2]
    return [json.loads(x[6:]) for x in data.split(b"\n") if x.startswith(b"data: {")]


def check_prompts(s):
    """One prompt in every spelling gives one text."""
    ids = s.post("/tokenize", {"content": "The sea was ", "add_special": True})[1]["tokens"]
    more = s.post("/tokenize", {"content": "calm that"})[1]["tokens"]
    ask = {"n_predict": 6, "temperature": 0}
    want = s.post("/completion", {**ask, "prompt": ids + more})[1]["content"]
    for prompt in (ids + ["calm that"], {"prompt_string": "The sea was calm that"}, {"content": [{"type": "text", "text": "The sea was "},
                   {"type": "text", "text": "calm that"}]}):
        made = s.post("/tokenize", {"content": "The sea was calm that", "add_special": True})[1]["tokens"]
        status, r = s.post("/completion", {**ask, "prompt": prompt})
        C.ok(status == 200 and (r["content"] == want or isinstance(prompt, dict) and made != ids + more), (prompt, r))
    two = s.post("/completion", {**ask, "prompt": [ids + more, {"prompt_string": "Night"}]})[1]
    C.ok(len(two) == 2 and two[0]["content"] == want, two)


def check_fields(s):
    r = s.post("/completion", {"prompt": "The sea", "n_predict": 3, "temperature": 0, "ignore_eos": True, "logit_bias": [[" sea ", -100], [5, 1.5]]})[1]
    told = r["generation_settings"]["logit_bias"]
    C.ok({"token": 5, "bias": 1.5} in told and sum(x["bias"] is None for x in told) >= 2, told)
    C.ok(r["has_new_line"] is ("\n" in r["content"]) and r["truncated"] is False, r)
    asked = ["content", "generation_settings/n_predict", "timings/prompt_n", "none/such"]
    few = s.post("/completion", {"prompt": "The sea", "n_predict": 3, "response_fields": asked})[1]
    C.ok(list(few) == asked[:3] and few["generation_settings/n_predict"] == 3, few)
    last = events(s, "/completion", {"prompt": "The sea", "n_predict": 3, "response_fields": ["tokens_predicted"]})[-1]
    C.ok(last == {"tokens_predicted": 3}, last)
    stream = events(s, "/completion", {"prompt": "The sea", "n_predict": 3})
    C.ok(all(x["tokens"] for x in stream if not x["stop"]), stream)
    full = s.post("/completion", {"prompt": "The sea", "ignore_eos": True})[1]
    C.ok(full["truncated"] is True and full["stop_type"] == "limit", full["stop_type"])
    for bad, name in (({"response_fields": 1}, "response_fields"), ({"response_fields": [1]}, "response_fields"), ({"response_fields": ["x"] * 65}, "response_fields"),
                      ({"return_progress": "yes"}, "return_progress")):
        status, r = s.post("/completion", {"prompt": "a", **bad})
        C.ok(status == 400 and r["error"]["param"] == name, (bad, r))


def check_chat(s):
    first = events(s, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 4})
    C.ok(first[0]["choices"][0]["delta"] == {"role": "assistant", "content": None} and first[0]["system_fingerprint"].startswith("b"), first[0])
    C.ok(all("role" not in x["choices"][0]["delta"] for x in first[1:]), first)
    told = s.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 2, "verbose": True})[1]
    C.ok(CHAT[0]["content"] in told["__verbose"]["prompt"] and told["__verbose"]["content"] == told["choices"][0]["message"]["content"], told)
    C.ok("__verbose" not in s.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 2})[1], "not asked for")
    n = told["usage"]["prompt_tokens"]
    for path, body in (("/chat/completions/input_tokens", {"messages": CHAT}), ("/v1/responses/input_tokens", {"input": CHAT[0]["content"]})):
        status, r = s.post(path, body)
        C.ok(status == 200 and r["input_tokens"] == n, (path, r, n))
    status, r = s.post("/v1/chat/completions", {"messages": CHAT * 200})
    e = r["error"]
    C.ok(status == 400 and e["type"] == "exceed_context_size_error" and e["n_ctx"] == 256 and e["n_prompt_tokens"] > 256, r)
    C.ok("exceeds the available context size" in e["message"], e)
    two = s.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 2, "n": 2, "id_slot": 0})
    C.ok(two[0] == 200 and len(two[1]["choices"]) == 2, two)


def check_progress(s):
    body = {"prompt": "one two three four five " * 30, "n_predict": 2, "max_tokens": 2, "return_progress": True}
    for path in ("/completion", "/v1/completions"):
        told = [x for x in events(s, path, body) if "prompt_progress" in x]
        p = [x["prompt_progress"] for x in told]
        C.ok(len(p) >= 2 and p[0]["processed"] == p[0]["cache"] and p[-1]["processed"] == p[-1]["total"], (path, p))
        C.ok(all(a["processed"] < b["processed"] for a, b in zip(p, p[1:])) and told[0]["timings"]["prompt_ms"] == 0, (path, p))
        body["prompt"] = "another " + body["prompt"]
    C.ok(not [x for x in events(s, "/completion", {**body, "return_progress": False}) if "prompt_progress" in x], "not asked for")


def check_prefill(s):
    """An assistant's last message goes on: the answer is what follows, and nothing of what was given."""
    said = CHAT + [{"role": "assistant", "content": "The sea was "}]
    ask = {"max_tokens": 8, "temperature": 0}
    text = s.post("/apply-template", {"messages": said})[1]["prompt"]
    C.ok(text.endswith("The sea was "), text)
    want = s.post("/completion", {**ask, "prompt": text})[1]["content"]
    explicit = {"messages": said, "continue_final_message": True, "add_generation_prompt": False}
    for body in ({"messages": said}, explicit, {"messages": CHAT + [{"role": "assistant", "content": [{"type": "text", "text": "The sea was "},
                                                                                                 {"type": "text", "text": ""}]}]}):
        status, r = s.post("/v1/chat/completions", {**ask, **body})
        C.ok(status == 200 and r["choices"][0]["message"]["content"] == want, (body, r, want))
        parts = [x["choices"][0]["delta"].get("content") or "" for x in events(s, "/v1/chat/completions", {**ask, **body})]
        C.ok("".join(parts) == want, (body, parts, want))
    r = s.post("/v1/messages", {**ask, "messages": said})[1]
    C.ok(r["content"] == [{"type": "text", "text": want}], (r, want))
    r = s.post("/v1/responses", {"input": said, "max_output_tokens": 8, "temperature": 0})[1]
    C.ok(r["output"][0]["content"][0]["text"] == want, (r, want))
    for off in ({"continue_final_message": False}, {"add_generation_prompt": False}):
        C.ok(not s.post("/apply-template", {"messages": said, **off})[1]["prompt"].endswith("The sea was "), off)
    empty = s.post("/apply-template", {"messages": CHAT + [{"role": "assistant", "content": ""}]})
    C.ok(empty[0] == 200 and empty[1]["prompt"].count("assistant") == 2, empty)
    status, r = s.post("/v1/chat/completions", {"messages": said + said[1:], "max_tokens": 1})
    C.ok(status == 400 and "the last 2 are the assistant's" in r["error"]["message"], r)
    called = {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    status, r = s.post("/v1/chat/completions", {**explicit, "messages": CHAT + [called]})
    C.ok(status == 400 and r["error"]["param"] == "continue_final_message" and "tool_calls" in r["error"]["message"], r)
    C.ok(s.post("/v1/chat/completions", {"messages": CHAT + [called], "max_tokens": 1})[0] == 200, "calls, then a turn")


def check_timings(s):
    """timings_per_token: in every part of a stream, and only when asked for; the last part always tells."""
    ask = {"max_tokens": 5, "temperature": 0, "ignore_eos": True, "timings_per_token": True}
    for path, body in (("/completion", {"prompt": "The sea"}), ("/v1/completions", {"prompt": "The sea"}), ("/v1/chat/completions", {"messages": CHAT})):
        told = [x["timings"] for x in events(s, path, {**ask, **body}) if "timings" in x]
        n = [t["predicted_n"] for t in told]
        C.ok(len(n) >= 3 and n == sorted(n) and n[-1] == 5 and n[0] < 5, (path, told))
        ms = [t["predicted_ms"] for t in told]
        C.ok(all(t["prompt_ms"] == told[-1]["prompt_ms"] > 0 for t in told) and ms == sorted(ms) and ms[-1] > 0, (path, told))
        parts = events(s, path, {**ask, **body, "timings_per_token": False})
        C.ok(["timings" in x for x in parts] == [False] * (len(parts) - 1) + [True], (path, parts))
        parts = [] if path == "/completion" else events(s, path, {**ask, **body, "timings_per_token": False, "stream_options": {"include_usage": True}})
        C.ok(all(("timings" in x) == bool(x.get("usage")) for x in parts), (path, parts))
        status, r = s.post(path, {**body, "timings_per_token": 1})
        C.ok(status == 400 and r["error"]["param"] == "timings_per_token", r)
    for field in ("timings_per_token", "return_progress"):
        status, r = s.post("/v1/messages", {"messages": CHAT, "max_tokens": 1, field: True})
        C.ok(status == 400 and r["error"]["param"] == field and "/v1/messages" in r["error"]["message"], r)


def check_responses(s):
    """/v1/responses tells the same: progress as response.in_progress, timings beside the deltas and the end."""
    body = {"input": "one two three four five " * 30, "max_output_tokens": 5, "temperature": 0, "timings_per_token": True, "return_progress": True}
    told = events(s, "/v1/responses", body)
    C.ok([x["sequence_number"] for x in told] == list(range(len(told))) and [x["type"] for x in told[:2]] == ["response.created", "response.in_progress"], told)
    p = [x["prompt_progress"] for x in told if "prompt_progress" in x]
    C.ok(len(p) >= 2 and p[0]["processed"] == p[0]["cache"] and p[-1]["processed"] == p[-1]["total"], p)
    C.ok(all(x["type"] == "response.in_progress" and x["response"]["status"] == "in_progress" for x in told if "prompt_progress" in x), told)
    deltas = [x for x in told if x["type"] == "response.output_text.delta"]
    C.ok(deltas and all(x["timings"]["prompt_n"] > 0 for x in deltas), deltas)
    usage = told[-1]["response"]["usage"]
    C.ok(told[-1]["timings"]["predicted_n"] == usage["output_tokens"] and told[-1]["timings"]["prompt_n"] == p[0]["total"] - p[0]["cache"], told[-1])
    plain = events(s, "/v1/responses", {**body, "timings_per_token": False, "return_progress": False})
    C.ok(["timings" in x for x in plain] == [False] * (len(plain) - 1) + [True] and not any("prompt_progress" in x for x in plain), plain)
    whole = s.post("/v1/responses", {"input": "Hi", "max_output_tokens": 3})[1]
    C.ok("timings" not in whole and whole["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0} and
         whole["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}, whole)


def check_metrics(s):
    status, headers, data = s.request("GET", "/metrics")
    lines = dict(x.rsplit(" ", 1) for x in data.decode().splitlines() if x.startswith("llamacpp:"))
    C.ok(status == 200 and int(headers["process-start-time-unix"]) > 1e9, headers)
    for name in ("prompt_tokens_total", "tokens_predicted_total", "n_decode_total", "n_tokens_max", "prompt_seconds_total", "predicted_tokens_seconds"):
        C.ok(float(lines["llamacpp:" + name]) > 0, (name, lines))
    again = s.request("GET", "/metrics")[2].decode()
    C.ok("llamacpp:predicted_tokens_seconds 0\n" in again and "llamacpp:prompt_tokens_seconds 0\n" in again, "rates are of what came since the last scrape")
    C.ok(lines["llamacpp:requests_processing"] == "0" and float(lines["llamacpp:n_tokens_max"]) >= 256, lines)


def preflight(s, origin):
    return s.request("OPTIONS", "/completions", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})[1].get("access-control-allow-origin")


def check_credentials():
    """llama-server's other options of CORS; * goes back as the origin where pages may send cookies, and only there."""
    ask = {"Origin": "http://a.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-own"}
    for more, origin, credentials, headers, methods in (
            ((), "*", None, "x-own", "GET, POST, DELETE, OPTIONS"), (("--cors-credentials",), "http://a.example", "true", "x-own", "GET, POST, DELETE, OPTIONS"),
            (("--cors-headers", "*", "--cors-methods", "POST"), "*", None, "*", "POST")):
        with Server(BUILD, "-np", "1", "-c", "256", "--cors-origins", "*", *more) as s:
            h = s.request("OPTIONS", "/completions", headers=ask)[1]
            C.ok([h.get("access-control-" + k) for k in ("allow-origin", "allow-credentials", "allow-headers", "allow-methods")] ==
                 [origin, credentials, headers, methods], (more, h))
            C.ok(s.request("GET", "/health")[1].get("access-control-allow-credentials") is None, "without an origin")


def check_origins(s):
    for origin in ("http://localhost", "https://localhost:3000", "http://127.0.0.1:8080", "http://[::1]:1"):
        C.ok(preflight(s, origin) == origin, origin)
    for origin in ("http://notlocalhost", "http://localhost.evil.com", "http://localhost:", "http://localhost:80x", "ftp://localhost"):
        C.ok(preflight(s, origin) is None, origin)


TEMPLATE = ("{% if enable_thinking is defined %}[think {{ enable_thinking }}]{% endif %}{{ date_string }}|{{ datetime }}|{{ functions }}|"
            "{% for m in messages %}{{ m.content }}{% endfor %}")


def check_reasoning():
    """--reasoning tells the template, the day is told always, and a request's own kwargs come first."""
    today = datetime.date.today()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.jinja")
        with open(path, "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
        for more, head in (((), ""), (("--reasoning", "on"), "[think True]"), (("--reasoning", "auto"), "[think True]"), (("-rea", "off"), "[think False]")):
            with Server(BUILD, "-np", "1", "-c", "256", "--chat-template-file", path, *more) as s:
                text = s.post("/apply-template", {"messages": CHAT})[1]["prompt"]
                day = f"{today:%d %b %Y}|{today:%b %d %Y}||"
                C.ok(text == head + day + CHAT[0]["content"] or datetime.date.today() != today, (more, text))
                own = {"enable_thinking": 7, "date_string": "then", "datetime": "now"}
                tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
                text = s.post("/apply-template", {"messages": CHAT, "chat_template_kwargs": own, "tools": [tool]})[1]["prompt"]
                C.ok(text.startswith("[think 7]then|now|[\n  {") and '"name": "f"' in text, text)


def ask(host, port, path, body=None, headers=None):
    """A request by way of one of the server's addresses: status and body."""
    conn = http.client.HTTPConnection(host, port, timeout=60 * SLOW)
    try:
        conn.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"Content-Type": "application/json", **(headers or {})})
        r = conn.getresponse()
        return r.status, r.read()
    finally:
        conn.close()


def addresses():
    """Of this machine alone; the last one where it has IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as k:
            k.bind(("::1", 0))
        return ["127.0.0.1", "127.0.0.2", "::1"]
    except OSError:
        return ["127.0.0.1", "127.0.0.2"]


def check_address(s, host):
    """Whole answers, streams, many connections at once, a name that is not ours, and room when all places are taken."""
    body = {"prompt": "The sea", "max_tokens": 4, "temperature": 0}
    status, data = ask(host, s.port, "/v1/completions", body)
    C.ok(status == 200 and json.loads(data)["choices"][0]["text"] == s.post("/v1/completions", body)[1]["choices"][0]["text"], (host, data))
    status, data = ask(host, s.port, "/v1/completions", {**body, "stream": True})
    C.ok(status == 200 and data.endswith(b"data: [DONE]\n\n"), (host, data))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda _: ask(host, s.port, "/health")[0], range(100)))
    C.ok(got == [200] * 100, (host, got))
    C.ok(ask(host, s.port, "/version", headers={"Host": "evil.example"})[0] == 400, f"{host}: a name that was pointed here")
    C.ok(ask(host, s.port, "/version", headers={"Host": "127.0.0.2"})[0] == 200, f"{host}: a name that --host lists")
    many = [socket.create_connection((host, s.port)) for _ in range(60)]       # the server has room for 24 + 16
    C.ok(ask(host, s.port, "/health")[0] == 200, f"{host}: health when all places are taken")
    for k in many:
        k.close()


def check_listening():
    """--host with several addresses, --tags."""
    hosts = addresses()
    with Server(BUILD, "-np", "2", "-c", "256", "--host", ",".join(hosts), "--tags", " chat,,fim, small one ,", "--max-connections", "24") as s:
        for host in hosts:
            check_address(s, host)
        C.ok(s.get("/v1/models")[1]["data"][0]["tags"] == ["chat", "fim", "small one"], "tags")
        with socket.create_connection((hosts[-1], s.port)) as k:
            body = json.dumps({"prompt": "a", "max_tokens": 100, "ignore_eos": True, "stream": True}).encode()
            k.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            data = k.recv(100)
            s.process.terminate()
            while more := k.recv(65536):
                data += more
        C.ok(b"[DONE]" in data and s.wait() == 0, "a stream of the last address ends before the server does")
    with Server(BUILD, "-np", "1", "-c", "256") as s:
        C.ok(s.get("/v1/models")[1]["data"][0]["tags"] == [], "no tags")
    for given, want in (("127.0.0.1,", "want 1 to 8 addresses"), (",".join(f"127.0.0.{i}" for i in range(1, 10)), "want 1 to 8 addresses"), ("127.0.0.1,a.sock", "stands alone"),
                        ("127.0.0.1,0.0.0.0", "--host 0.0.0.0: an address that others can reach"), ("127.0.0.1,no such name", "--host no such name")):
        r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "serve", "-m", DEMO, "--port", "0", "--host", given], capture_output=True, text=True,
                           timeout=60 * SLOW, check=False)
        C.ok(r.returncode == 2 and want in r.stderr, (given, r.returncode, r.stderr))


def main():
    if not built(BUILD):
        print("SKIP check_serve_llama: this build has no server")
        return C.end()
    check_credentials()
    with Server(BUILD, "-np", "2", "-c", "256", "--metrics-compat", "llamacpp,vllm", "--cors-origins", "http://a.example,localhost") as s:
        for check in (check_prompts, check_fields, check_chat, check_progress, check_prefill, check_timings, check_responses, check_metrics, check_origins):
            check(s)
        props = s.request("GET", "/props")[2]
        C.ok(json.loads(props)["model_path"].endswith(".gguf"), props)
    check_reasoning()
    check_listening()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
