#!/usr/bin/env python3
"""check_serve_visible: stop strings, min_tokens, log-probabilities and offsets are about the visible answer, in every API, streamed and
whole: never within a thought; a stop string within a call's arguments ends the answer and there is no call."""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "support"))
from check_serve_tools import TOOLS, start    # noqa: E402
from serve import Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_visible")
ONE = {"role": "user", "content": "Tell me about the sea."}
WORDS = {"grammar": 'root ::= "alpha beta gamma delta epsilon zeta"', "temperature": 0}


def frames(s, path, body):
    data = s.request("POST", path, {**body, "stream": True})[2].decode()
    return [json.loads(x) for x in re.findall(r"^data: (\{.*\})$", data, re.M)]


def ask(s, api, body):
    """Text, thought, calls, why it ended, the stop string (or None), of the answer and of its stream."""
    if api == "chat":
        return [of_chat(s.post("/v1/chat/completions", {"messages": [ONE], "max_tokens": 240, **body})[1]["choices"][0]),
                of_deltas(frames(s, "/v1/chat/completions", {"messages": [ONE], "max_tokens": 240, **body}))]
    if api == "messages":
        body = dict(body)
        if "stop" in body:
            body["stop_sequences"] = body.pop("stop")
        if body.get("tools"):
            body["tools"] = [{"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object"})} for t in body["tools"]]
            body["tool_choice"] = {"type": "any"}
        body = {"messages": [ONE], "max_tokens": 240, **body}
        return [of_message(s.post("/v1/messages", body)[1]), of_message(rebuild(frames(s, "/v1/messages", body)))]
    if api == "responses":
        body = {"input": ONE["content"], "max_output_tokens": 240, **body}
        if body.get("tools"):
            body["tools"] = [{"type": "function", **t["function"]} for t in body["tools"]]
        return [of_response(s.post("/v1/responses", body)[1]), of_response(frames(s, "/v1/responses", body)[-1]["response"])]
    path = "/completion" if api == "native" else "/v1/completions"
    body = {"prompt": "The sea", "max_tokens": 240, **body}
    return [of_text(api, [s.post(path, body)[1]]), of_text(api, frames(s, path, body))]


def of_chat(c):
    m = c["message"]
    return m["content"] or "", m.get("reasoning_content") or "", [t["function"]["arguments"] for t in m.get("tool_calls", [])], c["finish_reason"], None


def of_deltas(events):
    m = {"message": {"content": "", "reasoning_content": "", "tool_calls": []}, "finish_reason": None}
    for e in events:
        for c in e["choices"]:
            m["finish_reason"] = c["finish_reason"] or m["finish_reason"]
            for key in ("content", "reasoning_content"):
                m["message"][key] += c["delta"].get(key) or ""
            for t in c["delta"].get("tool_calls", []):
                if t.get("id"):
                    m["message"]["tool_calls"].append({"function": {"arguments": ""}})
                m["message"]["tool_calls"][-1]["function"]["arguments"] += t["function"]["arguments"]
    return of_chat(m)


def rebuild(events):
    """A message of its events, as the SDK does."""
    m = events[0]["message"]
    C.ok(m["stop_reason"] is None and m["stop_sequence"] is None, m)
    for e in events:
        if e["type"] == "content_block_start":
            m["content"].append(dict(e["content_block"], json=""))
        elif e["type"] == "content_block_delta":
            for key in ("text", "thinking"):
                if key in e["delta"]:
                    m["content"][-1][key] += e["delta"][key]
            m["content"][-1]["json"] += e["delta"].get("partial_json", "")
        elif e["type"] == "message_delta":
            m.update(e["delta"])
            C.ok(all(e["usage"][k] == m["usage"][k] for k in ("input_tokens", "cache_read_input_tokens")), (e, m))
    for b in m["content"]:
        if b["type"] == "tool_use":
            b["input"] = json.loads(b["json"]) if m["stop_reason"] != "max_tokens" else {}
    return m


def of_message(m):
    get = lambda kind, key: "".join(b[key] for b in m["content"] if b["type"] == kind)
    return (get("text", "text"), get("thinking", "thinking"), [json.dumps(b["input"]) for b in m["content"] if b["type"] == "tool_use"],
            m["stop_reason"], m["stop_sequence"])


def of_response(r):
    get = lambda kind: "".join(p["text"] for o in r["output"] if o["type"] == kind for p in o["content"])
    return (get("message"), get("reasoning"), [o["arguments"] for o in r["output"] if o["type"] == "function_call"], r["status"],
            [(o["type"], o["status"]) for o in r["output"]])


def of_text(api, parts):
    if api == "native":
        return "".join(p["content"] for p in parts), "", [], parts[-1]["stop_type"], parts[-1]["stopping_word"] or None
    return "".join(c["text"] for p in parts for c in p["choices"]), "", [], parts[-1]["choices"][0]["finish_reason"], None


STOPPED = {"chat": "stop", "messages": "stop_sequence", "responses": "completed", "native": "word", "text": "stop"}


def check_stops(s):
    """Eleven lists of stop strings in five APIs: the text before the first that is complete; which one it was."""
    for stop, text, which in ((["gamma"], "alpha beta ", "gamma"), (["x", "beta gamma"], "alpha ", "beta gamma"), (["a g", "beta"], "alpha ", "beta"),
                              (["alpha"], "", "alpha"), ([" "], "alpha", " "), (["zeta!", "zet"], "alpha beta gamma delta epsilon ", "zet"),
                              (["a delta", "ta"], "alpha be", "ta"), (["gamma!", "delta "], "alpha beta gamma ", "delta "), (["ε", "psi"], "alpha beta gamma delta e", "psi"),
                              (["lpha b"], "a", "lpha b"), (["none"], "alpha beta gamma delta epsilon zeta", None)):
        for api in ("chat", "messages", "responses", "native", "text"):
            for got in ask(s, api, {**WORDS, "stop": stop}):
                reason = STOPPED[api] if which else {"messages": "end_turn", "native": "eos"}.get(api, STOPPED[api])
                told = which if api in ("messages", "native") else got[4]
                C.ok(got[0].strip() == text.strip() and got[3] == reason and got[4] == told, (api, stop, got))


def check_offsets(s):
    """Offsets and tokens of a stream are those of the whole answer; the tokens that a stop string took are not there."""
    for stop, extra in ((["gamma!"], {}), (["a g?", "beta gamma delt!"], {}), (["delta"], {}), (["eta gam"], {}), ([" "], {}), ([], {"echo": True}),
                        (["gamma d!"], {"echo": True}), (["gamma"], {"echo": True}), (["zeta"], {"n": 2}), (["zeta?"], {"min_tokens": 4})):
        body = {"prompt": "The old sea,", "max_tokens": 40, "logprobs": 2, "stop": stop, **WORDS, **extra}
        whole = s.post("/v1/completions", body)[1]["choices"][0]
        parts = [c for e in frames(s, "/v1/completions", body) for c in e["choices"] if c["index"] == 0]
        joined = {k: [x for c in parts if c["logprobs"] for x in c["logprobs"][k]] for k in whole["logprobs"]}
        p = whole["logprobs"]
        C.ok(joined == p and "".join(c["text"] for c in parts) == whole["text"], (stop, joined, p))
        C.ok(all(whole["text"][o:].startswith(t[:len(whole["text"]) - o].lstrip() if o == 0 else t[:len(whole["text"]) - o]) and o < len(whole["text"])
                 for t, o in zip(p["tokens"], p["text_offset"])), (stop, p, whole["text"]))
        C.ok(all(t in m for t, m in zip(p["tokens"], p["top_logprobs"]) if m is not None), p)


def check_tops(s):
    """What was sampled is in its map, at any temperature and number of candidates; in chats too."""
    for k, seed in ((1, 1), (1, 2), (2, 3), (3, 4), (5, 5), (20, 6)):
        body = {"max_tokens": 12, "temperature": 2, "top_p": 1, "top_k": 0, "min_p": 0, "seed": seed}
        p = s.post("/v1/completions", {"prompt": "Once", "logprobs": k, **body})[1]["choices"][0]["logprobs"]
        C.ok(all(t in m and m[t] == v and k <= len(m) <= k + 1 for t, v, m in zip(p["tokens"], p["token_logprobs"], p["top_logprobs"])), p)
        p = s.post("/v1/chat/completions", {"messages": [ONE], "logprobs": True, "top_logprobs": k, **body})[1]["choices"][0]["logprobs"]["content"]
        C.ok(all(any(q["token"] == t["token"] and q["logprob"] == t["logprob"] for q in t["top_logprobs"]) for t in p), p)


def check_least(s):
    """min_tokens: neither a stop string nor the end before; what stands there stays text."""
    for least in (1, 2, 5, 9, 12, 13, 16, 20):
        body = {"max_tokens": 40, "temperature": 0, "grammar": 'root ::= "a! b! c! d! e! f! g! h! i! j! k! l!"', "stop": ["!"], "min_tokens": least}
        for path, used in (("/v1/completions", lambda r: r["usage"]["completion_tokens"]), ("/completion", lambda r: r["tokens_predicted"]),
                           ("/v1/chat/completions", lambda r: r["usage"]["completion_tokens"]), ("/v1/messages", lambda r: r["usage"]["output_tokens"])):
            b = {"stop_sequences": body["stop"], **{k: v for k, v in body.items() if k != "stop"}} if path.endswith("messages") else body
            r = s.post(path, {"prompt": "x", **b} if "comp" in path and "chat" not in path else {"messages": [ONE], **b})[1]
            C.ok(least <= used(r) <= least + 4, (least, path, r))
        for api in ("chat", "messages", "native", "text"):
            a, b = ask(s, api, {k: v for k, v in body.items() if k != "max_tokens"})
            C.ok(a == b and a[3] == STOPPED[api] and a[0].startswith("a! b"[:1 if least < 3 else 4]), (least, api, a, b))


def check_thoughts(s):
    """With stops that every thought has, the thought goes on to its end; logprobs are of the answer alone."""
    common = [" the", " a", ",", "e", "s", " ", "o", "t"]
    for seed in range(6):
        body = {"temperature": .8, "seed": seed, "stop": common[:3 + seed], "thinking_budget_tokens": 12, "max_tokens": 60, "grammar": 'root ::= "XX! YY"'}
        for api in ("chat", "messages", "responses"):
            b = {k: v for k, v in body.items() if api != "responses" or k != "max_tokens"}
            for text, thought, _, _, _ in ask(s, api, b):
                C.ok(thought and text in ("XX! YY", "XX!"), (api, seed, text, thought))
        c = s.post("/v1/chat/completions", {"messages": [ONE], **body, "stop": ["YY"], "logprobs": True, "top_logprobs": 1})[1]["choices"][0]
        C.ok("".join(t["token"] for t in c["logprobs"]["content"]).strip().startswith("XX!") and c["message"]["content"].strip() == "XX!", c)
        body = {"messages": [ONE], **body, "stop": ["zzz"], "logprobs": True}
        parts = [x for e in frames(s, "/v1/chat/completions", body) for x in e["choices"]]
        C.ok("".join(t["token"] for x in parts if x["logprobs"] for t in x["logprobs"]["content"]).strip() == "XX! YY", parts)
    for n in (2, 4, 7):
        a, b = ask(s, "responses", {"temperature": 0, "max_output_tokens": n})
        C.ok(a == b and a[3] == "incomplete" and a[4] == [("reasoning", "incomplete")], (a, b))
    a, b = ask(s, "chat", {"temperature": 0, "max_tokens": 5})
    C.ok(a == b and a[3] == "length" and a[1] and not a[0], (a, b))


def check_calls(s):
    """A stop string within the arguments: no call, the API's word for it; the same bytes outside a call's arguments change nothing."""
    body = {"tools": TOOLS[:1], "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0, "enable_thinking": False}
    want = {"chat": ("stop", None), "messages": ("stop_sequence", "stop"), "responses": ("incomplete", [("message", "completed")])}
    for stop in (["Paris", "Rome"], ["city"], ["P", "R"], ['"days"'], ["ar", "om"]):
        for api, (reason, told) in want.items():
            b = dict(body)
            if api == "messages":
                b.pop("parallel_tool_calls")
            for text, _, calls, why, extra in ask(s, api, {**b, "stop": stop}):
                C.ok(not calls and not text and why == reason and (extra in stop if told == "stop" else extra == told), (api, stop, text, calls, why, extra))
    for api, reason in (("chat", "tool_calls"), ("messages", "tool_use"), ("responses", "completed")):
        b = {k: v for k, v in body.items() if api != "messages" or k != "parallel_tool_calls"}
        for stop in (["tool_call"], ["get_weather"], ["nowhere"]):
            for text, _, calls, why, _ in ask(s, api, {**b, "stop": stop}):
                if why not in ("length", "max_tokens", "incomplete"):
                    C.ok(why == reason and calls and "city" in json.loads(calls[0]), (api, stop, text, calls, why))
    r = s.post("/v1/messages", {"messages": [ONE], "max_tokens": 14, "temperature": 0, "enable_thinking": False, "tool_choice": {"type": "any"},
                                "tools": [{"name": "f", "input_schema": TOOLS[0]["function"]["parameters"]}]})[1]
    C.ok(r["stop_reason"] == "max_tokens" and not any(b["type"] == "tool_use" for b in r["content"]), ("a cut call is no call", r))


def main():
    if not built(BUILD):
        return C.end()
    with Server(BUILD, "-c", "2048", "-np", "2") as s:
        check_stops(s)
        check_offsets(s)
        check_tops(s)
        check_least(s)
    with start("hermes", thinks=True) as s:
        check_thoughts(s)
        check_calls(s)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
