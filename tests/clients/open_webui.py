#!/usr/bin/env python3
"""packages: open-webui

Open WebUI, the program itself, between this test and kvant, over a connection of each kind (OpenAI's API and Ollama's): one task of ten turns, each
with a tool.  Its API takes the tools and hands the calls on; the tool is run here.  Settings are those of docs/use/clients/open-webui.md."""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import rig
from serve import DEMO, SLOW

RULES = "You are a helpful assistant. " + " ".join(f"Rule {i}: keep rule {i * 7 % 100} in mind." for i in range(300))
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}}}
TURNS = 10


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(base, path, body=None, token=None):
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
    request = urllib.request.Request(base + path, json.dumps(body).encode() if body is not None else None, headers)
    try:
        with urllib.request.urlopen(request, timeout=300 * SLOW) as r:
            return json.load(r)
    except urllib.error.HTTPError as e:
        raise RuntimeError(f"{path}: {e.code} {e.read()[:500]}") from e


def start(url, mode, folder):
    """The process with a connection of this kind, and its address, once it answers."""
    port = free_port()
    told = rig.settings("open-webui", url, {"openai": "OpenAI's API", "ollama": "Ollama's API"}[mode])["open-webui.env"]
    env = dict(os.environ, DATA_DIR=folder, WEBUI_AUTH="False", WEBUI_SECRET_KEY="x", OFFLINE_MODE="True", HF_HUB_OFFLINE="1", RAG_EMBEDDING_ENGINE="openai",
               BYPASS_EMBEDDING_AND_RETRIEVAL="true", ENABLE_VERSION_UPDATE_CHECK="False", ANONYMIZED_TELEMETRY="false", DO_NOT_TRACK="true", **dict(line.split("=", 1) for line in told.splitlines()))
    with open(os.path.join(folder, "log"), "wb") as log:
        p = subprocess.Popen([os.path.join(os.path.dirname(sys.executable), "open-webui"), "serve", "--host", "127.0.0.1", "--port", str(port)],
                             cwd=folder, env=env, stdout=log, stderr=log)
    end = time.time() + 300 * SLOW
    while time.time() < end and p.poll() is None:
        try:
            call(f"http://127.0.0.1:{port}", "/health")
            return p, f"http://127.0.0.1:{port}"
        except (OSError, RuntimeError):
            time.sleep(0.5)
    p.kill()
    with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as log:
        raise RuntimeError("Open WebUI did not start: " + log.read()[-1500:])


def task(base, token, mode, model, url):
    messages, before = [{"role": "system", "content": RULES + " " + mode}], rig.reuse(url)
    for n in range(TURNS):
        messages.append({"role": "user", "content": f"How will the weather be on day {n}?"})
        for step in range(2):
            r = call(base, "/api/chat/completions", {"model": model, "messages": messages, "tools": [TOOL], "stream": False}, token)
            message = r["choices"][0]["message"]
            messages.append(message)
            calls = message.get("tool_calls") or []
            assert bool(calls) == (step == 0), (mode, n, r)
            for c in calls:
                text = rig.get_weather(**json.loads(c["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": c["id"], "content": text})
        assert message["content"] == rig.RAIN, (mode, message)
        first = rig.reuse(url) if n == 0 else first
    assert first[0] > before[0], "the first turn reached the server"
    rig.check_reuse(url, "open_webui over " + mode, first)


def over(mode, url):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        p, base = start(url, mode, folder)
        try:
            print("open_webui:", call(base, "/api/version")["version"], flush=True)
            token = call(base, "/api/v1/auths/signin", {"email": "", "password": ""})["token"]
            models = [(m["id"], m["owned_by"]) for m in call(base, "/api/models", token=token)["data"] if not m.get("arena")]
            assert len(models) == 1 and (models[0][1] == "ollama") == (mode == "ollama"), models
            task(base, token, mode, models[0][0], url)
        finally:
            p.terminate()
            p.wait(60)


def openai(url):
    over("openai", url)


def ollama(url):
    over("ollama", url)


rig.run("open_webui", openai, ollama, context=16384, words_of=DEMO)
