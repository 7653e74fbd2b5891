#!/usr/bin/env python3
"""packages: claude-agent-sdk

Claude Code, the program itself (Anthropic's package of Python ships it): one task of ten turns, each with its Bash tool, in one session, with
the settings of docs/use/clients/claude-code.md."""
import json
import os
import subprocess
import sys
import tempfile

import claude_agent_sdk
import rig
from serve import DEMO

CLAUDE = os.path.join(os.path.dirname(claude_agent_sdk.__file__), "_bundled", "claude")
CALL = '<tool_call>\n{"name": "Bash", "arguments": {"command": "echo rain in Paris", "description": "Tell the weather"}}\n</tool_call>'
TURNS = 10


def environment(home):
    """This process's, without its user's account and settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC_", "CLAUDE"))} | {"HOME": home}


def turn(p, text):
    """Says it; the events until the turn's result."""
    p.stdin.write(json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n")
    p.stdin.flush()
    events = []
    for line in p.stdout:
        events.append(json.loads(line))
        if events[-1]["type"] == "result":
            return events
    raise RuntimeError(f"it ended: {events[-3:]}")


def blocks(events, who, kind):
    return [b for e in events if e["type"] == who for b in e["message"]["content"] if isinstance(b, dict) and b["type"] == kind]


def ten_turns(url):
    print("claude_code:", subprocess.run([CLAUDE, "--version"], capture_output=True, text=True, check=True).stdout.strip(), flush=True)
    with tempfile.TemporaryDirectory() as home:
        rig.settle(home, "claude-code", url)
        p = subprocess.Popen([CLAUDE, "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--max-turns", "4",
                              "--allowedTools", "Bash(echo:*)"], cwd=home, env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=sys.stderr, text=True)
        try:
            for n in range(TURNS):
                events = turn(p, f"How will the weather be on day {n}?")
                assert events[-1]["subtype"] == "success" and events[-1]["result"] == rig.RAIN, events[-1]
                assert [b["name"] for b in blocks(events, "assistant", "tool_use")] == ["Bash"], events
                assert "rain in Paris" in json.dumps(blocks(events, "user", "tool_result")), events
                first = rig.reuse(url) if n == 0 else first
            print(f"claude_code: {first[0]} prompt tokens in the first turn", flush=True)
            rig.check_reuse(url, "claude_code", first)
        finally:
            p.stdin.close()
            p.wait(30)


rig.run("claude_code", ten_turns, call=CALL, context=65536, words_of=DEMO)
