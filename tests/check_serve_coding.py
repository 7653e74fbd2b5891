#!/usr/bin/env python3
"""check_serve_coding: twenty turns of a coding agent with tools, in Claude Code's shape (a first system line that changes with every request),
Codex's, and that of the library that opencode speaks with (its chunks are read as the library does): nearly all of each prompt comes from the cache.  Numbers on standard output: turns, prompt tokens, and how many were read from the cache."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients"))
import scripted     # noqa: E402
from rig import CALL, HELLO, OBJECT, RAIN, TEMPLATE    # noqa: E402
from serve import ROOT, Checks, Server, built, events    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_coding")
TURNS = 20
RULES = "You are a coding agent. " + " ".join(f"Rule {i}: keep rule {i * 7 % 100} in mind." for i in range(200))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"], "additionalProperties": False}


def billing(turn):
    return f"x-anthropic-billing-header: cc_version=2.1.15.{turn:03x}; cc_entrypoint=cli; cch={turn * 7919 % 65536:05x};"


def claude(s, first=0, begins=None, turns=TURNS):
    """The conversation over /v1/messages: (prompt tokens, of them cached) of each request but the first."""
    messages, seen = [], []
    for turn in range(turns):
        messages.append({"role": "user", "content": [{"type": "text", "text": f"The weather of day {turn}?"}]})
        for step in range(2):
            line = (begins or billing)(first + 2 * turn + step)
            status, r = s.post("/v1/messages", {"model": "claude-sonnet-4-5", "max_tokens": 200, "messages": messages, "temperature": 0,
                                                "system": [{"type": "text", "text": line}, {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}],
                                                "tools": [{"name": "get_weather", "description": "The weather", "input_schema": SCHEMA}]})
            if not C.ok(status == 200 and r["content"], r):
                return seen
            u = r["usage"]
            seen.append((u["input_tokens"] + u["cache_read_input_tokens"], u["cache_read_input_tokens"]))
            messages.append({"role": "assistant", "content": r["content"]})
            if step == 0:
                C.ok(r["stop_reason"] == "tool_use" and r["content"][-1]["id"].startswith("toolu_"), r)
                messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": r["content"][-1]["id"], "content": "rain"}]})
        C.ok(r["content"][0]["text"] == RAIN, r)
    return seen


def codex(s):
    """The same over /v1/responses, stateless, as Codex does."""
    items, seen = [], []
    for turn in range(TURNS):
        items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"The weather of day {turn}?"}]})
        for step in range(2):
            status, r = s.post("/v1/responses", {"model": "gpt-5-codex", "instructions": RULES + " (codex)", "input": items, "store": False, "temperature": 0,
                                                 "max_output_tokens": 200, "text": {"verbosity": "low"}, "prompt_cache_key": str(turn),
                                                 "tools": [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False},
                                                           {"type": "web_search"}]})
            if not C.ok(status == 200 and r["output"], r):
                return seen
            seen.append((r["usage"]["input_tokens"], r["usage"]["input_tokens_details"]["cached_tokens"]))
            items += r["output"]
            calls = [o for o in r["output"] if o["type"] == "function_call"]
            C.ok(bool(calls) == (step == 0), r["output"])
            items += [{"type": "function_call_output", "call_id": o["call_id"], "output": "rain"} for o in calls]
    return seen


def chunk_ok(c):
    """What @ai-sdk/openai-compatible wants of a chunk, or it ends the stream with an error."""
    def text(x):
        return x is None or isinstance(x, str)
    deltas = [choice["delta"] for choice in c["choices"] if choice.get("delta") is not None]
    calls = [t for d in deltas for t in d.get("tool_calls") or []]
    return (all(text(d.get(k)) for d in deltas for k in ("role", "content", "reasoning_content")) and all(text(x.get("finish_reason")) for x in c["choices"])
            and all(isinstance(t["index"], int) and text(t.get("id")) and text(t["function"].get("name")) and text(t["function"].get("arguments")) for t in calls))


def streamed(s, body):
    """(text, calls, reason, usage) of a stream, put together as that library does."""
    status, _, data = s.request("POST", "/v1/chat/completions", body)
    chunks = events(data) if status == 200 else []
    C.ok(status == 200 and chunks and all(chunk_ok(c) for c in chunks), (status, data[:300]))
    said, calls, reason, usage = "", {}, None, None
    for c in chunks:
        usage = c.get("usage") or usage
        for choice in c["choices"]:
            delta, reason = choice.get("delta") or {}, choice.get("finish_reason") or reason
            said += delta.get("content") or ""
            for t in delta.get("tool_calls") or []:
                call = calls.setdefault(t["index"], {"type": "function", "id": t.get("id"), "function": {"name": t["function"].get("name"), "arguments": ""}})
                call["function"]["arguments"] += t["function"].get("arguments") or ""
    return said, list(calls.values()), reason, usage


def opencode(s):
    """The same over /v1/chat/completions, with the fields of @ai-sdk/openai-compatible."""
    messages, seen = [{"role": "system", "content": RULES + " (opencode)"}], []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"The weather of day {turn}?"})
        for step in range(2):
            said, calls, reason, usage = streamed(s, {"model": "model", "max_tokens": 8192, "temperature": 0, "top_p": 1, "messages": messages, "tool_choice": "auto",
                                                      "tools": [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": SCHEMA}}],
                                                      "stream": True, "stream_options": {"include_usage": True}})
            if not C.ok(usage and reason == ("stop" if step else "tool_calls"), (reason, usage, said)):
                return seen
            seen.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
            messages.append({"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})})
            messages += [{"role": "tool", "tool_call_id": c["id"], "content": "rain"} for c in calls]
        C.ok(said == RAIN, said)
    return seen


def reuse(name, seen):
    prompt, cached = (sum(x[i] for x in seen[1:]) for i in (0, 1))
    print(f"{name}: {len(seen)} requests, {prompt} prompt tokens after the first request, {cached} from the cache: {100 * cached / prompt:.1f} %")
    return cached / prompt


def main():
    if not built(BUILD):
        print("SKIP check_serve_coding: this build has no server")
        return C.end()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "scripted.gguf")
        scripted.make(path, {"<|call|>": CALL, "<|rain|>": RAIN, "<|object|>": OBJECT, "<|hello|>": HELLO}, size=3, template=TEMPLATE)
        with Server(BUILD, "-np", "2", "-c", "16384", "-lv", "2", model=path) as s:
            C.ok(reuse("Claude Code's shape", claude(s)) >= 0.95, "the prefix is not reused")
            C.ok(reuse("Codex's shape", codex(s)) >= 0.95, "the prefix is not reused")
            C.ok(reuse("opencode's library's shape", opencode(s)) >= 0.95, "the prefix is not reused")
            told = [line for line in s.lines if "x-anthropic-billing-header" in line]
            C.ok(len(told) == 1 and "--keep-billing-header" in told[0], f"one note: {told}")
            texts = ("a text of its own\nRules", [{"type": "text", "text": "a text of its own\nRules"}])
            n = [s.post("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "q"}], "system": x})[1]["input_tokens"] for x in
                 (*texts, billing(1) + "\n" + texts[0], [{"type": "text", "text": billing(1)}, *texts[1]], "see " + billing(1))]
            C.ok(n[0] == n[1] == n[2] == n[3] and n[4] > 60, f"what stands behind it stays, and a line elsewhere: {n}")
        with Server(BUILD, "-np", "2", "-c", "16384", "--keep-billing-header", model=path) as s:
            C.ok(reuse("with --keep-billing-header", claude(s, turns=3)) < 0.1, "it is kept")
            C.ok(reuse("and a line that stays", claude(s, begins=lambda _: billing(0), turns=3)) > 0.9, "")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
