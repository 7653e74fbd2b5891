#!/usr/bin/env python3
"""check_serve_echo: echo with logprobs on /v1/completions, as lm-eval's multiple choice asks for it: against the answers' own
log-probabilities, in batches, streamed, and after the prefix cache has the prompts."""
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_echo")
STORY = "Once upon a time there was a lighthouse keeper who wrote letters to the sea. " * 4


def ask(s, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 0, "temperature": 0, "echo": True, "logprobs": 2, **fields}
    status, r = s.post("/v1/completions", body)
    C.ok(status == 200, (status, r))
    return r


def stream(s, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "echo": True, "logprobs": 2, "stream": True, **fields}
    data = s.request("POST", "/v1/completions", body)[2].decode()
    return [json.loads(p[6:])["choices"][0] for p in data.split("\n\n") if p.startswith("data: {")]


def check_shape(s):
    ids = s.post("/tokenize", {"content": STORY, "add_special": True})[1]["tokens"]
    r = ask(s, STORY)
    choice, p = r["choices"][0], r["choices"][0]["logprobs"]
    C.ok(choice["text"] == STORY and choice["finish_reason"] == "length" and r["usage"]["completion_tokens"] == 0, choice)
    C.ok(r["usage"]["prompt_tokens"] == len(ids) == len(p["tokens"]) == len(p["token_logprobs"]) == len(p["top_logprobs"]) == len(p["text_offset"]), p)
    C.ok(p["token_logprobs"][0] is None and p["top_logprobs"][0] is None, p)
    C.ok(all(v < 0 for v in p["token_logprobs"][1:]) and all(2 <= len(t) <= 3 and k in t for k, t in zip(p["tokens"][1:], p["top_logprobs"][1:])), p)
    C.ok(all(max(t.values()) >= v for v, t in zip(p["token_logprobs"][1:], p["top_logprobs"][1:])), "the best is at least as good")
    C.ok(all(STORY[o:].startswith(t.lstrip(" ") if o == 0 else t) for o, t in list(zip(p["text_offset"], p["tokens"]))[-20:]), (p["text_offset"], p["tokens"]))
    again = ask(s, ids)["choices"][0]
    C.ok(again["logprobs"]["token_logprobs"] == p["token_logprobs"] and again["text"].strip() == STORY.strip(), "ids give what the text gives")
    return ids, p


def check_values(s, ids, p):
    """What the model writes by itself has the log-probabilities that it has when it is read (but for the rounding of steps of one row)."""
    wrote = s.post("/v1/completions", {"prompt": ids[:40], "max_tokens": 30, "temperature": 0, "logprobs": 0, "min_tokens": 30})[1]["choices"][0]
    own = s.post("/completion", {"prompt": ids[:40], "n_predict": 30, "temperature": 0, "return_tokens": True})[1]["tokens"]
    read = ask(s, ids[:40] + own)["choices"][0]["logprobs"]
    n = len(own)
    C.ok(n > 5 and all(abs(a - b) < 0.05 for a, b in zip(read["token_logprobs"][40:], wrote["logprobs"]["token_logprobs"])), (read, wrote))
    C.ok(all(t == max(top, key=top.get) for t, top in zip(read["tokens"][40:], read["top_logprobs"][40:])), "greedy tokens are the likeliest")
    one = ask(s, ids, max_tokens=1)["choices"][0]
    C.ok(one["logprobs"]["token_logprobs"][:-1] == p["token_logprobs"] and len(one["logprobs"]["tokens"]) == len(ids) + 1, "max_tokens 1, as lm-eval asks")
    C.ok(one["text"].startswith(STORY.strip()[:20]) or one["text"].startswith(STORY[:20]), one["text"])
    plain = s.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 2})[1]["choices"][0]
    C.ok(plain["logprobs"]["token_logprobs"] == one["logprobs"]["token_logprobs"][-1:], (plain, one["logprobs"]["token_logprobs"][-1:]))
    worse = ask(s, ids[:40] + [ids[7]] * 5)["choices"][0]["logprobs"]["token_logprobs"]
    C.ok(worse[:40] == p["token_logprobs"][:40] and sum(worse[40:]) < sum(p["token_logprobs"][40:45]), "nonsense is less likely")


def check_batch(s, ids, p):
    """Several prompts and choices, beside requests that want no such thing; the cache that they fill changes nothing."""
    r = ask(s, [STORY, "The sea", ids[:65]], n=2)["choices"]
    C.ok(len(r) == 6 and r[0]["logprobs"] == r[1]["logprobs"] and r[0]["logprobs"]["token_logprobs"] == p["token_logprobs"], "n 2")
    C.ok(r[2]["text"] == r[3]["text"] == "The sea" and r[4]["logprobs"]["token_logprobs"] == p["token_logprobs"][:65], "several prompts")
    s.post("/v1/completions", {"prompt": ids, "max_tokens": 2})
    hit = s.post("/v1/completions", {"prompt": ids, "max_tokens": 2})[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    again = ask(s, ids)
    C.ok(hit >= 64 and again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, (hit, again["usage"]))
    C.ok(again["choices"][0]["logprobs"]["token_logprobs"] == p["token_logprobs"], "the prefix cache changes nothing")


def check_stream(s, ids):
    whole, parts = ask(s, STORY, max_tokens=4)["choices"][0], stream(s, STORY)
    joined = {k: [x for c in parts if c["logprobs"] for x in c["logprobs"][k]] for k in whole["logprobs"]}
    C.ok("".join(c["text"] for c in parts) == whole["text"] and joined == whole["logprobs"], (joined, whole["logprobs"]))
    C.ok(len(parts) > 2 and len(parts[0]["logprobs"]["tokens"]) == len(ids) + 1, len(parts))
    C.ok(joined["text_offset"][len(ids)] == len(STORY), joined["text_offset"][-6:])
    parts = stream(s, STORY, max_tokens=0)
    C.ok("".join(c["text"] for c in parts) == STORY and len(parts[0]["logprobs"]["tokens"]) == len(ids), parts)


def check_lm_eval(s, ids):
    """The sum over a continuation, and whether greedy decoding would write it, as lm-eval reads them."""
    scores = []
    for end in (ids[30:35], [ids[3]] * 5):
        c = ask(s, ids[:30] + end, max_tokens=1, logprobs=1, seed=1234)["choices"][0]["logprobs"]
        part = slice(30, -1)
        scores.append(sum(c["token_logprobs"][part]))
        C.ok(math.isfinite(scores[-1]) and len(c["token_logprobs"][part]) == 5, scores)
        greedy = [t == max(top, key=top.get) for t, top in zip(c["tokens"][part], c["top_logprobs"][part])]
        C.ok(len(greedy) == 5 and not (end[1] == end[0] and all(greedy)), (c["tokens"], greedy))
    C.ok(scores[0] > scores[1], scores)


def check_errors(s):
    for body, word in [({"id_slot": 0}, "id_slot"), ({"logprobs": 20, "n": 16, "prompt": [STORY * 3] * 16}, "want at most 1048576"), ({"logprobs": 21}, "logprobs")]:
        status, r = s.post("/v1/completions", {"prompt": STORY, "echo": True, "logprobs": 1, **body})
        C.ok(status == 400 and word in r["error"]["message"], (status, r))
    status, r = s.post("/completion", {"prompt": "a", "echo": True, "n_probs": 1})
    C.ok(status == 400 and "/v1/completions" in r["error"]["message"], (status, r))


def main():
    if not built(BUILD):
        return C.end()
    with Server(BUILD, "-c", "1024", "-np", "3") as s:
        ids, p = check_shape(s)
        check_values(s, ids, p)
        check_batch(s, ids, p)
        check_stream(s, ids)
        check_lm_eval(s, ids)
        check_errors(s)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
