#!/usr/bin/env python3
"""check_serve_cohere: Cohere's /v2/chat (whole, stream, tools, thoughts, formats, histories) and Mistral's /v1/fim/completions over raw HTTP,
beside /v1/chat/completions, /infill and /v1/completions, whose texts they must give."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
sys.path.insert(0, HERE)
from serve import ROOT, Checks, Server, built    # noqa: E402
from check_serve_native import renamed    # noqa: E402
from check_serve_tools import NOW, TOOLS, WEATHER, arguments_ok, start    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_cohere")
USER = [{"role": "user", "content": "Tell me about the sea."}]
SHORT = {"max_tokens": 8, "temperature": 0}


def whole(s, **body):
    status, r = s.post("/v2/chat", {"model": "m", "messages": USER, **SHORT, **body})
    C.ok(status == 200 and r["message"]["role"] == "assistant" and r["usage"]["tokens"]["output_tokens"] > 0, (status, r))
    return r


def stream(s, **body):
    """The events of a stream: each is named by its type, begins and ends as it should."""
    status, _, data = s.request("POST", "/v2/chat", {"model": "m", "messages": USER, **SHORT, **body, "stream": True})
    out = []
    for part in data.decode().strip().split("\n\n"):
        name, text = part.split("\n", 1)
        out.append(json.loads(text[len("data: "):]))
        C.ok(name == "event: " + out[-1]["type"], part)
    C.ok(status == 200 and out[0]["type"] == "message-start" and out[-1]["type"] == "message-end", out)
    for kind in ("content", "tool-call"):
        at = [(e["type"][len(kind) + 1:], e["index"]) for e in out if e["type"].startswith(kind + "-")]
        C.ok([i for w, i in at if w == "start"] == [i for w, i in at if w == "end"] == list(range(len([1 for w, i in at if w == "end"]))), at)
    return out


def said(events, key="text"):
    parts = [e["delta"]["message"]["content"] for e in events if e["type"] == "content-delta"]
    return "".join(p.get(key, "") for p in parts)


def openai(s, **body):
    return s.post("/v1/chat/completions", {"messages": USER, **SHORT, **body})[1]["choices"][0]["message"]["content"]


def check_texts(s):
    want, one, parts = openai(s), whole(s), stream(s)
    C.ok(one["message"]["content"] == [{"type": "text", "text": want}] and said(parts) == want and want, (one, want))
    C.ok(one["finish_reason"] == parts[-1]["delta"]["finish_reason"] == "MAX_TOKENS" and "tool_calls" not in one["message"], one)
    C.ok(one["usage"]["tokens"]["output_tokens"] == 8 == parts[-1]["delta"]["usage"]["billed_units"]["output_tokens"], parts[-1])
    stop = whole(s, max_tokens=40, stop_sequences=[want[2:5]])
    C.ok(stop["finish_reason"] == "STOP_SEQUENCE" and stop["message"]["content"][0]["text"] == want[:want.find(want[2:5])], stop)
    hot = {"temperature": 2, "seed": 5, "max_tokens": 12}
    C.ok(whole(s, **hot, k=3, p=0.9)["message"]["content"][0]["text"] == openai(s, **hot, top_k=3, top_p=0.9), "k and p are top_k and top_p")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    o = whole(s, max_tokens=60, response_format={"type": "json_object", "json_schema": schema})
    C.ok(1 <= json.loads(o["message"]["content"][0]["text"])["n"] <= 9, o)


def check_tools(s):
    call = {"tools": TOOLS, "tool_choice": "REQUIRED", "max_tokens": 160, "temperature": 0.7, "seed": 3}
    one, parts = whole(s, **call), stream(s, **call)
    calls = one["message"]["tool_calls"]
    C.ok(one["finish_reason"] == parts[-1]["delta"]["finish_reason"] == "MAX_TOKENS" and all(arguments_ok(c) for c in calls), one)    # it does not know when to stop
    heads = [e["delta"]["message"]["tool_calls"] for e in parts if e["type"] == "tool-call-start"]
    C.ok([h["function"]["name"] for h in heads] == [c["function"]["name"] for c in calls] and all(h["id"] and h["type"] == "function" for h in heads), heads)
    args = [""] * len(heads)
    for e in parts:
        if e["type"] == "tool-call-delta":
            args[e["index"]] += e["delta"]["message"]["tool_calls"]["function"]["arguments"]
    C.ok(args == [c["function"]["arguments"] for c in calls], (args, calls))
    C.ok("tool_calls" not in whole(s, tools=[NOW], tool_choice="NONE")["message"], "NONE: no call")
    past = [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\", \"days\": 2}"}}]
    turn = USER + [{"role": "assistant", "tool_plan": "I look.", "tool_calls": past},
                   {"role": "tool", "tool_call_id": "c1", "content": [{"type": "document", "document": {"id": "0", "data": {"sky": "blue"}}}]}]
    flat = USER + [{"role": "assistant", "content": "I look.", "tool_calls": past}, {"role": "tool", "tool_call_id": "c1", "content": "{\"sky\":\"blue\"}"}]
    C.ok(whole(s, messages=turn, tools=[WEATHER], tool_choice="NONE")["message"]["content"][0]["text"] ==
         openai(s, messages=flat, tools=[WEATHER], tool_choice="none"), "a plan, a call, a document as its result")


def check_errors(s):
    for change, word in (({"messages": 7}, "messages"), ({"tool_choice": "AUTO"}, "REQUIRED or NONE"), ({"documents": ["a"]}, "documents"),
                         ({"thinking": {"type": "some"}}, "enabled or disabled"), ({"k": -5}, "top_k"), ({"raw_prompting": True}, "raw_prompting"),
                         ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "image_url"),
                         ({"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]}, "thinking: found nothing, wanted a text"),
                         ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": 7}]}]}, "thinking: found 7, wanted a text"),
                         ({"messages": [{"role": "tool", "tool_call_id": "a", "content": [{"type": "document", "document": {}}]}]}, "with data")):
        status, r = s.post("/v2/chat", {"messages": USER, **SHORT, **change})
        C.ok(status == 400 and word in r["error"]["message"], (change, status, r))
    _, headers, _ = s.request("POST", "/v2/chat", {"messages": USER, **SHORT, "safety_mode": "STRICT", "citation_options": {"mode": "FAST"}})
    C.ok(sorted(headers["x-kvant-ignored-fields"].split(", ")) == ["citation_options", "safety_mode"], headers)


def check_thoughts():
    with start("hermes", thinks=True) as s:
        one, parts = whole(s, thinking={"type": "enabled", "token_budget": 4}, max_tokens=24), stream(s, thinking={"type": "enabled", "token_budget": 4}, max_tokens=24)
        content = one["message"]["content"]
        C.ok([p["type"] for p in content] == ["thinking", "text"] and content[0]["thinking"] == said(parts, "thinking"), (content, parts))
        C.ok(content[1]["text"] == said(parts), parts)
        C.ok([p["type"] for p in whole(s, thinking={"type": "disabled"})["message"]["content"]] == ["text"], "disabled: no thought")


def check_fim():
    model = renamed()
    body = {"model": "m", "prompt": "The sea was", "temperature": 0, "max_tokens": 8}
    try:
        with Server(BUILD, "-c", "1024", model=model) as s:
            status, r = s.post("/v1/fim/completions", {**body, "suffix": "and deep."})
            want = s.post("/infill", {"input_prefix": "The sea was", "input_suffix": "and deep.", "temperature": 0, "max_tokens": 8})[1]["content"]
            C.ok(status == 200 and r["object"] == "chat.completion" and r["choices"][0]["message"]["content"] == want, (r, want))
            C.ok(r["usage"]["completion_tokens"] == 8 and r["choices"][0]["finish_reason"] == "length", r)
            _, _, data = s.request("POST", "/v1/fim/completions", {**body, "suffix": "and deep.", "stream": True})
            parts = [json.loads(x[6:]) for x in data.decode().split("\n\n") if x.startswith("data: {")]
            C.ok("".join(c["delta"].get("content") or "" for p in parts for c in p["choices"]) == want and parts[-1]["usage"]["completion_tokens"] == 8, parts)
            plain = s.post("/v1/completions", {"prompt": "The sea was", "temperature": 0, "max_tokens": 8})[1]["choices"][0]["text"]
            C.ok(s.post("/v1/fim/completions", body)[1]["choices"][0]["message"]["content"] == plain, "no suffix: it goes on")
            seeds = [s.post("/v1/fim/completions", {**body, "temperature": 2, "random_seed": k})[1]["choices"][0]["message"]["content"] for k in (1, 1, 2)]
            C.ok(seeds[0] == seeds[1] != seeds[2], seeds)
            for change, word in (({"prompt": None}, "prompt"), ({"suffix": 3}, "suffix"), ({"top_p": 3}, "top_p")):
                status, r = s.post("/v1/fim/completions", {**body, **change})
                C.ok(status == 400 and r["error"]["message"].startswith(word), (change, status, r))
    finally:
        os.unlink(model)
    with Server(BUILD, "-c", "1024") as s:
        status, r = s.post("/v1/fim/completions", {**body, "suffix": "a"})
        C.ok(status == 400 and "no tokens for filling in" in r["error"]["message"], (status, r))


def main():
    with start("hermes") as s:
        check_texts(s)
        check_tools(s)
        check_errors(s)
    check_thoughts()
    check_fim()
    return C.end()


if __name__ == "__main__":
    built(BUILD)
    sys.exit(main())
