#!/usr/bin/env python3
"""check_serve_ollama: Ollama's API over raw HTTP: lists of models, chats and prompts as lines of JSON and whole, tools, formats, thoughts,
options, embeddings, loading and unloading with a router's models; and LM Studio's list.  The shapes are those of Ollama's docs/api.md."""
import json
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serve import ROOT, Checks, Server, built    # noqa: E402
from check_serve_tools import NOW, WEATHER, start    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_ollama")
USER = [{"role": "user", "content": "Tell me about the sea."}]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
SHORT = {"num_predict": 8, "temperature": 0}
COUNTS = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration")


def lines(s, path, body):
    """The objects of a stream; each has its time."""
    status, headers, data = s.request("POST", path, body)
    C.ok(status == 200 and headers["content-type"] == "application/x-ndjson" and data.endswith(b"\n"), (status, headers, data[:200]))
    out = [json.loads(line) for line in data.decode().splitlines()]
    C.ok(all(TIME.fullmatch(o["created_at"]) and o["model"] for o in out), out[:1])
    C.ok([o["done"] for o in out] == [False] * (len(out) - 1) + [True] and all(k in out[-1] for k in COUNTS), out[-1])
    return out


def whole(s, path, body):
    status, o = s.post(path, {**body, "stream": False})
    C.ok(status == 200 and o["done"] is True and all(k in o for k in COUNTS), (status, o))
    return o


def message(parts):
    """One message of the lines of a chat."""
    m = {"content": "", "thinking": "", "tool_calls": []}
    for p in parts:
        C.ok(p["message"]["role"] == "assistant", p)
        for k in m:
            m[k] += p["message"].get(k, type(m[k])())
    return m


def check_texts(s):
    one = whole(s, "/api/chat", {"model": "m", "messages": USER, "options": SHORT})
    parts = lines(s, "/api/chat", {"model": "m", "messages": USER, "options": SHORT})
    m = message(parts)
    C.ok(m["content"] == one["message"]["content"] and m["content"] and len(parts) > 3, (m, one))
    C.ok(one["done_reason"] == parts[-1]["done_reason"] == "length" and one["eval_count"] == 8 and one["prompt_eval_count"] > 3, one)
    same = s.post("/v1/chat/completions", {"messages": USER, "max_tokens": 8, "temperature": 0})[1]["choices"][0]["message"]["content"]
    C.ok(same == m["content"], "the answer of /v1/chat/completions")
    one = whole(s, "/api/generate", {"model": "m", "prompt": USER[0]["content"], "options": SHORT})
    C.ok(one["response"] == same and "message" not in one, one)
    parts = lines(s, "/api/generate", {"model": "m", "prompt": USER[0]["content"], "options": SHORT})
    C.ok("".join(p["response"] for p in parts) == same, parts)
    system = whole(s, "/api/generate", {"model": "m", "prompt": "a", "system": "Be brief.", "options": SHORT})["prompt_eval_count"]
    C.ok(system > whole(s, "/api/generate", {"model": "m", "prompt": "a", "options": SHORT})["prompt_eval_count"], "a system text is told")
    raw = whole(s, "/api/generate", {"model": "m", "prompt": "The sea", "raw": True, "options": SHORT})
    want = s.post("/v1/completions", {"prompt": "The sea", "max_tokens": 8, "temperature": 0})[1]["choices"][0]["text"]
    C.ok(raw["response"] == want, "raw: no template")
    stop = whole(s, "/api/chat", {"model": "m", "messages": USER, "options": {**SHORT, "num_predict": 40, "stop": [same[2:5]]}})
    C.ok(stop["message"]["content"] == same[:same.find(same[2:5])] and stop["done_reason"] == "stop", stop)
    seeds = [whole(s, "/api/chat", {"model": "m", "messages": USER, "options": {"num_predict": 8, "seed": k, "temperature": 2}})["message"]["content"]
             for k in (1, 1, 2)]
    C.ok(seeds[0] == seeds[1] != seeds[2], seeds)


def check_formats(s):
    o = whole(s, "/api/chat", {"model": "m", "messages": USER, "format": "json", "options": {"num_predict": 300, "temperature": 0, "seed": 1}})
    C.ok(o["message"]["content"].lstrip().startswith("{"), o["message"])
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    for path, of in (("/api/chat", lambda o: o["message"]["content"]), ("/api/generate", lambda o: o["response"])):
        o = whole(s, path, {"model": "m", "messages": USER, "prompt": "a number", "format": schema} if "chat" not in path else
                  {"model": "m", "messages": USER, "format": schema})
        v = json.loads(of(o))
        C.ok(list(v) == ["n"] and 1 <= v["n"] <= 9, o)


def check_faults(s):
    for path, body, word in (("/api/chat", {"messages": 3}, "messages"), ("/api/chat", {"messages": USER, "format": 3}, "format"),
                             ("/api/chat", {"messages": USER, "options": []}, "options"), ("/api/chat", {"messages": USER, "stream": 3}, "stream"),
                             ("/api/chat", {"messages": USER, "options": {"temperature": "x"}}, "temperature"),
                             ("/api/chat", {"messages": [{"role": "user", "content": "a", "images": ["aa"]}]}, "images"),
                             ("/api/chat", {"messages": USER, "think": "very"}, "think"), ("/api/generate", {"prompt": 3}, "prompt"),
                             ("/api/generate", {"prompt": "a", "context": [1]}, "context"), ("/api/generate", {"prompt": "a", "template": "x"}, "template"),
                             ("/api/embed", {"model": "m"}, "input"), ("/api/chat", {"messages": USER, "options": {"tfs_z": 0.5}}, "tfs_z")):
        st, o = s.post(path, body)
        C.ok(st == 400 and isinstance(o["error"], str) and word in o["error"] and list(o) == ["error"], (path, body, st, o))
    st, o = s.post("/api/none", {})
    C.ok(st == 404 and isinstance(o["error"], str), o)
    st, h, _ = s.request("POST", "/api/chat", {"messages": USER, "stream": False, "keep_alive": "5m", "truncate": True,
                                              "options": {**SHORT, "num_gpu": 3, "num_ctx": 8192, "no_such": 1}})
    C.ok(st == 200 and set(h["x-kvant-ignored-fields"].split(", ")) == {"options.num_ctx", "options.no_such"}, h)


def check_types(s):
    """Any type of a body, as Ollama does, but of a browser, which tells the page that asks."""
    body = json.dumps({"messages": USER, "stream": False, "options": SHORT}).encode()
    page = b"Origin: http://localhost:%d\r\n" % s.port
    form, plain, mine = (b"Content-Type: " + x + b"\r\n" for x in (b"application/x-www-form-urlencoded", b"text/plain", b"application/json"))
    for fields, want in ((b"", 200), (form, 200), (plain, 200), (mine + page, 200), (page, 415), (plain + page, 415), (form + b"Sec-Fetch-Site: same-site\r\n", 415),
                         (b"Sec-Fetch-Site: none\r\n", 415), (b"Origin: null\r\n", 403), (b"Sec-Fetch-Site: cross-site\r\n", 403)):
        head = b"POST /api/chat HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\nContent-Length: %d\r\n" % (s.port, len(body))
        got = s.raw(head + fields + b"\r\n" + body, 5)[9:12]
        C.ok(got == b"%d" % want, f"{fields}: {got}, want {want}")


def check_models(s):
    C.ok(re.fullmatch(r"\d+\.\d+\.\d+", s.get("/api/version")[1]["version"]), "version")
    tags = s.get("/api/tags")[1]["models"]
    C.ok(len(tags) == 1 and re.fullmatch("[0-9a-f]{64}", tags[0]["digest"]) and tags[0]["size"] > 1000 and TIME.fullmatch(tags[0]["modified_at"]), tags)
    C.ok(tags[0]["details"]["format"] == "gguf" and tags[0]["details"]["family"] and tags[0]["name"] == tags[0]["model"], tags)
    ps = s.get("/api/ps")[1]["models"]
    C.ok(ps[0]["name"] == tags[0]["name"] and ps[0]["context_length"] == 4096 and ps[0]["expires_at"] and ps[0]["size_vram"] == 0, ps)
    for key in ("model", "name"):
        st, o = s.post("/api/show", {key: tags[0]["name"]})
        arch = o["model_info"]["general.architecture"]
        C.ok(st == 200 and o["model_info"][arch + ".context_length"] > 0 and o["capabilities"][0] == "completion" and
             "num_ctx 4096" in o["parameters"] and o["template"], o)
    C.ok(s.post("/api/show", {"model": "other"})[0] == 404, "another name")
    for path in ("/api/chat", "/api/generate"):
        st, o = s.post(path, {"model": "m"})
        C.ok(st == 200 and o["done_reason"] == "load" and o["done"], o)
    o = s.get("/api/v0/models")[1]
    C.ok(o["object"] == "list" and o["data"][0]["state"] == "loaded" and o["data"][0]["loaded_context_length"] == 4096, o)
    C.ok(s.get("/api/v0/models/" + tags[0]["name"])[1] == o["data"][0], "one of them")
    st, o = s.get("/api/v0/models/other")
    C.ok(st == 404 and o["error"]["type"] == "not_found_error", "LM Studio's errors are OpenAI's")


def check_embeddings(s):
    st, o = s.post("/api/embed", {"model": "m", "input": ["a sea", "a storm"]})
    C.ok(st == 200 and len(o["embeddings"]) == 2 and abs(sum(x * x for x in o["embeddings"][0]) - 1) < 1e-3 and o["prompt_eval_count"] > 1, st)
    v = s.post("/v1/embeddings", {"input": "a sea"})[1]["data"][0]["embedding"]
    C.ok(o["embeddings"][0] == v and s.post("/api/embed", {"input": "a sea"})[1]["embeddings"] == [v], "of one text")
    C.ok(s.post("/api/embeddings", {"prompt": "a sea"})[1] == {"embedding": v}, "the older route")


def is_call(c):
    a, name = c["function"]["arguments"], c["function"]["name"]
    return isinstance(a, dict) and c["id"] and (name == "now" or (a["city"] in ("Paris", "Rome") and 1 <= a["days"] <= 9))


def check_tools():
    with start("hermes") as s:
        ask = {"model": "m", "messages": USER, "tools": [WEATHER, NOW], "options": {"num_predict": 200, "seed": 1, "temperature": 0.7}}
        begin = {**ask, "tool_choice": "required"}
        one, parts = whole(s, "/api/chat", begin), lines(s, "/api/chat", begin)
        m = message(parts)
        C.ok(one["message"]["tool_calls"] and all(is_call(c) for c in one["message"]["tool_calls"]), one)
        drop = [{**c, "id": ""} for c in m["tool_calls"]]
        C.ok(drop == [{**c, "id": ""} for c in one["message"]["tool_calls"]] and m["content"] == one["message"]["content"], (m, one))
        C.ok([c["function"]["index"] for c in m["tool_calls"]] == list(range(len(drop))), drop)
        turn = [*USER, {"role": "assistant", "tool_calls": [{"function": {"name": "now", "arguments": {}}}]},
                {"role": "tool", "tool_name": "now", "content": "noon-word"}]
        with_result = whole(s, "/api/chat", {**ask, "messages": turn})["prompt_eval_count"]
        turn[1]["tool_calls"][0]["function"]["arguments"] = "{}"
        turn[1] = {**turn[1], "content": ""}
        same = s.post("/v1/chat/completions", {"messages": turn, "tools": ask["tools"], "max_tokens": 1})[1]["usage"]["prompt_tokens"]
        C.ok(with_result == same > whole(s, "/api/chat", ask)["prompt_eval_count"], f"calls and results are part of the prompt: {with_result}, {same}")


def check_thoughts():
    with start("hermes", thinks=True) as s:
        ask = {"model": "m", "messages": USER, "options": {"num_predict": 24, "temperature": 0}}
        one, parts = whole(s, "/api/chat", {**ask, "think": True}), lines(s, "/api/chat", {**ask, "think": True})
        m = message(parts)
        C.ok(one["message"]["thinking"] == m["thinking"] != "" and one["message"]["content"] == m["content"], (one, m))
        C.ok("thinking" not in whole(s, "/api/chat", {**ask, "think": False})["message"], "no thought is asked for")
        o = whole(s, "/api/generate", {"prompt": "a", "think": True, "options": ask["options"]})
        C.ok(o["thinking"], o)


def check_router():
    with tempfile.TemporaryDirectory() as d:
        for name in ("lfm2", "qwen2"):
            shutil.copy(os.path.join(ROOT, "tests", "archs", name + ".gguf"), d)
        with Server(BUILD, "--models-dir", d, "-np", "2", model=None) as s:
            C.ok([m["name"] for m in s.get("/api/tags")[1]["models"]] == ["lfm2", "qwen2"] and s.get("/api/ps")[1]["models"] == [], "the names")
            o = s.post("/api/show", {"model": "qwen2"})[1]
            C.ok(o["model_info"]["general.architecture"] == "qwen2" and o["capabilities"] and s.get("/api/ps")[1]["models"] == [], "shown, not loaded")
            C.ok(s.post("/api/show", {"model": "none"})[0] == 404 and s.post("/api/chat", {"model": "none", "messages": USER})[0] == 404, "no such name")
            st, o = s.post("/api/generate", {"model": "qwen2:latest", "prompt": "a", "raw": True, "stream": False, "options": {"num_predict": 2}})
            C.ok(st == 200 and o["model"] == "qwen2" and [m["name"] for m in s.get("/api/ps")[1]["models"]] == ["qwen2"], (st, o))
            st, o = s.post("/api/generate", {"model": "qwen2", "keep_alive": 0})
            C.ok(st == 200 and o["done_reason"] == "unload", o)
            for _ in range(100):
                if not s.get("/api/ps")[1]["models"]:
                    break
            C.ok(s.get("/api/v0/models")[1]["data"][1]["state"] == "not-loaded", "it went")


def main():
    if not built(BUILD):
        print("check_serve_ollama: SKIP: this build has no server")
        return 0
    with Server(BUILD, "-c", "4096", "-np", "4", "--sse-ping-interval", "1") as s:
        for check in (check_texts, check_formats, check_faults, check_types, check_models, check_embeddings):
            check(s)
    check_tools()
    check_thoughts()
    check_router()
    return C.end()


sys.exit(main())
