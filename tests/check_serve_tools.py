#!/usr/bin/env python3
"""check_serve_tools: tools and thoughts over HTTP.  The small model cannot choose tools; a grammar makes it, with tool_choice required
or once its answer is forced to begin a call."""
import json
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_tools")
USER = {"role": "user", "content": "Tell me about the sea."}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]
CALLS = {    # what a template writes for one call, by dialect
    "hermes": "'<tool_call>\\n{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments | tojson + '}\\n</tool_call>'",
    "qwen3_coder": "'<tool_call>\\n<function=' + f.name + '>\\n' }}"
                   "{% for k, v in f.arguments | items %}{{ '<parameter=' + k + '>\\n' }}{{ v if v is string else v | tojson }}"
                   "{{ '\\n</parameter>\\n' }}{% endfor %}{{ '</function>\\n</tool_call>'",
    "pythonic": "'[' + f.name + '(' }}{% for k, v in f.arguments | items %}{{ k + '=' + (v | tojson) }}{% if not loop.last %}{{ ', ' }}{% endif %}"
                "{% endfor %}{{ ')]'",
    "xlam": "'[{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments | tojson + '}]'",
    "llama3": "'{\"name\": \"' + f.name + '\", \"parameters\": ' + f.arguments | tojson + '}'",
}


def template(dialect, thinks=False):
    return ("{% if tools %}{{ 'Tools: ' + tools | tojson + '\\n' }}{% endif %}"
            "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
            "{% if m.tool_calls %}{% for t in m.tool_calls %}{% set f = t.function %}{{ " + CALLS[dialect] + " }}{% endfor %}{% endif %}"
            "{{ '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n" +
            ("' }}{% if enable_thinking is not defined or enable_thinking %}{{ '<think>\\n' }}{% endif %}" if thinks else "' }}") + "{% endif %}")


def start(dialect, *args, thinks=False):
    with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as f:
        f.write(template(dialect, thinks))
    s = Server(BUILD, "--chat-template-file", f.name, "-np", "4", "-c", "4096", *args)
    os.unlink(f.name)
    return s


def chat(s, **body):
    return s.post("/v1/chat/completions", {"messages": [USER], "max_tokens": 160, "temperature": 0.7, "seed": 3, **body})


def stream(s, body):
    """The chunks of a stream, which ends with [DONE]."""
    status, _, data = s.request("POST", "/v1/chat/completions", {**body, "stream": True})
    parts = [part[6:] for part in data.decode().split("\n\n") if part.startswith("data: ")]
    C.ok(status == 200 and parts[-1] == "[DONE]", data[-200:])
    return [json.loads(part) for part in parts[:-1]]


def arguments_ok(call):
    a = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "now":
        return isinstance(a, dict)
    return call["function"]["name"] == "get_weather" and a["city"] in ("Paris", "Rome") and 1 <= a["days"] <= 9 and len(a) == 2


def joined(events):
    """One message of the deltas of a stream, and why it ended."""
    m, finish = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    for e in events:
        for choice in e["choices"]:
            finish = choice["finish_reason"] or finish
            delta = choice["delta"]
            for key in ("content", "reasoning_content"):
                m[key] += delta.get(key) or ""
            for t in delta.get("tool_calls", []):
                if t["index"] == len(m["tool_calls"]):
                    C.ok(t["id"] and t["type"] == "function" and t["function"]["name"], t)
                    m["tool_calls"].append({"id": t["id"], "type": "function", "function": {"name": t["function"]["name"], "arguments": ""}})
                C.ok(t["index"] == len(m["tool_calls"]) - 1, "calls come one after the other")
                m["tool_calls"][-1]["function"]["arguments"] += t["function"]["arguments"]
    return m, finish


def check_calls(s, dialect):
    for body in ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
                 {"tool_choice": "required", "parallel_tool_calls": False}):
        status, r = chat(s, tools=TOOLS, **body)
        m, c = r["choices"][0]["message"], r["choices"][0]
        whole = c["finish_reason"] == "tool_calls"      # this model does not know when to stop calling
        if not C.ok(status == 200 and (whole or body == {"tool_choice": "required"}) and m["content"] is None and m["tool_calls"], (dialect, body, r)):
            continue
        C.ok(all(arguments_ok(t) for t in m["tool_calls"]), m["tool_calls"])
        C.ok(len({t["id"] for t in m["tool_calls"]}) == len(m["tool_calls"]), "ids differ")
        if isinstance(body["tool_choice"], dict):
            C.ok(all(t["function"]["name"] == "get_weather" for t in m["tool_calls"]), m)
        C.ok(len(m["tool_calls"]) == 1 or body == {"tool_choice": "required"}, m)
        functions = [t["function"] for t in m["tool_calls"]]
        got, finish = joined(stream(s, {"messages": [USER], "max_tokens": 160, "temperature": 0.7, "seed": 3, "tools": TOOLS, **body}))
        C.ok(finish == c["finish_reason"] and [t["function"] for t in got["tool_calls"]][:len(functions)] == functions, (got, functions))
    status, r = chat(s, tools=TOOLS, tool_choice="none", max_tokens=8)
    C.ok(status == 200 and "tool_calls" not in r["choices"][0]["message"] and r["choices"][0]["finish_reason"] == "length", r)
    status, r = chat(s, tools=TOOLS, max_tokens=8)                     # auto: this model writes no call
    C.ok(status == 200 and r["choices"][0]["message"]["content"], r)


def say(s, text, step):
    """Fields that make the model begin with text (or a list of pieces): its tokens are wanted the more the earlier they come, each once."""
    ids = sum((s.post("/tokenize", {"content": t})[1]["tokens"] for t in ([text] if isinstance(text, str) else text)), [])
    return {"logit_bias": {str(t): 100 - step * i for i, t in enumerate(ids)}, "temperature": 0, "repeat_penalty": 100, "repeat_last_n": 16}


def check_lazy(s):
    """auto: an answer that begins a call of its own goes on under the tools' grammar; one that only looks like it is text."""
    calls = 0
    for step in (10, 12):
        status, r = chat(s, tools=TOOLS, max_tokens=100, **say(s, "<tool_call>", step))
        m = r["choices"][0]["message"]
        calls += len(m.get("tool_calls") or [])
        C.ok(status == 200 and m["content"] is None and all(arguments_ok(t) for t in m["tool_calls"]), r)
        got, _ = joined(stream(s, {"messages": [USER], "tools": TOOLS, "max_tokens": 100, **say(s, "<tool_call>", step)}))
        C.ok([t["function"] for t in got["tool_calls"]][:len(m["tool_calls"])] == [t["function"] for t in m["tool_calls"]], got)
    C.ok(calls, "the trigger came")
    status, r = chat(s, tools=TOOLS, max_tokens=40, **say(s, "<tool_calm", 12))
    m = r["choices"][0]["message"]
    C.ok(status == 200 and "tool_calls" not in m and "<tool_cal" in m["content"], m)


def check_begun(s, text, tools, arguments):
    """auto: an answer that begins with this text, or these pieces of it, is a call, and its arguments are right."""
    for step in (10, 11):
        body = {"messages": [USER], "tools": tools, "max_tokens": 100, **say(s, text, step)}
        status, r = s.post("/v1/chat/completions", body)
        c = r["choices"][0]
        m = c["message"]
        if not C.ok(status == 200 and m["content"] is None and m["tool_calls"], (text, step, r)):
            continue
        C.ok(all(arguments(t) for t in m["tool_calls"]), r)
        got, _ = joined(stream(s, body))
        if c["finish_reason"] == "length":      # one that was cut may have begun
            got["tool_calls"] = got["tool_calls"][:len(m["tool_calls"])]
        C.ok(not got["content"] and [t["function"] for t in got["tool_calls"]] == [t["function"] for t in m["tool_calls"]], (got, m))


def check_not_begun(s, text, tools=TOOLS, step=6):
    """auto: an answer that begins with this text stays text, and is the one that comes without tools' grammar."""
    body = {"messages": [USER], "max_tokens": 24, "tools": tools, **say(s, text, step)}
    status, r = s.post("/v1/chat/completions", body)
    m = r["choices"][0]["message"]
    C.ok(status == 200 and "tool_calls" not in m and m["content"].startswith("["), (text, r))
    got, _ = joined(stream(s, body))
    C.ok(got["content"] == m["content"] and not got["tool_calls"], (text, got, m))
    prompt = s.post("/apply-template", {"messages": [USER], "tools": tools})[1]["prompt"]
    plain = s.post("/completion", {"prompt": prompt, "max_tokens": 24, **say(s, text, step)})[1]["content"]
    C.ok(plain.strip() == m["content"], (plain, m))


def check_lists(s, dialect):
    """Where calls are a list without a marker, a bracket begins one when a tool's name follows."""
    if dialect == "pythonic":
        for name in ("get_weather", "now"):
            check_begun(s, f"[{name}(", TOOLS, arguments_ok)
    else:       # a name whose quotes are in tokens of their own: each token comes once
        odd = {"type": "function", "function": {**WEATHER["function"], "name": "Now--"}}
        check_begun(s, ["[", "{", ' "', "n", "ame", '"', ":", '"Now', '--"'], [odd],
                    lambda t: arguments_ok({"function": {**t["function"], "name": "get_weather"}}))
        odd = {"type": "function", "function": {**WEATHER["function"], "name": "Now"}}      # the name, but the token goes on differently
        check_not_begun(s, ["[", "{", ' "', "n", "ame", '"', ":", '"Now', '"\''], [odd], 10)
    for text in ("[1, 2", "[", "[now and th", "[nobody(", "[{x"):
        check_not_begun(s, text)


def check_history(s):
    """Calls and results in the history; each turn's prompt begins with the one before, and is taken from the cache."""
    messages, before, reused, could = [USER], "", 0, 0
    for turn in range(6):
        text = s.post("/apply-template", {"messages": messages, "tools": TOOLS, "add_generation_prompt": False})[1]["prompt"]
        C.ok(text.startswith(before), "the history is written as before")
        before = text
        status, r = chat(s, messages=messages, tools=TOOLS, tool_choice="required", seed=turn)
        if not C.ok(status == 200, r):
            return
        usage = r["usage"]
        reused += usage["prompt_tokens_details"]["cached_tokens"]
        could += usage["prompt_tokens"] // 64 * 64 if turn else 0
        m = r["choices"][0]["message"]
        messages = messages + [{"role": "assistant", "content": None, "tool_calls": m["tool_calls"]}]
        messages += [{"role": "tool", "tool_call_id": t["id"], "content": json.dumps({"ok": turn})} for t in m["tool_calls"]]
    C.ok(reused > 0.5 * could, f"{reused} of {could} tokens reused")


def counter(s, name):
    text = s.request("GET", "/metrics")[2].decode()
    return float(re.search(rf"^kvant:{name}{{.*}} (\S+)$", text, re.M).group(1))


def check_turns():
    """20 turns of a conversation with tools and thoughts, which the template leaves out of the history: of the tokens with which a prompt
    goes on as the one before, whole pages of them, at least 95 % come from the cache; the counters say the same."""
    s = start("hermes", "--reasoning-budget", "24", thinks=True)
    messages = [{"role": "system", "content": "You tell of the weather and of the time. " * 12}, USER]
    before, reused, could = [], 0, 0
    for turn in range(20):
        text = s.post("/apply-template", {"messages": messages, "tools": TOOLS})[1]["prompt"]
        ids = s.post("/tokenize", {"content": text, "add_special": True})[1]["tokens"]
        status, r = chat(s, messages=messages, tools=TOOLS, tool_choice="required" if turn % 2 else "auto", seed=turn, max_tokens=56)
        C.ok(status == 200 and r["usage"]["prompt_tokens"] == len(ids), (len(ids), r))
        same = next((i for i, (a, b) in enumerate(zip(ids, before)) if a != b), min(len(ids), len(before)))
        reused += r["usage"]["prompt_tokens_details"]["cached_tokens"]
        could += same // 64 * 64
        before, m = ids, r["choices"][0]["message"]
        messages = messages + [{k: m[k] for k in ("role", "content", "tool_calls", "reasoning_content") if k in m}]
        messages += [{"role": "tool", "tool_call_id": t["id"], "content": json.dumps({"celsius": turn})} for t in m.get("tool_calls", [])]
        messages += [] if m.get("tool_calls") else [{"role": "user", "content": f"And in the city number {turn}, please?"}]
    known, hits = counter(s, "prefix_cache_known_tokens_total"), counter(s, "prefix_cache_hits_total")
    C.ok(could > 10000 and reused >= 0.95 * could, f"{reused} of {could} tokens reused")
    C.ok(hits == reused and 0.95 * known <= hits <= known and known >= could, (hits, reused, known, could))
    C.ok(s.stop() == 0, "stopped cleanly")


def check_bad(s):
    for body, param in (({"tools": [{"type": "x"}]}, "tools"), ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
                        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
                        ({"tool_choice": "required"}, "tool_choice"), ({"tools": TOOLS, "parallel_tool_calls": 3}, "parallel_tool_calls"),
                        ({"tools": TOOLS, "grammar": "root ::= \"a\""}, "tools"),
                        ({"reasoning_format": "x"}, "reasoning_format"), ({"enable_thinking": 3}, "enable_thinking"),
                        ({"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "messages")):
        status, r = chat(s, **body)
        C.ok(status == 400 and r["error"]["param"] == param and r["error"]["message"].startswith(param.split("_")[0]), (status, r))
    strict = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {"u": {"not": {}}}}}}
    status, r = chat(s, tools=[strict])
    C.ok(status == 400 and "f:#/properties/u/not" in r["error"]["message"], r)


def check_thoughts():
    s = start("hermes", thinks=True)
    try:
        status, r = chat(s, max_tokens=40, thinking_budget_tokens=5)
        m = r["choices"][0]["message"]
        C.ok(status == 200 and m["reasoning_content"] and m["content"] and "<think>" not in m["content"], r)
        got, _ = joined(stream(s, {"messages": [USER], "max_tokens": 40, "thinking_budget_tokens": 5, "temperature": 0.7, "seed": 3}))
        C.ok((got["reasoning_content"], got["content"]) == (m["reasoning_content"], m["content"]), (got, m))
        status, r = chat(s, max_tokens=12)
        C.ok(status == 200 and r["choices"][0]["message"]["reasoning_content"] and r["choices"][0]["message"]["content"] == "", r)
        status, r = chat(s, max_tokens=12, enable_thinking=False)
        C.ok(status == 200 and "reasoning_content" not in r["choices"][0]["message"], r)
        status, r = chat(s, max_tokens=12, reasoning_format="none")
        C.ok(status == 200 and r["choices"][0]["message"]["content"] and "reasoning_content" not in r["choices"][0]["message"], r)
        status, r = chat(s, tools=TOOLS, tool_choice="required", thinking_budget_tokens=4)
        m = r["choices"][0]["message"]
        C.ok(status == 200 and m["reasoning_content"] and m["tool_calls"] and all(arguments_ok(t) for t in m["tool_calls"]), r)
        status, r = chat(s, response_format={"type": "json_object"}, thinking_budget_tokens=4, max_tokens=60)
        C.ok(status == 200 and r["choices"][0]["message"]["reasoning_content"] and r["choices"][0]["message"]["content"].startswith("{"), r)
    finally:
        C.ok(s.stop() == 0, "stopped cleanly")


def blocks(s, body):
    """The content and the last reason of a stream of /v1/messages."""
    status, _, data = s.request("POST", "/v1/messages", {**body, "stream": True})
    events = [json.loads(part.split("data: ", 1)[1]) for part in data.decode().split("\n\n") if part.startswith("event: ")]
    C.ok(status == 200 and events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop", data[-300:])
    content, reason = [], None
    for e in events:
        if e["type"] == "content_block_start":
            C.ok(e["index"] == len(content), e)
            content.append({**e["content_block"], "json": ""})
        elif e["type"] == "content_block_delta":
            d, b = e["delta"], content[e["index"]]
            for key, of in (("text", "text_delta"), ("thinking", "thinking_delta")):
                b[key] = b.get(key, "") + d[key] if d["type"] == of else b.get(key)
            b["json"] += d.get("partial_json", "")
        reason = e["delta"]["stop_reason"] if e["type"] == "message_delta" else reason
    return content, reason


def check_messages(s):
    """Anthropic's API, over the same chat."""
    tool = {"name": "get_weather", "description": "x", "input_schema": WEATHER["function"]["parameters"], "strict": True}
    body = {"max_tokens": 200, "temperature": 0.7, "seed": 3, "system": [{"type": "text", "text": "Be brief."}], "messages": [USER], "tools": [tool]}
    status, r = s.post("/v1/messages", {**body, "tool_choice": {"type": "tool", "name": "get_weather"}})
    if not C.ok(status == 200 and r["type"] == "message" and r["stop_reason"] == "tool_use" and len(r["content"]) == 1, r):
        return
    call = r["content"][0]
    C.ok(call["type"] == "tool_use" and call["input"]["city"] in ("Paris", "Rome") and r["usage"]["output_tokens"] > 0, r)
    content, reason = blocks(s, {**body, "tool_choice": {"type": "tool", "name": "get_weather"}})
    C.ok(reason == "tool_use" and json.loads(content[0]["json"]) == call["input"] and content[0]["name"] == "get_weather", (content, r))
    history = [USER, {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "21"}]},
                                            {"type": "text", "text": "And now?"}]}]
    status, r = s.post("/v1/messages", {**body, "messages": history, "max_tokens": 6, "stop_sequences": ["zzz"]})
    C.ok(status == 200 and r["stop_reason"] == "max_tokens" and r["content"][0]["type"] == "text", r)
    n = s.post("/v1/messages/count_tokens", {**body, "messages": history})[1]["input_tokens"]
    usage = r["usage"]
    C.ok(n == usage["input_tokens"] + usage["cache_read_input_tokens"] > s.post("/v1/messages/count_tokens", body)[1]["input_tokens"], (n, usage))
    content, reason = blocks(s, {**body, "messages": history, "max_tokens": 6})
    C.ok(content[0]["text"] == r["content"][0]["text"] and reason == "max_tokens", (content, r))
    for change, param in (({"messages": "x"}, "messages"), ({"tools": [{**tool, "type": "function"}]}, "tools"), ({"tool_choice": {"type": "x"}}, "tool_choice"),
                          ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages"), ({"thinking": {"type": "x"}}, "thinking")):
        status, r = s.post("/v1/messages", {**body, **change})
        C.ok(status == 400 and r["error"]["param"] == param, (status, r))


def check_generic(s):
    """A template without tools: they are told in words, and so are calls and results."""
    ask = lambda messages, **more: s.post("/apply-template", {"messages": messages, **more})[1]["prompt"]    # noqa: E731
    call = {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{\"zone\": \"\u00e9\"}"}}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "12:00"}
    p = ask([USER], tools=TOOLS)
    C.ok(p.count("get_weather") == 1 and '"now"' in p and "<tool_call>" in p and p.index("get_weather") < p.index(USER["content"]), p)
    C.ok(ask([USER], tools=TOOLS, tool_choice="none") == ask([USER]), "none: as if there were no tools")
    p = ask([{"role": "system", "content": "Be terse."}, USER], tools=TOOLS)
    C.ok(p.count("<|im_start|>system") == 1 and p.index("Be terse.") < p.index("get_weather"), p)
    p = ask([USER, call, result, result, {"role": "user", "content": "And then?"}], tools=TOOLS)
    C.ok('I look.\n<tool_call>\n{"name": "now", "arguments": {"zone": "\u00e9"}}\n</tool_call><|im_end|>' in p, p)
    C.ok(p.count("<|im_start|>user") == 2 and p.count("<tool_response>\n12:00\n</tool_response>") == 2 and "</tool_response>\n\nAnd then?" in p, p)
    p = ask([USER, call, result])
    C.ok("<tool_response>\n12:00" in p and "<|im_start|>tool" not in p, p)
    status, r = chat(s, tools=TOOLS, tool_choice="required")
    C.ok(status == 200 and r["choices"][0]["message"]["tool_calls"][0]["function"]["name"] in ("get_weather", "now"), r)
    status, r = chat(s, tools=TOOLS, max_tokens=8)
    C.ok(status == 200, r)
    C.ok(s.get("/props")[1]["tool_dialect"] == "hermes" if hasattr(s, "get") else True, "told in /props")


def main():
    if not built(BUILD):
        print("check_serve_tools: SKIP (built without the server)")
        return 0
    for dialect in CALLS:
        s = start(dialect)
        try:
            C.ok(any(f"tool calls {dialect}," in line for line in s.lines), s.lines)
            check_calls(s, dialect)
            if dialect in ("pythonic", "xlam"):
                check_lists(s, dialect)
            if dialect == "hermes":
                check_lazy(s)
                check_history(s)
                check_bad(s)
                check_messages(s)
        finally:
            C.ok(s.stop() == 0, "stopped cleanly")
    check_thoughts()
    check_turns()
    s = Server(BUILD)
    try:
        check_generic(s)
    finally:
        C.ok(s.stop() == 0, "stopped cleanly")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
