#!/usr/bin/env python3
"""check_serve_tgi: text-generation-inference's /generate, /generate_stream, / and /info over raw HTTP: beside /v1/completions, token by token,
ends of every kind, details of answer and prompt, grammars, what is refused and how."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_tgi")
STORY = "Once upon a time there was a lighthouse keeper"
NUMBER = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}


def ask(s, **parameters):
    status, r = s.post("/generate", {"inputs": STORY, "parameters": parameters})
    C.ok(status == 200, (status, r))
    return r


def stream(s, path="/generate_stream", **parameters):
    """The events; the last one alone tells the end, and the texts of all of them are the answer."""
    status, headers, data = s.request("POST", path, {"inputs": STORY, "stream": True, "parameters": parameters})
    C.ok(status == 200 and headers["content-type"] == "text/event-stream", (status, headers))
    out = [json.loads(p[5:]) for p in data.decode().split("\n\n") if p.startswith("data:")]
    last = out[-1]
    C.ok([o["index"] for o in out] == list(range(1, len(out) + 1)), out)
    C.ok(all(o["details"] is None and o["generated_text"] is None for o in out[:-1]), out)
    C.ok(last["details"]["generated_tokens"] == len(out) and last["details"]["input_length"] > 5, last)
    C.ok("".join(o["token"]["text"] for o in out) == last["generated_text"] or parameters.get("return_full_text"), out)
    C.ok(all(o["token"]["logprob"] <= 0 and isinstance(o["token"]["id"], int) for o in out), out)
    return out


def completion(s, **fields):
    return s.post("/v1/completions", {"prompt": STORY, "max_tokens": 12, "temperature": 0, **fields})[1]["choices"][0]


def check_texts(s):
    want = completion(s, logprobs=2)
    one = ask(s, max_new_tokens=12)
    C.ok(one == {"generated_text": want["text"]}, (one, want))
    parts = stream(s, max_new_tokens=12)
    C.ok(parts[-1]["generated_text"] == want["text"] and parts[-1]["details"]["finish_reason"] == "length", parts[-1])
    C.ok([p["token"]["logprob"] for p in parts] == want["logprobs"]["token_logprobs"], "log-probabilities of the stream")
    C.ok(not any(p["token"]["special"] for p in parts), parts)
    o = ask(s, max_new_tokens=12, details=True, top_n_tokens=2)
    d = o["details"]
    C.ok(o["generated_text"] == want["text"] and d["finish_reason"] == "length" and d["generated_tokens"] == 12 and d["seed"] is None, o)
    C.ok([t["logprob"] for t in d["tokens"]] == want["logprobs"]["token_logprobs"] and d["prefill"] == [], d)
    C.ok([t["id"] for t in d["tokens"]] == [p["token"]["id"] for p in parts], d["tokens"])
    C.ok(len(d["top_tokens"]) == 12 and all(len(t) == 2 and t[0]["id"] == k["id"] for t, k in zip(d["top_tokens"], d["tokens"])), d["top_tokens"])
    full = ask(s, max_new_tokens=12, return_full_text=True)["generated_text"]
    C.ok(full == STORY + want["text"], full)
    C.ok(stream(s, max_new_tokens=12, return_full_text=True)[-1]["generated_text"] == full, "the whole text at a stream's end")
    usual = ask(s, details=True)["details"]
    C.ok(usual["generated_tokens"] == 100 or usual["finish_reason"] == "eos_token", "100 tokens where nothing is said")
    status, root = s.post("/", {"inputs": STORY, "parameters": {"max_new_tokens": 12}})
    C.ok(status == 200 and root == [{"generated_text": want["text"]}], root)
    C.ok(stream(s, "/", max_new_tokens=12)[-1]["generated_text"] == want["text"], "a stream of /")


def check_prompt(s):
    """decoder_input_details beside echo with log-probabilities; truncate beside the prompt's last tokens."""
    ids = s.post("/tokenize", {"content": STORY, "add_special": True})[1]["tokens"]
    echo = completion(s, echo=True, logprobs=0)["logprobs"]["token_logprobs"]
    o = ask(s, max_new_tokens=12, decoder_input_details=True)
    d = o["details"]
    C.ok([t["id"] for t in d["prefill"]] == ids and [t["logprob"] for t in d["prefill"]] == echo[:len(ids)], d["prefill"])
    C.ok([t["logprob"] for t in d["tokens"]] == echo[len(ids):] and o["generated_text"] == completion(s)["text"], o)
    cut = ask(s, max_new_tokens=12, truncate=4, decoder_input_details=True)
    C.ok([t["id"] for t in cut["details"]["prefill"]] == ids[-4:], cut)
    want = s.post("/v1/completions", {"prompt": ids[-4:], "max_tokens": 12, "temperature": 0})[1]["choices"][0]["text"]
    C.ok(cut["generated_text"] == want, (cut, want))
    long = {"inputs": STORY * 300, "parameters": {"max_new_tokens": 4}}
    status, r = s.post("/generate", long)
    C.ok(status == 400 and r["error"].startswith("inputs:") and r["error_type"] == "validation", (status, r))
    long["parameters"]["truncate"] = 20
    C.ok(s.post("/generate", long)[0] == 200, "a text beyond the context that is cut")


def check_ends(s):
    text = ask(s, max_new_tokens=40)["generated_text"]
    stop = text[12:17]
    parts = stream(s, max_new_tokens=40, stop=[stop])
    whole = ask(s, max_new_tokens=40, stop=[stop], details=True)
    C.ok(parts[-1]["generated_text"] == whole["generated_text"] == text[:text.find(stop)], (parts[-1], whole))
    C.ok(parts[-1]["details"]["finish_reason"] == whole["details"]["finish_reason"] == "stop_sequence", whole)
    C.ok([p["token"]["id"] for p in parts] == [t["id"] for t in whole["details"]["tokens"]], "the tokens of the stop string too")
    g = {"type": "json", "value": NUMBER}
    parts, whole = stream(s, max_new_tokens=100, grammar=g), ask(s, max_new_tokens=100, grammar=g, details=True)
    C.ok(json.loads(whole["generated_text"])["n"] in range(1, 10) and parts[-1]["generated_text"] == whole["generated_text"], whole)
    C.ok(parts[-1]["details"]["finish_reason"] == whole["details"]["finish_reason"] == "eos_token", whole)
    C.ok(parts[-1]["token"]["special"] and parts[-1]["token"]["text"] == "" and not parts[-2]["token"]["special"], parts[-1])
    C.ok(len(whole["details"]["tokens"]) == whole["details"]["generated_tokens"] == len(parts), whole["details"])
    named = {"type": "json_schema", "value": {"name": "number", "schema": NUMBER}}
    C.ok(ask(s, max_new_tokens=100, grammar=named)["generated_text"] == whole["generated_text"], "a schema with a name")
    C.ok(ask(s, max_new_tokens=9, grammar={"type": "regex", "value": "[ab]{4}"})["generated_text"].strip("ab") == "", "an expression")
    full = stream(s, max_new_tokens=100000)
    C.ok(full[-1]["details"]["finish_reason"] in ("length", "eos_token"), full[-1])


def check_sampling(s):
    """Greedy unless something asks for chance, whatever the server's own temperature is."""
    greedy = ask(s, max_new_tokens=20)["generated_text"]
    C.ok(ask(s, max_new_tokens=20, seed=5, temperature=1)["generated_text"] == greedy, "temperature 1 alone is greedy, as there")
    for more in ({"do_sample": True}, {"temperature": 1.9}, {"top_p": 0.999}, {"top_k": 500}, {"typical_p": 0.99}):
        seen = [ask(s, max_new_tokens=20, seed=k, details=True, **more) for k in (3, 3, 4)]
        C.ok(seen[0]["generated_text"] == seen[1]["generated_text"] != seen[2]["generated_text"], (more, seen))
        C.ok([x["details"]["seed"] for x in seen] == [3, 3, 4], (more, seen))
    C.ok(ask(s, max_new_tokens=60, repetition_penalty=1.8)["generated_text"] != ask(s, max_new_tokens=60)["generated_text"], "a penalty")


def check_refused(s):
    for parameters, name in (({"best_of": 2}, "best_of"), ({"watermark": True}, "watermark"), ({"adapter_id": "a"}, "adapter_id"), ({"truncate": 0}, "truncate"),
                             ({"max_new_tokens": 0}, "max_new_tokens"), ({"temperature": -1}, "temperature"), ({"top_n_tokens": 21}, "top_n_tokens"),
                             ({"grammar": {"type": "xml", "value": "a"}}, 'found "xml", wanted json'), ({"grammar": {"type": "regex"}}, "value: missing"),
                             ({"stop": "a" * 300}, "stop"), (7, "parameters: found 7")):
        status, r = s.post("/generate", {"inputs": STORY, "parameters": parameters})
        C.ok(status == 400 and name in r["error"] and r["error_type"] == "validation", (parameters, status, r))
    for body in ({}, {"inputs": 7}, {"inputs": ["a"]}, {"prompt": "a"}):
        status, r = s.post("/generate", body)
        C.ok(status == 400 and r["error"].startswith("inputs: found"), (body, status, r))
    status, r = s.post("/generate_stream", {"inputs": STORY, "parameters": {"decoder_input_details": True}})
    C.ok(status == 400 and "decoder_input_details" in r["error"], (status, r))
    C.ok(s.post("/generate", {"inputs": STORY, "parameters": {"best_of": 1, "watermark": False, "adapter_id": None, "max_new_tokens": 1}})[0] == 200, "neutral")
    hub = {"inputs": STORY, "parameters": {"max_new_tokens": 1}, "options": {"wait_for_model": True, "use_cache": False}}
    status, headers, _ = s.request("POST", "/", hub)
    C.ok(status == 200 and "x-kvant-ignored-fields" not in headers, f"the hub's options: {status} {headers}")
    status, headers, _ = s.request("POST", "/generate", {"inputs": STORY, "parameters": {"max_new_tokens": 1, "zz": 1}})
    C.ok(status == 200 and headers["x-kvant-ignored-fields"] == "parameters.zz", headers)


def check_many():
    """A prompt whose log-probabilities are too many is told so in this API's words."""
    with Server(BUILD, "-c", "65536", "-np", "1") as s:
        status, r = s.post("/generate", {"inputs": "word " * 52000, "parameters": {"decoder_input_details": True, "top_n_tokens": 20}})
        C.ok(status == 400 and r["error"].startswith("parameters.decoder_input_details: with logprobs 20"), (status, r))


def check_info(s):
    status, o = s.get("/info")
    C.ok(status == 200 and o["max_total_tokens"] == 1024 and o["max_input_tokens"] == 1023 and o["max_best_of"] == 1 and o["model_id"], o)


def check_keys():
    with Server(BUILD, "--api-key", "k") as s:
        for method, path in (("POST", "/"), ("POST", "/generate"), ("GET", "/info")):
            status, _, data = s.request(method, path, {"inputs": "a"} if method == "POST" else None)
            C.ok(status == 401 and b"error" in data and b"error_type" not in data, (path, status, data))


def main():
    with Server(BUILD, "-c", "1024", "-np", "4", "--temp", "1.5") as s:
        check_texts(s)
        check_prompt(s)
        check_ends(s)
        check_sampling(s)
        check_refused(s)
        check_info(s)
    check_keys()
    check_many()
    return C.end()


if __name__ == "__main__":
    built(BUILD)
    sys.exit(main())
