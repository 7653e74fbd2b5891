#!/usr/bin/env python3
"""check_serve_sleep: --sleep-idle-seconds: a model that nobody used is unloaded, the server tells so and stays well, and the next request has its answer
as if nothing had been; with a folder for caches its prefix too; a router's models likewise; a file that went meanwhile is a refusal, and no end."""
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, SLOW, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_sleep")
TINY = os.path.join(ROOT, "tests", "archs", "qwen2.gguf")
LONG = [5 + i % 200 for i in range(300)]


def complete(s, model="m", prompt=(5, 6, 7, 8), **more):
    return s.post("/v1/completions", {"model": model, "prompt": list(prompt), "max_tokens": 4, "temperature": 0, "ignore_eos": True}, **more)


def state(s, i=0, **more):
    return s.get("/v1/models", **more)[1]["data"][i]["status"]["value"]


def asleep(s, i=0, **more):
    end = time.time() + 20 * SLOW
    while time.time() < end and state(s, i, **more) != "sleeping":
        time.sleep(0.1)
    return C.ok(state(s, i, **more) == "sleeping", f"not asleep: {state(s, i, **more)} {s.lines[-3:]}")


def memory(s):
    """KiB that the process has for itself."""
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon"))


def known(s):
    """Told of the model: its name, that by the name in its file, its names, its context twice and its shapes."""
    one = s.get("/v1/models")[1]["data"][0]
    named = s.get("/v1/models/" + urllib.parse.quote(one["aliases"][-1]))[1].get("id")
    other = s.get("/v1/models", headers={"anthropic-version": "2023-06-01"})[1]["data"][0]
    return [one["id"], named, one["aliases"], one.get("max_model_len"), one.get("meta"), other.get("max_input_tokens")]


def prompt_tokens(s):
    m = re.search(r"^kvant:prompt_tokens_total\{.*\} (\d+)$", s.request("GET", "/metrics")[2].decode(), re.M)
    return int(m.group(1)) if m else None


def check_one():
    with tempfile.TemporaryDirectory() as kept, Server(BUILD, "-c", "2048", "-np", "2", "--sleep-idle-seconds", "1", "--slot-save-path", kept) as s:
        stream = s.open("/v1/completions", {"prompt": [5, 6], "max_tokens": 1500, "stream": True, "ignore_eos": True})
        awake, props = complete(s, prompt=LONG), s.get("/props")[1]
        C.ok(awake[0] == 200 and props["is_sleeping"] is False and state(s) == "loaded", (awake, props))
        full, facts = memory(s), known(s)
        shown = s.post("/api/show", {"model": facts[0]})
        C.ok(facts[0] == facts[1] and facts[4]["n_ctx"] == facts[3] == facts[5] == 2048, facts)
        stream.close()
        counted = prompt_tokens(s)
        if not asleep(s):
            return
        C.ok(prompt_tokens(s) == counted > 300, f"counters stand still: {prompt_tokens(s)}, {counted}")
        told = s.get("/props")
        C.ok(told[0] == 200 and told[1]["is_sleeping"] is True and {k for k in told[1]} == {k for k in props} and told[1]["n_ctx"] == 2048, told)
        C.ok(s.get("/health")[0] == 200 and s.get("/ready")[0] == 200 and s.request("GET", "/metrics")[0] == 200, "well while it sleeps")
        C.ok(s.get("/api/tags")[0] == 200 and s.get("/api/ps")[1]["models"] == [] and s.get("/v1/models/other")[0] == 404, "Ollama's names; no other model")
        C.ok(known(s) == facts, f"its names and facts stay: {known(s)}, {facts}")
        show = s.post("/api/show", {"model": facts[0]})
        C.ok(show == shown and show[0] == 200 and state(s) == "sleeping", f"/api/show: {str(show)[:300]}")
        C.ok(s.post("/api/show", {"model": "other"})[0] == 404, "/api/show of another name")
        for body in (b"{", b"[]", b'{"model": 3, "prompt": "a"}'):
            C.ok(s.request("POST", "/v1/completions", body)[0] == 400 and state(s) == "sleeping", f"a request that nobody could read wakes nobody: {body}")
        C.ok(len(os.listdir(kept)) == 1, f"its prefixes are kept: {os.listdir(kept)}")
        C.ok(s.sanitized or memory(s) < full / 2, f"its memory is free: {memory(s)} of {full} KiB")
        status, r = s.get("/slots")
        C.ok(status == 503 and "--sleep-idle-seconds" in r["error"]["message"], (status, r))
        time.sleep(1.5 * SLOW)
        C.ok(state(s) == "sleeping", "to ask what there is wakes nobody")
        again = complete(s, prompt=LONG)
        C.ok(again[0] == 200 and again[1]["choices"] == awake[1]["choices"], f"the same answer: {again}")
        C.ok(again[1].get("usage", {}).get("prompt_tokens_details", {}).get("cached_tokens", 0) >= 256, f"its prefix came back: {again}")
        C.ok(s.get("/props")[1]["is_sleeping"] is False and s.get("/slots")[0] == 200, "awake")
        C.ok(os.listdir(kept) == [], f"and their file goes: {os.listdir(kept)}")
        asleep(s)
        C.ok(s.post("/tokenize", {"content": "Hello"})[0] == 200 and state(s) == "loaded", "tokens are the model's: it wakes")
        asleep(s)
        s.process.terminate()
        C.ok(s.wait() == 0, "it ends while the model sleeps")
        C.ok(os.listdir(kept) == [], f"nobody takes up its prefixes again: {os.listdir(kept)}")


def check_strict():
    with Server(BUILD, "-c", "512", "--sleep-idle-seconds", "1", "--strict-model-name", "--alias", "m, n") as s:
        asleep(s)
        status, r = complete(s, "other")
        C.ok(status == 404 and r["error"]["param"] == "model" and state(s) == "sleeping", f"another model's name wakes nobody: {status} {r}")
        C.ok(complete(s, "n")[0] == 200 and state(s) == "loaded", "its own does")
        asleep(s)
        C.ok(s.post("/tokenize", {"model": "other", "content": "a"})[0] == 200, "a route that reads no name")


def check_gone():
    """The file of a model that sleeps is no longer there: requests say so, the server stays, and the file may come back."""
    with tempfile.TemporaryDirectory() as d:
        path = shutil.copy(TINY, os.path.join(d, "m.gguf"))
        with Server(BUILD, "-c", "512", "--sleep-idle-seconds", "1", model=path) as s:
            first = complete(s)
            asleep(s)
            os.rename(path, path + ".away")
            status, r = complete(s)
            C.ok(status == 503 and "could not be loaded" in r["error"]["message"] and d not in str(r), (status, r))
            C.ok(s.get("/health")[0] == 200, "the server stays")
            os.rename(path + ".away", path)
            C.ok(complete(s)[1].get("choices") == first[1]["choices"], "and goes on with the file")


def check_router():
    admin = {"Authorization": "Bearer a"}
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(TINY, d)
        with Server(BUILD, "--models-dir", d, "-c", "512", "--sleep-idle-seconds", "1", "--no-models-autoload", "--admin-key", "a", model=None) as s:
            C.ok(complete(s, "qwen2", headers=admin)[0] == 400, "nobody loaded it")
            C.ok(s.post("/models/load", {"model": "qwen2"}, headers=admin)[0] == 200, "loaded by its administrator")
            end = time.time() + 20 * SLOW
            while time.time() < end and not any("asleep: qwen2" in line for line in s.lines):
                time.sleep(0.1)
            C.ok(any("asleep: qwen2" in line for line in s.lines) and complete(s, "qwen2", headers=admin)[0] == 200, f"asleep, it wakes: {s.lines[-3:]}")
            asleep(s, headers=admin)
            unloaded = s.post("/models/unload", {"model": "qwen2"}, headers=admin)[0], state(s, headers=admin)
            C.ok(unloaded == (200, "unloaded"), f"an administrator ends its sleep: {unloaded}")
            C.ok(s.post("/models/unload", {"model": "qwen2"}, headers=admin)[0] == 400 and complete(s, "qwen2", headers=admin)[0] == 400, "unloaded it stays")


def main():
    if not built(BUILD):
        print("SKIP check_serve_sleep: this build has no server")
        return C.end()
    check_one()
    check_strict()
    check_gone()
    check_router()
    with Server(BUILD, "-c", "512", model=TINY) as s:
        complete(s)
        time.sleep(2)
        C.ok(state(s) == "loaded", "without the option it stays loaded")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
