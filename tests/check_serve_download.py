#!/usr/bin/env python3
"""check_serve_download: models of the hub's cache in a router, downloads and removals by clients (--models-cache, --models-download), against a hub of
this machine: what is listed, who may, one at a time, progress and events, cancelling, a client that leaves, a full disk, what a hostile client
or hub sends, a model that is in use, links that lead out of the cache."""
import hashlib
import http.client
import json
import os
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from hub import COMMIT, FILES, MODEL, NOISE, Hub, start_hub    # noqa: E402
from serve import ROOT, SLOW, Checks, Server, built, until    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_download")
URL = start_hub()
Hub.repos = {"u/m": FILES, "o/two": {"two-Q8_0.gguf": MODEL, "copy-F16.gguf": MODEL}, "o/plain": {"plain.gguf": MODEL}, "o/none": {"README.md": b"x"},
             "o/parts": {"p-F16-00001-of-00002.gguf": NOISE[1:], "p-F16-00002-of-00002.gguf": NOISE[2:]}}


def router(home, *args, **env):
    return Server(BUILD, "-np", "2", *args, model=None, env={"HF_HOME": home, "HF_HUB_CACHE": "", "HF_TOKEN": "", "HF_ENDPOINT": URL, **env})


def ids(s, **kw):
    return sorted(m["id"] for m in s.get("/models", **kw)[1]["data"])


def status(s, name):
    return next((m["status"] for m in s.get("/models")[1]["data"] if m["id"] == name), {})


def fetch(s, ask, name):
    """It is asked for and comes; its name in the list."""
    return s.post("/models", {"model": ask})[0] == 200 and until(lambda: status(s, name).get("value") == "unloaded")


def delete(s, name, **kw):
    code, _, body = s.request("DELETE", "/models" + (f"?model={name}" if name is not None else ""), **kw)
    return code, json.loads(body)


def complete(s, name):
    return s.post("/v1/completions", {"model": name, "prompt": [5, 6, 7], "max_tokens": 3})


def files_of(home, repo):
    """All that the cache holds of a repository, as paths in it."""
    base = os.path.join(home, "hub", "models--" + repo.replace("/", "--"))
    return sorted(os.path.relpath(os.path.join(d, f), base) for d, _, names in os.walk(base) for f in names)


class Events(threading.Thread):
    """Reads /models/sse: what came, and whether the stream ended."""

    def __init__(self, s, headers=None):
        super().__init__(daemon=True)
        self.seen, self.ended = [], False
        self.conn = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60 * SLOW)
        self.conn.request("GET", "/models/sse", headers=headers or {})
        self.answer = self.conn.getresponse()
        self.start()

    def run(self):
        for line in self.answer:
            if line.startswith(b"data: "):
                self.seen.append(json.loads(line[6:]))
        self.ended = True

    def has(self, event, name):
        return until(lambda: any(e["event"] == event and e["model"] == name for e in list(self.seen)))

    def of(self, event):
        return [e for e in list(self.seen) if e["event"] == event]


def check_download(home):
    """As llama-server's clients do it: events, the list, the model answers, and it goes again."""
    with router(home, "--models-download", "--models-max", "1") as s:
        C.ok(ids(s) == [], "an empty cache is no fault")
        C.ok(complete(s, "o/two:Q8_0")[0] == 404, "not there yet")
        events = Events(s)
        C.ok(s.post("/models", {"model": "o/two:Q8_0"}) == (200, {"success": True}), "it begins")
        C.ok(events.has("download_finished", "o/two:Q8_0"), events.seen)
        told = events.of("download_progress")
        C.ok(told and told[-1]["data"] == {"two-Q8_0.gguf": {"done": len(MODEL), "total": len(MODEL)}}, told[-1:])
        C.ok(ids(s) == ["o/two:Q8_0"] and status(s, "o/two:Q8_0") == {"value": "unloaded"}, s.get("/models"))
        C.ok(complete(s, "o/two:Q8_0")[0] == 200 and events.has("model_status", "o/two:Q8_0"), events.seen)
        C.ok([e["data"]["status"] for e in events.of("model_status")] == ["downloading", "loading", "loaded"], events.of("model_status"))
        code, r = s.post("/models", {"model": "o/two:Q8_0"})
        C.ok(code == 400 and "there already" in r["error"]["message"], r)
        C.ok(fetch(s, "o/two:F16", "o/two:F16"), "the other file: the same bytes")
        C.ok(delete(s, "o%2Ftwo:F16") == (200, {"success": True}) and ids(s) == ["o/two:Q8_0"], "one of two")
        blob = "blobs/" + hashlib.sha256(MODEL).hexdigest()
        C.ok(files_of(home, "o/two") == [blob, "refs/main", f"snapshots/{COMMIT}/two-Q8_0.gguf"], files_of(home, "o/two"))
        C.ok(complete(s, "o/two:Q8_0")[0] == 200, "its bytes are the other one's too: they stay")
        C.ok(delete(s, "o/two:Q8_0") == (200, {"success": True}) and events.has("model_remove", "o/two:Q8_0"), "and the last one")
        C.ok(files_of(home, "o/two") == ["refs/main"] and ids(s) == [] and complete(s, "o/two:Q8_0")[0] == 404, files_of(home, "o/two"))
        C.ok(s.post("/models", {"model": "o/parts"})[0] == 200 and events.has("download_finished", "o/parts"), "one in parts")
        C.ok(ids(s) == ["o/parts:F16"] and delete(s, "o/parts:F16")[0] == 200 and files_of(home, "o/parts") == ["refs/main"], "goes as a whole")
        s.stop()
        C.ok(until(lambda: events.ended), "the stream ends with the server")


def check_refusals(home):
    """Names that are none, repositories that are not there, hubs that lie: an answer, and nothing is left."""
    with router(home, "--models-download") as s:
        for name, want, word in (("u", 400, "USER/NAME"), ("../../etc", 400, "USER/NAME"), ("u/..", 400, "USER/NAME"), ("u/m:", 400, "USER/NAME"),
                                 ("/u/m", 400, "USER/NAME"), ("u/m/x", 400, "USER/NAME"), ("u\\m/x", 400, "USER/NAME"), ("u/m?x", 400, "USER/NAME"),
                                 ("u/m:Q4\nX: y", 400, "printable"), ("u/m:../../evil", 404, "wanted one of"), ("u/none", 404, "404"),
                                 ("o/none", 404, "found no GGUF"), ("u/m:Q2_K", 404, "wanted one of"), ("", 400, "missing"), ("x" * 5000, 413, "body")):
            code, r = s.post("/models", {"model": name})
            C.ok(code == want and word in r["error"]["message"], (name[:20], code, r))
        for body in (b"", b"{", b"[]", b'{"model":5}', b"{}"):
            C.ok(s.post("/models", body)[0] == 400, body)
        Hub.told = {"m-Q8_0.gguf": 8 * 10**15}
        code, r = s.post("/models", {"model": "u/m:Q8_0"})
        C.ok(code == 400 and "MiB free" in r["error"]["message"], (code, r))
        Hub.told = {"m-Q8_0.gguf": 1000}    # more comes than the list says
        events = Events(s)
        C.ok(s.post("/models", {"model": "u/m:Q8_0"})[0] == 200 and events.has("download_failed", "u/m:Q8_0"), events.seen)
        Hub.told, Hub.wrong = {}, {"m-Q8_0.gguf"}
        C.ok(s.post("/models", {"model": "u/m:Q8_0"})[0] == 200 and until(lambda: len(events.of("download_failed")) == 2), events.seen)
        C.ok("SHA-256" in events.of("download_failed")[-1]["data"]["error"], events.of("download_failed"))
        Hub.wrong = set()
        for away in ("file:///etc/passwd", "gopher://127.0.0.1:1/", "/cdn/../../x", "http://127.0.0.1:9/"):
            Hub.away = away
            n = len(events.of("download_failed"))
            C.ok(s.post("/models", {"model": "u/m:Q8_0"})[0] == 200 and until(lambda: len(events.of("download_failed")) > n), (away, events.seen[-2:]))
        Hub.away = None
        C.ok(ids(s) == [] and not [f for f in files_of(home, "u/m") if f.startswith("snapshots")], (ids(s), files_of(home, "u/m")))
        for name, want in ((None, 400), ("", 400), ("u/m:Q5", 200), ("u/m:Q5", 404), ("..%2F..%2Fetc", 400), ("%00", 400), ("u/m:x%0Ay", 404), ("o/none", 404)):
            code, r = delete(s, name)       # the first one of u/m: what the failed ones left of it
            C.ok(code == want, (name, code, r))
        C.ok(s.request("POST", "/v1/models", b"{}")[0] == 405 and s.request("DELETE", "/models/u")[0] in (404, 405), "no other routes")
        C.ok(complete(s, "u/m:Q8_0")[0] == 404, "none of them is a model")


def check_who(home):
    """An admin key's where keys are set; off without the option; nothing of it with one model."""
    keys = [{"Authorization": "Bearer " + k} for k in ("root", "user", "wrong")]
    with router(home, "--models-download", "--admin-key", "root", "--api-key", "user") as s:
        for key, want in zip(keys[1:], (403, 401)):
            C.ok(s.post("/models", {"model": "o/two"}, headers=key)[0] == want and delete(s, "o/two", headers=key)[0] == want, want)
        C.ok(s.request("GET", "/models/sse")[0] == 401, "events want a key")
        n = len(Hub.log)
        C.ok(s.post("/models", {"model": "o/two"})[0] == 401 and len(Hub.log) == n, "nobody asked the hub")
        C.ok(s.post("/models", {"model": "o/two"}, headers=keys[0])[0] == 200 and until(lambda: ids(s, headers=keys[1]) == ["o/two:Q8_0"]), "the admin's")
    with router(home, "--models-cache") as s:
        C.ok(ids(s) == ["o/two:Q8_0"] and complete(s, "o/two:Q8_0")[0] == 200, "the cache, with nothing to change it")
        n = len(Hub.log)
        for code, r in (s.post("/models", {"model": "u/m"}), delete(s, "o/two:Q8_0")):
            C.ok(code == 501 and "--models-download" in r["error"]["message"], r)
        C.ok(len(Hub.log) == n and len(files_of(home, "o/two")) == 3, "nothing was done")
    with router(home, "--models-download") as s:
        evil = {"Origin": "http://evil.example"}
        C.ok(s.post("/models", {"model": "u/m"}, headers=evil)[0] == 403 and delete(s, "o/two:Q8_0", headers=evil)[0] == 403, "a page of another site")
        C.ok(s.request("POST", "/models", b'{"model":"u/m"}', headers={"Content-Type": "text/plain"})[0] == 415, "a form of one")
    with Server(BUILD, model=os.path.join(ROOT, "tests", "archs", "qwen2.gguf")) as s:
        C.ok(s.post("/models", {"model": "u/m"})[0] == 501 and delete(s, "u/m")[0] == 501 and s.request("GET", "/models/sse")[0] == 404, "one model")


def check_cancel(home):
    """One at a time; progress in the list; /models/unload ends it; it goes on later; a client that leaves; the server's end."""
    Hub.pause = 0.2
    with router(home, "--models-download") as s:
        events = Events(s)
        C.ok(s.post("/models", {"model": "u/m:Q8_0"})[0] == 200, "a slow one")
        C.ok(until(lambda: status(s, "u/m:Q8_0").get("progress", {}).get("m-Q8_0.gguf", {}).get("done", 0) > 0), status(s, "u/m:Q8_0"))
        C.ok(status(s, "u/m:Q8_0")["value"] == "downloading" and status(s, "u/m:Q8_0")["progress"]["m-Q8_0.gguf"]["total"] == len(NOISE), "its progress")
        code, r = s.post("/models", {"model": "o/two"})
        C.ok(code == 429 and "one at a time" in r["error"]["message"], r)
        for code, r in (complete(s, "u/m:Q8_0"), s.post("/models/load", {"model": "u/m:Q8_0"}), delete(s, "u/m:Q8_0"), delete(s, "u/m:Q4_K_M")):
            C.ok(code == 400 and "being downloaded" in r["error"]["message"], r)
        C.ok(s.get("/models?reload=1")[0] == 200 and ids(s) == ["u/m:Q8_0"], "the list may be read meanwhile")
        C.ok(s.post("/models/unload", {"model": "u/m:Q8_0"}) == (200, {"success": True}) and events.has("download_failed", "u/m:Q8_0"), events.seen[-1:])
        C.ok(ids(s) == [] and [f for f in files_of(home, "u/m") if f.endswith(".incomplete")], "what came is kept,")
        n = len(Hub.log)
        conn = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        conn.request("POST", "/models", b'{"model":"u/m:Q8_0"}', {"Content-Type": "application/json"})
        conn.close()                # it leaves before its answer
        C.ok(until(lambda: status(s, "u/m:Q8_0").get("value") == "downloading"), "its wish stays")
        C.ok(until(lambda: any(r and r.startswith("bytes=") for _, r, _ in Hub.log[n:])), f"and goes on where it was: {Hub.log[n:]}")
        C.ok(s.post("/models/unload", {"model": "u/m:Q8_0"})[0] == 200 and until(lambda: ids(s) == []), "ended again")
        C.ok(delete(s, "u/m:Q8_0")[0] == 200 and not [f for f in files_of(home, "u/m") if f.endswith(".incomplete")], "what came goes with DELETE")
        C.ok(delete(s, "u/m:Q8_0")[0] == 404, "once")
        Hub.silent = True               # a hub that takes the connection and says nothing
        answers, n = [], len(Hub.log)
        later = threading.Thread(target=lambda: answers.append(s.post("/models", {"model": "o/two"})))
        later.start()
        C.ok(until(lambda: any("o/two" in p for p, _, _ in Hub.log[n:])) and s.post("/models", {"model": "o/plain"})[0] == 429, "it is being asked")
        C.ok(s.get("/health")[0] == 200 and s.post("/models/unload", {"model": "o/two"}) == (200, {"success": True}), "others do not wait for it")
        later.join(20 * SLOW)
        C.ok(answers and answers[0][0] == 400 and "interrupted" in answers[0][1]["error"]["message"], answers)
        Hub.silent = False
        C.ok(until(lambda: s.post("/models", {"model": "u/m:Q8_0"})[0] == 200), "once more")
        begin = time.time()
        s.process.terminate()
        C.ok(s.process.wait(20 * SLOW) == 0 and time.time() - begin < 10 * SLOW, f"the server's end does not wait for it: {time.time() - begin:.1f} s")
    Hub.pause = 0


def check_in_use(home):
    """A model that answers is removed from the list and the disk; who has it keeps it."""
    with router(home, "--models-download") as s:
        C.ok(fetch(s, "o/two", "o/two:Q8_0"), "there")
        conn = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60 * SLOW)
        conn.request("POST", "/v1/completions", json.dumps({"model": "o/two:Q8_0", "prompt": [5, 6], "max_tokens": 200, "ignore_eos": True, "stream": True}).encode(),
                     {"Content-Type": "application/json"})
        r = conn.getresponse()
        first = r.read(10)
        C.ok(delete(s, "o/two:Q8_0")[0] == 200 and ids(s) == [] and files_of(home, "o/two") == ["refs/main"], files_of(home, "o/two"))
        C.ok(b"[DONE]" in first + r.read(), "its stream ends as it should")
        C.ok(fetch(s, "o/two", "o/two:Q8_0") and complete(s, "o/two:Q8_0")[0] == 200, "and again")


def check_borders(home):
    """Nothing outside the cache goes: a folder's models, a preset's files, what links name."""
    outside, folder = os.path.join(home, "outside"), os.path.join(home, "folder")
    os.makedirs(folder)
    os.makedirs(outside)
    cache = os.path.join(home, "hub")
    for repo, where in (("o--a", None), ("o--b", "snapshots"), ("o--c", ""), ("o--d", "blobs"), ("o--e", f"snapshots/{COMMIT}/sub")):
        base = os.path.join(cache, "models--" + repo)
        real = os.path.join(outside, repo)
        os.makedirs(os.path.join(base, "refs"))
        os.makedirs(os.path.join(base, "snapshots", COMMIT, "sub"))
        os.makedirs(os.path.join(base, "blobs"))
        with open(os.path.join(base, "refs", "main"), "w", encoding="ascii") as f:
            f.write(COMMIT)
        blob = hashlib.sha256(MODEL).hexdigest()
        shutil.copy(os.path.join(ROOT, "tests", "archs", "qwen2.gguf"), os.path.join(base, "blobs", blob))
        name = os.path.join(base, "snapshots", COMMIT, "sub" if repo == "o--e" else "", "m-F16.gguf")
        if repo == "o--a":
            shutil.copy(os.path.join(ROOT, "tests", "archs", "qwen2.gguf"), os.path.join(outside, "kept.gguf"))
            os.symlink(os.path.join(outside, "kept.gguf"), name)
        else:
            to = os.path.join(base, "blobs", blob)
            os.symlink(to if where and where.startswith("snapshots") else os.path.relpath(to, os.path.dirname(name)), name)
        if where is not None:
            shutil.move(os.path.join(base, where), real)
            os.symlink(real, os.path.join(base, where).rstrip("/"))
    shutil.copy(os.path.join(ROOT, "tests", "archs", "phi3.gguf"), os.path.join(folder, "own.gguf"))
    before = sorted(os.path.join(d, f) for d, _, names in os.walk(outside) for f in names)
    with router(home, "--models-download", "--models-dir", folder) as s:
        C.ok(ids(s) == ["o/a:F16", "o/b:F16", "o/c:F16", "o/d:F16", "o/e:F16", "own"], ids(s))
        code, r = delete(s, "own")
        C.ok(code == 400 and "not of the hub's cache" in r["error"]["message"] and complete(s, "own")[0] == 200, r)
        C.ok(delete(s, "o/a:F16")[0] == 200 and os.path.exists(os.path.join(outside, "kept.gguf")), "the link goes, not what it names")
        for name in ("o/b:F16", "o/c:F16", "o/e:F16"):
            code, r = delete(s, name)
            C.ok(code == 400 and "by a link" in r["error"]["message"] and name in ids(s), (name, r))
        C.ok(delete(s, "o/d:F16")[0] == 400, "bytes that lie elsewhere stay")
    C.ok(sorted(os.path.join(d, f) for d, _, names in os.walk(outside) for f in names) == before, "nothing is missing there")


def check_preset(home):
    """A preset beside the cache: entries of its files are hidden where it says so, its file is not removed, and a draft model of its own is used."""
    path = os.path.join(home, "models.ini")
    os.makedirs(home)

    def write(text):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    with router(home, "--models-download") as s:
        for name in ("o/two:Q8_0", "o/two:F16"):
            C.ok(fetch(s, name, name), name)
    one = "[one]\nhf-repo = o/two:Q8_0\nspec-draft-hf = o/two:F16\n"
    write(one + "dedup-cache-models = 1\n")
    with router(home, "--models-download", "--models-preset", path) as s:
        C.ok(ids(s) == ["one"] and complete(s, "o/two:Q8_0")[0] == 200, f"hidden, but there: {ids(s)}")
        C.ok(complete(s, "one")[0] == 200 and any("draft model: qwen2" in line for line in s.lines), s.lines)
        for name in ("o/two:Q8_0", "o/two:F16"):
            code, r = delete(s, name)
            C.ok(code == 400 and "the file of \"one\" too" in r["error"]["message"], r)
        code, r = delete(s, "one")
        C.ok(code == 400, r)
        write(one)
        C.ok(s.get("/models?reload=1")[0] == 200 and ids(s) == ["o/two:F16", "o/two:Q8_0", "one"], ids(s))
        write("[*]\ndedup-cache-models = true\n" + one)
        C.ok(s.get("/models?reload=1")[0] == 200 and ids(s) == ["one"], ids(s))
        for text, want in (("[*]\nmodel = x\n" + one, "behind [*]"), (one + "dedup-cache-models = maybe\n", "= 1 or 0"), (one + "spec-draft-hf = o/none\n", "one path")):
            write(text)
            code, r = s.get("/models?reload=1")
            C.ok(code == 400 and want in r["error"]["message"], r)


def check_remote(home):
    """-hf of a repository with a preset.ini: a router of the hub's models, all fetched at the start; it names no files of this machine."""
    def say(text):
        Hub.repos["o/preset"] = {"preset.ini": text.encode(), "other-Q8_0.gguf": MODEL}
    say("[first]\nhf-repo = o/two\n[second]\nhf-repo = o/two:F16\n")
    with router(home, "-hf", "o/preset") as s:
        C.ok(ids(s) == ["first", "second"] and complete(s, "first")[0] == 200 and complete(s, "second")[0] == 200, ids(s))
        C.ok(s.post("/models", {"model": "u/m"})[0] == 501 and s.get("/models?reload=1")[0] == 200 and ids(s) == ["first", "second"], "nothing more is fetched")
    with router(home, "-hf", "o/preset", "--offline") as s:
        C.ok(ids(s) == ["first", "second"], "from the cache")
    with router(home, "-hf", "o/preset:Q8_0") as s:
        C.ok(ids(s) == ["other-Q8_0"], "a model of it")
    for text, want in (("[a]\nmodel = /etc/passwd\n", "names no files"), ("[a]\nhf-repo = o/two\nmodel-draft = /etc/passwd\n", "names no files"),
                       ("[a]\nhf-repo = ../../etc\n", "USER/NAME"), ("[a]\nhf-repo = u/none\n", "404"), ("[a]\nhf-repo = o/two\nctx-size = 5\n", "line 3")):
        say(text)
        try:
            with router(home, "-hf", "o/preset") as s:
                C.ok(False, (text, s.lines))
        except RuntimeError as e:
            C.ok(want in str(e), (text, str(e)))


def main():
    if not built(BUILD):
        print("check_serve_download: SKIP: this build has no server")
        return 0
    with tempfile.TemporaryDirectory() as base:
        with router(base, "--models-download") as s:
            code, r = s.post("/models", {"model": "u/none"})
            if code != 404 and "libcurl was not found" in r["error"]["message"]:
                print("check_serve_download: SKIP: this build has no libcurl")
                return 0
        for check in (check_download, check_refusals, check_who, check_cancel, check_in_use, check_borders, check_preset, check_remote):
            check(os.path.join(base, check.__name__))
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
