#!/usr/bin/env python3
"""check_chat: `kvant run` as a chat on a terminal (a pseudo-terminal here): lines are edited and remembered where the build has
libedit, a pasted text is one message, the next run knows what was typed in this one, another width draws a line anew from its beginning; messages of several
lines, the commands, other words behind a slash are not sent, Ctrl-C ends an answer, Ctrl-C at the prompt and Ctrl-D end it (B19); conversations in files; what cannot be done is said, and the chat goes on."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from support import gguf_edit  # noqa: E402
from support.serve import ROOT, SLOW, Checks  # noqa: E402

TINY = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")
DEMO = os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf")


def has_editor(build):
    linked = subprocess.run(["ldd", os.path.join(build, "bin", "kvant")], capture_output=True, text=True, check=False).stdout
    return "libedit" in linked


class Chat:
    """kvant run on a terminal of its own; the answers go to a file, so that `screen` is what the program writes beside them."""

    def __init__(self, build, *args, env=None, model=TINY, edits=False):
        self.edits = has_editor(build) and "--simple-io" not in args and (edits or not env)
        self.out = tempfile.TemporaryFile()
        self.screen = ""
        self.master, slave = pty.openpty()
        self.attributes = termios.tcgetattr(slave)       # before the program, which changes them at once
        command = [os.path.join(build, "bin", "kvant"), "run", "-m", model, "--chat-template", "chatml", "-n", "6", "--temp", "0", *args]
        self.process = subprocess.Popen(command, stdin=slave, stderr=slave, stdout=self.out, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "HOME": "/nonexistent", **(env or {})},
                                        preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
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
        chat.wait_for_editor()
        os.write(chat.master, b"\x04")
        c.ok(chat.end() == (0, True), f"{args} {env}: Ctrl-D")
    r = subprocess.run([os.path.join(build, "bin", "kvant"), "run", "-m", TINY, "--chat-template", "chatml", "-n", "4", "-lv", "1"], text=True,
                       input="/nonsense\n/help\nhello\n/exit\nnever\n", capture_output=True, errors="replace", timeout=60 * SLOW, check=False)
    c.ok(r.returncode == 0 and "/nonsense: not a command" in r.stderr and "/clear" in r.stderr and "> " not in r.stderr, f"a pipe: {r.stderr!r}")


def piped(build, text, *args):
    command = [os.path.join(build, "bin", "kvant"), "run", "-m", TINY, "--chat-template", "chatml", "-n", "6", "--temp", "0", "-lv", "1", *args]
    return subprocess.run(command, text=True, input=text, capture_output=True, errors="replace", timeout=60 * SLOW, check=False)


def messages(path):
    with open(path, encoding="utf-8") as f:
        return [(m["role"], m["content"]) for m in json.load(f)["messages"]]


def asked(path):
    return [text for role, text in messages(path) if role != "assistant"]


def check_lines(c, build, folder):
    """Messages of several lines: as they arrive at the model (/save), and the prompt between them."""
    out = os.path.join(folder, "lines.json")
    r = piped(build, f'one \\\n\\\ntwo\n"""\nthree\n\n"four" \\\n"""\n"""five"""\n"""six\nseven"""\n/save {out}\n')
    c.ok(r.returncode == 0 and asked(out) == ["one \n\ntwo", 'three\n\n"four" \\', "five", "six\nseven"], f"{asked(out)} {r.stderr}")
    r = piped(build, '"""\nnever ended\n')
    c.ok(r.returncode == 0 and r.stdout == "", f"a block without an end is not sent: {r.stdout!r}")
    chat = Chat(build)
    chat.wait_for_editor()
    os.write(chat.master, b"one \\\r")
    c.ok(chat.wait_for(r"\n.*\. $").rstrip(" \x1b[K").endswith("."), f"a line that goes on: {chat.screen!r}")
    chat.type("two\r")
    straight = tokens_seen(chat.type("/stats\r"))
    c.ok(straight > 6, f"is one message: {chat.screen!r}")
    chat.wait_for_editor()
    os.write(chat.master, b"\x04")
    c.ok(chat.end() == (0, True), "Ctrl-D")


def check_conversation(c, build, folder):
    """/regen, /system, /read, /save and /load."""
    one, two, notes = (os.path.join(folder, name) for name in ("one.json", "two.json", "notes.txt"))
    with open(notes, "w", encoding="utf-8") as f:
        f.write("a note\n")
    r = piped(build, f"hello\n/save {one}\n/regen\n/save {two}\n")
    c.ok(r.returncode == 0 and messages(one) == messages(two) and len(messages(one)) == 2, f"/regen at temperature 0: {r.stderr}")
    r = piped(build, f"hello\n/regen\n/save {two}1\n", "--temp", "5", "--seed", "1")
    s = piped(build, f"hello\n/save {two}2\n", "--temp", "5", "--seed", "1")
    c.ok(r.returncode == s.returncode == 0 and asked(two + "1") == asked(two + "2") and messages(two + "1") != messages(two + "2"), "/regen: another answer")
    r = piped(build, f"/system first\nhello\n/system second \\t “x”\nmore\n/save {two}3\n/system\n/save {two}4\n/clear\n/read {notes}\n/read {notes}\nlook\n/save {two}5\n")
    c.ok(r.returncode == 0 and asked(two + "3") == ["second \\t “x”", "hello", "more"] and asked(two + "4") == ["hello", "more"], f"/system: {r.stderr}")
    c.ok(asked(two + "5") == [f"File {notes}:\n```\na note\n\n```\n\n" * 2 + "look"], f"/read: {asked(two + '5')}")
    r = piped(build, f"/load {two}3\n/save {two}6\nlast\n/save {two}7\n")
    c.ok(r.returncode == 0 and messages(two + "6") == messages(two + "3") == messages(two + "7")[:5] and asked(two + "7")[-1] == "last", f"/load: {r.stderr}")
    with open(two + "8", "w", encoding="utf-8") as f:
        f.write('{"messages": [{"role": "user", "content": "\\u00e9\\ud83d\\ude00\\ud800 \\"\\\\\\n\\/"}, {"content": "b", "role": "assistant"}]}')
    r = piped(build, f"/load {two}8\n/save {two}9\n")
    c.ok(r.returncode == 0 and messages(two + "9") == [("user", 'é😀\ufffd "\\\n/'), ("assistant", "b")], f"escapes: {r.stderr}")


def check_prompt(c, build, folder):
    """-p is a question where the model's file has a template or one is named, one answer for it; else, and with -no-cnv, raw text."""
    chat = os.path.join(folder, "chat.gguf")
    gguf_edit.edit(TINY, chat, [gguf_edit.key("tokenizer.chat_template", gguf_edit.STRING, "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")])
    for model, args, is_chat in ((chat, [], True), (chat, ["-no-cnv"], False), (TINY, [], False), (TINY, ["--chat-template", "chatml"], True), (chat, ["-st"], True)):
        command = [os.path.join(build, "bin", "kvant"), "run", "-m", model, "-p", "hello", "-n", "4", "--temp", "0", *args]
        r = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60 * SLOW, check=False)
        c.ok(r.returncode == 0 and ("messages" in json.loads(r.stdout)) == is_chat, f"{model} {args}: {r.stdout} {r.stderr}")
        r = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60 * SLOW, input="and more\n", check=False)
        c.ok(r.returncode == 0 and r.stdout.count("\n") <= 2 and "/help" not in r.stderr, f"{model} {args}: does not end with its answer: {r.stdout!r} {r.stderr}")


def check_refused(c, build, folder):
    """What cannot be done: in a script the end with its code, on a terminal a line, and the conversation is what it was."""
    there, bad = os.path.join(folder, "there.json"), os.path.join(folder, "bad.json")
    for text, want in (('{"messages": [{"role": "tool", "content": "x"}]}', "message 1: wanted a role"), ('{"messages": [}', "bad.json"), ("{}", "found no messages"),
                       ('{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}', "message 2: wanted"),
                       ('{"messages": [{"role": "user", "content": 7}]}', "message 1"), ('{"messages": [{"role": "user", "content": "\\u0000"}]}', "has a NUL")):
        with open(bad, "w", encoding="utf-8") as f:
            f.write(text)
        r = piped(build, f"/load {bad}\n")
        c.ok(r.returncode != 0 and want in r.stderr, f"{text}: {r.returncode} {r.stderr!r}")
    r = piped(build, f"hello\n/save {there}\n/save {there}\nnever\n")
    c.ok(r.returncode != 0 and "there.json cannot be written: File exists" in r.stderr and len(messages(there)) == 2, f"a file that is there: {r.stderr!r}")
    r = piped(build, "/regen\n")
    c.ok(r.returncode == 2 and "/regen: found no answer" in r.stderr, f"{r.stderr!r}")
    chat = Chat(build, "-c", "128")
    shown = chat.type("/read\n") + chat.type("/read /nonexistent\n") + chat.type("/regen\n") + chat.type(f"/save {there}\n")
    c.ok(all(x in shown for x in ("/read: found nothing behind it, wanted FILE", "/nonexistent", "/regen: found no answer", "File exists")), f"{shown!r}")
    chat.type("one\n")
    n = tokens_seen(chat.type("/stats\n"))
    c.ok("(context of 128 tokens, -c)" in chat.type("long " * 60 + "\n"), f"too long for the context: {chat.screen[-300:]!r}")
    chat.type(f"/save {there}2\n")
    c.ok(n > 6 and asked(there + "2") == ["one"], f"and no part of the conversation: {chat.screen[-300:]!r}")
    chat.type("two\n")
    chat.type(f"/save {there}3\n")
    c.ok(asked(there + "3") == ["one", "two"], "which goes on")
    chat.wait_for_editor()
    os.write(chat.master, b"\x04")
    c.ok(chat.end() == (0, True), "Ctrl-D")


def check_interrupt(c, build):
    """Ctrl-C ends an answer of thousands of tokens, not the chat; what had come is part of it."""
    chat = Chat(build, "-n", "3000", "--ignore-eos", "-c", "8192", model=DEMO)
    chat.wait_for_editor()
    os.write(chat.master, b"A long story\n")
    end = time.time() + 20 * SLOW
    while len(chat.answers()) < 20 and time.time() < end:
        time.sleep(0.02)
    os.write(chat.master, b"\x03")
    c.ok(chat.wait_for("> $").endswith("> "), f"Ctrl-C: no prompt: {chat.screen!r}")
    n = tokens_seen(chat.type("/stats\n"))
    c.ok(20 < len(chat.answers()) and 0 < n < 2900, f"the answer went on: {n} tokens")
    chat.wait_for_editor()
    os.write(chat.master, b"\x04")
    c.ok(chat.end() == (0, True), "Ctrl-D")


def send(chat, keys, until):
    chat.wait_for_editor()
    os.write(chat.master, keys.encode())
    return chat.wait_for(until)


def check_paste(c, build, folder):
    """A pasted text of many lines is one message, whatever stands in it, and waits for Enter."""
    out = os.path.join(folder, "paste.json")
    begin, end = "\x1b[200~", "\x1b[201~"
    texts = ["line one\nline two\n\nlast", "a\ttab\nand \x1b[A an escape", '"""\nno block \\\nhere', "äöü €\n日本語", "one line only", "/clear\nis no command\n"]
    chat = Chat(build)
    for i, text in enumerate(texts):
        wire = text.replace("\n", "\r" if i % 2 else "\n")
        send(chat, begin + wire + end, re.escape(text.rsplit("\n", 1)[-1][-4:]))
        chat.type(" typed\r")
    chat.type(f"/save {out}\r")
    c.ok(asked(out) == [t + " typed" for t in texts], f"pasted: {asked(out)}")
    send(chat, "\x04", r"2004l")
    c.ok(chat.end() == (0, True), "Ctrl-D")
    c.ok(chat.screen.count("\x1b[?2004h") == 1 and chat.screen.rfind("\x1b[?2004l") > chat.screen.rfind("> "), f"the marks are left on: {chat.screen[-40:]!r}")


def check_history(c, build, folder):
    """What was typed is there in the next run, in a file that only its owner reads; nowhere if that is wanted."""
    home, out = os.path.join(folder, "home"), os.path.join(folder, "again.json")
    os.mkdir(home)
    for env, kept in ((({"HOME": home, "XDG_STATE_HOME": ""}), os.path.join(home, ".local", "state", "kvant-history")),
                      ({"KVANT_HISTORY": os.path.join(folder, "own")}, os.path.join(folder, "own")), ({"KVANT_HISTORY": "", "HOME": home + "2"}, None)):
        chat = Chat(build, env=env, edits=True)
        chat.type("remember me\r")
        send(chat, "\x04", "$")
        c.ok(chat.end() == (0, True), f"{env}: Ctrl-D")
        c.ok(kept is None or os.stat(kept).st_mode & 0o777 == 0o600, f"{env}: the history's file")
        chat = Chat(build, env=env, edits=True)
        chat.type("\x1b[A\r")
        chat.type(f"/save {out}{kept is None}\r") if kept else None
        c.ok(asked(out + "False") == ["remember me"] if kept else not os.path.exists(home + "2"), f"{env}: {chat.screen!r}")
        send(chat, "\x04", "$")
        chat.end()


def check_recall(c, build, folder):
    """A message of several lines is one entry of the history, in this run and in the next."""
    out, env = os.path.join(folder, "recall.json"), {"KVANT_HISTORY": os.path.join(folder, "recall")}
    chat = Chat(build, env=env, edits=True)
    send(chat, "\x1b[200~one\ntwo\x1b[201~", "two")
    chat.type("\r")
    send(chat, "three\\\r", r"\. $")
    chat.type("four\r")
    send(chat, "\x04", "$")
    c.ok(chat.end() == (0, True), "Ctrl-D")
    chat = Chat(build, env=env, edits=True)
    chat.type("\x1b[A\x1b[A!\r")
    chat.type("\x1b[A\x1b[A\r")
    chat.type(f"/save {out}\r")
    c.ok(asked(out) == ["one\ntwo!", "three\nfour"], f"recalled: {asked(out)}")
    send(chat, "\x04", "$")
    chat.end()


def check_resize(c, build, folder):
    """A line that is being typed is drawn anew for another width, and stays what it was."""
    out = os.path.join(folder, "resize.json")
    chat = Chat(build)
    line = "0123456789 " * 9
    for columns, keys in ((80, line), (40, ""), (100, "end")):
        fcntl.ioctl(chat.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        if not keys:
            rows = (len("> ") + len(line)) // columns
            shown = chat.wait_for(r"\r\x1b\[%dA\x1b\[J> 0123.*9 0123" % rows, 3)
            c.ok("\x1b[J> 0123" in shown, f"{columns} columns: not drawn anew from where the line begins: {shown!r}")
        else:
            send(chat, keys, re.escape(keys[-3:].strip()))
            time.sleep(0.3)
            chat.wait_for("$")
    chat.type("\r")
    chat.type(f"/save {out}\r")
    c.ok(asked(out) == [line + "end"], f"resized: {asked(out)}")
    send(chat, "\x04", "$")
    c.ok(chat.end() == (0, True), "Ctrl-D")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
    c = Checks("check_chat")
    signal.alarm(int(300 * SLOW))       # a terminal that says nothing more
    check_commands(c, build)
    check_plain(c, build)
    with tempfile.TemporaryDirectory() as folder:
        check_lines(c, build, folder)
        check_conversation(c, build, folder)
        check_refused(c, build, folder)
        check_prompt(c, build, folder)
    check_interrupt(c, build)
    if has_editor(build):
        check_editing(c, build)
        with tempfile.TemporaryDirectory() as folder:
            check_paste(c, build, folder)
            check_history(c, build, folder)
            check_recall(c, build, folder)
            check_resize(c, build, folder)
    else:
        print("SKIP check_chat: editing: this build has no libedit")
    return c.end()


if __name__ == "__main__":
    sys.exit(main())
