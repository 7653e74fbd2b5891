#!/usr/bin/env python3
"""check_serve_clients: what clients of other servers send, and what they must get here.  The names are those of the findings:
B4 preflights of browsers, B5 metrics under vLLM's names, B6 no 5xx for a request's content, B7 fields that would change the text, B9 continue_final_message,
B10 a template that nobody knows, B15 what the prefix cache holds, B16 any model name."""
import json
import os
import re
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


# What vLLM's published dashboards ask for (examples/observability of that project, versions 0.6 to 0.11), but for what only its
# other parts have (adapters, speculation, transfer of KV between servers).  In the text format a counter's name ends in _total.
VLLM_NAMES = """e2e_request_latency_seconds_bucket e2e_request_latency_seconds_sum e2e_request_latency_seconds_count
 inter_token_latency_seconds_bucket inter_token_latency_seconds_sum inter_token_latency_seconds_count
 time_per_output_token_seconds_bucket time_per_output_token_seconds_sum time_per_output_token_seconds_count
 request_time_per_output_token_seconds_bucket request_time_per_output_token_seconds_sum
 time_to_first_token_seconds_bucket time_to_first_token_seconds_sum time_to_first_token_seconds_count
 request_prompt_tokens_bucket request_prompt_tokens_sum request_prompt_tokens_count
 request_generation_tokens_bucket request_generation_tokens_sum request_generation_tokens_count
 request_queue_time_seconds_bucket request_queue_time_seconds_sum request_queue_time_seconds_count
 request_prefill_time_seconds_bucket request_prefill_time_seconds_sum request_prefill_time_seconds_count
 request_decode_time_seconds_bucket request_decode_time_seconds_sum request_decode_time_seconds_count
 request_inference_time_seconds_bucket request_inference_time_seconds_sum request_inference_time_seconds_count
 request_max_num_generation_tokens_bucket request_max_num_generation_tokens_sum request_max_num_generation_tokens_count
 request_params_n_bucket request_params_n_sum request_params_max_tokens_bucket request_params_max_tokens_sum
 iteration_tokens_total_bucket iteration_tokens_total_sum iteration_tokens_total_count
 prompt_tokens_total prompt_tokens_cached_total generation_tokens_total request_success_total num_preemptions_total
 prefix_cache_queries_total prefix_cache_hits_total kv_cache_usage_perc gpu_cache_usage_perc cache_config_info
 num_requests_running num_requests_waiting num_requests_waiting_by_reason""".split()


def parse_metrics(text):
    """{name: {labels: value}} of Prometheus text, by its own rules; what breaks them is an error."""
    types, out = {}, {}
    for line in text.rstrip("\n").split("\n"):
        m = re.fullmatch(r"# (HELP|TYPE) ([a-zA-Z_:][\w:]*) (.+)", line)
        if m:
            C.ok(m[1] == "HELP" or (m[2] not in types and m[3] in ("counter", "gauge", "histogram")), f"B5 {line}")
            if m[1] == "TYPE":
                types[m[2]] = m[3]
            continue
        m = re.fullmatch(r'([a-zA-Z_:][\w:]*)\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)+)\} (\S+)', line)
        if not C.ok(m, f"B5 not a sample: {line}"):
            continue
        family = re.sub("_(bucket|sum|count)$", "", m[1]) if m[1] not in types else m[1]
        kind = types.get(family)
        C.ok(kind and (kind != "histogram" or m[1] != family) and (kind != "counter" or m[1].endswith("_total")), f"B5 {line}: {kind}")
        labels = tuple(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', m[2]))
        C.ok(labels not in out.setdefault(m[1], {}), f"B5 twice: {line}")
        out[m[1]][labels] = float(m[3])
    for name, kind in types.items():
        if kind == "histogram":
            counts = list(out[name + "_bucket"].values())
            C.ok(counts == sorted(counts) and list(out[name + "_bucket"])[-1][-1] == ("le", "+Inf") and
                 counts[-1] == list(out[name + "_count"].values())[0], f"B5 {name}: {counts}")
    return out


def check_b5():
    with Server(BUILD, "-c", "1024", "-np", "2", "--metrics-compat", "vllm") as s:
        for i in range(2):
            s.post("/v1/completions", {"prompt": "A story of the sea. " * 20, "max_tokens": 5, "n": 2, "temperature": 0, "seed": i})
        s.idle()
        text = s.request("GET", "/metrics")[2].decode()
    m = parse_metrics(text)
    missing = [n for n in VLLM_NAMES if "vllm:" + n not in m]
    C.ok(not missing, f"B5 missing: {missing}")
    bad = [n for n in m if n.startswith("vllm:") for labels in m[n] if dict(labels).get("engine") != "0" or not dict(labels).get("model_name")]
    C.ok(not bad, f"B5 labels: {bad}")
    v = {n: sum(m["vllm:" + n].values()) for n in VLLM_NAMES if "vllm:" + n in m and not n.endswith("_bucket")}
    C.ok(v["generation_tokens_total"] == 20 and v["request_success_total"] == 4 and v["request_generation_tokens_sum"] == 20, v)
    C.ok(v["request_max_num_generation_tokens_count"] == 2 and v["request_max_num_generation_tokens_sum"] == 10, v)
    C.ok(v["request_params_n_sum"] == 4 and v["request_params_max_tokens_sum"] == 10, v)
    C.ok(0 < v["prefix_cache_hits_total"] < v["prefix_cache_queries_total"] and v["prompt_tokens_cached_total"] == v["prefix_cache_hits_total"], v)
    C.ok(v["iteration_tokens_total_sum"] >= v["prompt_tokens_total"] - v["prompt_tokens_cached_total"] and v["iteration_tokens_total_count"] > 4, v)
    check_dashboard(m)


def check_dashboard(m):
    """Our own dashboard asks for nothing that is not there; with the prefix vllm only for what that set has."""
    with open(os.path.join(ROOT, "contrib", "grafana.json"), encoding="utf-8") as f:
        asked = set(re.findall(r'\$\{prefix\}:(\w+)', f.read()))
    C.ok(len(asked) > 10 and not [n for n in asked if "kvant:" + n not in m], f"B5 grafana.json: {[n for n in asked if 'kvant:' + n not in m]}")
    C.ok({"prefix_cache_hits_total", "prefix_cache_queries_total"} <= asked, asked)


def check_b15():
    """The prefix cache's pages are not "used", but they are not nothing."""
    with Server(BUILD, "-c", "1024", "-np", "2") as s:
        before = s.stats()["bytes"]
        s.post("/v1/completions", {"prompt": "A story of the sea and of the ships on it. " * 30, "max_tokens": 2})
        s.idle()
        st = s.stats()
        C.ok(before.get("cached") == 0 and before["used"] == 0, before)
        C.ok(st["pages"]["cached"] >= 3 and st["bytes"]["used"] == 0 and 0 < st["bytes"].get("cached", 0) < st["bytes"]["total"], f"B15 {st}")
        C.ok(s.metric("cache_bytes_cached") == st["bytes"]["cached"], "B15 /metrics")


def check_b6(s):
    """Client libraries repeat a request after any 5xx: what a request asks for and does not get is 4xx."""
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    for path, body in [("/v1/chat/completions", {"messages": image}),
                       ("/v1/completions", {"prompt": "a", "suffix": "b"}), ("/v1/completions", {"prompt": "a", "n": 2, "best_of": 3}),
                       ("/v1/embeddings", {"input": "a", "dimensions": 7})]:
        status, r = s.post(path, dict(body, max_tokens=1) if "input" not in body else body)
        C.ok(status == 400 and r["error"]["type"] == "invalid_request_error" and r["error"]["code"] == 400 and r["error"]["message"],
             f"B6 {body}: {status} {r}")
    status, r = s.post("/v1/rerank", {"query": "a", "documents": ["b"]})
    C.ok(status == 400 and "rank head" in r["error"]["message"], f"B6 a model that does not rank: {status} {r}")


def check_b7(s):
    """A greedy answer stands for the text: fields that pass leave it as it is."""
    body = {"messages": CHAT, "max_tokens": 6, "temperature": 0}
    text = s.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
    for extra in ({"tfs_z": 0.8}, {"top_a": 0.5},
                  {"guidance_scale": 2}, {"mirostat": 3}, {"maxTokens": 2}, {"chat_template_kwargs": 7}):
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


def check_template_file():
    """--chat-template-file: the text is run instead of the file's."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}!")
        f.flush()
        with Server(BUILD, "-c", "512", "-np", "1", "--chat-template-file", f.name) as s:
            got = s.post("/apply-template", {"messages": [{"role": "user", "content": "hello"}]})
            C.ok(got == (200, {"prompt": "<user>hello!"}), f"--chat-template-file: {got}")


def check_parts():
    """Between two parts of a content a line ends, unless the template goes over parts and puts nothing between them."""
    said = [{"role": "user", "content": [{"type": "text", "text": t} for t in ("one", "", "two")]}]
    item = "{% for p in m.content %}{{ p.text }}{% endfor %}"
    for body, want in (("{{ m.content }}", "one\ntwo"), (item, "onetwo"), ("{% if m.content is string %}{{ m.content }}{% else %}" + item + "{% endif %}", "onetwo")):
        with Server(BUILD, "-c", "512", "-np", "1", "--chat-template", "{% for m in messages %}" + body + "{% endfor %}") as s:
            got = s.post("/apply-template", {"messages": said})
            C.ok(got == (200, {"prompt": want}), f"parts, {body}: {got}, wanted {want!r}")


def check_b10():
    """A copy of the demo with a template that no engine runs."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(with_template("{% zebra crossing %}{{ messages | unheard_of_filter }}"))
        f.flush()
        with Server(BUILD, "-c", "512", "-np", "1", model=f.name) as s:
            said = [x for x in s.lines if "chat template" in x and "400" in x]
            C.ok(len(said) == 1 and s.lines.index(said[0]) < [i for i, x in enumerate(s.lines) if "ready:" in x][0], f"B10 at the start: {s.lines}")
            C.ok("line 1, column 1: tag 'zebra'" in s.get("/props")[1].get("chat_template_problem", ""), f"B10 /props {s.get('/props')}")
            status, r = s.post("/v1/chat/completions", {"messages": CHAT})
            C.ok(status == 400 and "tag 'zebra' is not supported" in r["error"]["message"], f"B10 {status} {r}")
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


def check_aliases():
    with Server(BUILD, "-c", "512", "-np", "1", "--strict-model-name", "--alias", "tiny,fim,code") as s:
        one = s.get("/v1/models")[1]["data"]
        C.ok(len(one) == 1 and one[0]["id"] == "code" and sorted(one[0]["aliases"]) == ["code", "fim", "tiny"], one)
        got = {name: s.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})[0] for name in ("tiny", "fim", "code", "tin", "tiny,fim", "odd")}
        C.ok(got == {"tiny": 200, "fim": 200, "code": 200, "tin": 404, "tiny,fim": 404, "odd": 404}, f"each name and no other: {got}")
        C.ok(s.get("/v1/models/fim")[1]["id"] == "code" and s.get("/v1/models/odd")[0] == 404, "/v1/models/NAME")
    with Server(BUILD, "-c", "512", "-np", "1", "--strict-model-name", "--alias", " b, a b,,") as s:
        one = s.get("/v1/models")[1]["data"][0]
        C.ok(one["id"] == "a b" and one["aliases"] == ["b", "a b"], f"blanks around names and empty names go: {one}")
        got = {name: s.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})[0] for name in ("b", "a b", " b", "a")}
        C.ok(got == {"b": 200, "a b": 200, " b": 404, "a": 404}, got)


def main():
    if not built(BUILD):
        print("SKIP check_serve_clients: this build has no server")
        return C.end()
    check_b4()
    check_b5()
    check_b15()
    check_aliases()
    with Server(BUILD, "-c", "2048", "-np", "4") as s:
        check_b6(s)
        check_b7(s)
        check_b9(s)
        check_b16(s)
    check_b10()
    check_template_file()
    check_parts()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
