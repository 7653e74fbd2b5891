#!/usr/bin/env python3
"""check_serve_forms: models that say one text (support/scripted.py), sure of each token: the grammar of calls lets them go where
the parser reads on, and holds them elsewhere.  Streamed as whole; cut anywhere no marker is shown and no call is told half."""
import json
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from scripted import TEMPLATE, make    # noqa: E402
from serve import Checks, Server, built, events    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_forms")
THINKING = TEMPLATE.replace("{{ m.content }}", "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}")
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def tool(name, needed=1, **fields):
    return {"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": fields, "required": list(fields)[:needed]}}}


TOOLS = [tool("weather", city=TEXT, days=WHOLE), tool("note", 2, title=TEXT, body=TEXT), tool("now")]
OSLO, ROME, NOTE = ["weather", {"city": "Oslo"}], ["weather", {"city": "Rome"}], ["note", {"title": "a", "body": "<p>\nb"}]
CALL, FUNCTION = '{"name": "weather", "arguments": {"city": "Oslo"}}', "<function=weather>\n<parameter=city>\nOslo\n"
SAID = [    # dialect, what the model says, its calls, its text, bytes of a token
    ("hermes", "<tool_call>\n" + CALL, [OSLO], "", 4),
    ("hermes", "<tool_call>\n" + CALL + "\n", [OSLO], "", 7),
    ("hermes", "<tool_call>\n" + CALL[:-1] + "\n</tool_call>", [OSLO], "", 4),
    ("hermes", "Well.\n<tool_call>" + CALL[:-1] + "</tool_call>", [OSLO], "Well.", 3),
    ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "\\u00e5\\ud83d\\ude00"}}</tool_call>', [["weather", {"city": "å😀"}]], "", 4),
    ("hermes", '<function=weather>{"city": "Oslo"}</function>', [OSLO], "", 4),
    ("llama3", '<function=weather>{"city": "Oslo"}</function>', [OSLO], "", 5),
    ("llama3", '{"name": "Ann", "age": 3}', [], '{"name": "Ann", "age": 3}', 4),
    ("llama3", '{"name": "weather", "parameters": {"city": "Oslo"}}; {"name": "weather", "parameters": {"city": "Rome"}}', [OSLO, ROME], "", 4),
    ("qwen3_coder", "<tool_call>\n" + FUNCTION + "</parameter>\n</function>", [OSLO], "", 4),
    ("qwen3_coder", "<tool_call>\n" + FUNCTION + "</function>\n</tool_call>", [OSLO], "", 4),
    ("qwen3_coder", "<tool_call>\n<function=note>\n<parameter=title>\na\n<parameter=body>\n<p>\nb\n</parameter>\n</function>\n</tool_call>", [NOTE], "", 4),
    ("qwen3_coder", "<tool_call>\n<function=note>\n<parameter=title>\na\n<parameter=body>\n<p>\nb\n</function>\n</tool_call>", [NOTE], "", 6),
    ("qwen3_coder", "<tool_call>\n<function=note>\n<parameter=title>\n<parameter=x>\n</parameter>\n<parameter=body>\n</function> b\n</parameter>\n</function>\n"
     "</tool_call>", [["note", {"title": "<parameter=x>", "body": "</function> b"}]], "", 4),
    ("mistral", "[TOOL_CALLS] [" + CALL, [OSLO], "", 4),
    ("mistral", "[TOOL_CALLS][" + CALL + ", " + CALL.replace("Oslo", "Rome") + "]", [OSLO, ROME], "", 4),
    ("gemma4", '<|tool_call>call:weather{city:<|"|>Oslo<|"|>}', [OSLO], "", 4),
    ("pythonic", '<|python_start|>[weather(city="Oslo")]<|python_end|>', [OSLO], "", 4),
    ("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo\n</tool_call>", [OSLO], "", 4),
    ("deepseek_v32", '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>\n'
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>", [OSLO], "", 4),
    ("minimax_m1", "<tool_calls>\n" + CALL + "\n</tool_calls>", [OSLO], "", 4),
    ("command_r", 'Action: ```json\n[\n    {\n        "tool_name": "weather",\n        "parameters": {\n            "city": "Oslo"\n        }\n    }\n]```', [OSLO], "", 4),
]


def calls_of(message):
    return [[c["function"]["name"], c["function"]["arguments"]] for c in message.get("tool_calls") or []]


def is_object(s):
    try:
        return isinstance(json.loads(s), dict)
    except ValueError:
        return False


def streamed(s, body):
    _, _, data = s.request("POST", "/v1/chat/completions", dict(body, stream=True))
    said, calls, end = "", [], None
    for e in events(data):
        for c in (e.get("choices") if isinstance(e, dict) else None) or []:
            said += c["delta"].get("content") or ""
            end = c["finish_reason"] or end
            for t in c["delta"].get("tool_calls") or []:
                calls += [["", ""]] * (t["index"] + 1 - len(calls))
                calls[t["index"]] = [calls[t["index"]][0] + (t["function"].get("name") or ""), calls[t["index"]][1] + (t["function"].get("arguments") or "")]
    return said, calls, end


def ask(s, **fields):
    body = {"messages": [{"role": "user", "content": "q"}], "temperature": 0, "max_tokens": 200, "tools": TOOLS, **fields}
    status, r = s.post("/v1/chat/completions", body)
    if status != 200:
        C.ok(False, f"{fields}: {status} {r}")
        return "", [], None
    c = r["choices"][0]
    got = c["message"].get("content") or "", calls_of(c["message"]), c["finish_reason"]
    said, calls, end = streamed(s, body)
    calls = [c for c in calls if end != "length" or is_object(c[1])]    # of a call that was cut a stream has told what came
    C.ok((said, calls, end) == got, f"stream as whole, {fields}: {(said, calls, end)}, wanted {got}")
    return got


def check_said(path, dialect, said, calls, content, size):
    make(path, said, size)
    with Server(BUILD, "-c", "2048", "-t", "1", "--tool-dialect", dialect, model=path) as s:
        got = ask(s)
        read = [[n, json.loads(a) if is_object(a) else a] for n, a in got[1]]
        C.ok((read, got[0], got[2]) == (calls, content, "tool_calls" if calls else "stop"), f"{dialect}: {said!r}: found {got}, wanted {calls} {content!r}")


def check_cuts(path):
    make(path, "Hm.\n<tool_call>\n" + CALL + "\n</tool_call>", 4)
    with Server(BUILD, "-c", "2048", "-t", "1", "--tool-dialect", "hermes", model=path) as s:
        for n in range(1, 24):
            text, calls, end = ask(s, max_tokens=n)
            C.ok("<tool" not in text, f"{n} tokens: a marker is shown: {text!r}")
            C.ok(end != "tool_calls" or all(is_object(a) for _, a in calls), f"{n} tokens: {calls} {end}")
            text, calls, end = ask(s, max_tokens=n, stop=["Rome"])
            C.ok(all(is_object(a) for _, a in calls), f"{n} tokens, stop strings: half a call: {calls} {end}")


def check_small(path):
    make(path, "<think>\nIt is END.\n</think>\n\nThe END.", 4, THINKING)
    with Server(BUILD, "-c", "2048", "-t", "1", model=path) as s:
        for tools in (None, TOOLS):
            got = ask(s, tools=tools, stop=["END"])
            C.ok(got == ("The ", [], "stop"), f"a thought that templates show behind its marker is told apart: {got}")
        for n in (3.0, 2e0):
            status, r = s.post("/v1/completions", {"prompt": "a", "max_tokens": n, "logprobs": 0})
            C.ok(status == 200 and r["usage"]["completion_tokens"] == n, f"max_tokens {n}: {status} {r}")
            p = r["choices"][0]["logprobs"]
            C.ok(all(list(m) == [t] for t, m in zip(p["tokens"], p["top_logprobs"])), f"logprobs 0: each map has the token that came: {p}")
        status, r = s.post("/v1/completions", {"prompt": "a", "max_tokens": 2.5})
        C.ok(status == 400 and "max_tokens" in r["error"]["message"], f"max_tokens 2.5: {status} {r}")
        for kind, want in (("clear_thinking_20251015", 200), ("clear_tool_uses_20250919", 400)):
            status, _, _ = s.request("POST", "/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": "q"}],
                                                               "context_management": {"edits": [{"type": kind, "keep": "all"}]}})
            C.ok(status == want, f"context_management, {kind}: {status}, wanted {want}")


def check_option():
    with open(os.path.join(ROOT, "src", "server", "tools", "dialect.c"), encoding="utf-8") as f:
        rows = f.read().split("static const dialect dialects[]")[1].split("};")[0]
    with open(os.path.join(ROOT, "docs", "options.md"), encoding="utf-8") as f:
        listed = re.search(r"^- `--tool-dialect` NAME (?:.|\n  )*?\(((?:\w+,\s+)+\w+)", f.read(), re.M).group(1)
        listed = re.split(r",\s+", listed)
    names = re.findall(r'\.name = "(\w+)"', rows)
    C.ok(len(names) > 20 and sorted(names) == sorted(listed), f"--tool-dialect takes {set(names) ^ set(listed)} or not")


if __name__ == "__main__":
    if not built(BUILD):
        print("check_serve_forms: SKIP (built without the server)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m.gguf")
        for row in SAID:
            check_said(model, *row)
        check_cuts(model)
        check_small(model)
    check_option()
    sys.exit(C.end())
