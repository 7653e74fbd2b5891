#!/usr/bin/env python3
"""check_serve_switches [BUILD]: fields that say one thing in several words: switches of thoughts in four APIs, limits and formats under the names
of several servers.  Two that disagree are 400 with both; two that agree are as good as one.  A switch has an effect with templates that call it
otherwise, and with those that have none.  What no template can obey is refused where none is used."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_switches")
CHAT, TEXT, MESSAGES, RESPONSES, OLLAMA = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/api/chat"
USER = [{"role": "user", "content": "q"}]
BODIES = {CHAT: {"messages": USER, "max_tokens": 2}, TEXT: {"prompt": "q"}, MESSAGES: {"messages": USER, "max_tokens": 2},
          RESPONSES: {"input": "q", "max_output_tokens": 2}}
LOOP = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
NAMED = LOOP + "{% if thinking is defined and thinking %}<think>\n{% else %}<think>\n</think>\n{% endif %}{% endif %}"   # DeepSeek V3.1's name
BLIND = LOOP + "<think>\n{% endif %}"                                                            # has no switch
QWEN = LOOP + "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}{% endif %}"
FORMAT = [{"type": "json_schema", "schema": {"type": t}} for t in ("integer", "boolean")]

# route, two fields, the second one's value that disagrees, the one that agrees
PAIRS = [(CHAT, {"think": True}, {"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive"}}),
         (CHAT, {"enable_thinking": False}, {"think": True}, {"think": False}),
         (CHAT, {"enable_thinking": True}, {"reasoning_effort": "none"}, {"reasoning_effort": "low"}),
         (CHAT, {"reasoning": {"enabled": True}}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}),
         (CHAT, {"think": "low"}, {"reasoning_effort": "high"}, {"reasoning_effort": "low"}),
         (CHAT, {"reasoning": {"effort": "low"}}, {"reasoning_effort": "high"}, {"reasoning_effort": "low"}),
         (CHAT, {"reasoning": {"exclude": True}}, {"include_reasoning": True}, {"include_reasoning": False}),
         (CHAT, {"reasoning": {"max_tokens": 5}}, {"thinking_budget_tokens": 6}, {"thinking_budget_tokens": 5}),
         (CHAT, {"thinking": {"type": "enabled", "budget_tokens": 5}}, {"reasoning_budget": 6}, {"reasoning_budget": 5.0}),
         (CHAT, {"max_completion_tokens": 2}, {"n_predict": 3}, {"n_predict": 2}),
         (TEXT, {"max_tokens": 2}, {"n_predict": 1}, {"n_predict": 2}), (TEXT, {"max_new_tokens": 2}, {"num_predict": -1}, {"num_predict": 2}),
         (TEXT, {"min_tokens": 1, "max_tokens": 2}, {"min_new_tokens": 2}, {"min_new_tokens": 1}),
         (TEXT, {"repeat_penalty": 1.1, "max_tokens": 2}, {"repetition_penalty": 1.2}, {"repetition_penalty": 1.1}),
         (TEXT, {"typical_p": 0.5, "max_tokens": 2}, {"typ_p": 1}, {"typ_p": 0.5}),
         (MESSAGES, {"enable_thinking": True}, {"thinking": {"type": "disabled"}}, {"thinking": {"type": "enabled"}}),
         (MESSAGES, {"output_config": {"effort": "low"}}, {"reasoning_effort": "high"}, {"reasoning_effort": "low"}),
         (MESSAGES, {"stop": ["a"]}, {"stop_sequences": ["b"]}, {"stop_sequences": ["a"]}),
         (MESSAGES, {"output_format": FORMAT[0]}, {"output_config": {"format": FORMAT[1]}}, {"output_config": {"format": FORMAT[0]}}),
         (RESPONSES, {"reasoning_effort": "low"}, {"reasoning": {"effort": "high"}}, {"reasoning": {"effort": "low"}}),
         (RESPONSES, {"enable_thinking": True}, {"reasoning": {"effort": "none"}}, {"reasoning": {"effort": "low"}}),
         (RESPONSES, {"response_format": {"type": "text"}}, {"text": {"format": {"type": "json_object"}}}, {"text": {"format": {"type": "text"}}})]


def text_of(error):
    return error if isinstance(error, str) else error["message"]


def check_pairs(s):
    for path, first, other, equal in PAIRS:
        body = {**BODIES[path], **first}
        status, r = s.post(path, {**body, **other})
        C.ok(status == 400 and "as another field says" in text_of(r["error"]), f"{path} {first} {other}: {status} {r}")
        status, r = s.post(path, {**body, **equal})
        C.ok(status == 200, f"{path} {first} {equal}: {status} {r}")


def check_limits(s):
    """max_tokens is OpenAI's older name of max_completion_tokens; who sends both means the newer one, as in vLLM."""
    for path, body in ((CHAT, {"messages": USER}), (TEXT, {"prompt": "q"})):
        for old, new in ((4, 2), (2, 4)):
            status, r = s.post(path, {**body, "max_tokens": old, "max_completion_tokens": new, "ignore_eos": True})
            C.ok(status == 200 and r["usage"]["completion_tokens"] == new, f"{path} {old} {new}: {status} {r}")


def turned_off(s):
    """Each API's answer with its own switch off: (thought, text)."""
    tell = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
    for off in ({"think": False}, {"enable_thinking": False}, {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}, {"reasoning": {"enabled": False}},
                {"chat_template_kwargs": {"enable_thinking": False}}):
        m = s.post(CHAT, {"messages": USER, **tell, **off})[1]["choices"][0]["message"]
        yield off, m.get("reasoning_content") or "", m["content"] or ""
    blocks = s.post(MESSAGES, {"messages": USER, **tell, "thinking": {"type": "disabled"}})[1]["content"]
    yield MESSAGES, "".join(b.get("thinking", "") for b in blocks), "".join(b.get("text", "") for b in blocks)
    items = s.post(RESPONSES, {"input": "q", "max_output_tokens": 24, "temperature": 0, "ignore_eos": True, "reasoning": {"effort": "none"}})[1]["output"]
    yield RESPONSES, "".join(p["text"] for i in items if i["type"] == "reasoning" for p in i["content"]), "".join(
        p["text"] for i in items if i["type"] == "message" for p in i["content"])
    m = s.post(OLLAMA, {"messages": USER, "stream": False, "think": False, "options": {"num_predict": 24, "temperature": 0}})[1]["message"]
    yield OLLAMA, m.get("thinking", ""), m["content"]


def with_template(text, tmp, **kw):
    path = os.path.join(tmp, "template.jinja")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return Server(BUILD, "-c", "512", "-np", "2", "--chat-template-file", path, **kw)


def check_named(s):
    """The switch of a template that calls it `thinking`."""
    def ends(**body):
        return s.post("/apply-template", {"messages": USER, **body})[1]["prompt"].rsplit("assistant\n")[-1]
    on, off = "<think>\n", "<think>\n</think>\n"
    for body, want in (({}, off), ({"think": True}, on), ({"thinking": {"type": "enabled"}}, on), ({"enable_thinking": True}, on), ({"think": False}, off),
                       ({"chat_template_kwargs": {"thinking": True}}, on), ({"chat_template_kwargs": {"thinking": False}, "think": True}, off),
                       ({"reasoning_effort": "none"}, off), ({"reasoning": {"enabled": True}}, on)):
        C.ok(ends(**body) == want, f"thinking: {body}: {ends(**body)!r}")


def check_blind(s):
    """A template that begins a thought whatever it is told."""
    for which, thought, text in turned_off(s):
        C.ok(not thought.strip() and len(text) > 4, f"no switch, {which}: thought {thought!r}, text {text!r}")
    m = s.post(CHAT, {"messages": USER, "max_tokens": 8, "temperature": 0})[1]["choices"][0]["message"]
    C.ok(m["reasoning_content"] and not m["content"], f"unasked it thinks: {m}")


def check_ready(s):
    """Ollama's prompts without a template; options."""
    for more in ({"system": "s"}, {"think": True}, {"think": "low"}):
        status, r = s.post("/api/generate", {"prompt": "q", "raw": True, "stream": False, **more})
        C.ok(status == 400 and list(more)[0] in r["error"] and "raw" in r["error"], f"raw with {more}: {status} {r}")
        status, r = s.post("/api/generate", {"prompt": "q", "suffix": "z", "stream": False, **more})
        C.ok(status == 400 and list(more)[0] in r["error"] and "suffix" in r["error"], f"suffix with {more}: {status} {r}")
    few = {"num_predict": 2}
    status, r = s.post("/api/generate", {"prompt": "q", "raw": True, "stream": False, "system": "", "think": False, "options": few})
    C.ok(status == 200, f"raw, and nothing for a template: {status} {r}")
    for name in ("top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "dry_multiplier", "dry_base", "dry_allowed_length",
                 "dry_penalty_last_n", "dry_sequence_breakers", "no_repeat_ngram_size", "samplers", "logit_bias", "typ_p"):
        status, r = s.post(OLLAMA, {"messages": USER, "stream": False, "options": {**few, name: "bad"}})
        C.ok(status == 400 and r["error"].startswith(name + ": "), f"options.{name}: {status} {r}")
    ask = {"messages": USER, "stream": False, "think": False, "options": {"num_predict": 6, "temperature": 0}}
    plain = s.post(OLLAMA, ask)[1]["message"]["content"]
    biased = s.post(OLLAMA, {**ask, "options": {**ask["options"], "logit_bias": [[9, 100]]}})[1]["message"]["content"]
    C.ok(plain and biased != plain and len(set(biased)) <= 8, f"a bias has an effect: {plain!r}, {biased!r}")
    for field, value in (("enable_thinking", False), ("thinking", {"type": "disabled"}), ("reasoning", {"effort": "none"}), ("reasoning_effort", "low"),
                         ("chat_template_kwargs", {"enable_thinking": False})):
        status, r = s.post(OLLAMA, {"messages": USER, "stream": False, field: value})
        C.ok(status == 400 and field in r["error"] and "think" in r["error"].split(";")[1], f"Ollama, {field}: {status} {r}")


def main():
    if not built(BUILD):
        print("SKIP check_serve_switches: built without the server")
        print("check_serve_switches: 0 passed, 0 failed")
        return 0
    with tempfile.TemporaryDirectory() as tmp:
        with with_template(QWEN, tmp) as s:
            check_pairs(s)
            check_limits(s)
            check_ready(s)
        with with_template(NAMED, tmp) as s:
            check_named(s)
        with with_template(BLIND, tmp) as s:
            check_blind(s)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
