#!/usr/bin/env python3
"""check_serve_values [BUILD]: values of a wrong kind, in every place of a request that wants a text, a number or a switch.

Each is 400, never 503 (clients send those again) and never an answer to another question; the message names the field, what was found and
what is wanted.  Numbers that no 64 bits hold are among them: JSON has them, and the reader keeps them as texts of its own."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_values")
CHAT, TEXT, NATIVE, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/completion", "/v1/messages", "/v1/responses"
USER = [{"role": "user", "content": "q"}]
TYPED = [{"role": "user", "content": [{"type": "text", "text": "q"}]}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = [*USER, {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
OLLAMA = {"messages": USER, "stream": False, "options": {"num_predict": 1, "stop": ["z"]}}
ITEM = [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}]

# route, a body that is right, the place of a text in it
TEXTS = [(CHAT, {"messages": m, "max_tokens": 1}, ["messages", *place]) for m, place in (
    (USER, [0, "content"]), (USER, [0, "role"]), (USER, [0, "name"]), (TYPED, [0, "content", 0, "text"]), (TYPED, [0, "content", 0, "type"]),
    (CALLS, [1, "reasoning_content"]), (CALLS, [1, "tool_calls", 0, "id"]), (CALLS, [1, "tool_calls", 0, "function", "name"]),
    (CALLS, [1, "tool_calls", 0, "function", "arguments"]), (CALLS, [2, "tool_call_id"]), (CALLS, [2, "content"]))]
TEXTS += [(CHAT, {"messages": USER, "max_tokens": 1, **more}, place) for more, place in (
    ({}, ["model"]), ({"stop": "z"}, ["stop"]), ({"stop": ["z"]}, ["stop", 0]), ({}, ["grammar"]), ({}, ["regex"]), ({}, ["ebnf"]), ({}, ["guided_regex"]),
    ({"guided_choice": ["a"]}, ["guided_choice", 0]), ({"response_format": {"type": "text"}}, ["response_format", "type"]),
    ({"tools": [TOOL]}, ["tools", 0, "type"]), ({"tools": [TOOL]}, ["tools", 0, "function", "name"]), ({"tools": [TOOL]}, ["tool_choice"]),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, ["tool_choice", "function", "name"]),
    ({}, ["reasoning_effort"]), ({}, ["reasoning_format"]), ({}, ["cache_salt"]), ({"logit_bias": [["a", 1]]}, ["logit_bias", 0, 0]),
    ({"dry_sequence_breakers": ["\n"]}, ["dry_sequence_breakers", 0]), ({"samplers": ["dry"]}, ["samplers", 0]))]
TEXTS += [(TEXT, {"prompt": p, "max_tokens": 1}, ["prompt", *place]) for p, place in (
    ("a", []), (["a"], [0]), ([["a", 1]], [0, 0]), ([1, "a"], [1]), ({"prompt_string": "a"}, ["prompt_string"]))]
TEXTS += [(NATIVE, {"prompt": "a", "n_predict": 1, "response_fields": ["content"]}, ["response_fields", 0]),
          ("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 1}, ["input_prefix"]),
          (RESPONSES, {"input": "a", "max_output_tokens": 1}, ["input"]), (RESPONSES, {"input": "a", "max_output_tokens": 1}, ["instructions"]),
          (RESPONSES, {"input": ITEM, "max_output_tokens": 1}, ["input", 0, "content", 0, "text"]),
          (RESPONSES, {"input": "a", "reasoning": {"effort": "low"}}, ["reasoning", "effort"]),
          (RESPONSES, {"input": "a"}, ["previous_response_id"]),
          ("/api/chat", OLLAMA, ["messages", 0, "content"]), ("/api/chat", OLLAMA, ["options", "stop", 0]), ("/api/chat", OLLAMA, ["format"]),
          ("/api/generate", {"prompt": "a", "stream": False}, ["prompt"]), ("/api/generate", {"prompt": "a", "stream": False}, ["system"]),
          ("/tokenize", {"content": "a"}, ["content"]), ("/tokenize", {"prompt": "a"}, ["prompt"]), ("/apply-template", {"messages": USER}, ["messages", 0, "content"]),
          ("/v1/embeddings", {"input": "a"}, ["input"]), ("/v1/embeddings", {"input": ["a"]}, ["input", 0]),
          ("/v1/embeddings", {"input": "a"}, ["encoding_format"])]
TEXTS += [(MESSAGES, {"messages": USER, "max_tokens": 1, **more}, place) for more, place in (
    ({"system": "a"}, ["system"]), ({"system": [{"type": "text", "text": "a"}]}, ["system", 0, "text"]), ({}, ["messages", 0, "content"]),
    ({"stop_sequences": ["z"]}, ["stop_sequences", 0]), ({"tools": [{"name": "f", "input_schema": {"type": "object"}}]}, ["tools", 0, "name"]),
    ({"thinking": {"type": "enabled", "budget_tokens": 5}}, ["thinking", "type"]))]

WIDE = ["1e400", "-123456789012345678901234567890", "18446744073709551616"]
NUMBERS = ("temperature top_p min_p top_k repeat_penalty presence_penalty frequency_penalty typical_p top_n_sigma xtc_probability xtc_threshold "
           "dynatemp_range dynatemp_exponent mirostat mirostat_tau mirostat_eta dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
           "no_repeat_ngram_size repeat_last_n min_tokens max_tokens seed").split()
BODIES = [(CHAT, {"messages": USER}), (TEXT, {"prompt": "a"}), (NATIVE, {"prompt": "a"}), (MESSAGES, {"messages": USER, "max_tokens": 1}),
          (RESPONSES, {"input": "a"})]


def with_value(body, place, value):
    """The body as JSON, with the text `value` at that place."""
    body = json.loads(json.dumps(body))
    at = body
    for k in place[:-1]:
        at = at[k]
    at[place[-1]] = "@@"
    return json.dumps(body).replace('"@@"', value).encode()


def ask(s, path, data):
    status, _, answer = s.request("POST", path, data)
    error = json.loads(answer).get("error", "") if status != 200 else ""
    return status, error if isinstance(error, str) else error["message"]


def check_texts(s):
    for path, body, place in TEXTS:
        for value in WIDE + ["true"]:
            status, message = ask(s, path, with_value(body, place, value))
            C.ok(status == 400, f"{path} {place} {value}: {status} {message}")


def check_numbers(s):
    for path, body in BODIES:
        for field in NUMBERS:
            if path == RESPONSES and field == "max_tokens":
                continue    # not a field of that API
            for value in ('"0.5"', "true", "[1]", "{}", "1e300", "-1e300", *WIDE):
                status, message = ask(s, path, with_value(body, [field], value))
                found = re.escape(value)
                told = re.fullmatch(rf"{field}: found {found}, wanted (a number|an integer) from \S+ to \S+", message)
                C.ok(status == 400 and told, f"{path} {field} {value}: {status} {message}")


def check_found(s):
    """Long values are cut, and what is found is JSON on one line."""
    for value, found in (('"' + "x" * 300 + '"', "xxx..."), ('"a\\nb"', '"a\\nb"'), ('"\\u20ac"', '"\\u20AC"'), ('[[],{"a":null}]', '[[],{"a":null}]'),
                         ('[1e400,{"a":-1e999}]', 'found [1e400,{"a":-1e999}], wanted'), ('["' + "x" * 30 + '",1e4000000000]', '",1e4...')):
        status, message = ask(s, TEXT, with_value({"prompt": "a"}, ["top_p"], value))
        C.ok(status == 400 and found in message and "wanted a number from 0 to 1" in message and "\n" not in message, f"found {value[:20]}: {message}")
    status, message = ask(s, CHAT, b'{"messages":[{"content":"a"}]}')
    C.ok(status == 400 and "role: found nothing, wanted system" in message, message)
    for field in ("stream", "ignore_eos", "echo"):
        status, message = ask(s, TEXT, with_value({"prompt": "a"}, [field], "1e400"))
        C.ok(status == 400 and message == f"{field}: found 1e400, wanted true or false", message)


def check_parts(s):
    """What is no text is refused by its type; texts may be called as other APIs call them."""
    def chat(part):
        return s.post(CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, part]}], "max_tokens": 1})
    for kind in ("image_url", "input_audio", "file", "video_url", "image", "media_marker", "tool_result", "Text"):
        status, r = chat({"type": kind, kind: {"url": "data:image/png;base64,AA"}})
        C.ok(status == 400 and f'part 1: type: found "{kind}", wanted text' in r["error"]["message"], f"part {kind}: {status} {r}")
        status, r = s.post(RESPONSES, {"input": [{"role": "user", "content": [{"type": kind, "image_url": "x"}]}]})
        C.ok(status == 400 and f'part 0: type: found "{kind}"' in r["error"]["message"], f"part {kind}: {status} {r}")
        status, r = s.post(MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": kind}]}]}], "max_tokens": 1})
        C.ok(status == 400 and f'block 0: type: found "{kind}"' in r["error"]["message"], f"block {kind}: {status} {r}")
    for part, told in ((None, "type: found nothing"), ("x", "type: found nothing"), ({"text": "x"}, "type: found nothing"), ({"type": 5}, "type: found 5"),
                       ({"type": "text"}, "text: found nothing, wanted a text"), ({"type": "input_text", "input_text": "x"}, "text: found nothing, wanted a text"),
                       ({"type": "refusal", "text": "x"}, "refusal: found nothing, wanted a text"), ({"type": "text", "text": [1]}, "text: found [1], wanted a text")):
        status, r = chat(part)
        C.ok(status == 400 and "part 1: " + told in r["error"]["message"], f"part {part}: {status} {r}")
    want = s.post("/apply-template", {"messages": [{"role": "assistant", "content": "a\nb"}, *USER]})[1]["prompt"]
    for kind, key in (("text", "text"), ("input_text", "text"), ("output_text", "text"), ("refusal", "refusal")):
        r = s.post("/apply-template", {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": kind, key: "b"}]}, *USER]})
        C.ok(r[0] == 200 and r[1]["prompt"] == want, f"part {kind}: {r}")
    status, r = s.post(CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": "any", "parallel_tool_calls": False})
    C.ok(status == 200 and r["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f", f"tool_choice any is required: {r}")
    for choice in ("some", {"type": "any"}, {"function": {"name": "f"}}, 5, ["auto"]):
        status, r = s.post(CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": choice})
        C.ok(status == 400 and "found " + json.dumps(choice, separators=(",", ":")) in r["error"]["message"], f"tool_choice {choice}: {status} {r}")


def main():
    if not built(BUILD):
        print("SKIP check_serve_values: built without the server")
        print("check_serve_values: 0 passed, 0 failed")
        return 0
    with Server(BUILD, "-c", "512", "-np", "2", "--pooling", "mean") as s:
        check_texts(s)
        check_numbers(s)
        check_found(s)
        check_parts(s)
        status, answer = s.post(CHAT, {"messages": USER, "max_tokens": 1})
        C.ok(status == 200 and answer["choices"], "still answers")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
