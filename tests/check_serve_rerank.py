#!/usr/bin/env python3
"""check_serve_rerank: /v1/rerank with a head that the tiny model is given: scores are those of the head on the last hidden state (of
/embeddings, computed here once more), prompts are those of the file, documents cannot write control tokens; errors.  /embeddings without
pooling and of the first token."""
import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from gguf_edit import STRING, U32, edit, key                # noqa: E402
from serve import ROOT, Checks, Server, built               # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
TINY = os.path.join(ROOT, "tests", "golden", "tiny", "qwen3.gguf")
C = Checks("check_serve_rerank")
RNG = random.Random(7)
QUERY, DOCS = "the cat", ["and a dog", "sat on the mat", "the cat", "of"]
PROMPT = "<q>{query} <d>: {document} end"


def head(n, width):
    return [RNG.uniform(-1, 1) for _ in range(n * width)]


def score(weights, hidden, bias=(0, 0, 0)):
    d = len(hidden)
    x = [bias[c] + sum(w * h for w, h in zip(weights[c * d:(c + 1) * d], hidden)) for c in range(len(weights) // d)]
    if len(x) == 1:
        return x[0]
    return math.exp(x[0] - max(x)) / sum(math.exp(v - max(x)) for v in x)


def rerank(s, **body):
    status, r = s.post("/v1/rerank", {"query": QUERY, "documents": DOCS, **body})
    C.ok(status == 200, r)
    return r


def tokens(s, text):
    return s.post("/tokenize", {"content": text, "add_special": True})[1]["tokens"]


def last_states(path, prompts):
    """Hidden states of the last tokens of texts, and how many tokens each has."""
    with Server(BUILD, "-np", "2", "-c", "128", "--pooling", "last", model=path) as s:
        ids = [tokens(s, p) if isinstance(p, str) else p for p in prompts]
        status, r = s.post("/embedding", {"content": ids, "embd_normalize": -1})
        C.ok(status == 200 and [len(x["embedding"]) for x in r] == [1] * len(ids), r)
        return [x["embedding"][0] for x in r], sum(map(len, ids))


def check_scores(folder, classes, prompt, option):
    path = os.path.join(folder, "rank.gguf")
    width = len(last_states(TINY, ["the"])[0][0])
    w, bias = head(classes, width), [RNG.uniform(-1, 1) for _ in range(classes)]
    edit(TINY, path, [key("qwen3.pooling_type", U32, 4)] + ([key("tokenizer.chat_template.rerank", STRING, prompt)] if prompt else []),
         [("cls.output.weight", (width, classes), w), ("cls.output.bias", (classes,), bias)])
    texts = [prompt.replace("{query}", QUERY).replace("{document}", d) for d in DOCS] if prompt else []
    with Server(BUILD, "-np", "2", "-c", "128", *option, model=path) as s:
        r = rerank(s)
        by_index = {x["index"]: x["relevance_score"] for x in r["results"]}
        C.ok([x["relevance_score"] for x in r["results"]] == sorted(by_index.values(), reverse=True) and sorted(by_index) == [0, 1, 2, 3], r)
        if not prompt:
            ids = [tokens(s, QUERY) + tokens(s, d) for d in DOCS]
        check_shapes(s, r)
        check_score(s, r)
        check_refused(s)
    states, n = last_states(path, texts or ids)
    C.ok(r["usage"] == {"prompt_tokens": n, "total_tokens": n}, (r["usage"], n))
    for i, hidden in enumerate(states):
        C.ok(abs(by_index[i] - score(w, hidden, bias)) < 1e-4, (classes, i, by_index[i], score(w, hidden, bias)))


def check_shapes(s, r):
    """Text Embeddings Inference's answer, top_n, documents in the answer, other paths."""
    status, tei = s.post("/rerank", {"query": QUERY, "texts": DOCS, "return_text": True, "top_n": 3})
    C.ok(status == 200 and tei == [{"index": x["index"], "score": x["relevance_score"], "text": DOCS[x["index"]]} for x in r["results"][:3]], tei)
    shown = rerank(s, return_documents=True, top_n=99)["results"]
    C.ok([x["document"]["text"] for x in shown] == [DOCS[x["index"]] for x in r["results"]], shown)
    objects = [{"text": d, "title": "not read"} for d in DOCS]
    status, headers, _ = s.request("POST", "/v2/rerank", {"query": QUERY, "documents": objects, "max_tokens_per_doc": 9})
    C.ok(status == 200 and headers["x-kvant-ignored-fields"] == "documents[].title, max_tokens_per_doc", headers)
    C.ok(rerank(s, documents=objects)["results"] == r["results"] and rerank(s)["id"].startswith("rank-"), "documents as objects")
    status, bad = s.post("/v1/rerank", {"query": QUERY, "documents": [{"text": 3}]})
    C.ok(status == 400 and bad["error"]["param"] == "documents", bad)
    for path in ("/reranking", "/v1/reranking", "/v2/rerank"):
        C.ok(s.post(path, {"query": QUERY, "documents": DOCS})[1]["results"] == r["results"], path)


def check_score(s, r):
    """vLLM's /score: pairs in their order, with the scores of /rerank."""
    want = [x["relevance_score"] for x in sorted(r["results"], key=lambda x: x["index"])]
    for path, first in (("/score", QUERY), ("/v1/score", [QUERY]), ("/score", [QUERY] * len(DOCS))):
        status, got = s.post(path, {"text_1": first, "text_2": DOCS})
        C.ok(status == 200 and got["object"] == "list" and got["usage"] == r["usage"], got)
        C.ok([(x["index"], x["object"], x["score"]) for x in got["data"]] == [(i, "score", v) for i, v in enumerate(want)], (got, want))
    status, got = s.post("/score", {"text_1": DOCS[1], "text_2": QUERY})
    C.ok(status == 200 and len(got["data"]) == 1 and got["data"][0]["score"] != want[1], f"the first text is the query: {got}")
    for body, param in (({"text_1": [QUERY] * 2, "text_2": DOCS}, "text_1"), ({"text_1": QUERY, "text_2": []}, "text_2"), ({"text_1": QUERY}, "text_2"),
                        ({"text_2": DOCS}, "text_1"), ({"text_1": QUERY, "text_2": DOCS, "documents": DOCS}, "documents"), ({"text_1": 3, "text_2": DOCS}, "text_1")):
        status, got = s.post("/score", body)
        C.ok(status == 400 and got["error"]["param"] == param, (body, got))
    for body, says in (({"text_1": QUERY}, "text_2: found nothing, wanted a string or a list of strings"), ({"text_1": QUERY, "text_2": [*DOCS, 7]}, f"text_2: item {len(DOCS)}: found 7, wanted a string"),
                       ({"text_1": [None] * len(DOCS), "text_2": DOCS}, "text_1: item 0: found null, wanted a string"), ({"text_1": {"a": 1}, "text_2": DOCS}, 'text_1: found {"a":1}, wanted')):
        status, got = s.post("/score", body)
        C.ok(status == 400 and says in got["error"]["message"], (says, got))
    status, got = s.post("/rerank", {"query": QUERY, "documents": [DOCS[0], {"text": 10 ** 30}]})
    C.ok(status == 400 and "documents: item 1: found 1000000000000" in got["error"]["message"], got)
    status, got = s.post("/rerank", {"query": QUERY, "documents": DOCS, "text_1": QUERY})
    C.ok(status == 400 and got["error"]["param"] == "text_1", got)


def check_refused(s):
    for body, param in (({"documents": []}, "documents"), ({"documents": None}, "documents"), ({"documents": 123}, "documents"),
                        ({"documents": [1, 2]}, "documents"), ({"query": 1}, "query"), ({"texts": DOCS}, "texts"), ({"top_n": 0}, "top_n"),
                        ({"documents": ["a"] * 2049}, "documents"), ({"documentz": 1}, "documents")):
        status, r = s.post("/v1/rerank", {"query": QUERY, "documents": DOCS, **body})
        C.ok(status == 400 and r["error"]["param"] == param, (body, r))
    status, r = s.post("/v1/rerank", {"query": QUERY, "documents": ["the " * 500]})
    C.ok(status == 400 and r["error"]["type"] == "exceed_context_size_error", r)
    for path in ("/v1/embeddings", "/embeddings"):
        status, r = s.post(path, {"input": "the"})
        C.ok(status == 400 and "/v1/rerank" in r["error"]["message"], r)


def check_control(folder):
    """A control token's text in a document is text; in the file's prompt it is the token."""
    path = os.path.join(folder, "control.gguf")
    with Server(BUILD, "-np", "1", "-c", "128", model=TINY) as s:
        names = [t for t in ("<|im_end|>", "<|endoftext|>", "<|im_start|>") if len(tokens(s, t)) == 1]
        width = len(s.post("/embedding", {"content": "the"})[1][0]["embedding"][0])
    C.ok(names, "the tiny model has a control token")
    edit(TINY, path, [key("tokenizer.chat_template.rerank", STRING, "{query}" + names[0] + "{document}")],
         [("cls.output.weight", (width, 1), head(1, width))])
    with Server(BUILD, "-np", "1", "-c", "128", model=path) as s:
        short, long_one = (rerank(s, query="a", documents=[d])["usage"]["prompt_tokens"] for d in ("b", names[0]))
        C.ok(short == 3 and long_one > 3, (short, long_one))


def check_no_head(folder):
    with Server(BUILD, "-np", "1", "-c", "128", model=TINY) as s:
        status, r = s.post("/v1/rerank", {"query": "a", "documents": ["b"]})
        C.ok(status == 400 and "cls.output.weight" in r["error"]["message"], r)
    bad = os.path.join(folder, "bad.gguf")
    edit(TINY, bad, [], [("cls.output.weight", (5, 2), [0] * 10)])
    for path, options, words in ((TINY, ("--rerank",), "cls.output.weight"), (TINY, ("--pooling", "rank"), "cls.output.weight"),
                                 (bad, (), "shape [5, 2"), (TINY, ("--rerank", "--pooling", "mean"), "wanted one of them")):
        try:
            with Server(BUILD, "-np", "1", "-c", "128", *options, model=path):
                C.ok(False, (options, "started"))
        except RuntimeError as e:
            C.ok(words in str(e), e)


def check_pooling():
    """cls is the first token's state, none is each one's: of a text's beginnings these are the last ones."""
    ids = [3, 9, 4, 7] * 40         # more than a page of 64, and than a step of a page
    with Server(BUILD, "-np", "2", "-c", "512", "--pooling", "none", model=TINY) as s:
        each = s.post("/embeddings", {"input": ids})[1][0]["embedding"]
        status, r = s.post("/v1/embeddings", {"input": ids})
        C.ok(status == 400 and "/embeddings" in r["error"]["message"], r)
        C.ok(len(each) == len(ids) and abs(sum(x * x for x in each[0]) - 1) > 1e-3, "each token's state, not of unit length")
    with Server(BUILD, "-np", "2", "-c", "512", "--pooling", "last", model=TINY) as s:
        for n in (1, 2, 64, 65, 160):
            got = s.post("/embedding", {"input": ids[:n], "embd_normalize": -1})[1][0]["embedding"][0]
            C.ok(max(abs(a - b) for a, b in zip(got, each[n - 1])) < 1e-4, f"state {n}")
    with Server(BUILD, "-np", "2", "-c", "512", "--pooling", "cls", model=TINY) as s:
        got = s.post("/v1/embeddings", {"input": ids, "embd_normalize": -1})[1]["data"][0]["embedding"]
        C.ok(got == each[0], "cls")


def main():
    if not built(BUILD):
        print("SKIP check_serve_rerank: this build has no server")
        return C.end()
    with tempfile.TemporaryDirectory() as folder:
        check_scores(folder, 2, PROMPT, ())
        check_scores(folder, 1, "", ("--rerank",))
        check_control(folder)
        check_no_head(folder)
    check_pooling()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
