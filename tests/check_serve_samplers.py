#!/usr/bin/env python3
"""check_serve_samplers: the samplers beyond the usual ones over HTTP: what each must do to a text that can be seen from outside, what is
told of them, and what is refused; `kvant run` gives the tokens that a request with the same fields gets.  Their distributions:
check_sampler_chain."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import DEMO, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_samplers")
SEA = "The sea the sea the sea the sea the sea the sea"


def tokens(s, prompt=SEA, **fields):
    body = {"prompt": prompt, "n_predict": 48, "return_tokens": True, "seed": 5, "min_p": 0, "top_k": 0, "top_p": 1, "temperature": 0, "ignore_eos": True, **fields}
    status, r = s.post("/completion", body)
    C.ok(status == 200, (fields, status, r))
    return r["tokens"]


def check_effects(s):
    plain = tokens(s)
    ids = s.post("/tokenize", {"content": SEA, "add_special": True})[1]["tokens"]
    for n in (2, 3):
        text = ids + tokens(s, no_repeat_ngram_size=n)
        grams = [tuple(text[i:i + n]) for i in range(len(text) - n + 1)]
        C.ok(all(g not in grams[:i] for i, g in list(enumerate(grams))[len(ids) - n + 1:]), (n, text))
    dry = tokens(s, dry_multiplier=5, dry_penalty_last_n=-1)
    C.ok(dry != plain and len({tuple(dry[i:i + 4]) for i in range(44)}) > 40, (dry, plain))
    C.ok(tokens(s, dry_multiplier=5, dry_penalty_last_n=0) == plain, "DRY that looks back on nothing")
    every = [chr(c) for c in range(97, 123)] + [" ", "\n", ",", ".", "T", "'"]
    C.ok(tokens(s, dry_multiplier=5, dry_sequence_breakers=every) == plain, "every token breaks")
    C.ok(tokens(s, temperature=1, top_n_sigma=0.0001) == plain, "only the best is within so little of itself")
    C.ok(tokens(s, temperature=1, top_k=1, dynatemp_range=0.5) == plain, "one candidate")
    C.ok(tokens(s, temperature=1, mirostat=2, mirostat_tau=0, mirostat_eta=1) == plain, "no surprise")
    C.ok(tokens(s, xtc_probability=1, xtc_threshold=0.0001, top_k=2) != plain, "XTC takes the best away, at temperature 0 too")
    C.ok(tokens(s, temperature=1, samplers=["top_k"], top_k=1, top_p=0.1) == plain == tokens(s, temperature=0.3, samplers="k", top_k=1), "samplers: one of them")
    C.ok(tokens(s, temperature=0, repeat_penalty=5, samplers=["temperature"]) == plain, "samplers: penalties are off")
    sampled = {"temperature": 1.2, "typical_p": 0.5, "xtc_probability": 0.3, "xtc_threshold": 0.1, "dry_multiplier": 0.8, "top_n_sigma": 2, "dynatemp_range": 0.4}
    C.ok(tokens(s, **sampled) == tokens(s, **sampled) != tokens(s, **{**sampled, "seed": 6}), "a seed gives the same tokens")
    for version in (1, 2):
        C.ok(tokens(s, temperature=1, mirostat=version) == tokens(s, temperature=1, mirostat=version), f"mirostat {version}")
    r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": SEA}], "max_tokens": 60, "typical_p": 0.5, "dry_multiplier": 1,
                                        "response_format": {"type": "json_object"}, "n": 2, "seed": 1})
    C.ok(r[0] == 200 and len(r[1]["choices"]) == 2, r)


# options of `kvant run`, and the fields of a request that mean the same
SAME = (("--temp 1.2 --typical 0.5", {"temperature": 1.2, "typical_p": 0.5}), ("--temp 1.5 --top-nsigma 0.6", {"temperature": 1.5, "top_n_sigma": 0.6}),
        ("--xtc-probability 1 --xtc-threshold 0.01", {"xtc_probability": 1, "xtc_threshold": 0.01}),
        ("--temp 1 --dynatemp-range 0.9 --dynatemp-exp 2", {"temperature": 1, "dynatemp_range": 0.9, "dynatemp_exponent": 2}),
        ("--temp 1 --mirostat 1 --mirostat-ent 3 --mirostat-lr 0.3", {"temperature": 1, "mirostat": 1, "mirostat_tau": 3, "mirostat_eta": 0.3}),
        ("--temp 1 --mirostat 2 --mirostat-ent 1", {"temperature": 1, "mirostat": 2, "mirostat_tau": 1}),
        ("--dry-multiplier 2 --dry-base 1.2 --dry-allowed-length 3 --dry-penalty-last-n -1",
         {"dry_multiplier": 2, "dry_base": 1.2, "dry_allowed_length": 3, "dry_penalty_last_n": -1}),
        ("--dry-multiplier 5 --dry-sequence-breaker a --dry-sequence-breaker \\n", {"dry_multiplier": 5, "dry_sequence_breakers": ["a", "\n"]}),
        ("--dry-multiplier 5 --dry-sequence-breaker none", {"dry_multiplier": 5, "dry_sequence_breakers": []}),
        ("--repeat-penalty 1.8 --presence-penalty 0.5 --frequency-penalty 0.5 --repeat-last-n 100",
         {"repeat_penalty": 1.8, "presence_penalty": 0.5, "frequency_penalty": 0.5, "repeat_last_n": 100}),
        ("--temp 1.9 --samplers top_k;temperature --top-k 3 --repeat-penalty 9", {"temperature": 1.9, "top_k": 3}),
        ("--temp 1.9 --sampler-seq kt --top-k 3 --repeat-penalty 9", {"temperature": 1.9, "top_k": 3}))


def run(*words):
    command = [os.path.join(BUILD, "bin", "kvant"), "run", "-m", DEMO, "-c", "512", "-p", SEA, "-n", "48", "-s", "5", "--json", "-lv", "1"]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False)


def check_run(s):
    base = ("--min-p", "0", "--top-k", "0", "--top-p", "1", "--temp", "0", "--ignore-eos")
    plain = tokens(s)
    r = run(*base)
    C.ok(r.returncode == 0 and json.loads(r.stdout)["ids"] == plain, r)
    for words, fields in SAME:
        r = run(*base, *words.split())
        want = tokens(s, **fields)
        C.ok(r.returncode == 0 and json.loads(r.stdout)["ids"] == want != plain, (words, want, r))
    for words, want in ((("--samplers", "top_p;top_k"), '--samplers: item 1, "top_k": wanted names'), (("--sampler-seq", "kz"), 'item 1, "z"'),
                        (("--samplers", "top_k", "--sampler-seq", "k"), "found both --samplers and --sampler-seq"),
                        (("--dry-sequence-breaker", "ab"), 'found "ab", wanted one character'), (("--mirostat", "3"), "from 0 to 2")):
        r = run(*words)
        C.ok(r.returncode == 2 and want in r.stderr, (words, r))


def check_told(s):
    asked = {"typical_p": 0.5, "top_n_sigma": 2.5, "xtc_probability": 0.25, "xtc_threshold": 0.125, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5, "mirostat": 1,
             "mirostat_tau": 4, "mirostat_eta": 0.25, "dry_multiplier": 0.5, "dry_base": 1.5, "dry_allowed_length": 3, "dry_penalty_last_n": 32}
    told = s.post("/completion", {"prompt": "a", "n_predict": 1, **asked})[1]["generation_settings"]
    C.ok(all(told[k] == v for k, v in asked.items()), told)
    told = s.post("/completion", {"prompt": "a", "n_predict": 1})[1]["generation_settings"]
    C.ok(told["typical_p"] == 1 and told["mirostat"] == told["dry_multiplier"] == told["xtc_probability"] == 0 and told["dry_base"] == 1.75, told)


def check_refused(s):
    for field, value in (("typical_p", 1.5), ("xtc_probability", -1), ("mirostat", 3), ("dry_base", 0.5), ("dry_sequence_breakers", ["User:"]),
                         ("dry_sequence_breakers", ":"), ("samplers", ["top_p", "top_k"]), ("samplers", ["adaptive_p"]), ("samplers", "tk"), ("samplers", 7)):
        status, r = s.post("/v1/completions", {"prompt": "a", "max_tokens": 1, field: value})
        C.ok(status == 400 and r["error"]["param"] == field, (field, value, status, r))


def main():
    if not built(BUILD):
        return C.end()
    with Server(BUILD, "-c", "512", "-np", "3") as s:
        check_effects(s)
        check_run(s)
        check_told(s)
        check_refused(s)
    # the server's defaults
    defaults = {"typical_p": 0.5, "top_n_sigma": 2.5, "xtc_probability": 0.25, "xtc_threshold": 0.125, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5, "mirostat": 1,
                "mirostat_tau": 4, "mirostat_eta": 0.25, "dry_multiplier": 0.5, "dry_base": 1.5, "dry_allowed_length": 3, "dry_penalty_last_n": 32}
    spelt = {"typical_p": "--typical", "top_n_sigma": "--top-nsigma", "dynatemp_exponent": "--dynatemp-exp", "mirostat_tau": "--mirostat-ent", "mirostat_eta": "--mirostat-lr"}
    words = [w for k, v in defaults.items() for w in (spelt.get(k, "--" + k.replace("_", "-")), str(v))]
    with Server(BUILD, "-c", "512", *words) as s:
        told = s.post("/completion", {"prompt": "a", "n_predict": 1})[1]["generation_settings"]
        C.ok(all(told[k] == v for k, v in defaults.items()), told)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
