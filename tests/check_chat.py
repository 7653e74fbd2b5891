#!/usr/bin/env python3
"""check_chat: `kvant run` as a chat on a terminal (a pseudo-terminal here): lines are edited and remembered where the build has
libedit, /help, /stats, /clear and /exit are the program's, other words behind a slash are not sent, Ctrl-C and Ctrl-D end it (B19)."""
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
from support.serve import ROOT, SLOW, Checks  # noqa: E402

TINY = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")


def has_editor(build):
    linked = subprocess.run(["ldd", os.path.join(build, "bin", "kvant")], capture_output=True, text=True, check=False).stdout
    return "libedit" in linked


class Chat:
    """kvant run on a terminal of its own; the answers go to a file, so that `screen` is what the program writes beside them."""

    def __init__(self, build, *args, env=None):
        self.edits = has_editor(build) and not args and not env
        self.out = tempfile.TemporaryFile()
        self.screen = ""
        self.master, slave = pty.openpty()
        command = [os.path.join(build, "bin", "kvant"), "run", "-m", TINY, "--chat-template", "chatml", "-n", "6", "--temp", "0", *args]
        self.process = subprocess.Popen(command, stdin=slave, stderr=slave, stdout=self.out, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "HOME": "/nonexistent", **(env or {})},
                                        preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
        self.attributes = termios.tcgetattr(slave)
        self.slave = slave
        self.wait_for("> ")

    def wait_for(self, text, seconds=20):
        """Reads until this pattern matches what came since the last call; the new part of the screen."""
        end, new = time.time() + seconds * SLOW, ""
        while not re.search(text, new, re.S) and time.time() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    new += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    break
        self.screen += new
        return new

    def wait_for_editor(self):
        """The prompt is shown a moment before the editor takes the keys: what is typed between is the terminal's."""
        end = time.time() + 20 * SLOW
        while self.edits and termios.tcgetattr(self.slave)[3] & termios.ICANON and time.time() < end:
            time.sleep(0.005)

    def type(self, keys):
        """The keys (the last is Enter); what was shown until the next prompt, after the echo."""
        self.wait_for_editor()
        os.write(self.master, keys.encode())
        return self.wait_for(r"\n(.*[\nK])?> $").split("\n", 1)[-1]

    def answers(self):
        self.out.seek(0)
        return self.out.read().decode(errors="replace")

    def end(self):
        """Exit code and the terminal as it was left."""
        try:
            code = self.process.wait(20 * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = None
        left = termios.tcgetattr(self.slave)
        os.close(self.slave)
        os.close(self.master)
        return code, left[:4] == self.attributes[:4]


def tokens_seen(stats):
    """Tokens in the cache, of /stats."""
    m = re.search(r"for (\d+) tokens", stats)
    return int(m[1]) if m else -1


def check_commands(c, build):
    chat = Chat(build)
    shown = chat.type("/help\r")
    c.ok(all(word in shown for word in ("/clear", "/stats", "/exit", "/help")), f"/help: {shown!r}")
    chat.type("/what is this\r")
    c.ok("/what is this: not a command, and not sent" in chat.screen, f"unknown word: {chat.screen!r}")
    shown = chat.type("/stats\r")
    c.ok(tokens_seen(shown) == 0 and chat.answers() == "", f"the words above went to the model: {shown!r} {chat.answers()!r}")
    chat.type("one\r")
    n = tokens_seen(chat.type("/stats\r"))
    c.ok(n > 6, f"a turn: {n} tokens")
    chat.type("/usr/bin is a path\r")
    more = tokens_seen(chat.type("/stats\r"))
    c.ok(more > n + 6, f"a path is a message: {n}, then {more} tokens")
    chat.type("//help\r")
    c.ok(tokens_seen(chat.type("/stats\r")) > more, "//help is a message")
    chat.type("/clear\r")
    chat.type("one\r")
    c.ok(tokens_seen(chat.type("/stats\r")) == n, "/clear: the conversation is not forgotten")
    os.write(chat.master, b"/exit\r")
    code, same = chat.end()
    c.ok(code == 0 and same, f"/exit: code {code}, terminal as before: {same}")


def check_editing(c, build):
    """The same turn, typed straight and with mistakes that are taken back, gives the same cache and answer."""
    straight = Chat(build)
    straight.type("abc déf\r")
    n, text = tokens_seen(straight.type("/stats\r")), straight.answers()
    straight.wait_for_editor()
    os.write(straight.master, b"\x04")
    c.ok(straight.end() == (0, True), "Ctrl-D on an empty line ends")
    left, home, rub = "\x1b[D", "\x01", "\x7f"
    for name, keys in (("arrows", f"abc déx{left}f\x05{rub}\r"), ("home", f"bc déf{home}a\r"), ("kill", "nonsense\x15abc déf\r")):
        chat = Chat(build)
        chat.type(keys)
        c.ok((tokens_seen(chat.type("/stats\r")), chat.answers()) == (n, text), f"{name}: {chat.screen!r}")
        chat.type("/clear\r")
        chat.type("\x1b[A\x1b[A\x1b[A\r")       # up, over /clear and /stats
        c.ok(tokens_seen(chat.type("/stats\r")) == n, f"{name}: the history: {chat.screen!r}")
        chat.wait_for_editor()
        os.write(chat.master, b"half a line")
        chat.wait_for("half a line")
        os.write(chat.master, b"\x03")
        c.ok(chat.end() == (0, True), f"{name}: Ctrl-C at the prompt")


def check_plain(c, build):
    """Without editing: --simple-io, a terminal without cursor, a pipe."""
    for args, env in ((["--simple-io"], {}), ([], {"TERM": "dumb"})):
        chat = Chat(build, *args, env=env)
        shown = chat.type("/stats\n")
        c.ok(tokens_seen(shown) == 0 and "\x1b" not in chat.screen, f"{args} {env}: {chat.screen!r}")
        os.write(chat.master, b"\x04")
        c.ok(chat.end() == (0, True), f"{args} {env}: Ctrl-D")
    r = subprocess.run([os.path.join(build, "bin", "kvant"), "run", "-m", TINY, "--chat-template", "chatml", "-n", "4", "-lv", "1"], text=True,
                       input="/nonsense\n/help\nhello\n/exit\nnever\n", capture_output=True, errors="replace", timeout=60 * SLOW, check=False)
    c.ok(r.returncode == 0 and "/nonsense: not a command" in r.stderr and "/clear" in r.stderr and "> " not in r.stderr, f"a pipe: {r.stderr!r}")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
    c = Checks("check_chat")
    signal.alarm(int(300 * SLOW))       # a terminal that says nothing more
    check_commands(c, build)
    check_plain(c, build)
    if has_editor(build):
        check_editing(c, build)
    else:
        print("SKIP check_chat: editing: this build has no libedit")
    return c.end()


if __name__ == "__main__":
    sys.exit(main())
