#!/usr/bin/env python3
"""check_serve_lora: adapters over HTTP: /lora-adapters, the field `lora` of requests alone and at once, the prefix cache and slots
between different scales, and what is refused."""
import json
import os
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_lora")
MODEL = os.path.join(ROOT, "tests", "archs", "qwen2.gguf")
A, B = (os.path.join(ROOT, "tests", "lora", f"qwen2-{x}.gguf") for x in "ab")
IDS = [(i * 37 + 11) % 250 for i in range(150)]
SETS = [None, [{"id": 0, "scale": 1.0}], [{"id": 0, "scale": 0.5}], [{"id": 1, "scale": 1}], [{"id": 0, "scale": 0}, {"id": 1, "scale": -0.5}]]


def ask(s, lora=None, **fields):
    body = {"prompt": IDS, "n_predict": 12, "temperature": 0, "return_tokens": True, "ignore_eos": True, **fields}
    if lora is not None:
        body["lora"] = lora
    status, r = s.post("/completion", body)
    C.ok(status == 200, (status, r))
    return r.get("tokens"), r.get("tokens_cached")


def adapters(s):
    return json.loads(s.request("GET", "/lora-adapters")[2])


def check_list(s):
    r = adapters(s)
    C.ok([(a["id"], a["path"], a["scale"], a["rank"]) for a in r] == [(0, "qwen2-a.gguf", 0, 4), (1, "qwen2-b.gguf", 0, 6)], r)


def check_requests(s):
    cold = [ask(s, lora, cache_salt=f"cold{i}")[0] for i, lora in enumerate(SETS)]
    C.ok(len({tuple(t) for t in cold}) == len(SETS), cold)
    C.ok(ask(s, [], cache_salt="e")[0] == cold[0], "an empty list is none")
    found = [None] * len(SETS)

    def one(i):
        found[i] = ask(s, SETS[i])
    for again in range(2):
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(SETS))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        C.ok([t for t, _ in found] == cold, ("at once", again, found, cold))
        C.ok(all((n >= 128) == (again == 1) for _, n in found), ("cached", again, found))
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8, "temperature": 0, "logprobs": True}
    texts = [s.post("/v1/chat/completions", dict(chat, **({"lora": x} if x else {})))[1]["choices"][0]["logprobs"]["content"] for x in SETS[:2]]
    C.ok(texts[0] != texts[1], "a chat takes the field too")
    return cold


def check_scales(s, cold):
    """POST sets the scales of requests that bring none; others are 0."""
    for i in (1, 3):
        status, r = s.post("/lora-adapters", SETS[i])
        C.ok(status == 200 and r == {"success": True}, (status, r))
        C.ok([a["scale"] for a in adapters(s)] == [1.0 if a == SETS[i][0]["id"] else 0 for a in (0, 1)], adapters(s))
        C.ok(ask(s)[0] == cold[i] and ask(s, SETS[2])[0] == cold[2], f"the server's scales, {i}")
    C.ok(s.post("/lora-adapters", [])[0] == 200 and ask(s)[0] == cold[0], "none again")


def check_slots(s):
    """What lies in a slot, or in its file, is continued only with its own scales."""
    first, _ = ask(s, SETS[1], id_slot=0)
    more = {"prompt": IDS + first, "id_slot": 0}
    want, _ = ask(s, SETS[2], prompt=IDS + first, cache_salt="w")
    s.post("/cache?action=clear", {})
    got, n = ask(s, SETS[2], **more)
    C.ok(got == want and n == 0, ("another's slot", n))
    first, _ = ask(s, SETS[1], id_slot=1)
    s.post("/lora-adapters", SETS[1])
    C.ok(s.post("/slots/1?action=save", {"filename": "one"})[0] == 200, "save")
    s.post("/lora-adapters", SETS[2])
    status, r = s.post("/slots/1?action=restore", {"filename": "one"})
    C.ok(status == 400 and "adapters" in r["error"]["message"], (status, r))
    s.post("/lora-adapters", SETS[1])
    C.ok(s.post("/slots/1?action=restore", {"filename": "one"})[0] == 200, "restore")
    C.ok(ask(s, prompt=IDS + first, id_slot=1)[1] == len(IDS) + len(first) - 1, "goes on")
    s.post("/lora-adapters", [])


def check_errors(s):
    for lora, word in [([{"id": 2, "scale": 1}], "0 to 1"), ([{"id": -1, "scale": 1}], "0 to 1"), ([{"id": 0}], "without id or scale"),
                       ([{"id": 0, "scale": "x"}], "a number"), ([{"id": 0, "scale": 1e9}], "1024"), ([1], "objects"), ({"id": 0}, "array"),
                       ([{"id": 0, "scale": 1}, {"id": 0, "scale": 1}], "twice")]:
        for path, body in (("/completion", {"prompt": "a", "n_predict": 1, "lora": lora}), ("/lora-adapters", lora)):
            status, r = s.post(path, body)
            C.ok(status == 400 and word in r["error"]["message"], (path, lora, status, r))
    status, r = s.post("/lora-adapters", b"")
    C.ok(status == 400, (status, r))


def main():
    if not built(BUILD):
        return C.end()
    with tempfile.TemporaryDirectory() as folder:
        with Server(BUILD, "-c", "512", "-np", "5", "--lora", f"{A},{B}", "--lora-init-without-apply", "--slot-save-path", folder, model=MODEL) as s:
            check_list(s)
            cold = check_requests(s)
            check_scales(s, cold)
            check_slots(s)
            check_errors(s)
    with Server(BUILD, "-c", "512", "--lora-scaled", f"{A}:0.5", model=MODEL) as s:
        C.ok(ask(s)[0] == cold[2], "--lora-scaled")
    with Server(BUILD, "-c", "512", model=MODEL) as s:
        status, r = s.post("/completion", {"prompt": "a", "n_predict": 1, "lora": SETS[1]})
        C.ok(status == 400 and "no adapters" in r["error"]["message"], (status, r))
        C.ok(adapters(s) == [] and s.post("/lora-adapters", [])[0] == 200, "a server without adapters")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
