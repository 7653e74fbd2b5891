#!/usr/bin/env python3
"""check_serve_tenants: what one client of kvant serve may know and touch of another: the prefix cache (A9), slots, files and debug routes
(A11), sequences parked in slots (B1), names of files (B11).  Numbers are those of docs/evidence/findings-2026-11.md."""
import os
import sys
import tempfile

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


# ---- B1, B11 ----

def check_slot_over_http():
    """B1: a sequence stays in its slot, goes to a file and comes back, and the next turn takes up where it was; B11: a dot in its name."""
    with tempfile.TemporaryDirectory() as folder, Server(BUILD, "-c", "512", "-np", "3", "--slot-save-path", folder) as s:
        one = complete(s, LONG, id_slot=1)
        turn = LONG + one[1]["choices"][0]["text"]
        n = one[1]["usage"]["prompt_tokens"] + 3              # the last token was never evaluated
        status, r = s.post("/slots/1?action=save", {"filename": "slot1.bin"})
        C.ok(status == 200 and r["n_saved"] == n and os.listdir(folder) == ["slot1.bin.kvs"], f"B1 B11 save: {status} {r} {os.listdir(folder)}")
        plain = complete(s, turn + " And so", max_tokens=12, id_slot=1)
        C.ok(plain[2] == n, f"B1 the slot goes on with {plain[2]} of {n} tokens")
        C.ok(s.post("/slots/1?action=erase", {})[0] == 200, "B1 erase")
        status, r = s.post("/slots/1?action=save", {"filename": "x"})
        C.ok(status == 404, f"B1 nothing is left to save: {status} {r}")
        status, r = s.post("/slots/2?action=restore", {"filename": "slot1.bin"})
        C.ok(status == 200 and r["n_restored"] == n, f"B1 restore: {status} {r}")
        back = complete(s, turn + " And so", max_tokens=12, id_slot=2)
        C.ok(back[2] == n and back[1]["choices"][0]["text"] == plain[1]["choices"][0]["text"], f"B1 {back[2]} of {n} tokens, or another text")
        for fields in ({"id_slot": 3}, {"id_slot": -2}, {"id_slot": "1"}, {"id_slot": 1, "cache_salt": "x"}):
            status, r, _ = complete(s, "a", **fields)
            C.ok(status == 400 and r["error"]["param"] == "id_slot", f"B1 {fields}: {status} {r}")
        C.ok(complete(s, ["a", "b"], id_slot=1)[0] == 400 and complete(s, "a", id_slot=1, n=2)[0] == 200, "B1 several prompts, several choices")
        C.ok(complete(s, "a", id_slot=-1)[0] == 200, "B1 -1: any slot")
        for name in (".x", "..", ".", "a/b", "a+b", "", "x" * 65):
            status, r = s.post("/slots/1?action=save", {"filename": name})
            C.ok(status == 400 and folder not in str(r), f"B11 {name!r}: {status} {r}")


# ---- A11 ----

def check_admin_routes():
    """A11: with keys, what is everybody's wants the admin key; without an admin key it is closed, without keys open."""
    routes = [("GET", "/slots"), ("GET", "/debug/trace"), ("POST", "/cache?action=clear")]
    for admin in ([], ["--admin-key", "root"]):
        with Server(BUILD, "-c", "512", "-np", "2", "--api-key", "alpha", *admin) as s:
            for method, path in routes + [("GET", "/debug/events")]:
                status, _, body = s.request(method, path, b"{}" if method == "POST" else None, headers=bearer("alpha"), timeout=20)
                C.ok(status == 403 and b"permission_error" in body and (b"--admin-key-file" in body) == (not admin), f"A11 {path} {admin}: {status} {body}")
            for method, path in routes if admin else []:
                status, _, body = s.request(method, path, b"{}" if method == "POST" else None, headers=bearer("root"))
                C.ok(status == 200, f"A11 {path} with the admin key: {status} {body}")
            for path in ("/metrics", "/props", "/v1/models"):
                C.ok(s.request("GET", path, headers=bearer("alpha"))[0] == 200, f"A11 {path} is for every key")
            C.ok(complete(s, "a", "root" if admin else "alpha")[0] == 200, "A11 an admin key is a key")
            C.ok(s.request("GET", "/slots")[0] == 401, "A11 no key at all")
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "admin")
        with open(name, "w", encoding="ascii") as f:
            f.write("secret\n")
        os.chmod(name, 0o600)
        with Server(BUILD, "-c", "512", "-np", "2", "--admin-key-file", name, env={"KVANT_ARG_API_KEY": "alpha"}) as s:
            C.ok([s.request("GET", "/slots", headers=bearer(k))[0] for k in (None, "alpha", "secret")] == [401, 403, 200], "A11 keys of a file")
    with Server(BUILD, "-c", "512", "-np", "2") as s:
        C.ok(s.request("GET", "/slots")[0] == 200 and s.post("/cache?action=clear", {})[0] == 200, "A11 without keys all is open")


def check_tenant_files():
    """A11: keys do not see, overwrite or take each other's slots and files; a key has a quota, all together have one."""
    with tempfile.TemporaryDirectory() as folder:
        with Server(BUILD, "-c", "512", "-np", "3", "--slot-save-path", folder, "--api-key", "alpha", "--api-key", "beta", "--slot-save-quota", "7M",
                    "--slot-save-total", "11M") as s:
            def act(path, name, key):
                return s.post(path, {"filename": name}, headers=bearer(key))
            mine = complete(s, LONG, "alpha", id_slot=0)[1]
            size = act("/slots/0?action=save", "same", "alpha")[1]["n_written"]
            for what in ("save", "restore", "erase"):
                status, r = act(f"/slots/0?action={what}", "same", "beta")
                C.ok(status in (400, 404), f"A11 {what} of another key's slot: {status} {r}")
            status, r, _ = complete(s, "Something else", "beta", id_slot=0)
            C.ok(status == 429 and "another key" in r["error"]["message"], f"B1 another key's slot is not taken at once: {status} {r}")
            complete(s, "The town " + LONG, "beta", id_slot=1)
            C.ok(act("/slots/1?action=save", "same", "beta")[0] == 200 and len(os.listdir(folder)) == 2, f"A11 names are per key: {os.listdir(folder)}")
            C.ok(not any("alpha" in x or "beta" in x for x in os.listdir(folder)), "A11 file names do not tell keys")
            C.ok(act("/slots/0?action=restore", "same", "alpha")[1]["n_restored"] == mine["usage"]["prompt_tokens"] + 3, "A11 its own file")
            again = complete(s, LONG + mine["choices"][0]["text"] + " And", "alpha", id_slot=0)
            C.ok(again[2] == mine["usage"]["prompt_tokens"] + 3, f"A11 {again[2]} tokens of its own file")
            check_quota(s, act, size)


def check_quota(s, act, size):
    C.ok(3 * size <= 7 << 20 < 4 * size and 5 * size <= 11 << 20 < 6 * size, f"the test wants 3 files of a key and 5 in all to fit: {size} bytes")
    for i in range(2):
        other = act("/slots/0?action=save", f"f{i}", "alpha")
        C.ok(other[0] == 200, f"A11 file {i + 2} of 3: {other}")
        used = size + (i + 1) * other[1]["n_written"]
    status, r = act("/slots/0?action=save", "one.more", "alpha")
    text = r["error"]["message"]
    C.ok(status == 400 and "--slot-save-quota" in text and str(7 << 20) in text and str(used) in text, f"A11 quota: {status} {r}")
    C.ok(act("/slots/0?action=save", "same", "alpha")[0] == 200, "A11 a file of the same name is replaced")
    answers = [act("/slots/1?action=save", f"f{i}", "beta") for i in range(2)]
    C.ok([a[0] for a in answers] == [200, 400] and "--slot-save-total" in answers[1][1]["error"]["message"], f"A11 all together: {answers}")


def main():
    if not built(BUILD):
        print("SKIP check_serve_tenants: this build has no server")
        return C.end()
    check_embeddings()
    check_slot_over_http()
    check_admin_routes()
    check_tenant_files()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
