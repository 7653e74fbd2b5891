#!/usr/bin/env python3
"""check_serve_embed: /v1/embeddings by kind of pooling, from the option and from the file; embd_normalize; the token that ends a text.  The mean
and the last state of one token are the same, and of a text and of the same text in other words (causal attention) the first states are."""
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from gguf_edit import BOOL, U32, edit, key            # noqa: E402
from serve import ROOT, Checks, Server, built           # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
TINY = os.path.join(ROOT, "tests", "golden", "tiny", "qwen3.gguf")
C = Checks("check_serve_embed")


def with_keys(path, keys):
    edit(TINY, path, keys)


def embed(s, text, **fields):
    status, r = s.post("/v1/embeddings", {"input": text, "embd_normalize": -1, **fields})
    C.ok(status == 200, (text, r))
    return r["data"][0]["embedding"], r["usage"]["prompt_tokens"]


def near(a, b):
    return len(a) == len(b) > 1 and max(abs(x - y) for x, y in zip(a, b)) < 1e-4 * (1 + max(map(abs, a)))


def check_norms(s):
    raw = embed(s, "a b c")[0]
    for norm, length in ((2, math.sqrt(sum(x * x for x in raw))), (1, sum(map(abs, raw))), (0, max(map(abs, raw)) / 32760),
                         (3, sum(abs(x) ** 3 for x in raw) ** (1 / 3))):
        C.ok(near(embed(s, "a b c", embd_normalize=norm)[0], [x / length for x in raw]), f"embd_normalize {norm}")
    plain = s.post("/v1/embeddings", {"input": "a b c"})[1]["data"][0]["embedding"]
    C.ok(near(plain, embed(s, "a b c", embd_normalize=2)[0]), "the default is unit length")
    status, r = s.post("/v1/embeddings", {"input": "a", "embd_normalize": 17})
    C.ok(status == 400 and r["error"]["param"] == "embd_normalize", r)


def check_cohere(s):
    want = s.post("/v1/embeddings", {"input": ["a b c", "d"]})[1]
    status, r = s.post("/v2/embed", {"model": "m", "texts": ["a b c", "d"], "input_type": "search_query", "embedding_types": ["float"]})
    C.ok(status == 200 and r["embeddings"] == {"float": [d["embedding"] for d in want["data"]]} and r["texts"] == ["a b c", "d"], r)
    C.ok(r["id"].startswith("embd-") and r["meta"]["billed_units"]["input_tokens"] == want["usage"]["prompt_tokens"], r)
    for body, param in (({}, "texts"), ({"texts": ["a"], "embedding_types": ["int8"]}, "embedding_types"), ({"texts": ["a"], "embedding_types": 3}, "embedding_types"),
                        ({"texts": ["a"], "output_dimension": 3}, "output_dimension"), ({"texts": ["a"], "images": ["x"]}, "images")):
        status, r = s.post("/v2/embed", body)
        C.ok(status == 400 and r["error"]["param"] == param, (body, r))


def check_tei(s):
    want = [d["embedding"] for d in s.post("/v1/embeddings", {"input": ["a b c", "d"]})[1]["data"]]
    C.ok(s.post("/embed", {"inputs": ["a b c", "d"], "truncate": True}) == (200, want), "two texts")
    C.ok(s.post("/embed", {"inputs": "d"}) == (200, want[1:]), "a text")
    C.ok(near(s.post("/embed", {"inputs": "a b c", "normalize": False})[1][0], embed(s, "a b c")[0]), "as they are")
    status, r = s.post("/similarity", {"inputs": {"source_sentence": "a b c", "sentences": ["d", "a b c"]}, "parameters": {}})
    C.ok(status == 200 and near(r, [sum(x * y for x, y in zip(*want)), 1.0]) and abs(r[0]) < 0.999, (r, want))
    for path, body, param in (("/embed", {}, "inputs"), ("/embed", {"inputs": "a", "prompt_name": "query"}, "prompt_name"), ("/embed", {"inputs": "a", "normalize": 3}, "normalize"),
                              ("/embed", {"inputs": "a", "dimensions": 3}, "dimensions"), ("/similarity", {"inputs": "a"}, "inputs"), ("/similarity", {}, "inputs"),
                              ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, "inputs"),
                              ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b", [1, 2]]}}, "inputs"),
                              ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {"prompt_name": "q"}}, "parameters")):
        status, r = s.post(path, body)
        C.ok(status == 400 and r["error"]["param"] == param, (path, body, r))


def kinds(s):
    """Embeddings of a text's beginnings, of 1, 2 and 3 tokens."""
    ids = s.post("/tokenize", {"content": "the cat and"})[1]["tokens"]
    return [embed(s, ids[:n])[0] for n in (1, 2, 3)]


def check_kinds():
    """mean(n) * n is the sum of the last states of its beginnings."""
    with Server(BUILD, "-np", "2", "-c", "128", model=TINY) as s:
        mean = kinds(s)
        check_norms(s)
        check_cohere(s)
        check_tei(s)
    with Server(BUILD, "-np", "2", "-c", "128", "--pooling", "last", model=TINY) as s:
        last = kinds(s)
    C.ok(near(mean[0], last[0]) and not near(mean[2], last[2]), "one token, three tokens")
    for n in (2, 3):
        C.ok(near([x * n for x in mean[n - 1]], [sum(x) for x in zip(*last[:n])]), f"mean of {n} tokens")
    return mean, last


def check_files(folder, mean, last):
    path = os.path.join(folder, "m.gguf")
    for kind, want in ((1, mean), (3, last)):
        with_keys(path, [key("qwen3.pooling_type", U32, kind)])
        with Server(BUILD, "-np", "2", "-c", "128", model=path) as s:
            C.ok(near(kinds(s)[2], want[2]), f"pooling_type {kind}")
    with_keys(path, [key("qwen3.pooling_type", U32, 2)])
    with Server(BUILD, "-np", "2", "-c", "128", model=path) as s:
        C.ok(near(kinds(s)[2], last[0]), "cls: the state of the first token")
    for kind, name in ((0, "none"), (4, "rank")):
        with_keys(path, [key("qwen3.pooling_type", U32, kind)])
        with Server(BUILD, "-np", "2", "-c", "128", model=path) as s:
            status, r = s.post("/v1/embeddings", {"input": "a"})
            C.ok(status == 400 and f"{kind} ({name})" in r["error"]["message"] and "--pooling" in r["error"]["message"], r)
    with Server(BUILD, "-np", "2", "-c", "128", "--pooling", "last", model=path) as s:
        C.ok(near(kinds(s)[2], last[2]), "the option comes first")


def check_end(folder, last):
    """add_eos_token: a text ends with it, once; token ids are taken as they are."""
    path = os.path.join(folder, "e.gguf")
    with_keys(path, [key("qwen3.pooling_type", U32, 3), key("tokenizer.ggml.add_eos_token", BOOL, True)])
    with Server(BUILD, "-np", "2", "-c", "128", model=path) as s:
        ids = s.post("/tokenize", {"content": "the cat and"})[1]["tokens"]
        got, n = embed(s, "the cat and")
        C.ok(n == len(ids) + 1 and not near(got, last[2]), (n, len(ids)))
        C.ok(embed(s, ids)[1] == len(ids), "token ids")
    with_keys(path, [key("qwen3.pooling_type", U32, 5)])
    try:
        with Server(BUILD, "-np", "2", "-c", "128", model=path):
            C.ok(False, "pooling_type 5 is taken")
    except RuntimeError as e:
        C.ok("pooling_type" in str(e), e)


def main():
    if not built(BUILD):
        print("SKIP check_serve_embed: this build has no server")
        return C.end()
    mean, last = check_kinds()
    with tempfile.TemporaryDirectory() as folder:
        check_files(folder, mean, last)
        check_end(folder, last)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
