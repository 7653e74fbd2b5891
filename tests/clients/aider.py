#!/usr/bin/env python3
"""packages: aider-chat

aider, the program itself, over OpenAI's API and over Ollama's, set up by the files of docs/use/clients/aider.md: one task of ten turns in one session
in a git repository of its own.  Each turn edits a file or makes one, and aider commits it with a message that it asks the model for."""
import os
import subprocess
import sys
import tempfile

import rig
from serve import DEMO, SLOW

AIDER = os.path.join(os.path.dirname(sys.executable), "aider")
TURNS = 10
MESSAGE = "feat: count one more"
LAST = "notes.md\n```\n<<<<<<< SEARCH\n=======\nThe counter stands at nine.\n>>>>>>> REPLACE\n```"
EDIT = "counter.py\n```python\n<<<<<<< SEARCH\nSTEP = {}\n=======\nSTEP = {}\n>>>>>>> REPLACE\n```"


def answer(turn):
    return EDIT.format(turn, turn + 1) if turn < TURNS - 1 else LAST


def git(folder, *args):
    return subprocess.run(["git", "-C", folder, *args], capture_output=True, text=True, check=True).stdout


def prepare(folder, config, url):
    """A repository with one file, and aider's own files in the folder that is its home."""
    rig.settle(folder, "aider", url, config)
    work = os.path.join(folder, "work")
    os.mkdir(work)
    git(work, "init", "-q")
    for key, value in (("user.name", "t"), ("user.email", "t@localhost")):
        git(work, "config", key, value)
    with open(os.path.join(work, "counter.py"), "w", encoding="utf-8") as f:
        f.write("STEP = 0\n")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "begin")
    return work


def ten_turns(url, config):
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(folder, config, url)
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "AIDER_", "OLLAMA_", "ANTHROPIC_"))}
        said = "".join(f"turn {n}: count on\n" for n in range(TURNS)) + "/exit\n"
        before = rig.reuse(url)
        r = subprocess.run([AIDER, "--yes-always", "--no-pretty", "--no-fancy-input", "counter.py"], cwd=work, input=said, capture_output=True, text=True,
                           timeout=180 * SLOW, check=False, env=dict(keep, HOME=folder, LITELLM_LOCAL_MODEL_COST_MAP="True"))
        told = (r.stdout + r.stderr)[-3000:]
        with open(os.path.join(work, "counter.py"), encoding="utf-8") as f:
            assert f.read() == f"STEP = {TURNS - 1}\n", told
        with open(os.path.join(work, "notes.md"), encoding="utf-8") as f:
            assert f.read() == "The counter stands at nine.\n", told
        commits = git(work, "log", "--format=%s", "--", "counter.py", "notes.md").splitlines()
        assert r.returncode == 0 and commits == [MESSAGE] * TURNS + ["begin"], (commits, told)
        prompt, cached = rig.reuse(url, before)
        print(f"aider, {config}: {prompt} prompt tokens, {cached} from the cache: {100 * cached / prompt:.1f} %", flush=True)


def openai(url):
    print("aider:", subprocess.run([AIDER, "--version"], capture_output=True, text=True, check=True).stdout.strip(), flush=True)
    ten_turns(url, "OpenAI's API")


def ollama(url):
    ten_turns(url, "Ollama's API")


rig.run("aider", openai, ollama, context=32768, words_of=DEMO, says={"diff --git": MESSAGE} | {f"turn {n}:": answer(n) for n in range(TURNS)})
