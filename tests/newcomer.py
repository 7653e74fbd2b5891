#!/usr/bin/env python3
"""newcomer: the first ten minutes of somebody new, in one go (./dev newcomer): the program is installed to a folder and found on PATH, a model is
pulled from a server of this test that speaks the hub's paths, a question is answered, a chat on a terminal takes a pasted text of several lines as one
message, the server is started, its page asks for the key and chats, and after an upgrade (the next start, of the program as installed again) the
prefix cache and the page's chat are still there.  Commands are those of docs/use/quick-start.md and docs/use/serving.md; nothing leaves this machine."""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "support")]
from browser import Browser, find_browser    # noqa: E402
from serve import DEMO, SLOW, Checks    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "build", "release")
C = Checks("newcomer")
KEY = "sk-newcomer-1234"


class Terminal:
    """A shell's window: what is typed goes to the program, what it shows is kept."""

    opened = []

    def __init__(self, command, env):
        self.shown, (self.master, self.slave) = "", pty.openpty()
        self.process = subprocess.Popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True, env=env,
                                        preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
        Terminal.opened.append(self)

    def wait(self, pattern, seconds=60):
        """Until the pattern stands in what came since the last call; that part, or None."""
        end, new = time.time() + seconds * SLOW, ""
        while time.time() < end:
            if re.search(pattern, new, re.S):
                self.shown += new
                return new
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    new += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    break
            elif self.process.poll() is not None:
                break
        self.shown += new
        return new if re.search(pattern, new, re.S) else None

    def type(self, keys):
        os.write(self.master, keys.encode())

    def end(self, seconds=60):
        try:
            return self.process.wait(seconds * SLOW)
        finally:
            self.close()

    def close(self):
        """No program stays behind, whatever became of the test."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self in Terminal.opened:
            Terminal.opened.remove(self)
            os.close(self.master)
            os.close(self.slave)


def install(prefix):
    r = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix, "--component", "program"], capture_output=True, text=True, check=False)
    C.ok(r.returncode == 0, r.stderr)
    C.ok(os.path.exists(os.path.join(prefix, "bin", "kvant")), "kvant is in bin/")


def hub():
    """An address that speaks the hub's paths, with the demo model in one repository."""
    import check_pull
    with open(DEMO, "rb") as f:
        check_pull.FILES.clear()
        check_pull.FILES["demo-Q8_0.gguf"] = f.read()
    return check_pull.URL


def pull(env):
    t = Terminal(["kvant", "pull", "u/m:Q8_0"], env)
    shown = t.wait(r"snapshots/\S+\.gguf")
    path = re.search(r"(/\S*snapshots/\S+\.gguf)", shown or "")
    C.ok(path and t.end() == 0 and os.path.getsize(path[1]) == os.path.getsize(DEMO), f"pull: {t.shown!r}")
    return path[1]


def ask_once(env, model):
    t = Terminal(["kvant", "run", "-m", model, "-p", "Who are you?", "-n", "8", "--temp", "0"], env)
    shown = t.wait(r"tokens? per second|t/s|tokens/s", 60)
    C.ok(t.end() == 0 and shown and len(re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]|\r[^\n]*loading[^\n]*", "", shown).strip()) > 20, f"run: {t.shown!r}")


def chat(env, model):
    """A paste of three lines (bracketed, as terminals send it) is one message."""
    t = Terminal(["kvant", "run", "-m", model, "--chat-template", "chatml", "-n", "6", "--temp", "0"], env)
    C.ok(t.wait(r"\n\S*> $"), f"a prompt: {t.shown!r}")
    time.sleep(0.3 * SLOW)
    t.type("\x1b[200~first line\nsecond line\nthird line\x1b[201~")
    t.type("\r")
    C.ok(t.wait(r"third line.*\n\S*> $"), f"an answer to the paste: {t.shown!r}")
    C.ok(len(re.findall(r"\n\S*> ", t.shown)) <= 3, f"one message, not three: {t.shown!r}")
    t.type("/stats\r")
    C.ok(t.wait(r"for \d+ tokens"), f"/stats: {t.shown!r}")
    t.type("/exit\r")
    C.ok(t.end() == 0, "/exit")


def serve(env, model, folder):
    t = Terminal(["kvant", "serve", "-m", model, "--port", "0", "-c", "4096", "--admin-key-file", os.path.join(folder, "keys"), "--slot-save-path", folder], env)
    shown = t.wait(r"ready: ", 90)
    C.ok(shown, f"serve: {t.shown!r}")
    return t, int(re.search(r"listening on http://[^:]+:(\d+)", t.shown)[1])


def post(port, path, body=None):
    """curl, as the page of the manual has it."""
    data = [] if body is None else ["-d", body, "-H", "Content-Type: application/json"]
    r = subprocess.run(["curl", "-sS", "-X", "POST", f"http://127.0.0.1:{port}{path}", "-H", f"Authorization: Bearer {KEY}", *data],
                       capture_output=True, text=True, check=False)
    return r.stdout + r.stderr


def page(b, port):
    """The page asks for the key, which is typed; then a message has an answer."""
    status = "document.getElementById('status') && document.getElementById('status').innerText"
    b.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
    C.ok(b.wait("document.getElementById('keybutton') && !document.getElementById('keybutton').hidden"), f"asks for the key: {b.js(status)}")
    b.js("document.getElementById('keybutton').click()")
    b.wait("document.querySelector('dialog[open] input')")
    b.type(KEY)
    b.js("document.getElementById('askyes').click()")
    C.ok(b.wait("document.getElementById('model').innerText.length > 3"), "the key is taken: the model's name is there")
    b.js("document.getElementById('input').focus()")
    b.type("Hello, what can you do?")
    b.press("Enter")
    C.ok(b.wait("document.querySelectorAll('.message.assistant').length && document.querySelector('.message.assistant').innerText.length > 30", 60), "an answer")
    C.ok(b.wait("document.getElementById('messages').getAttribute('aria-busy') !== 'true'", 120), "it ends")
    b.screenshot("newcomer")


LONG = '{"prompt": "' + "The sea was calm that day, and nobody spoke of it. " * 30 + '", "max_tokens": 2, "temperature": 0}'


def upgrade(env, model, folder, t, port, prefix, b):
    """The cache goes to a file, the program is installed once more, the next start takes the cache up again."""
    first = post(port, "/v1/completions", LONG)
    C.ok('"cached_tokens":0' in first.replace(" ", ""), f"{first[:300]}")
    saved = post(port, "/cache?action=save", '{"filename": "before"}')
    C.ok("n_saved" in saved, f"the cache is saved: {saved}")
    t.type("\x03")
    C.ok(t.end() == 0, "Ctrl-C ends the server")
    C.ok(b.wait("document.getElementById('status').innerText !== 'connected'", 30), "the page tells that the server went")
    shutil.rmtree(prefix)
    install(prefix)
    t, port = serve(env, model, folder)
    restored = post(port, "/cache?action=restore", '{"filename": "before"}')
    C.ok("n_restored" in restored, f"and taken up again: {restored}")
    again = post(port, "/v1/completions", LONG)
    m = re.search(r'"cached_tokens":\s*(\d+)', again)
    C.ok(m and int(m[1]) > 100, f"the prefix is there after the upgrade: {again[:400]}")
    t.type("\x03")
    C.ok(t.end() == 0, "and it ends")


def minutes(browser, d):
    """All of it, in a folder."""
    prefix, home, folder = (os.path.join(d, x) for x in ("usr", "home", "caches"))
    for x in (home, folder, os.path.join(d, "profile")):
        os.mkdir(x)
    install(prefix)
    env = {**{k: v for k, v in os.environ.items() if not k.startswith(("KVANT_ARG_", "HF_"))}, "HOME": home, "TERM": "xterm",
           "PATH": os.path.join(prefix, "bin") + ":" + os.environ["PATH"], "HF_ENDPOINT": hub()}
    os.environ["PATH"] = env["PATH"]        # Popen looks there
    model = pull(env)
    ask_once(env, model)
    chat(env, model)
    with open(os.path.join(folder, "keys"), "w", encoding="utf-8") as f:
        f.write(KEY + "\n")
    os.chmod(os.path.join(folder, "keys"), 0o600)
    b = Browser(browser, os.path.join(d, "profile"))
    try:
        t, port = serve(env, model, folder)
        page(b, port)
        upgrade(env, model, folder, t, port, prefix, b)
    finally:
        b.close()


def main():
    began = time.time()
    browser = find_browser()
    if not browser or not shutil.which("curl"):
        print("SKIP newcomer: it wants chromium and curl (./dev deps clients)")
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as d:
        try:
            minutes(browser, d)
        finally:
            for t in list(Terminal.opened):
                t.close()
    print(f"newcomer: {time.time() - began:.0f} s")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
