#!/usr/bin/env python3
"""check_serve_clients: what clients of other servers send, and what they must get here.  The names are those of the findings:
B4 preflights of browsers, B6 no 5xx for a request's content, B7 fields that would change the text, B9 continue_final_message,
B10 a template that nobody knows, B16 any model name."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import DEMO, ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_clients")
CHAT = [{"role": "user", "content": "Tell me about the sea."}]
STAINLESS = ("authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
             "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout")


def preflight(s, origin, headers):
    send = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": headers}
    return s.request("OPTIONS", "/v1/chat/completions", headers=send)[1]


def check_b4():
    """What a page may send is what it asks for, from an allowed origin, as long as it is a list of names."""
    with Server(BUILD, "-c", "512", "-np", "1", "--cors-origins", "http://app.example,http://b.example") as s:
        h = preflight(s, "http://app.example", STAINLESS)
        C.ok(h.get("access-control-allow-headers") == STAINLESS and h.get("access-control-allow-origin") == "http://app.example", f"B4 {h}")
        C.ok(int(h.get("access-control-max-age", 0)) > 0 and "POST" in h.get("access-control-allow-methods", ""), f"B4 {h}")
        h = preflight(s, "http://other.example", STAINLESS)
        C.ok(not any(k.startswith("access-control") for k in h), f"B4 another origin: {h}")
        for odd in ("a; b", "a:b", "x" * 2000, '"a"'):
            got = preflight(s, "http://app.example", odd).get("access-control-allow-headers")
            C.ok(got == "authorization, content-type, x-api-key", f"B4 {odd[:10]}: {got}")
        h = s.request("GET", "/v1/models", headers={"Origin": "http://b.example"})[1]
        C.ok(h["access-control-allow-origin"] == "http://b.example" and "access-control-allow-headers" not in h and
             "X-Kvant-Ignored-Fields" in h["access-control-expose-headers"], f"B4 no preflight: {h}")
        h = s.request("OPTIONS", "/v1/models", headers={"Origin": "http://b.example"})[1]
        C.ok("authorization" in h.get("access-control-allow-headers", ""), f"B4 nothing asked for: {h}")


def check_b6(s):
    """Client libraries repeat a request after any 5xx: what a request asks for and does not get is 4xx."""
    tool = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    for path, body in [("/v1/chat/completions", {"messages": CHAT, "tools": tool}), ("/v1/chat/completions", {"messages": image}),
                       ("/v1/completions", {"prompt": "a", "suffix": "b"}), ("/v1/completions", {"prompt": "a", "n": 2, "best_of": 3}),
                       ("/v1/completions", {"prompt": "a", "echo": True, "logprobs": 1}), ("/v1/embeddings", {"input": "a", "dimensions": 7})]:
        status, r = s.post(path, dict(body, max_tokens=1) if "input" not in body else body)
        C.ok(status == 400 and r["error"]["type"] == "invalid_request_error" and r["error"]["code"] == 400 and r["error"]["message"],
             f"B6 {body}: {status} {r}")
    for path in ("/v1/responses", "/v1/messages", "/v1/rerank", "/completion", "/infill", "/lora-adapters"):
        status, r = s.post(path, {})
        C.ok(status == 404 and r["error"]["type"] == "not_found_error", f"B6 {path}: {status}")


def check_b7(s):
    """A greedy answer stands for the text: fields that pass leave it as it is."""
    body = {"messages": CHAT, "max_tokens": 6, "temperature": 0}
    text = s.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
    for extra in ({"guided_choice": ["yes", "no"]}, {"structured_outputs": {"regex": "a+"}}, {"dry_multiplier": 0.8}, {"xtc_probability": 0.5},
                  {"typical_p": 0.2}, {"mirostat": 2}, {"maxTokens": 2}, {"chat_template_kwargs": {"enable_thinking": False}}):
        status, r = s.post("/v1/chat/completions", dict(body, **extra))
        C.ok(status == 400 and r["error"]["message"].startswith(next(iter(extra))), f"B7 {extra}: {status} {r}")
    extra = {"mirostat": 0, "typical_p": 1.0, "user": "me", "metadata": {}, "cache_prompt": True}
    status, headers, data = s.request("POST", "/v1/chat/completions", dict(body, **extra))
    C.ok(status == 200 and "x-kvant-ignored-fields" not in headers, f"B7 neutral: {status} {headers}")
    C.ok(json.loads(data)["choices"][0]["message"]["content"] == text, "B7 neutral values change nothing")
    for stream in (False, True):
        status, headers, data = s.request("POST", "/v1/chat/completions", dict(body, stream=stream, zebra=1, **{"a\r\nb": 2}))
        C.ok(status == 200 and headers.get("x-kvant-ignored-fields") == "zebra, a??b", f"B7 unknown, stream {stream}: {status} {headers}")


def check_b9(s):
    turn = CHAT + [{"role": "assistant", "content": "The sea is"}]
    prompt = s.post("/apply-template", {"messages": turn, "continue_final_message": True})[1].get("prompt", "")
    closed = s.post("/apply-template", {"messages": turn, "add_generation_prompt": False})[1]["prompt"]
    C.ok(prompt.endswith("The sea is") and closed.startswith(prompt) and closed != prompt, f"B9 {prompt!r}")
    body = {"max_tokens": 8, "temperature": 0}
    status, r = s.post("/v1/chat/completions", dict(body, messages=turn, continue_final_message=True, add_generation_prompt=False))
    raw = s.post("/v1/completions", dict(body, prompt=prompt))[1]
    C.ok(status == 200 and r["choices"][0]["message"]["content"] == raw["choices"][0]["text"] and
         r["usage"]["prompt_tokens"] == raw["usage"]["prompt_tokens"], f"B9 goes on as the text does: {r} {raw}")
    for path in ("/apply-template", "/v1/chat/completions"):
        status, r = s.post(path, {"messages": turn, "continue_final_message": True, "add_generation_prompt": True})
        C.ok(status == 400 and r["error"]["param"] == "continue_final_message", f"B9 {path}, both: {status} {r}")
        status, r = s.post(path, {"messages": CHAT, "continue_final_message": True})
        C.ok(status == 400 and "assistant" in r["error"]["message"], f"B9 {path}, a question: {status} {r}")


def with_template(text):
    """The demo with one more key.  What is put in is a multiple of 32 bytes: tensors are aligned to that."""
    with open(DEMO, "rb") as f:
        data = f.read()
    key = b"tokenizer.chat_template"
    size = len(text) + -(8 + len(key) + 4 + 8 + len(text)) % 32
    pair = len(key).to_bytes(8, "little") + key + (8).to_bytes(4, "little") + size.to_bytes(8, "little") + text.encode().ljust(size)
    count = int.from_bytes(data[16:24], "little") + 1
    return data[:16] + count.to_bytes(8, "little") + pair + data[24:]


def check_b10():
    """A copy of the demo with a template that no engine runs."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(with_template("{% zebra crossing %}{{ messages | unheard_of_filter }}"))
        f.flush()
        with Server(BUILD, "-c", "512", "-np", "1", model=f.name) as s:
            said = [x for x in s.lines if "chat_template" in x and "400" in x]
            C.ok(len(said) == 1 and s.lines.index(said[0]) < [i for i, x in enumerate(s.lines) if "ready:" in x][0], f"B10 at the start: {s.lines}")
            C.ok("chat_template" in s.get("/props")[1].get("chat_template_problem", ""), "B10 /props")
            status, r = s.post("/v1/chat/completions", {"messages": CHAT})
            C.ok(status == 400 and "chat_template" in r["error"]["message"], f"B10 {status} {r}")
            C.ok(s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200, "B10 completions need no template")
    with Server(BUILD, "-c", "512", "-np", "1") as s:
        C.ok("chat_template_problem" not in s.get("/props")[1] and not any("400" in x for x in s.lines), "B10 nothing is said of a known one")


def check_b16(s):
    status, r = s.post("/v1/chat/completions", {"model": "gpt-4o-mini", "messages": CHAT, "max_tokens": 1})
    C.ok(status == 200 and r["model"] == "novella-hybrid-q8_0", f"B16 any name, and the answer says who it is from: {status} {r}")
    C.ok(s.post("/v1/embeddings", {"model": "text-embedding-3-small", "input": "a"})[0] == 200, "B16 embeddings")
    with Server(BUILD, "-c", "512", "-np", "1", "--strict-model-name", "--unknown-fields", "refuse") as t:
        status, r = t.post("/v1/chat/completions", {"model": "gpt-4o-mini", "messages": CHAT, "max_tokens": 1})
        C.ok(status == 404 and r["error"]["param"] == "model", f"B16 strict: {status} {r}")
        status, r = t.post("/v1/chat/completions", {"model": "novella-hybrid-q8_0", "messages": CHAT, "max_tokens": 1})
        C.ok(status == 200, f"B16 strict, its own name: {status} {r}")
        status, r = t.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "zebra": 1})
        C.ok(status == 400 and "zebra" in r["error"]["message"], f"B7 --unknown-fields refuse: {status} {r}")


def main():
    if not built(BUILD):
        print("SKIP check_serve_clients: this build has no server")
        return C.end()
    check_b4()
    with Server(BUILD, "-c", "2048", "-np", "4") as s:
        check_b6(s)
        check_b7(s)
        check_b9(s)
        check_b16(s)
    check_b10()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
