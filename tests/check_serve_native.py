#!/usr/bin/env python3
"""check_serve_native: /completion and /infill over HTTP, beside /v1/completions, whose texts they must give.  For /infill three tokens of
the small model are renamed."""
import json
import math
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import DEMO, SLOW, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_native")
BODY = {"prompt": "Once upon a time", "n_predict": 12, "temperature": 0}
FIM = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")


def stream(s, path, body):
    status, headers, data = s.request("POST", path, {**body, "stream": True})
    parts = data.decode().split("\n\n")
    C.ok(status == 200 and headers["content-type"] == "text/event-stream" and parts[-1] == "" and "[DONE]" not in data.decode(), data[-300:])
    return [json.loads(p[6:]) for p in parts if p.startswith("data: ")]


def text_of(s, **fields):
    return s.post("/v1/completions", {"prompt": BODY["prompt"], "max_tokens": 12, "temperature": 0, **fields})[1]["choices"][0]["text"]


def check_whole(s):
    want = text_of(s)
    status, r = s.post("/completion", BODY)
    C.ok(status == 200 and r["content"] == want and r["stop"] is True and r["stop_type"] == "limit" and r["stopping_word"] == "", r)
    C.ok(r["tokens_predicted"] == r["timings"]["predicted_n"] == 12 and r["tokens"] == [] and r["index"] == 0 and not r["truncated"], r)
    C.ok(r["prompt"] == BODY["prompt"] and r["model"] and r["id_slot"] == -1 and "completion_probabilities" not in r, r)
    ids = s.post("/tokenize", {"content": BODY["prompt"], "add_special": True})[1]["tokens"]
    C.ok(r["tokens_evaluated"] == len(ids) and r["tokens_cached"] == r["timings"]["cache_n"] <= len(ids), (r, ids))
    r = s.post("/completions", {**BODY, "prompt": ids, "return_tokens": True})[1]
    C.ok(r["content"] == want and len(r["tokens"]) == 12 and "prompt" not in r, r)
    C.ok(s.post("/detokenize", {"tokens": r["tokens"]})[1]["content"] == want, r["tokens"])
    r = s.post("/completion", {**BODY, "prompt": [BODY["prompt"], ids, "The sea"]})[1]
    C.ok([x["index"] for x in r] == [0, 1, 2] and r[0]["content"] == r[1]["content"] == want != r[2]["content"], r)
    C.ok(r[0]["prompt"] == BODY["prompt"] and "prompt" not in r[1] and r[2]["prompt"] == "The sea", r)
    r = s.post("/completion", {**BODY, "prompt": ["a", "b"], "n": 2, "n_predict": 2, "temperature": 1})[1]
    C.ok([x["prompt"] for x in r] == ["a", "a", "b", "b"], r)
    r = s.post("/completion", {**BODY, "n_predict": 0})[1]
    C.ok(r["content"] == "" and r["tokens_predicted"] == 0 and r["stop_type"] == "limit" and r["stop"] is True, r)


def check_ends(s):
    """Why it ended: which of several stop strings, or the end of the text."""
    words = text_of(s).split()
    r = s.post("/completion", {**BODY, "stop": ["never", words[3], words[2]]})[1]
    C.ok(r["stop_type"] == "word" and r["stopping_word"] == words[2] and words[2] not in r["content"], (r, words))
    C.ok(r["generation_settings"]["stop"] == ["never", words[3], words[2]], r)
    last = stream(s, "/completion", {**BODY, "stop": ["never", words[3], words[2]]})[-1]
    C.ok(last["stop_type"] == "word" and last["stopping_word"] == words[2], last)
    r = s.post("/completion", {**BODY, "grammar": 'root ::= " yes"'})[1]
    C.ok(r["content"] == " yes" and r["stop_type"] == "eos" and r["stopping_word"] == "", r)


def check_settings(s):
    asked = {"seed": 7, "temperature": 0.5, "top_k": 11, "top_p": 0.5, "min_p": 0.25, "repeat_penalty": 1.5, "repeat_last_n": 9,
             "presence_penalty": 0.5, "frequency_penalty": 0.25, "ignore_eos": True, "n_predict": 3, "n_probs": 2, "logit_bias": {"5": 1}}
    r = s.post("/completion", {**BODY, **asked})[1]
    told = r["generation_settings"]
    C.ok(all(told[k] == v for k, v in asked.items() if k != "logit_bias") and told["max_tokens"] == 3 and told["stream"] is False, told)
    C.ok(s.post("/completion", BODY)[1]["generation_settings"]["seed"] == -1, "no seed")
    first = s.post("/completion", {**BODY, "n_predict": 1, "return_tokens": True})[1]["tokens"][0]
    banned = [s.post("/completion", {**BODY, "n_predict": 12, "return_tokens": True, "logit_bias": bias})[1]["tokens"]
              for bias in ([[first, False]], [[first, -100]], {str(first): -100})]
    C.ok(first not in banned[0] and banned[0] == banned[1] == banned[2], (first, banned))
    probs, again = r["completion_probabilities"], s.post("/completion", {**BODY, **asked, "return_tokens": True})[1]
    C.ok(len(probs) == 3 and [p["id"] for p in probs] == again["tokens"] and r["tokens"] == [], (probs, again))
    C.ok(b"".join(bytes(p["bytes"]) for p in probs).decode(errors="replace") == r["content"], (probs, r["content"]))
    C.ok(all(len(p["top_logprobs"]) == 2 and p["top_logprobs"][0]["logprob"] >= p["top_logprobs"][1]["logprob"] and p["logprob"] <= 0 and
             p["token"] == bytes(p["bytes"]).decode(errors="replace") for p in probs), probs)


def check_stream(s):
    whole = s.post("/completion", {**BODY, "return_tokens": True, "n_probs": 1})[1]
    events = stream(s, "/completion", {**BODY, "return_tokens": True, "n_probs": 1})
    C.ok("".join(e["content"] for e in events) == whole["content"] and sum((e["tokens"] for e in events), []) == whole["tokens"], events)
    C.ok(sum((e.get("completion_probabilities", []) for e in events), []) == whole["completion_probabilities"], events)
    C.ok([e["stop"] for e in events] == [False] * (len(events) - 1) + [True] and len(events) > 4, events)
    C.ok(set(whole) - {"completion_probabilities"} == set(events[-1]) and events[-1]["tokens_predicted"] == 12, events[-1])
    events = stream(s, "/completion", {**BODY, "prompt": ["a", "b"]})
    C.ok(sorted(e["index"] for e in events if e["stop"]) == [0, 1], "each choice has its end")


def check_post_probs(s):
    """Probabilities of what the sampler chose among: with a temperature and a top_k those of the logprobs, made anew."""
    for samplers in ({"top_k": 5}, {"top_k": 5, "typical_p": 0.9999999}, {"top_k": 5, "top_n_sigma": 99}):
        body = {**BODY, "temperature": 0.7, "top_p": 1, "min_p": 0, "seed": 3, "n_probs": 20, **samplers}
        plain = s.post("/completion", body)[1]["completion_probabilities"]
        for post in (s.post("/completion", {**body, "post_sampling_probs": True})[1]["completion_probabilities"],
                     [e["completion_probabilities"][0] for e in stream(s, "/completion", {**body, "post_sampling_probs": True})
                      if "completion_probabilities" in e]):
            C.ok(len(plain) == len(post) == 12 and [p["id"] for p in plain] == [p["id"] for p in post], (plain, post))
            for a, b in zip(plain, post):
                weights = [math.exp(t["logprob"] / 0.7) for t in a["top_logprobs"][:5]]
                C.ok([t["id"] for t in b["top_probs"]] == [t["id"] for t in a["top_logprobs"][:5]] and
                     all(abs(t["prob"] - w / sum(weights)) < 1e-4 for t, w in zip(b["top_probs"], weights)), (a, b, weights))
                C.ok("logprob" not in b and [t["prob"] for t in b["top_probs"] if t["id"] == b["id"]] == [b["prob"]], b)
    for p in s.post("/completion", {**BODY, "n_probs": 3, "post_sampling_probs": True})[1]["completion_probabilities"]:
        C.ok(p["prob"] == 1 and [t["id"] for t in p["top_probs"]] == [p["id"]], p)
    status, r = s.post("/v1/completions", {"prompt": "a", "logprobs": 3, "post_sampling_probs": True})
    C.ok(status == 400 and r["error"]["param"] == "post_sampling_probs", r)


def check_off():
    """What the operator switched off."""
    with Server(BUILD, "-np", "1", "-c", "256", "--no-metrics", "--no-slots", "--no-prefill-assistant") as s:
        for path in ("/metrics", "/slots"):
            status, r = s.get(path)
            C.ok(status == 501 and r["error"]["type"] == "not_supported_error" and "switched off" in r["error"]["message"], r)
        chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, th"}]
        C.ok(not s.post("/apply-template", {"messages": chat})[1]["prompt"].endswith("Well, th"), "--no-prefill-assistant")
        status, r = s.post("/v1/chat/completions", {"messages": chat + chat[1:], "max_tokens": 1})
        C.ok(status == 200, r)


def check_bad(s):
    for change, param in (({"prompt": None}, "prompt"), ({"prompt": [[]]}, "prompt"), ({"n_probs": 21}, "n_probs"), ({"n_predict": -2}, "n_predict"),
                          ({"return_tokens": 1}, "return_tokens"), ({"mirostat": 3}, "mirostat"), ({"prompt": [1, {}]}, "prompt"),
                          ({"image_data": [1]}, "image_data"), ({"stop": [""]}, "stop"), ({"nPredict": 3}, "n_predict")):
        status, r = s.post("/completion", {**BODY, **change})
        C.ok(status == 400 and r["error"]["param"] == param and r["error"]["type"] == "invalid_request_error", (change, status, r))
    status, headers, _ = s.request("POST", "/completion", {**BODY, "logprobs": 3, "cache_prompt": True, "n_predict": 1})
    C.ok(status == 200 and headers["x-kvant-ignored-fields"] == "logprobs", headers)
    status, r = s.post("/v1/completions", {"prompt": "a", "n_probs": 3, "max_tokens": 1})
    C.ok(status == 400 and r["error"]["param"] == "n_probs", r)
    status, r = s.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
    C.ok(status == 400 and "no tokens for filling in" in r["error"]["message"], r)


def renamed(model=DEMO):
    """The small model with tokens for filling in, in a file of the same length (its name gives the bytes)."""
    with open(model, "rb") as f:
        data = f.read()

    def text(s):
        return len(s).to_bytes(8, "little") + s.encode()
    key = text("general.name") + (8).to_bytes(4, "little")
    at = data.index(key) + len(key)
    n = int.from_bytes(data[at:at + 8], "little")
    missing = sum(map(len, FIM)) - len("<|im_start|><|im_end|><|endoftext|>")
    data = data[:at] + text(data[at + 8:at + 8 + n - missing].decode()) + data[at + 8 + n:]
    for old, new in zip(("<|im_start|>", "<|im_end|>", "<|endoftext|>"), FIM):
        C.ok(data.count(text(old)) == 1, old)
        data = data.replace(text(old), text(new))
    with tempfile.NamedTemporaryFile(suffix=".gguf", delete=False) as f:
        f.write(data)
    return f.name


def check_infill(s):
    def ids(text, special=False):
        return s.post("/tokenize", {"content": text, "parse_special": special})[1]["tokens"]
    pre, suf, mid = (ids(name, True) for name in FIM)
    C.ok(len(pre) == len(suf) == len(mid) == 1, (pre, suf, mid))
    bos = s.post("/tokenize", {"content": "", "add_special": True})[1]["tokens"]
    body = {"input_prefix": "The sea was ", "input_suffix": " and <fim_middle> it rained.", "n_predict": 8, "temperature": 0, "ignore_eos": True}
    status, r = s.post("/infill", {**body, "prompt": "cold"})
    by_hand = bos + pre + ids(body["input_prefix"]) + ids("cold") + suf + ids(body["input_suffix"]) + mid
    want = s.post("/completion", {"prompt": by_hand, "n_predict": 8, "temperature": 0, "ignore_eos": True})[1]
    C.ok(status == 200 and r["content"] == want["content"] and r["tokens_evaluated"] == len(by_hand) == want["tokens_evaluated"], (r, want))
    C.ok(mid[0] not in ids(body["input_suffix"]), "control tokens are not read in the texts")
    got = stream(s, "/infill", {**body, "prompt": "cold"})
    C.ok("".join(e["content"] for e in got) == r["content"] and got[-1]["stop"], got)
    C.ok(s.post("/infill", {**body, "input_prefix": "", "input_suffix": ""})[1]["tokens_evaluated"] == len(bos) + 3, "nothing around it")
    check_extra(s, ids, by_hand, body)
    for change, param in (({"input_prefix": None}, "input_prefix"), ({"input_suffix": 3}, "input_suffix"), ({"prompt": ["a"]}, "prompt"),
                          ({"input_extra": [{"text": "", "filename": "x y " * 400000}]}, "input_extra"), ({"input_extra": [{"text": "x y " * 400000}]}, "input_extra"), ({"input_prefix": "a b " * 4000}, "input_prefix")):
        status, r = s.post("/infill", {**body, **change})
        C.ok(status == 400 and r["error"]["param"] == param, (str(change)[:60], status, str(r)[:200]))
    for pieces, says in (("x", 'found "x", wanted an array'), ([{"text": "x"}, 7], "item 1: found 7, wanted an object"), ([{"filename": "x"}], "item 0: text: found nothing, wanted a string"),
                         ([{"text": "x", "filename": [3]}], "item 0: filename: found [3], wanted a string"), ([{"text": 5}] + [{"text": "a b c d " * 2000}], "item 0: text: found 5, wanted a string")):
        status, r = s.post("/infill", {**body, "input_extra": pieces})
        C.ok(status == 400 and says in r["error"]["message"], (says, status, r))


def check_extra(s, ids, plain, body):
    """Pieces of other files stand before the rest, the last ones where there is no room for all (a model without tokens for files)."""
    apart = "\n\n--- snippet ---\n\n"
    pieces = [{"filename": "a.h", "text": "int one;\n"}, {"text": "<fim_middle> two"}]
    extra = sum((ids(apart) + ids(x["text"]) for x in pieces), [])
    body = {**body, "prompt": "cold"}
    r = s.post("/infill", {**body, "input_extra": pieces})[1]
    want = s.post("/completion", {"prompt": extra + plain, "n_predict": 8, "temperature": 0, "ignore_eos": True})[1]
    C.ok(r["tokens_evaluated"] == len(extra) + len(plain) and r["content"] == want["content"], (r, want))
    C.ok(s.post("/infill", {**body, "input_extra": []})[1]["tokens_evaluated"] == len(plain), "no pieces")
    long = [{"text": "one two three four five six seven. " * 300}, {"text": "The last piece."}]
    r = s.post("/infill", {**body, "input_extra": long})[1]
    C.ok(r["tokens_evaluated"] == 2048 - 1 - 8, f"as much as there is room for, beside the answer: {r['tokens_evaluated']}")
    kept = (ids(apart) + ids(long[0]["text"]) + ids(apart) + ids(long[1]["text"]))[-(2048 - 9 - len(plain)):]
    want = s.post("/completion", {"prompt": kept + plain, "n_predict": 8, "temperature": 0, "ignore_eos": True})[1]
    C.ok(r["content"] == want["content"], (r["content"], want["content"]))
    for any_length in ({}, {"n_predict": -1}):
        asked = {k: v for k, v in body.items() if k != "n_predict"}
        r = s.post("/infill", {**asked, **any_length, "input_extra": long})[1]
        C.ok(r["tokens_evaluated"] == 2048 - 1 - 512 and r["tokens_predicted"] >= 512, f"an answer of any length has room: {r['tokens_evaluated']} {r['tokens_predicted']}")
    began = time.time()
    C.ok(s.post("/infill", {**body, "input_extra": [{"text": ""}] * 300000 + [{}]})[0] == 400, "the last one has no text")
    refused = time.time() - began
    r = s.post("/infill", {**body, "input_extra": [{"text": ""}] * 300000})[1]
    took = time.time() - began - refused
    few = s.post("/infill", {**body, "input_extra": [{"text": ""}] * 2100})[1]
    C.ok(r.get("content") == few["content"] and r["tokens_evaluated"] == 2048 - 1 - 8, f"pieces that there is no room for: {str(r)[:200]}")
    C.ok(took < 3 * refused + 2 * SLOW, f"nor are they made into tokens: {took:.1f} s, to read them alone {refused:.1f} s")


def main():
    if not built(BUILD):
        print("check_serve_native: SKIP (built without the server)")
        return 0
    s = Server(BUILD, "-np", "4", "-c", "2048")
    try:
        for check in (check_whole, check_ends, check_settings, check_stream, check_post_probs, check_bad):
            check(s)
    finally:
        C.ok(s.stop() == 0, "stopped cleanly")
    check_off()
    path = renamed()
    s = Server(BUILD, "-np", "2", "-c", "2048", model=path)
    try:
        check_infill(s)
    finally:
        C.ok(s.stop() == 0, "stopped cleanly")
        os.unlink(path)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
