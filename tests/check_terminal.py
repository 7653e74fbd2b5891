#!/usr/bin/env python3
"""check_terminal: what `kvant run` and `serve` show on a terminal and elsewhere: a bar while a model is loaded, which is gone when it is there;
Ctrl-C ends the loading; no bar and no colours in pipes; --help is short, --help-all is whole; answers that follow --grammar and --json-schema, in
each turn of a chat; a wrong one is refused with its option."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_chat import DEMO, TINY, Chat  # noqa: E402
from support.serve import ROOT, SLOW, Checks, built  # noqa: E402

C = Checks("check_terminal")
BARE = re.compile(r"\x1b|\r\w* \[")     # an escape, or a bar
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}, "c": {"enum": ["red", "blue"]}}, "required": ["n", "c"],
          "additionalProperties": False}


def kvant(build, *args, text=None):
    return subprocess.run([os.path.join(build, "bin", "kvant"), *args], input=text, capture_output=True, text=True, errors="replace", timeout=60 * SLOW, check=False)


class Screen:
    """A program on a terminal; `interrupt`: Ctrl-C as soon as this is seen."""

    def __init__(self, build, *args, until="(?!)", interrupt=None):
        self.shown, self.code = "", None
        master, slave = pty.openpty()
        process = subprocess.Popen([os.path.join(build, "bin", "kvant"), *args], stdin=slave, stderr=slave, stdout=slave, start_new_session=True,
                                   env={**os.environ, "TERM": "xterm", "HOME": "/nonexistent"},
                                   preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
        end = time.time() + 30 * SLOW
        while process.poll() is None and time.time() < end and not re.search(until, self.shown):
            if select.select([master], [], [], 0.01)[0]:
                self.shown += os.read(master, 4096).decode(errors="replace")
            if interrupt and interrupt in self.shown:
                os.write(master, b"\x03")
                interrupt = None
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        self.code = process.wait(30 * SLOW)
        while select.select([master], [], [], 0)[0]:
            self.shown += os.read(master, 4096).decode(errors="replace")
        os.close(master)
        os.close(slave)


def left_on_screen(shown):
    """The lines, with what was erased taken away."""
    return [line.rsplit("\r", 1)[-1].replace("\x1b[K", "") for line in shown.replace("\r\n", "\n").split("\n")]


def check_bar(build):
    s = Screen(build, "run", "-m", DEMO, "-p", "hello", "-no-cnv", "-n", "4", "--temp", "0")
    C.ok(s.code == 0 and "\rloading [" in s.shown, f"no bar: {s.code} {s.shown!r}")
    C.ok(not any("loading" in line for line in left_on_screen(s.shown)), f"the bar stays: {left_on_screen(s.shown)}")
    for args in (("run", "-m", DEMO, "-p", "hello", "-no-cnv", "-n", "4"), ("run", "-m", DEMO, "-n", "4")):
        r = kvant(build, *args, text="hello\n")
        C.ok(r.returncode == 0 and r.stdout and not BARE.search(r.stdout + r.stderr), f"in pipes: {r.stdout!r} {r.stderr!r}")
    r = kvant(build, "run", "-m", TINY, "-p", "a", "-n", "2", "--display-prompt", "--color", "on")
    C.ok(r.returncode == 0 and "\x1b[33m" in r.stdout, f"--color on: {r.stdout!r}")
    r = kvant(build, "run", "-m", TINY, "-p", "a", "-n", "2", "--display-prompt")
    C.ok(r.returncode == 0 and r.stdout.startswith("a") and "\x1b" not in r.stdout, f"{r.stdout!r}")


def check_loading_ends(build):
    """The program may be through with loading before the key comes: one of some tries has to show it."""
    codes = []
    while len(codes) < 8 and 130 not in codes:
        s = Screen(build, "run", "-m", DEMO, interrupt="loading [")
        codes.append(s.code)
        C.ok(s.code in (0, 130), f"Ctrl-C: {s.code} {s.shown!r}")
    C.ok(130 in codes and "stopped while the model was loaded" in s.shown and not any("loading [" in x for x in left_on_screen(s.shown)), f"{codes} {s.shown!r}")


def check_serve(build):
    s = Screen(build, "serve", "-m", DEMO, "--port", "0", until="ready: ")
    C.ok(s.code == 0 and "\rloading [" in s.shown and not any("loading [" in x for x in left_on_screen(s.shown)), f"serve: {s.code} {s.shown!r}")
    s = Screen(build, "serve", "-m", DEMO, "--port", "0", interrupt="loading [")
    C.ok(s.code == 0 and "error" not in s.shown, f"serve, Ctrl-C while loading: {s.code} {s.shown!r}")


def check_help(build):
    for command, one, rare in (("run", "--prompt", "--mirostat"), ("serve", "--port", "--watchdog-seconds"), ("eval kl", "--pairs", "--kl-base")):
        short, whole = (kvant(build, *command.split(), x).stdout for x in ("--help", "--help-all"))
        n, all_n = (len(re.findall(r"^  -", x, re.M)) for x in (short, whole))
        left = re.search(rf"(\d+) more options: kvant {command} --help-all", short)
        C.ok(one in short and rare not in short and one in whole and rare in whole, f"{command}: {n} and {all_n}")
        C.ok(left and n + int(left[1]) == all_n and n <= 40 and "more options: kvant" not in whole, f"{command}: {n} and {all_n} options")
    C.ok("more options: kvant" not in kvant(build, "pull", "--help").stdout, "few options are shown whole")


def check_grammar(build, folder):
    path, gbnf = os.path.join(folder, "schema.json"), os.path.join(folder, "two.gbnf")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(SCHEMA, f)
    with open(gbnf, "w", encoding="utf-8") as f:
        f.write('root ::= "north" | "south"\n')
    for seed in range(3):
        for args in (("-j", json.dumps(SCHEMA)), ("--json-schema-file", path)):
            r = kvant(build, "run", "-m", DEMO, "-p", "hello", "-n", "400", "--seed", str(seed), "--temp", "2", "--json", *args)
            got = json.loads(r.stdout)
            value = json.loads(got["text"])
            C.ok(set(value) == {"n", "c"} and 1 <= value["n"] <= 9 and value["c"] in ("red", "blue") and got["stop"] == "eos", f"{args}: {r.stdout} {r.stderr}")
    for args in (("--grammar-file", gbnf), ("--grammar", 'root ::= "north" | "south"')):
        r = kvant(build, "run", "-m", DEMO, "-p", "hello", "-no-cnv", *args)
        C.ok(r.returncode == 0 and r.stdout in ("north", "south"), f"{args}: {r.stdout!r} {r.stderr}")
    chat = Chat(build, "--grammar-file", gbnf, "-n", "40", "--temp", "1")       # the grammar begins anew in each turn
    for i in range(1, 4):
        chat.type("go\r")
        C.ok(re.fullmatch(r"((north|south)\n){%d}" % i, chat.answers()), f"turn {i}: {chat.answers()!r}")
    os.write(chat.master, b"/exit\r")
    C.ok(chat.end() == (0, True), "/exit")
    for args, want in ((("--grammar", "root ::= foo"), "--grammar: grammar: rule foo"), (("-j", '{"type": "colour"}'), "-j: "), (("-j", "{"), "-j: "),
                       (("--grammar", 'root ::= "a"', "-j", "{}"), "wanted one of them"), (("-jf", "/nonexistent"), "/nonexistent")):
        r = kvant(build, "run", "-m", TINY, "-p", "a", *args)
        C.ok(r.returncode in (2, 3) and want in r.stderr and not r.stdout, f"{args}: {r.returncode} {r.stderr!r}")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
    signal.alarm(int(200 * SLOW))
    check_bar(build)
    check_loading_ends(build)
    check_help(build)
    if built(build):
        check_serve(build)
        with tempfile.TemporaryDirectory() as folder:
            check_grammar(build, folder)
    else:
        print("SKIP check_terminal: serve and grammars: this build has no server")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
