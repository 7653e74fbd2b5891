#!/usr/bin/env python3
"""check_serve_cuts: max_tokens at every place of an answer with calls, in every API, streamed and whole: the reason is told, a call that is
not whole is none, and nothing of its frame is text.  A stream that has begun a call ends it as the API's own does: pieces of JSON
that are none together, no event that says it is done."""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "support"))
from check_serve_tools import TOOLS, joined, start    # noqa: E402
from serve import Checks, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_cuts")
ONE = {"role": "user", "content": "Tell me about the sea."}
NEEDS = {"get_weather": {"city", "days"}, "now": set()}
CUTS = list(range(1, 25)) + list(range(26, 42, 3)) + [46, 61, 80]
LONG = {"chat": "length", "messages": "max_tokens", "responses": "incomplete"}
DONE = {"chat": "tool_calls", "messages": "tool_use", "responses": "completed"}


def frames(s, path, body):
    data = s.request("POST", path, {**body, "stream": True})[2].decode()
    return [json.loads(x) for x in re.findall(r"^data: (\{.*\})$", data, re.M)]


def runs(name, arguments):
    """Whether a client could run this."""
    a = json.loads(arguments)
    return isinstance(a, dict) and NEEDS[name] <= set(a)


def half(text):
    """Pieces that no client takes for arguments: some, the beginning of an object, and no JSON."""
    try:
        json.loads(text)
    except ValueError:
        return text.startswith("{")
    return False


def body_of(api, n, extra):
    tools = TOOLS
    body = {"temperature": .7, "seed": 3, "enable_thinking": False, **extra}
    if api == "chat":
        return "/v1/chat/completions", {"messages": [ONE], "max_tokens": n, "tools": tools, "tool_choice": "required", **body}
    if api == "messages":
        tools = [{"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object"})} for t in tools]
        if "stop" in body:
            body["stop_sequences"] = body.pop("stop")
        return "/v1/messages", {"messages": [ONE], "max_tokens": n, "tools": tools, "tool_choice": {"type": "any"}, **body}
    tools = [{"type": "function", **t["function"]} for t in tools]
    body.pop("seed")
    return "/v1/responses", {"input": ONE["content"], "max_output_tokens": n, "tools": tools, "tool_choice": "required", **body, "temperature": 0}


def of_whole(api, r):
    """Text, calls (name, arguments), reason, tokens."""
    if api == "chat":
        c, m = r["choices"][0], r["choices"][0]["message"]
        calls = [(t["function"]["name"], t["function"]["arguments"]) for t in m.get("tool_calls", [])]
        C.ok("tool_calls" not in m or calls, "an empty list of calls")
        return m["content"] or "", calls, c["finish_reason"], r["usage"]["completion_tokens"]
    if api == "messages":
        calls = [(b["name"], json.dumps(b["input"])) for b in r["content"] if b["type"] == "tool_use"]
        return "".join(b.get("text", "") for b in r["content"]), calls, r["stop_reason"], r["usage"]["output_tokens"]
    calls = [(o["name"], o["arguments"]) for o in r["output"] if o["type"] == "function_call"]
    C.ok(all(o["status"] == "completed" for o in r["output"] if o["type"] == "function_call"), r["output"])
    want = {"reason": "max_output_tokens"} if r["status"] == "incomplete" else None
    C.ok(r["incomplete_details"] == want, r)
    return "".join(p["text"] for o in r["output"] if o["type"] == "message" for p in o["content"]), calls, r["status"], r["usage"]["output_tokens"]


def of_chat_stream(events):
    m, finish = joined(events)
    return m["content"], [(t["function"]["name"], t["function"]["arguments"]) for t in m["tool_calls"]], finish


def of_message_stream(events):
    text, calls, opened, reason = "", [], [], None
    for e in events:
        if e["type"] == "content_block_start":
            C.ok(not opened, "blocks one after the other")
            opened.append(e["index"])
            if e["content_block"]["type"] == "tool_use":
                calls.append([e["content_block"]["name"], ""])
        elif e["type"] == "content_block_delta":
            text += e["delta"].get("text", "")
            if "partial_json" in e["delta"]:
                calls[-1][1] += e["delta"]["partial_json"]
        elif e["type"] == "content_block_stop":
            C.ok(opened.pop() == e["index"], e)
        elif e["type"] == "message_delta":
            reason = e["delta"]["stop_reason"]
    C.ok(not opened and events[-1]["type"] == "message_stop", events[-2:])
    return text, [tuple(c) for c in calls], reason


def of_response_stream(events):
    """Also: each call that is done can run; the last event's output is made of what was done."""
    last, calls, done = events[-1], [], []
    for e in events:
        if e["type"] == "response.output_item.added" and e["item"]["type"] == "function_call":
            calls.append([e["item"]["name"], ""])
        elif e["type"] == "response.function_call_arguments.delta":
            calls[-1][1] += e["delta"]
        elif e["type"] == "response.function_call_arguments.done":
            C.ok(e["arguments"] == calls[-1][1] and runs(calls[-1][0], e["arguments"]), e)
        elif e["type"] == "response.output_item.done":
            done.append(e["item"])
    C.ok(last["type"] == "response." + last["response"]["status"] and last["response"]["output"] == done, (last, done))
    return of_whole("responses", last["response"])[0], [tuple(c) for c in calls], last["response"]["status"]


STREAMS = {"chat": of_chat_stream, "messages": of_message_stream, "responses": of_response_stream}


def check_cut(s, api, n, extra):
    """Returns how the answer ended, and whether a call was begun in vain."""
    path, body = body_of(api, n, extra)
    status, r = s.post(path, body)
    if not C.ok(status == 200, (api, n, r)):
        return None, 0
    text, calls, reason, used = of_whole(api, r)
    C.ok(not text and all(runs(*c) for c in calls), (api, n, extra, text, calls))
    C.ok(reason == LONG[api] and used == n or reason == DONE[api] and calls and used <= n, (api, n, extra, reason, used))
    s_text, s_calls, s_reason = STREAMS[api](frames(s, path, body))
    more = s_calls[len(calls):]
    same = [c[0] for c in s_calls[:len(calls)]] == [c[0] for c in calls] and all(json.loads(a[1]) == json.loads(b[1]) for a, b in zip(s_calls, calls))
    C.ok(s_text == text and s_reason == reason and same, (api, n, extra, s_text, s_calls, s_reason, calls))
    C.ok(len(more) <= (reason == LONG[api] and not extra.get("stop")) and all(half(a) for _, a in more), (api, n, extra, more))
    return reason, len(more)


def check_server(s, dialect, cuts):
    """Returns how many calls streams had begun in vain."""
    begun = 0
    for api in LONG:
        for extra in ({}, {"stop": ["nowhere at all"]}) if api != "responses" else ({},):
            seen = [check_cut(s, api, n, extra) for n in (cuts if not extra else cuts[::3])]
            C.ok(LONG[api] in [r for r, _ in seen], "an answer was cut")
            begun += sum(more for _, more in seen)
    for n in (1, 2, 3):
        r = s.post("/completion", {"prompt": "x", "max_tokens": n, "temperature": 0, "grammar": 'root ::= "<tool_call>{"'})[1]
        C.ok(r["stop_type"] == "limit" and r["tokens_predicted"] == n, (dialect, r))
        r = s.post("/v1/completions", {"prompt": "x", "max_tokens": n, "temperature": 0, "grammar": 'root ::= "<tool_call>{"'})[1]
        C.ok(r["choices"][0]["finish_reason"] == "length" and r["usage"]["completion_tokens"] == n, (dialect, r))
    return begun


def check_stored(s):
    """The next turn of a response whose call was cut has no half of a call in its history."""
    for n in (12, 20, 26, 31):
        path, body = body_of("responses", n, {})
        r = s.post(path, body)[1]
        status, again = s.post(path, {**body, "previous_response_id": r["id"], "max_output_tokens": 4, "tool_choice": "none"})
        C.ok(status == 200 and again["status"] == "incomplete", (n, again))
        kept = s.get("/v1/responses/" + r["id"])[1]
        C.ok(kept["output"] == r["output"] and all(o["type"] != "function_call" or runs(o["name"], o["arguments"]) for o in kept["output"]), (n, kept))


def main():
    if not built(BUILD):
        return C.end()
    begun = 0
    for dialect in ("hermes", "qwen3_coder", "pythonic", "xlam", "llama3"):
        with start(dialect, thinks=True) as s:
            begun += check_server(s, dialect, CUTS if dialect == "hermes" else CUTS[::5])
            if dialect == "hermes":
                check_stored(s)
    C.ok(begun > 3, "calls were cut")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
