#!/usr/bin/env python3
"""check_serve_shift [BUILD]: --context-shift: an answer goes on where its context is full, and is the text of fresh requests, each with what the one
before left as its prompt; n_keep and n_discard; `truncated`, timings and usage; log-probabilities, stop strings, streams, clients that leave; with
neighbours and with guesses; one line in the log for each request.  Without the option a full context is the end."""
import http.client
import json
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_shift")
CONTEXT, MADE = 128, 300
shifts = 0                              # of the texts that are wanted
TEXT = "It was a dark night, and the old man"
BODY = {"prompt": TEXT, "n_predict": MADE, "temperature": 0, "ignore_eos": True, "return_tokens": True, "cache_prompt": True}


def wanted(s, ids, keep, discard):
    """The tokens of fresh requests: each goes on until its context is full, then a part of its text goes."""
    global shifts
    out, text = [], list(ids)
    while len(out) < MADE:
        room = CONTEXT + 1 - len(text)
        status, r = s.post("/completion", {**BODY, "prompt": text, "n_predict": room})
        C.ok(status == 200 and len(r["tokens"]) == room and not r["truncated"], f"a part: {status} {r.get('truncated')}")
        out += r["tokens"]
        text += r["tokens"]
        kept = len(ids) if keep < 0 else keep
        behind = len(text) - 1 - kept
        shifts += len(out) < MADE
        text = text[:kept] + text[kept + (max(discard, CONTEXT // 16) if discard else behind // 2):]
    return out[:MADE]


def check_texts(s):
    ids = s.post("/tokenize", {"content": TEXT, "add_special": True})[1]["tokens"]
    first = None
    for keep, discard in ((0, 0), (-1, 0), (4, 30)):
        more = {"n_keep": keep, "n_discard": discard}
        status, r = s.post("/completion", {**BODY, **more})
        C.ok(status == 200 and r["tokens_predicted"] == MADE and r["truncated"] is True and r["stop_type"] == "limit", f"{more}: {status} {r}")
        C.ok(r["timings"]["predicted_n"] == MADE and r["tokens_evaluated"] == len(ids), f"{more}: {r['timings']} {r['tokens_evaluated']}")
        told = r["generation_settings"]
        C.ok((told["n_keep"], told["n_discard"]) == (keep, discard), f"{more}: {told}")
        C.ok(r["tokens"] == wanted(s, ids, keep, discard), f"{more}: another text than that of fresh requests")
        C.ok(s.post("/completion", {**BODY, **more})[1]["tokens"] == r["tokens"], f"{more}: another text the second time")
        first = first or r
    for name, bad in (("n_keep", -2), ("n_discard", -1), ("n_keep", "all")):
        status, r = s.post("/completion", {**BODY, name: bad})
        C.ok(status == 400 and name in r["error"]["message"], f"{name} {bad}: {status} {r}")
    return first


def check_fields(s, first):
    status, r = s.post("/completion", {**BODY, "n_predict": 20})
    C.ok(status == 200 and r["truncated"] is False, f"a short answer: {r}")
    status, r = s.post("/completion", {**BODY, "n_probs": 2})
    probs = r["completion_probabilities"]
    C.ok(status == 200 and [p["id"] for p in probs] == first["tokens"] and all(p["logprob"] <= 0 and len(p["top_logprobs"]) == 2 for p in probs),
         f"{len(probs)} log-probabilities")
    word = first["content"][-40:-30]
    at = first["content"].index(word)
    status, r = s.post("/completion", {**BODY, "stop": [word]})
    C.ok(status == 200 and r["stop_type"] == "word" and r["content"] == first["content"][:at], f"stop {word!r}: {r['stop_type']} {r['content'][-50:]!r}")
    status, r = s.post("/v1/completions", {"prompt": TEXT, "max_tokens": MADE, "temperature": 0, "ignore_eos": True})
    C.ok(status == 200 and r["choices"][0]["text"] == first["content"] and r["choices"][0]["finish_reason"] == "length" and
         r["usage"]["completion_tokens"] == MADE, f"/v1/completions: {r['usage']}")
    status, r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell a tale"}], "max_tokens": MADE, "temperature": 0, "ignore_eos": True})
    C.ok(status == 200 and r["usage"]["completion_tokens"] == MADE, f"a chat: {status} {r}")


def check_choices(s):
    """A grammar goes on behind a shift where it was; several choices are those of requests alone, with their log-probabilities; any n_keep will do."""
    body = {"prompt": TEXT, "n_predict": 2 * MADE, "temperature": 0.8, "seed": 3, "ignore_eos": True, "grammar": 'root ::= ([a-m]{3} [n-z]{2} [0-9])+'}
    status, r = s.post("/completion", body)
    C.ok(status == 200 and r["timings"]["predicted_n"] == 2 * MADE and re.fullmatch("([a-m]{3}[n-z]{2}[0-9])*[a-m]{0,3}[n-z]{0,2}", r["content"]),
         f"a grammar: {status} {r.get('content', r)}")
    schema = {"type": "array", "minItems": 90, "maxItems": 90, "items": {"type": "integer", "minimum": 10, "maximum": 99}}
    status, r = s.post("/completion", {"prompt": TEXT, "n_predict": 1000, "seed": 2, "json_schema": schema})
    C.ok(status == 200 and r["tokens_predicted"] > CONTEXT and len(json.loads(r["content"])) == 90, f"a schema: {status} {r.get('content', r)}")
    body = {"prompt": TEXT, "max_tokens": MADE, "temperature": 0.9, "seed": 5, "ignore_eos": True}
    status, r = s.post("/v1/completions", {**body, "n": 3, "logprobs": 3})
    C.ok(status == 200 and len(r["choices"]) == 3, f"three choices: {status}")
    for i, c in enumerate(r["choices"]):
        C.ok(len(c["logprobs"]["tokens"]) == MADE and "".join(c["logprobs"]["tokens"]) == c["text"], f"choice {i}: {c['logprobs']['tokens'][-9:]}")
        alone = s.post("/v1/completions", {**body, "seed": 5 + i})[1]["choices"][0]["text"]
        C.ok(alone == c["text"], f"choice {i} is not that of its seed alone")
    status, r = s.post("/completion", {**BODY, "n_keep": 2**31 - 1})
    C.ok(status == 200 and r["tokens_predicted"] == MADE, f"n_keep beyond the context: {status} {r}")


def stream(s, body, most):
    """The text of a stream, or of its first parts: then the client leaves."""
    conn = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
    conn.request("POST", "/completion", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    out, n, last = "", 0, None
    for line in conn.getresponse():
        if not line.startswith(b"data: "):
            continue
        last = json.loads(line[6:])
        out, n = out + last["content"], n + 1
        if n == most or last["stop"]:
            break
    conn.close()
    return out, last


def check_streams(s, first):
    text, last = stream(s, BODY, 10000)
    C.ok(text == first["content"] and last["truncated"] is True and last["tokens_predicted"] == MADE, f"a stream: {last}")
    text, last = stream(s, {**BODY, "n_predict": -1}, 600)          # without end: until its client leaves
    C.ok(not last["stop"] and last["tokens_predicted"] >= 300 and text.startswith(first["content"][:200]), f"without a limit: {last}")
    end = time.time() + 30
    while time.time() < end and any(x["is_processing"] for x in s.get("/slots")[1]):
        time.sleep(0.1)
    C.ok(time.time() < end, "the client left, its request goes on")


def check_company(s, first):
    short = {**BODY, "prompt": "A short question", "n_predict": 40}
    alone, got = s.post("/completion", short)[1]["tokens"], {}
    bodies = {"long": BODY, "short": short, "again": {**BODY, "cache_prompt": False}}
    threads = [threading.Thread(target=lambda k=k, b=b: got.update({k: s.post("/completion", b)[1]["tokens"]})) for k, b in bodies.items()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    C.ok(got == {"long": first["tokens"], "short": alone, "again": first["tokens"]}, "with neighbours: another text")


def main():
    if not built(BUILD):
        print("check_serve_shift: no server in this build")
        return 0
    with Server(BUILD, "-c", str(CONTEXT), "-np", "3", "--context-shift") as s:
        first = check_texts(s)
        C.ok(s.metric("context_shifts_total") == 2 * shifts, f"{s.metric('context_shifts_total')} shifts, wanted twice {shifts}")
        lines = [x for x in s.lines if "is full: the first" in x]
        C.ok(len(lines) == 6 and "the first 4 stay, 30 behind them go" in lines[-1], f"the log: {lines}")
        check_fields(s, first)
        check_choices(s)
        check_streams(s, first)
        check_company(s, first)
    with Server(BUILD, "-c", str(CONTEXT), "-np", "1", "--context-shift", "--keep", "-1", "--spec", "ngram", "--draft-max", "4") as s:
        r = s.post("/completion", {**BODY, "n_keep": 0})[1]
        C.ok(r["tokens"] == first["tokens"] and r["timings"]["draft_n"] > 0, f"with guesses: another text: {r['timings']}")
        C.ok(s.post("/completion", BODY)[1]["generation_settings"]["n_keep"] == -1, "--keep -1 is no default of requests")
    with Server(BUILD, "-c", str(CONTEXT), "-np", "1", "--no-context-shift") as s:
        r = s.post("/completion", {**BODY, "n_keep": 5})[1]
        C.ok(r["truncated"] is True and r["tokens_predicted"] < CONTEXT and r["tokens"] == first["tokens"][:r["tokens_predicted"]], "without shifts: it goes on")
    return C.end()


sys.exit(main())
