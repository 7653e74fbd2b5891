"""pressure.py: many requests with shared beginnings against a pool of few pages (finding A1): nobody's may be lost, and each answer must
be the one that it is alone."""
import os
import random
import threading
import time

from serve import ROOT, Server

PAGES, PLACES, CLIENTS, PROMPTS = 35, 8, 16, 24
KEYS = ("alpha", "beta")


def make_prompts(seed):
    """Token ids: some of three blocks of 64, and a part of one, so that prompts share beginnings and turn off at every place."""
    r = random.Random(seed)
    blocks = [[r.randrange(256) for _ in range(64)] for _ in range(3)]
    out = []
    for _ in range(PROMPTS):
        ids = [t for p in range(r.randrange(11)) for t in blocks[r.randrange(2 if p < 2 else 3)]]
        out.append(ids + [r.randrange(256) for _ in range(1 + r.randrange(40))])
    return out


def start(build, model, fmt, size):
    return Server(build, "-c", "2048", "-np", str(PLACES), "-ctk", fmt, "-ctv", fmt, "--kv-pool-size", str(int(size)), "-t", "1",
                  *(x for k in KEYS for x in ("--api-key", k)), model=os.path.join(ROOT, "tests/golden/tiny", model + ".gguf"))


def pages_of(s):
    return int(s.metric("kv_pages", headers={"Authorization": "Bearer " + KEYS[0]}))


def pool_size(build, model, fmt):
    """Bytes that give PAGES pages: part of the size is the exact tail's, the rest grows with the pages."""
    seen = []
    for size in (4 << 20, 8 << 20):
        with start(build, model, fmt, size) as s:
            seen.append((size, pages_of(s)))
    per_page = (seen[1][0] - seen[0][0]) / (seen[1][1] - seen[0][1])
    size = seen[0][0] + (PAGES + 0.5 - seen[0][1]) * per_page
    for _ in range(3):                     # what rounding has left
        with start(build, model, fmt, size) as s:
            size += (PAGES - pages_of(s)) * per_page
    return size


def ask(s, prompt, n, key, salt):
    body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "logprobs": 0}
    if salt:
        body["cache_salt"] = salt
    status, answer = s.post("/v1/completions", body, headers={"Authorization": "Bearer " + key})
    if status != 200:
        return status, str(answer)[-200:]
    c = answer["choices"][0]
    return status, (c["logprobs"]["tokens"], c["logprobs"]["token_logprobs"])


def begins(whole, part):
    return all(w[:len(p)] == p for w, p in zip(whole, part))


def press(s, requests, prompts, alone, seed):
    """What went wrong: lost requests, and answers that differ from the one alone."""
    lost, other, lock, left = [], [], threading.Lock(), list(range(requests))

    def client(i):
        r = random.Random(seed * 1000 + i)
        while True:
            with lock:
                if not left:
                    return
                left.pop()
            k, n = r.randrange(PROMPTS), r.choice((4, 20, 60, 150))
            try:
                status, answer = ask(s, prompts[k], n, KEYS[i % 2], r.choice((None, "one", "two")))
            except (OSError, ValueError) as e:
                status, answer = 0, f"{type(e).__name__}: {e}"
            with lock:
                if status != 200:
                    lost.append(f"{status} {answer}")
                elif not begins(alone[k], answer):
                    other.append(k)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return lost, other


def run(build, model, fmt, requests, seed=1):
    """A dictionary of what came of it."""
    prompts = make_prompts(seed)
    with start(build, model, fmt, pool_size(build, model, fmt)) as s:
        pages = pages_of(s)
        alone = [ask(s, p, 150, KEYS[0], f"alone {i}")[1] for i, p in enumerate(prompts)]
        t0 = time.time()
        lost, other = press(s, requests, prompts, alone, seed)
        head = {"Authorization": "Bearer " + KEYS[0]}
        return {"model": model, "format": fmt, "pages": pages, "requests": requests, "lost": len(lost), "different": len(other),
                "preemptions": int(s.metric("num_preemptions_total", headers=head)),
                "unplanned": int(s.metric("preemptions_unplanned_total", headers=head)),
                "evicted": int(s.metric("evicted_pages_total", headers=head)), "seconds": round(time.time() - t0, 1),
                "first_lost": lost[0] if lost else ""}
