#!/usr/bin/env python3
"""packages: openai-codex-cli-bin

Codex CLI, the program itself (OpenAI's package of Python ships it): one task of ten turns, each with its shell tool, in one thread, with the
settings of docs/use/clients/codex.md."""
import json
import os
import subprocess
import tempfile

import codex_cli_bin
import rig
from serve import DEMO

CODEX = os.path.join(os.path.dirname(codex_cli_bin.__file__), "bin", "codex")
CALL = '<tool_call>\n{"name": "exec_command", "arguments": {"cmd": "echo rain in Paris"}}\n</tool_call>'
ALONE = ["-c", 'sandbox_mode="danger-full-access"', "-c", 'approval_policy="never"']      # nobody is there to be asked
TURNS = 10


def environment(home):
    """This process's, without its user's account and settings."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "CODEX_"))}
    return dict(keep, HOME=home, CODEX_HOME=home + "/.codex")


def turn(home, text, thread):
    """The events of a turn; `exec resume` goes on with a thread, as a user does who calls it again."""
    more = ["resume", thread] if thread else []
    r = subprocess.run([CODEX, "exec", "--skip-git-repo-check", "--json", *ALONE, *more, text], cwd=home, env=environment(home),
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    assert r.returncode == 0, r.stderr[-2000:] + r.stdout[-2000:]
    return [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]


def items(events, kind):
    return [e["item"] for e in events if e["type"] == "item.completed" and e["item"]["type"] == kind]


def ten_turns(url):
    print("codex_cli:", subprocess.run([CODEX, "--version"], capture_output=True, text=True, check=True).stdout.strip(), flush=True)
    with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as home:     # Codex links no programs of its own under /tmp
        rig.settle(home, "codex", url)
        thread = None
        for n in range(TURNS):
            events = turn(home, f"How will the weather be on day {n}?", thread)
            thread = thread or events[0]["thread_id"]
            assert [m["text"] for m in items(events, "agent_message")] == [rig.RAIN], events
            runs = items(events, "command_execution")
            assert len(runs) == 1 and "rain in Paris" in runs[0]["aggregated_output"] and runs[0]["exit_code"] == 0, events
            first = rig.reuse(url) if n == 0 else first
        rig.check_reuse(url, "codex_cli", first)


def no_account(_):
    os.environ.update({"OPENAI_API_KEY": "sk-planted", "CODEX_API_KEY": "planted"})
    found = sorted(k for k in environment("/home") if k.startswith(("OPENAI_", "CODEX_")))
    assert found == ["CODEX_HOME"], found


rig.run("codex_cli", no_account, ten_turns, call=CALL, context=65536, words_of=DEMO)
