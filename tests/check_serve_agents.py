#!/usr/bin/env python3
"""check_serve_agents: requests as agents and other servers' clients send them: Codex's tools (namespaces, custom tools, tools of a provider),
allowed_tools, whether to think in the words of five servers, lengths and special tokens under other names."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, Server, built, events    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
TINY = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")
C = Checks("check_serve_agents")
USER = [{"role": "user", "content": "q"}]
TEMPLATE = """{%- if tools %}{{ 'Tools: ' + tools | tojson + '\\n' }}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}{{ m.content }}
{%- if m.tool_calls %}{% for t in m.tool_calls %}{% set f = t.function %}{{ '<tool_call>\\n{"name": "' + f.name + '", "arguments": ' + f.arguments | tojson + '}\\n</tool_call>' }}{% endfor %}{% endif %}
{{- '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if effort %}{{ effort }}{% endif %}{% if reasoning_effort %}{{ 'E' + reasoning_effort }}{% endif %}
{%- if enable_thinking is not defined or enable_thinking %}{{ '<think>\\n' }}{% else %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"""

SHELL = {"type": "function", "name": "exec_command", "description": "Runs a command", "strict": False,
         "parameters": {"type": "object", "properties": {"cmd": {"type": "string", "enum": ["ls", "pwd"]}}, "required": ["cmd"], "additionalProperties": False}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}}
FIND = {"type": "function", "name": "find", "description": "Finds", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
SPACE = {"type": "namespace", "name": "mcp__docs__", "description": "Documents", "tools": [FIND, {"type": "custom", "name": "note", "description": "Notes"}]}
CODEX = {"model": "gpt-5-codex", "instructions": "You are an agent.", "tools": [SHELL, PATCH, SPACE, {"type": "web_search", "external_web_access": False}],
         "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": {"effort": "none", "summary": "auto"}, "store": False, "stream": True,
         "include": ["reasoning.encrypted_content"], "prompt_cache_key": "019a", "text": {"verbosity": "low"}, "client_metadata": {"x": "y"},
         "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules"}]},
                   {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files"}]}]}


def start(*args):
    with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as f:
        f.write(TEMPLATE)
    s = Server(BUILD, "--chat-template-file", f.name, "-np", "2", "-c", "4096", *args)
    os.unlink(f.name)
    return s


def codex(s, **more):
    body = {**CODEX, "max_output_tokens": 200, "seed": 1, **more}
    status, h, data = s.request("POST", "/v1/responses", body)
    return status, h, events(data) if status == 200 and body["stream"] else json.loads(data)


def check_codex(s):
    status, h, e = codex(s, max_output_tokens=4)
    C.ok(status == 200 and e[-1]["type"] in ("response.completed", "response.incomplete"), (status, e))
    C.ok(h.get("x-kvant-ignored-fields") == "tools[web_search], text.verbosity", h)
    told = e[-1]["response"]
    C.ok([t["type"] for t in told["tools"]] == ["function", "custom", "namespace", "web_search"], "the tools are told as they came")
    prompt = s.post("/apply-template", {"messages": USER, "tools": [{"type": "function", "function": {k: v for k, v in SHELL.items() if k != "type"}}]})[1]["prompt"]
    C.ok("exec_command" in prompt, prompt)


def check_custom(s):
    """The input of a custom tool is a text."""
    choice = {"type": "custom", "name": "apply_patch"}
    found = 0
    for seed in range(6):
        status, _, e = codex(s, tool_choice=choice, seed=seed)
        call = [x for x in e[-1]["response"]["output"] if x["type"] == "custom_tool_call"]
        if e[-1]["type"] != "response.completed":
            continue
        found += 1
        C.ok(len(call) == 1 and call[0]["name"] == "apply_patch" and call[0]["id"].startswith("ctc_") and isinstance(call[0]["input"], str), e[-1])
        C.ok("arguments" not in call[0] and "namespace" not in call[0], call)
        done = [x for x in e if x["type"] == "response.custom_tool_call_input.done"]
        delta = "".join(x["delta"] for x in e if x["type"] == "response.custom_tool_call_input.delta")
        C.ok(len(done) == 1 and done[0]["input"] == delta == call[0]["input"] and done[0]["item_id"] == call[0]["id"], (done, delta))
        C.ok(not any("function_call_arguments" in x["type"] for x in e), "no events of functions")
        added = [x["item"] for x in e if x["type"] == "response.output_item.added"][-1]
        C.ok(added["type"] == "custom_tool_call" and added["input"] == "" and added["status"] == "in_progress", added)
        status, _, whole = codex(s, tool_choice=choice, seed=seed, stream=False)
        C.ok([x for x in whole["output"] if x["type"] == "custom_tool_call"][0]["input"] == call[0]["input"], "whole and streamed")
        again = [*CODEX["input"], call[0], {"type": "custom_tool_call_output", "call_id": call[0]["call_id"], "output": "ok"}]
        C.ok(codex(s, input=again, max_output_tokens=2)[0] == 200, "the call comes back")
    C.ok(found >= 1, "no custom call was ended")


def check_namespaces(s):
    for name, custom in (("find", 0), ("note", 1)):
        kind = "custom" if custom else "function"
        choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": kind, "name": name, "namespace": "mcp__docs__"}]}
        found = 0
        for seed in range(4):
            status, _, e = codex(s, tool_choice=choice, seed=seed)
            C.ok(status == 200, e)
            call = [x for x in e[-1]["response"]["output"] if x["type"].endswith("_call")]
            if status != 200 or e[-1]["type"] != "response.completed":
                continue
            found += 1
            C.ok(len(call) >= 1 and call[0]["name"] == name and call[0]["namespace"] == "mcp__docs__", call)
            C.ok(call[0]["type"] == ("custom_tool_call" if custom else "function_call"), call)
            output = {"type": call[0]["type"] + "_output", "call_id": call[0]["call_id"], "output": "ok"}
            C.ok(codex(s, input=[*CODEX["input"], call[0], output], max_output_tokens=2)[0] == 200, "the call comes back")
        C.ok(found >= 1, f"no call of {name} was ended")
    n = [s.post("/v1/responses/input_tokens", {"input": [{"type": "function_call", "call_id": "c", "arguments": "{}", **x}]})[1]["input_tokens"] for x in
         ({"name": "find", "namespace": "mcp__docs__"}, {"name": "mcp__docs__find"}, {"name": "find"}, {"name": "find", "namespace": "mcp__docs"})]
    C.ok(n[0] == n[1] == n[3] != n[2], f"the model sees the flat name: {n}")
    long_one = {"type": "namespace", "name": "n" * 60, "tools": [dict(FIND, name="f" * 50), dict(FIND, name="f" * 49 + "g")]}
    status, _, r = codex(s, tools=[long_one], tool_choice="required", max_output_tokens=120)
    C.ok(status == 200, r)
    for tools, part in (([dict(SPACE, tools=3)], "namespace"), ([dict(SPACE, tools=[{"type": "web_search"}])], "web_search"), ([{"type": "custom"}], "name"),
                        ([{"name": "a"}], "type"), ([SPACE, dict(FIND, name="mcp__docs__find")], "twice")):
        status, _, r = codex(s, tools=tools)
        C.ok(status == 400 and part in r["error"]["message"] and r["error"]["param"] == "tools", (tools, r))
    for choice in ({"type": "web_search_preview"}, {"type": "custom"}, {"type": "function", "name": "none"}, {"type": "allowed_tools", "tools": []},
                   {"type": "allowed_tools", "mode": "sometimes", "tools": [{"type": "function", "name": "exec_command"}]}):
        status, _, r = codex(s, tool_choice=choice)
        C.ok(status == 400 and r["error"]["param"] == "tool_choice", (choice, r))


def check_allowed(s):
    tools = [{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}} for n in ("one", "two", "three")]
    def ask(names, mode, **more):
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": n}} for n in names]}}
        return s.post("/v1/chat/completions", {"messages": USER, "tools": tools, "tool_choice": choice, "max_tokens": 120, "enable_thinking": False, **more})
    for seed in range(6):
        status, r = ask(["three", "one"], "required", seed=seed)
        calls = [c["function"]["name"] for c in r["choices"][0]["message"].get("tool_calls", [])] if status == 200 else r
        C.ok(status == 200 and set(calls) <= {"one", "three"}, calls)
    C.ok(ask(["two"], "auto")[0] == 200 and ask([], "auto")[0] == 400 and ask(["four"], "required")[0] == 400 and ask(["two"], "none")[0] == 400, "modes, names")


def check_thinking(s):
    """Prompts, by their tokens: as enable_thinking has them."""
    def n(path="/v1/chat/completions/input_tokens", **body):
        return s.post(path, {"messages": USER, **body})[1].get("input_tokens")
    on, off, low = n(enable_thinking=True), n(enable_thinking=False), n(reasoning_effort="low", enable_thinking=True)
    C.ok(len({on, off, low}) == 3, (on, off, low))
    for body, want in (({"think": True}, on), ({"think": False}, off), ({"think": "low"}, low), ({"thinking": {"type": "enabled"}}, on),
                       ({"thinking": {"type": "disabled"}}, off), ({"thinking": {"type": "adaptive"}}, on), ({"thinking": False}, off), ({"thinking": True}, on),
                       ({"reasoning": {"enabled": False}}, off), ({"reasoning": {"effort": "low"}}, low), ({"reasoning_effort": "none", "enable_thinking": None}, None),
                       ({"think": True, "enable_thinking": True}, on), ({"chat_template_kwargs": {"enable_thinking": False}}, off),
                       ({"chat_template_kwargs": {"enable_thinking": True}, "think": False}, on)):
        C.ok(want is None or n(**body) == want, (body, n(**body), want))
    m = "/v1/messages/count_tokens"
    C.ok(n(m, thinking={"type": "disabled"}) == off and n(m, output_config={"effort": "low"}) == low, "Anthropic's")
    r = [s.post("/v1/responses/input_tokens", {"input": "q", "reasoning": {"effort": e}})[1]["input_tokens"] for e in ("low", None)]
    C.ok(r[0] == low and r[1] == on, "OpenAI's")
    for body in ({"think": 1}, {"think": "x"}, {"thinking": {"type": "maybe"}}, {"thinking": 3}, {"reasoning": True}, {"reasoning": {"enabled": 1}}):
        status, e = s.post("/v1/chat/completions", {"messages": USER, **body})
        C.ok(status == 400 and e["error"]["param"] in (*body, "enabled"), (body, e))
    C.ok("<think>\n\n</think>" in s.post("/apply-template", {"messages": USER, "think": False})[1]["prompt"], "/apply-template")


def check_thoughts(s):
    """Told apart, within the text, or left out."""
    body = {"messages": USER, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    def ask(path="/v1/chat/completions", **more):
        return s.post(path, {**body, **more})[1]
    m = ask()["choices"][0]["message"]
    C.ok(m["reasoning_content"] and not m["content"], m)
    for more in ({"separate_reasoning": False}, {"reasoning_format": "none"}):
        text = ask(**more)["choices"][0]["message"]
        C.ok(text["content"].strip() == m["reasoning_content"].strip() and "reasoning_content" not in text, (more, text))
    for more in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}, {"include_reasoning": False, "separate_reasoning": True}):
        r = ask(**more)
        C.ok(r["choices"][0]["message"]["content"] == "" and "reasoning_content" not in r["choices"][0]["message"] and r["usage"]["completion_tokens"] == 24, (more, r))
        e = events(s.request("POST", "/v1/chat/completions", {**body, **more, "stream": True})[2])
        C.ok(all("reasoning_content" not in x["choices"][0]["delta"] for x in e) and e[-1]["choices"][0]["finish_reason"] == "length", e)
    for more in ({"include_reasoning": True}, {"separate_reasoning": True}, {"stream_reasoning": True}, {"stream_reasoning": False}, {"reasoning": {}}):
        C.ok(ask(**more)["choices"][0]["message"] == m, more)
    r = ask("/v1/messages", include_reasoning=False)
    C.ok(r["content"] == [] or all(b["type"] != "thinking" for b in r["content"]), r)
    C.ok(len(ask(thinking={"type": "enabled", "budget_tokens": 4}, max_tokens=60)["choices"][0]["message"]["reasoning_content"]) <
         len(ask(max_tokens=60)["choices"][0]["message"]["reasoning_content"] or ""), "a budget")
    C.ok("error" in ask(include_reasoning=1) and "error" in ask(separate_reasoning="no"), "booleans")


def check_specials():
    with Server(BUILD, "-c", "256", model=TINY) as s:
        bos = s.get("/props")[1]["bos_token"]
        def n(path="/v1/completions", **body):
            r = s.post(path, {"max_tokens": 1, **body})[1]
            return r["usage"]["prompt_tokens"] if "usage" in r else r
        for prompt in ("a", "a b c", "Ünïcode"):
            one = n(prompt=prompt)
            C.ok(n(prompt=prompt, add_special_tokens=False) == one - 1 and n(prompt=prompt, add_special_tokens=True) == one, prompt)
            C.ok(n(prompt=bos + prompt, add_special_tokens=False) == one, f"BOS once: {prompt}")
        C.ok(n(prompt=["a", "b"], add_special_tokens=False) == n(prompt=["a", "b"]) - 2, "several")
        C.ok(n(prompt=[["a", 5, "b"]], add_special_tokens=False) == n(prompt=[["a", 5, "b"]]) - 1, "texts between ids")
        C.ok(n(prompt=[5, 6], add_special_tokens=False) == n(prompt=[5, 6]) == 2, "ids stay as they are")
        e = [s.post("/v1/embeddings", {"input": "a b", **x})[1]["usage"]["prompt_tokens"] for x in ({}, {"add_special_tokens": False})]
        C.ok(e[1] == e[0] - 1, f"embeddings: {e}")
        st, r = s.post("/v1/chat/completions", {"messages": USER, "max_tokens": 1, "add_special_tokens": True})
        C.ok(st == 400 and r["error"]["param"] == "add_special_tokens", r)
        C.ok(s.post("/v1/chat/completions", {"messages": USER, "max_tokens": 1, "add_special_tokens": False})[0] == 200, "as the template has it")
        C.ok(s.post("/v1/completions", {"prompt": "a", "add_special_tokens": 1})[0] == 400, "a boolean")
        for key in ("max_new_tokens", "num_predict"):
            C.ok(s.post("/v1/completions", {"prompt": "a", key: 3, "ignore_eos": True})[1]["usage"]["completion_tokens"] == 3, key)
        C.ok(s.post("/v1/completions", {"prompt": "a", "min_new_tokens": 9, "max_tokens": 3})[0] == 400, "min_new_tokens is min_tokens")
        status, h, data = s.request("POST", "/tokenize", {"prompt": "a", "return_token_strs": True, "zz": 1})
        C.ok(status == 200 and h["x-kvant-ignored-fields"] == "return_token_strs, zz", h)
        C.ok(s.post("/tokenize", {"prompt": "a", "chat_template": "x"})[0] == 400, "what changes the tokens")


def main():
    if not built(BUILD):
        print("SKIP check_serve_agents: this build has no server")
        return C.end()
    with start() as s:
        for check in (check_codex, check_custom, check_namespaces, check_allowed, check_thinking, check_thoughts):
            check(s)
    check_specials()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
