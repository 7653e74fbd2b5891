#!/usr/bin/env python3
"""check_serve_formats: a schema, a regular expression, a list of texts or a grammar under each name that clients have for it, and tools
together with a format: the answer is a call or text of the format."""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "support"))
from check_serve_tools import TOOLS, arguments_ok, start    # noqa: E402
from serve import Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_formats")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"], "additionalProperties": False}
USER = [{"role": "user", "content": "q"}]


def is_schema(t):
    v = json.loads(t)
    return list(v) == ["a"] and 0 <= v["a"] <= 99


def check_names(s):
    """Each name that a constraint has, in completions and chats."""
    date = r"\d{4}-\d{2}-(0[1-9]|[12]\d)"
    for body, ok in (({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, is_schema),
                     ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, is_schema), ({"response_format": {"type": "json_object", "schema": SCHEMA}}, is_schema),
                     ({"response_format": {"type": "json_object", "value": SCHEMA}}, is_schema), ({"response_format": {"type": "json", "value": SCHEMA}}, is_schema),
                     ({"json_schema": SCHEMA}, is_schema), ({"json_schema": json.dumps(SCHEMA)}, is_schema), ({"guided_json": SCHEMA}, is_schema),
                     ({"guided_json": json.dumps(SCHEMA)}, is_schema), ({"structured_outputs": {"json": SCHEMA}}, is_schema),
                     ({"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}}, is_schema),
                     ({"guided_regex": date}, re.compile(date).fullmatch), ({"structured_outputs": {"regex": date}}, re.compile(date).fullmatch),
                     ({"regex": '"[a-c]+\\\\"{2}'}, re.compile('"[a-c]+\\\\"{2}').fullmatch), ({"response_format": {"type": "regex", "value": "[xy]{3}é"}}, re.compile("[xy]{3}é").fullmatch),
                     ({"response_format": {"type": "regex", "pattern": "a|b\nc"}}, ("a", "b\nc").__contains__),
                     ({"guided_choice": ["yes", 'n"o', "ä"]}, ("yes", 'n"o', "ä").__contains__), ({"structured_outputs": {"choice": ["one"]}}, ("one",).__contains__),
                     ({"guided_grammar": 'root ::= "gg"'}, ("gg",).__contains__), ({"structured_outputs": {"grammar": 'root ::= "gg"'}}, ("gg",).__contains__),
                     ({"ebnf": 'root ::= "gg"'}, ("gg",).__contains__), ({"response_format": {"type": "grammar", "grammar": 'root ::= "gg"'}}, ("gg",).__contains__)):
        common = {"max_tokens": 60, "temperature": 0.8, "seed": 3, **body}
        status, r = s.post("/v1/completions", {"prompt": "x", **common})
        C.ok(status == 200 and (r["choices"][0]["finish_reason"] == "length" or ok(r["choices"][0]["text"])), (body, status, r))
        status, r = s.post("/v1/chat/completions", {"messages": USER, **common})
        C.ok(status == 200 and (r["choices"][0]["finish_reason"] == "length" or ok(r["choices"][0]["message"]["content"])), (body, status, r))
    for body in ({"structured_outputs": {"json_object": True}}, {"guided_json_object": True}, {"response_format": {"type": "json_object"}}):
        status, r = s.post("/completion", {"prompt": "x", "n_predict": 8, **body})
        C.ok(status == 200 and r["content"].startswith("{"), (body, r))


def check_anthropic(s):
    for extra in ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, {"output_format": {"type": "json_schema", "schema": SCHEMA}},
                  {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}}):
        status, r = s.post("/v1/messages", {"messages": USER, "max_tokens": 60, "temperature": 0, **extra})
        C.ok(status == 200 and is_schema(r["content"][0]["text"]), (extra, status, r))
    for extra, word in (({"output_config": {"format": {"type": "text"}}}, "output_config"), ({"output_config": {"task_budget": {"total": 1}}}, "task_budget"), ({"output_config": 3}, "output_config"),
                        ({"output_format": {"type": "json_schema"}}, "output_format"), ({"output_format": {"type": "json_schema", "schema": {"not": {}}}}, "#/not")):
        status, r = s.post("/v1/messages", {"messages": USER, "max_tokens": 8, **extra})
        C.ok(status == 400 and word in json.dumps(r), (extra, status, r))


def check_refused(s):
    for body, word in (({"guided_json": SCHEMA, "grammar": 'root ::= "a"'}, "want one"), ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "want one"),
                       ({"structured_outputs": {"structural_tag": {"type": "x"}}}, "structural_tag"), ({"guided_regex": "(?=a)"}, "look around"), ({"guided_regex": 5}, "guided_regex"),
                       ({"guided_choice": [1]}, "item 0"), ({"guided_json": "{"}, "guided_json"), ({"guided_grammar": "roo"}, "grammar"),
                       ({"response_format": {"type": "regexp"}}, "response_format"), ({"structured_outputs": 5}, "structured_outputs"), ({"json_schema": {"if": {}}}, "#/if")):
        status, r = s.post("/v1/completions", {"prompt": "x", "max_tokens": 4, **body})
        C.ok(status == 400 and word in r["error"]["message"], (body, status, r))


def check_tools(s, dialect):
    """Free to choose: a call, or text of the format; streamed the same."""
    seen = set()
    for seed in range(12):
        body = {"messages": USER, "max_tokens": 160, "temperature": 1, "seed": seed, "tools": TOOLS[:1], "parallel_tool_calls": False, "enable_thinking": False,
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
        status, r = s.post("/v1/chat/completions", body)
        if not C.ok(status == 200, (dialect, r)) or r["choices"][0]["finish_reason"] == "length":
            continue
        m = r["choices"][0]["message"]
        calls = m.get("tool_calls")
        C.ok(all(arguments_ok(t) for t in calls) and not m["content"] if calls else is_schema(m["content"]), (dialect, m))
        seen.add(bool(calls))
    C.ok(seen, (dialect, "nothing came to its end"))
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        status, r = s.post("/v1/chat/completions", {**body, "tool_choice": choice})
        c = r["choices"][0]
        C.ok(status == 200 and (c["finish_reason"] == "length" or arguments_ok(c["message"]["tool_calls"][0])), (dialect, choice, r))
    status, r = s.post("/v1/chat/completions", {**body, "tool_choice": "none"})
    C.ok(status == 200 and (r["choices"][0]["finish_reason"] == "length" or is_schema(r["choices"][0]["message"]["content"])), (dialect, r))
    status, r = s.post("/v1/chat/completions", {**body, "response_format": None, "grammar": 'root ::= "a"'})
    C.ok(status == 400 and "grammar" in r["error"]["message"], r)
    status, r = s.post("/v1/responses", {"input": "q", "max_output_tokens": 160, "temperature": 0, "enable_thinking": False, "tools": [{"type": "function", **TOOLS[0]["function"]}],
                                         "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}})
    C.ok(status == 200 and (r["status"] == "incomplete" or [o["type"] for o in r["output"]] in (["message"], ["function_call"])), r)


def main():
    if not built(BUILD):
        return C.end()
    with Server(BUILD, "-c", "2048", "-np", "2") as s:
        check_names(s)
        check_anthropic(s)
        check_refused(s)
    for dialect in ("hermes", "qwen3_coder", "xlam"):
        with start(dialect, thinks=dialect == "hermes") as s:
            check_tools(s, dialect)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
