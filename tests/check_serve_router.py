#!/usr/bin/env python3
"""check_serve_router: kvant serve --models-dir: which files are models, who picks them, loading on demand, room by number and by memory, caches
that come back, what is broken or hostile, administration, shutting down.  Where two things have to happen at once a client that does not read
holds its model: nothing here waits by the clock alone.

Locks that a thread checker watches here: models.lock (who holds which model, wishes, parked requests; taken before a job's lock), job.lock,
dirty_lock, the workers' lock; what a model consists of is written before it is ready and freed when nobody holds it."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, SLOW, Checks, Server, built, until    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_router")
ARCHS = os.path.join(ROOT, "tests", "archs")
NAMES = ("lfm2", "phi3", "qwen2")
LONG = [5 + i % 200 for i in range(300)]


def folder(path, names=NAMES):
    for name in names:
        shutil.copy(os.path.join(ARCHS, name + ".gguf"), path)


def router(path, *args, **kw):
    return Server(BUILD, "--models-dir", path, "-np", "2", *args, model=None, **kw)


def complete(s, model, prompt=(5, 6, 7, 8), path="/v1/completions", **fields):
    headers = fields.pop("headers", None)
    return s.post(path, dict({"model": model, "prompt": list(prompt), "max_tokens": 4, "temperature": 0, "ignore_eos": True}, **fields),
                  headers=headers)


def cached(answer):
    return answer[1]["usage"]["prompt_tokens_details"]["cached_tokens"] if answer[0] == 200 else -1


def states(s, headers=None):
    return {m["id"]: m["status"] for m in s.get("/v1/models", headers=headers)[1]["data"]}


def loaded(s):
    return sorted(k for k, v in states(s).items() if v["value"] == "loaded")


class Held:
    """A stream whose client has not read more than its head: its request, so its model, is in use until read() or leave()."""

    def __init__(self, s, model):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(60 * SLOW)
        self.socket.connect(("127.0.0.1", s.port))
        body = json.dumps({"model": model, "prompt": [5, 6, 7], "max_tokens": 400, "ignore_eos": True, "stream": True, "logprobs": 20,
                           "stream_options": {"include_usage": True}}).encode()
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
                            b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
        self.first = self.socket.recv(512)

    def read(self):
        """The number of tokens that came, and whether the stream ended as it should."""
        out = self.first
        while more := self.socket.recv(65536):
            out += more
        self.socket.close()
        return int((re.findall(rb'"completion_tokens":(\d+)', out) or [0])[-1]), b"data: [DONE]" in out

    def leave(self):
        self.socket.close()


class Later(threading.Thread):
    """A request beside the others; result is its answer."""

    def __init__(self, act):
        super().__init__(daemon=True)
        self.act, self.result = act, None
        self.start()

    def run(self):
        self.result = self.act()

    def end(self):
        self.join(60 * SLOW)
        return self.result


# ---- which files are models ----

def check_folder():
    with tempfile.TemporaryDirectory() as d:
        folder(d)
        for name in ("mmproj-a.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf", ".hidden.gguf", "new\nline.gguf", "notes.txt"):
            shutil.copy(os.path.join(ARCHS, "qwen2.gguf"), os.path.join(d, name))
        shutil.copy(os.path.join(ARCHS, "qwen2.gguf"), os.path.join(os.fsencode(d), b"bad\xff.gguf"))
        os.mkdir(os.path.join(d, "inner"))
        for name in ("mmproj.gguf", "any.gguf"):
            shutil.copy(os.path.join(ARCHS, "phi3.gguf"), os.path.join(d, "inner", name))
        os.mkdir(os.path.join(d, "empty"))
        with router(d) as s:
            C.ok(sorted(states(s)) == ["big", "inner", *NAMES], f"the folder's models: {sorted(states(s))}")
            C.ok(any("left out" in line for line in s.lines), f"what is left out is told: {s.lines}")
            C.ok(complete(s, "inner")[1].get("model") == "inner", "a model in a folder of its own")
            C.ok(s.get("/v1/models/inner")[1]["meta"]["desc"].startswith("phi3"), "its file is the one that is no mmproj")


def preset(path, *pairs):
    with open(path, "w", encoding="utf-8") as f:
        f.write("version = 1\n; models\n" + "".join(f"\n[{name}]\n model = {ARCHS}/{arch}.gguf \n" for name, arch in pairs))


def check_reload():
    """Models of an INI, by names that no file has; what comes and goes while the server runs, in an INI and in a folder."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "models.ini")
        preset(path, ("org/a:Q8_0", "qwen2"), ("b", "phi3"))
        with Server(BUILD, "--models-preset", path, "-np", "2", model=None) as s:
            C.ok(sorted(states(s)) == ["b", "org/a:Q8_0"] and complete(s, "org/a:Q8_0")[1].get("model") == "org/a:Q8_0", states(s))
            C.ok(s.get("/props?model=org%2Fa%3AQ8_0")[1]["model_path"] == "qwen2.gguf", "a file's last part")
            held = Held(s, "org/a:Q8_0")
            preset(path, ("b", "lfm2"), ("c", "phi3"))
            C.ok(sorted(states(s)) == ["b", "org/a:Q8_0"] and sorted(m["id"] for m in s.get("/models?reload=1")[1]["data"]) == ["b", "c"], "read again")
            status, r = complete(s, "org/a:Q8_0")
            C.ok(status == 404 and "b, c" in r["error"]["message"], r)
            C.ok(held.read() == (400, True), "who had it keeps it")
            C.ok(complete(s, "b")[0] == 200 and s.get("/v1/models/b")[1]["meta"]["desc"].startswith("lfm2"), "another file of that name")
            with open(path, "w", encoding="utf-8") as f:
                f.write("[b]\nctx-size = 5\n")
            status, r = s.get("/models?reload=1")
            C.ok(status == 400 and "line 2" in r["error"]["message"] and sorted(states(s)) == ["b", "c"], r)
            preset(path, ("org/a:Q8_0", "qwen2"))
            C.ok([m["id"] for m in s.get("/models?reload=1")[1]["data"]] == ["org/a:Q8_0"] and complete(s, "org/a:Q8_0")[0] == 200, "back again")
        for text, want in (("", "found \"nothing\""), ("[a]", "model = PATH for each"), ("[a]\nmodel = x\n[a]\n", "line 3"), ("model = x", "behind [NAME]"),
                           ("[]\n", "[NAME]"), ("[a]\nmodel = x\nmodel = y\n", "one path"), ("[a\n", "[NAME]"), ("[a]\nmodel\n", "model = PATH")):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            code, said = refused_start("--models-preset", path)
            C.ok(code not in (0, 134, 139) and want in said, (text, said))
        folder(d)
        with router(d, "--admin-key", "root", "--api-key", "user") as s:
            keys = [{"Authorization": "Bearer " + k} for k in ("root", "user")]
            os.rename(os.path.join(d, "phi3.gguf"), os.path.join(d, "phi-3.gguf"))
            C.ok(s.get("/models?reload=1", headers=keys[1])[0] == 403, "an administrator's")
            C.ok([m["id"] for m in s.get("/models?reload=1", headers=keys[0])[1]["data"]] == ["lfm2", "qwen2", "phi-3"], "a folder")
            C.ok(complete(s, "phi-3", headers=keys[1])[0] == 200, "the new name")


def check_cached():
    """A preset's hf-repo is a file of the cache; one that is not there is named."""
    with tempfile.TemporaryDirectory() as d:
        path, repo = os.path.join(d, "models.ini"), os.path.join(d, "hub", "models--org--a")
        os.makedirs(os.path.join(repo, "refs"))
        os.makedirs(os.path.join(repo, "snapshots", "ab12"))
        with open(os.path.join(repo, "refs", "main"), "w", encoding="utf-8") as f:
            f.write("ab12")
        for name in ("a-Q4_K_M", "a-F16"):
            shutil.copy(f"{ARCHS}/{'qwen2' if 'Q4' in name else 'phi3'}.gguf", os.path.join(repo, "snapshots", "ab12", name + ".gguf"))
        with open(path, "w", encoding="utf-8") as f:
            f.write("[one]\nhf-repo = org/a\n[two]\nhf-repo = org/a:F16\n")
        env = {**os.environ, "HF_HOME": d, "HF_HUB_CACHE": ""}
        with Server(BUILD, "--models-preset", path, "-np", "2", model=None, env=env) as s:
            C.ok(complete(s, "one")[0] == 200 and complete(s, "two")[0] == 200, "both are loaded")
            C.ok([s.get(f"/v1/models/{m}")[1]["meta"]["desc"][:4] for m in ("one", "two")] == ["qwen", "phi3"], "of two files of one repository")
            with open(path, "a", encoding="utf-8") as f:
                f.write("[three]\nhf-repo = org/b\n")
            status, r = s.get("/models?reload=1")
            C.ok(status == 400 and "line 6" in r["error"]["message"] and "kvant pull org/b" in r["error"]["message"], r)
            C.ok(sorted(states(s)) == ["one", "two"], "as before")


def refused_start(*args):
    r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "serve", "--port", "0", *args], capture_output=True, text=True, check=False,
                       timeout=60 * SLOW)
    return r.returncode, r.stderr


def check_start():
    with tempfile.TemporaryDirectory() as d:
        for args, want in ((("--models-dir", d), "found no *.gguf"), (("--models-dir", d + "/none"), "cannot open the directory"),
                           (("--models-dir", d, "-m", "x.gguf"), "wanted one of them"), (("--models-dir", d, "x.gguf"), "wanted one of them"),
                           (("--models-dir", d, "--alias", "x"), "wanted one of them"), (("--models-max", "-1"), "--models-max")):
            code, text = refused_start(*args)
            C.ok(code not in (0, 134, 139) and want in text, f"{args}: {code} {text}")


# ---- on demand, and room ----

def check_on_demand(d):
    with router(d, "--models-max", "2") as s:
        C.ok(loaded(s) == [] and s.get("/health")[0] == 200, "nothing is loaded at first, and that is healthy")
        for name, want in (("qwen2", ["qwen2"]), ("lfm2", ["lfm2", "qwen2"]), ("qwen2", ["lfm2", "qwen2"]), ("phi3", ["phi3", "qwen2"])):
            status, r = complete(s, name)
            C.ok(status == 200 and r["model"] == name and loaded(s) == want, f"{name}: {status} {r} {loaded(s)}")
        plain = [complete(s, n)[1]["choices"][0]["text"] for n in NAMES]
        C.ok(plain == [complete(s, n)[1]["choices"][0]["text"] for n in NAMES] and len(set(plain)) == 3, f"each model its own words: {plain}")
        n = len([line for line in s.lines if "loaded: lfm2" in line and "unloaded" not in line])
        waiting = [Later(lambda: complete(s, "lfm2")) for _ in range(8)]
        C.ok(all(w.end()[0] == 200 for w in waiting), "requests at once")
        C.ok(len([line for line in s.lines if "loaded: lfm2" in line and "unloaded" not in line]) <= n + 1, f"they load once: {s.lines}")
        for path, body in (("/tokenize", {"content": "ab"}), ("/v1/embeddings", {"input": [5, 6]}), ("/completion", {"prompt": [5, 6], "n_predict": 2})):
            C.ok(s.post(path, dict(body, model="phi3"))[0] == 200, f"{path} takes the model too")
        C.ok(s.stop() == 0, "exit code")


def check_memory(d):
    with router(d) as s:
        for name in NAMES:
            complete(s, name)
        need = {k: v["bytes"] for k, v in states(s).items()}
    two = str(need["lfm2"] + max(need["phi3"], need["qwen2"]) + 4096)
    with router(d, "-c", "512", "--models-memory", two) as s:
        for name in ("lfm2", "phi3", "qwen2"):
            C.ok(complete(s, name)[0] == 200 and sum(v.get("bytes", 0) for v in states(s).values()) <= int(two), f"{name} within {two}: {states(s)}")
        C.ok("lfm2" not in loaded(s) or "phi3" not in loaded(s), f"one had to go: {states(s)}")
    alone, beside = [], ("-md", os.path.join(d, "qwen2.gguf"))
    for more in ((), beside):
        with router(d, "-c", "512", *more) as s:
            C.ok(complete(s, "qwen2")[0] == 200, f"qwen2 {more}")
            alone.append(states(s)["qwen2"]["bytes"])
    C.ok(alone[1] > 1.5 * alone[0], f"a draft model counts: {alone}")
    with router(d, "--models-memory", "100K") as s:
        status, r = complete(s, "qwen2")
        C.ok(status == 400 and "qwen2" in r["error"]["message"] and "MiB" in r["error"]["message"], f"too large for ever: {status} {r}")


# ---- in use ----

def check_in_use(d):
    """What is in use is never unloaded; what waits for room does not keep others waiting."""
    with router(d, "--models-max", "2", "-np", "4") as s:
        held = Held(s, "qwen2")
        complete(s, "phi3")
        C.ok(s.post("/models/unload", {"model": "qwen2"}) == (200, {"success": True}), "unload of a model in use")
        C.ok(states(s)["qwen2"].get("unloading") is True, f"it waits: {states(s)}")
        again = Later(lambda: complete(s, "qwen2"))
        C.ok(complete(s, "phi3")[0] == 200 and again.result is None, "another model answers meanwhile; a new request for this one waits")
        C.ok(s.post("/models/unload", {"model": "qwen2"})[0] == 400, "it is on its way already")
        n, whole = held.read()
        C.ok(whole and n == 400, f"its stream comes whole: {n} {whole}")
        C.ok(again.end()[0] == 200 and any("unloaded: qwen2" in line for line in s.lines), "then it goes, and comes again for who waited")
    with router(d, "--models-max", "1", "-np", "4") as s:
        held = Held(s, "qwen2")
        gone = s.open("/v1/completions", {"model": "phi3", "prompt": [5], "max_tokens": 1})
        C.ok(until(lambda: states(s)["phi3"]["value"] == "loading"), f"waits for room: {states(s)}")
        gone.close()
        C.ok(until(lambda: states(s)["phi3"]["value"] == "unloaded"), f"nobody wants it any more: {states(s)}")
        C.ok(loaded(s) == ["qwen2"] and complete(s, "qwen2")[0] == 200, "and the other one stays")
        waits = Later(lambda: complete(s, "phi3"))
        C.ok(until(lambda: states(s)["phi3"]["value"] == "loading") and waits.result is None, "waits for room")
        held.leave()
        C.ok(waits.end()[0] == 200 and loaded(s) == ["phi3"], f"and has it when the stream is gone: {waits.result} {loaded(s)}")
        held = Held(s, "phi3")
        waits = Later(lambda: complete(s, "qwen2"))
        until(lambda: states(s)["qwen2"]["value"] == "loading")
        s.process.terminate()
        C.ok(waits.end()[0] == 503, f"shutting down answers who waits: {waits.result}")
        held.leave()
        C.ok(s.wait() == 0, "exit code")


# ---- caches ----

def check_caches(d):
    with tempfile.TemporaryDirectory() as kept, router(d, "--models-max", "1", "--slot-save-path", kept) as s:
        first = {n: complete(s, n, LONG) for n in NAMES}
        back = {n: complete(s, n, LONG) for n in NAMES}
        C.ok(all(cached(first[n]) == 0 and cached(back[n]) >= 256 for n in NAMES), f"hits after unloading: {[cached(back[n]) for n in NAMES]}")
        C.ok(all(first[n][1]["choices"] == back[n][1]["choices"] for n in NAMES), "and the same words")
        shutil.copy(os.path.join(d, "qwen2.gguf"), os.path.join(d, "keep"))
        complete(s, "lfm2")
        os.replace(shutil.copy(os.path.join(ARCHS, "phi3.gguf"), os.path.join(d, "new")), os.path.join(d, "qwen2.gguf"))
        other = complete(s, "qwen2", LONG)
        C.ok(cached(other) == 0 and other[1]["choices"] == first["phi3"][1]["choices"], f"another file under the name begins anew: {other}")
        os.replace(os.path.join(d, "keep"), os.path.join(d, "qwen2.gguf"))
    with router(d, "--models-max", "1") as s:
        complete(s, "phi3", LONG)
        complete(s, "lfm2")
        C.ok(cached(complete(s, "phi3", LONG)) == 0, "without a folder nothing is kept")


# ---- broken and hostile ----

def check_hostile(d):
    with open(os.path.join(d, "qwen2.gguf"), "rb") as f, open(os.path.join(d, "broken.gguf"), "wb") as out:
        out.write(f.read(5000))
    with router(d) as s:
        waiting = [Later(lambda: complete(s, "broken")) for _ in range(6)]
        for status, r in (w.end() for w in waiting):
            C.ok(status == 400 and r["error"]["param"] == "model" and "truncated" in r["error"]["message"] and d not in str(r), f"{status} {r}")
        one = states(s)["broken"]
        C.ok(one["failed"] is True and "truncated" in one["error"] and d not in str(one), f"listed as failed: {one}")
        C.ok(complete(s, "qwen2")[0] == 200 and s.get("/health")[0] == 200, "the others go on")
        for name in ("../qwen2", "/etc/passwd", "./qwen2", "qwen2.gguf", "qwen2/", d + "/qwen2.gguf", "qwen2\x00", "x" * 200, "%2e%2e/qwen2"):
            status, r = complete(s, name)
            C.ok(status in (400, 404) and "No such file" not in str(r), f"{name!r}: {status} {r}")
        for name in ("", None, 5, ["qwen2"], "x" * 300):
            status, r = complete(s, name)
            C.ok(status == 400 and "model" in r["error"]["message"], f"{name!r}: {status} {r}")
        status, r = complete(s, "nothing")
        C.ok(status == 404 and all(n in r["error"]["message"] for n in NAMES), f"what there is: {r}")
        C.ok(s.post("/v1/completions", b"{")[0] == 400, "no JSON")
        shutil.copy(os.path.join(d, "phi3.gguf"), os.path.join(d, "new"))
        os.replace(os.path.join(d, "new"), os.path.join(d, "broken.gguf"))
        C.ok(complete(s, "broken")[0] == 200 and "failed" not in states(s)["broken"], "mended, it is loaded")
    os.unlink(os.path.join(d, "broken.gguf"))


# ---- administration ----

def check_admin(d):
    key, admin = {"Authorization": "Bearer k"}, {"Authorization": "Bearer a"}
    with router(d, "--api-key", "k", "--admin-key", "a", "--no-models-autoload") as s:
        for path in ("/models/load", "/models/unload"):
            C.ok(s.post(path, {"model": "qwen2"})[0] == 401 and s.post(path, {"model": "qwen2"}, headers=key)[0] == 403, f"{path} wants the admin key")
        status, r = complete(s, "qwen2", headers=key)
        C.ok(status == 400 and "not loaded" in r["error"]["message"], f"not loaded: {status} {r}")
        C.ok(s.post("/models/unload", {"model": "qwen2"}, headers=admin)[0] == 400, "not running")
        C.ok(s.post("/models/load", {"model": "nope"}, headers=admin)[0] == 404 and s.post("/models/load", {}, headers=admin)[0] == 400, "no such model")
        answer = s.post("/models/load", {"model": "qwen2"}, headers=admin)
        C.ok(answer == (200, {"success": True}), f"load: {answer}")
        C.ok(until(lambda: states(s, key)["qwen2"]["value"] == "loaded") and complete(s, "qwen2", headers=key)[0] == 200, "loaded")
        C.ok(s.post("/models/load", {"model": "qwen2"}, headers=admin)[0] == 400, "already running")
        C.ok(complete(s, "phi3", path="/v1/completions?autoload=true", headers=key)[0] == 200, "a request may ask for it")
        C.ok(s.post("/models/unload", {"model": "qwen2"}, headers=admin)[0] == 200 and
             until(lambda: states(s, key)["qwen2"]["value"] == "unloaded"), "unload")


def check_of_one(d):
    """Routes that are about one model name it in the query, and load nothing."""
    with router(d) as s:
        complete(s, "qwen2", LONG)
        C.ok(s.get("/props")[1]["role"] == "router" and s.get("/props?model=qwen2")[1]["model_alias"] == "qwen2", "/props")
        C.ok(s.get("/props?model=phi3")[0] == 400 and s.get("/props?model=nope")[0] == 404 and loaded(s) == ["qwen2"], "/props of others")
        C.ok(len(s.get("/slots?model=qwen2")[1]) == 2 and s.get("/slots")[0] == 400, "/slots")
        C.ok(s.post("/cache?action=clear&model=qwen2", {})[0] == 200 and s.post("/cache?action=clear", {})[0] == 400, "/cache")
        text = s.request("GET", "/metrics?model=qwen2")[2].decode()
        C.ok('generation_tokens_total{model_name="qwen2"} 4' in text, "/metrics of a model")
        C.ok('kvant:ready{model_name=""} 1' in s.request("GET", "/metrics")[2].decode(), "/metrics of all")
        C.ok(s.stats()["model"] == "qwen2", "the live view is of the one used last")
        C.ok(s.get("/v1/models/phi3")[1]["status"] == {"value": "unloaded"} and s.get("/v1/models/x")[0] == 404, "/v1/models/ID")
    with Server(BUILD, model=os.path.join(ARCHS, "qwen2.gguf")) as s:
        C.ok(s.post("/models/load", {"model": "qwen2"})[0] == 404 and states(s) == {"qwen2": {"value": "loaded", "bytes": states(s)["qwen2"]["bytes"]}},
             "a server of one model")
        C.ok(complete(s, "whatever")[1]["model"] == "qwen2", "takes any name")


def main():
    if not built(BUILD):
        print("SKIP check_serve_router: this build has no server")
        return 0
    check_folder()
    check_start()
    check_reload()
    check_cached()
    with tempfile.TemporaryDirectory() as d:
        folder(d)
        for check in (check_on_demand, check_memory, check_in_use, check_caches, check_hostile, check_admin, check_of_one):
            check(d)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
