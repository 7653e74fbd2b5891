#!/usr/bin/env python3
"""check_serve_tenants: what one client of kvant serve may know and touch of another: the prefix cache (A9), slots, files and debug routes
(A11), sequences parked in slots (B1), names of files (B11).  Numbers are those of docs/evidence/findings-2026-11.md."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_tenants")
LONG = "The captain of the old ship looked at the sea and the town behind it. " * 12      # more than two pages of 64 tokens


def bearer(key):
    return {"Authorization": "Bearer " + key} if key else {}


def complete(s, prompt, key=None, **fields):
    """Status, answer and cached tokens of a greedy completion."""
    status, r = s.post("/v1/completions", dict({"prompt": prompt, "max_tokens": 4, "temperature": 0}, **fields), headers=bearer(key))
    return status, r, r["usage"]["prompt_tokens_details"]["cached_tokens"] if status == 200 else -1


# ---- A9 ----

def check_embeddings():
    """A9: what is embedded leaves nothing for others to find, and cache_salt is read."""
    with Server(BUILD, "-c", "512", "-np", "2", "--api-key", "alpha") as s:
        pairs = [({}, {}), ({"cache_salt": "mine"}, {}), ({}, {"cache_salt": "mine"}), ({"cache_salt": "mine"}, {"cache_salt": "mine"})]
        for i, (salt, other) in enumerate(pairs):
            text = f"{i} {LONG}"
            status, _ = s.post("/v1/embeddings", dict({"input": text}, **salt), headers=bearer("alpha"))
            n = complete(s, text, "alpha", **other)[2]
            C.ok(status == 200 and n == 0, f"A9 embedded with {salt}, asked with {other}: {status}, {n} tokens cached")
            C.ok(complete(s, text, "alpha", **other)[2] >= 128, "A9 a completion does enter the cache")
        status, r = s.post("/v1/embeddings", {"input": "a", "cache_salt": 5}, headers=bearer("alpha"))
        C.ok(status == 400 and r["error"]["param"] == "cache_salt", f"A9 a salt of another type: {status} {r}")


def main():
    if not built(BUILD):
        print("SKIP check_serve_tenants: this build has no server")
        return C.end()
    check_embeddings()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
