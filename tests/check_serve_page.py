#!/usr/bin/env python3
"""check_serve_page: the web page in headless Chromium, driven over its debugging pipe: a streamed chat, the stop button, the
live view, no request to any other host, no error in the console.  Findings B2 (a new chat during an answer), B3 (a turn that
failed), B4 (client libraries on a page of another origin), B15 (what the prefix cache holds).  Without a browser it says SKIP.  KVANT_SCREENSHOT=FILE keeps
a picture."""
import base64
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, SLOW, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_page")


class Browser:
    """Chromium over --remote-debugging-pipe: JSON texts that end with a NUL byte on descriptors 3 and 4."""

    def __init__(self, program, folder):
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()

        def wire():
            a, b = os.dup(to_read), os.dup(back_write)
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen([program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                         "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
                                         "--disable-component-update", "--window-size=1280,860", f"--user-data-dir={folder}", "about:blank"],
                                        preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(back_write)
        self.next, self.answers, self.events, self.session = 1, {}, [], None
        threading.Thread(target=self._read, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(domain + ".enable")

    def _read(self):
        rest = b""
        while True:
            more = os.read(self.back, 1 << 16)
            if not more:
                return
            rest += more
            *whole, rest = rest.split(b"\0")
            for text in whole:
                m = json.loads(text)
                if "id" in m:
                    self.answers[m["id"]] = m
                else:
                    self.events.append(m)

    def call(self, method, **params):
        i, self.next = self.next, self.next + 1
        message = {"id": i, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.time() + 60 * SLOW
        while i not in self.answers:
            if time.time() > end:
                raise RuntimeError(method + ": no answer from the browser")
            time.sleep(0.01)
        answer = self.answers.pop(i)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def js(self, text):
        return self.call("Runtime.evaluate", expression=text, returnByValue=True)["result"].get("value")

    def wait(self, text, seconds=30):
        end = time.time() + seconds * SLOW
        while time.time() < end:
            value = self.js(text)
            if value:
                return value
            time.sleep(0.05)
        return None

    def close(self):
        self.process.terminate()
        self.process.wait(20)


SAY = "document.getElementById('input').value = {}; document.getElementById('form').requestSubmit(); true"
LAST = "(document.querySelector('.message.assistant:last-child') || {innerText: ''}).innerText"


def check_chat(b):
    b.js("document.getElementById('max_tokens').value = 48")
    b.js(SAY.format("'Tell me about the sea.'"))
    first = b.wait(LAST + ".split('\\n').slice(1).join('\\n').length > 3 && " + LAST, 30)
    C.ok(first, "text appears while it is generated")
    C.ok(b.js("document.querySelector('.message.user').innerText").endswith("Tell me about the sea."), "the user's message is shown")
    C.ok(b.wait("document.getElementById('timing').innerText.includes('t/s')", 60), "timing line at the end")
    C.ok(first.strip() in b.js(LAST), "the text grew")


def check_live_and_stop(b, s):
    """An answer long enough for the live view's ticks of a second, then the stop button."""
    b.js("document.getElementById('clear').click()")
    b.js("document.getElementById('max_tokens').value = 15000")
    b.js(SAY.format("'<img src=x onerror=alert(1)> & a long story'"))
    C.ok(b.wait(LAST + ".length > 20", 30), "second answer begins")
    C.ok(b.wait("document.getElementById('tps').innerText !== '0.0' && document.querySelectorAll('#slots tbody tr').length", 30), "live view: a running slot")
    if os.environ.get("KVANT_SCREENSHOT"):
        with open(os.environ["KVANT_SCREENSHOT"], "wb") as f:
            f.write(base64.b64decode(b.call("Page.captureScreenshot")["data"]))
    C.ok(b.js("document.querySelectorAll('#messages img').length") == 0, "text is never HTML")
    b.js("document.getElementById('stop').click()")
    C.ok(b.wait("!document.getElementById('send').disabled", 10), "stopped")
    C.ok(s.idle(5), "the server cancelled it")
    C.ok(b.js("document.querySelectorAll('.message.error').length") == 0, "stopping is no error")


def sent(b, n):
    """The messages of the chat requests from the n-th on."""
    asked = [e["params"]["request"] for e in b.events if e["method"] == "Network.requestWillBeSent" and "/v1/chat/" in e["params"]["request"]["url"]]
    return [json.loads(r["postData"])["messages"] if "postData" in r else None for r in asked[n:]]


def done(n):
    """JavaScript: nothing runs, and n answers are there, none of them empty."""
    return ("!document.getElementById('send').disabled && document.querySelectorAll('.message.assistant').length === " + str(n) + " && " + LAST +
            ".split('\\n').length > 1")


def check_new_chat(b):
    """B2: an answer that was left leaves nothing in the next chat, neither on the page nor in what is sent."""
    b.js("document.getElementById('clear').click(); document.getElementById('max_tokens').value = 15000")
    b.js(SAY.format("'the first chat'"))
    C.ok(b.wait(LAST + ".length > 40", 30), "B2 an answer runs")
    n = len(sent(b, 0))
    b.js("document.getElementById('clear').click(); document.getElementById('max_tokens').value = 8; " + SAY.format("'the second chat'"))
    C.ok(b.wait(done(1), 30), "B2 the second chat is answered at once")
    b.js(SAY.format("'and more'"))
    C.ok(b.wait(done(2), 30), "B2 and goes on")
    texts = [[m["content"] for m in x] for x in sent(b, n)]
    C.ok(len(texts) == 2 and texts[0] == ["the second chat"] and len(texts[1]) == 3 and texts[1][::2] == ["the second chat", "and more"], f"B2 {texts}")
    shown = b.js("document.getElementById('messages').innerText")
    C.ok("first chat" not in shown and b.js("document.querySelectorAll('.message').length") == 4, f"B2 {shown!r}")


def check_after_error(b):
    """B3: a question that is refused is given back; the chat goes on without it."""
    n = len(sent(b, 0))
    b.js(SAY.format("'sea '.repeat(30000) + 'THE END'"))
    C.ok(b.wait("document.querySelectorAll('.message.error').length", 30) == 1, "B3 an error is shown")
    C.ok(b.js("document.getElementById('input').value.endsWith('THE END')"), "B3 the text is back where it was written")
    C.ok(b.js("document.querySelectorAll('.message.failed').length") == 1, "B3 and is marked")
    b.js(SAY.format("'a short one'"))
    C.ok(b.wait(done(3), 30), "B3 the next turn is answered")
    texts = [m["content"] for m in sent(b, n + 1)[0]]
    C.ok(texts[::2] == ["the second chat", "and more", "a short one"] and len(texts) == 5, f"B3 {[t[:40] for t in texts]}")
    C.ok(b.js("document.querySelectorAll('.message.error').length") == 1, "B3 no second error")


def check_cache_text(b, s):
    """B15: nothing runs, pages are kept: the text says both."""
    s.post("/v1/completions", {"prompt": "The captain of the old ship looked at the sea. " * 30, "max_tokens": 2})
    C.ok(s.idle(10) and s.stats()["pages"]["cached"] > 0, "B15 pages are kept")
    C.ok(b.wait("/: 0 KiB used \\+ ([1-9]\\d* KiB|[\\d.]*[1-9][\\d.]* MiB) kept prefixes, of [1-9][\\d.]* MiB/.test(document.getElementById('bytes').innerText)", 10),
         f"B15 {b.js('document.getElementById(`bytes`).innerText')}")


def check_page(b, s):
    url = f"http://127.0.0.1:{s.port}/"
    b.call("Page.navigate", url=url)
    C.ok(b.wait("document.getElementById('status') && document.getElementById('status').innerText === 'connected'", 30), "connected")
    C.ok(b.wait("document.getElementById('model').innerText.includes('novella-hybrid-q8_0')"), "model name")
    C.ok(b.wait("document.getElementById('pagetext').innerText.includes('pages of 64')"), "budget")
    check_chat(b)
    check_live_and_stop(b, s)
    check_new_chat(b)
    check_after_error(b)
    check_cache_text(b, s)
    asked = [e["params"]["request"]["url"] for e in b.events if e["method"] == "Network.requestWillBeSent"]
    C.ok(len(asked) > 4 and all(u.startswith((url, "data:")) for u in asked), f"only its own host: {asked}")
    bad = [e for e in b.events if e["method"] == "Runtime.exceptionThrown" or
           (e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error" and "400" not in e["params"]["entry"]["text"])]     # B3's
    C.ok(not bad, f"console: {bad[:2]}")


def check_key(b):
    status = "document.getElementById('status') && document.getElementById('status').innerText"
    with Server(BUILD, "-c", "512", "-np", "1", env={"KVANT_ARG_API_KEY": "plain", "KVANT_ARG_ADMIN_KEY": "right"}) as s:
        b.call("Page.navigate", url=f"http://127.0.0.1:{s.port}/")
        C.ok(b.wait("document.getElementById('keybutton') && !document.getElementById('keybutton').hidden", 20), "asks for the key")
        b.js("sessionStorage.setItem('kvant-key', 'plain'); location.reload(); true")
        C.ok(b.wait(f"{status}.includes('wants the admin key')", 20), "A11 with a key: no live view")
        C.ok(b.wait("document.getElementById('model').innerText.includes('novella-hybrid-q8_0')"), "A11 with a key: the model")
        b.js("sessionStorage.setItem('kvant-key', 'right'); location.reload(); true")
        C.ok(b.wait(f"{status} === 'connected'", 20), "with the admin key")


class Blank(http.server.BaseHTTPRequestHandler):
    """A page of another origin, with nothing on it."""

    def do_GET(self):       # pylint: disable=invalid-name
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>elsewhere</title>")

    def log_message(self, *unused):     # pylint: disable=arguments-differ
        pass


CALL = """fetch('http://127.0.0.1:{}/v1/completions', {{method: 'POST', body: JSON.stringify({{prompt: 'a', max_tokens: 2, zebra: 1}}),
 headers: {{'Content-Type': 'application/json', 'X-Stainless-Lang': 'js', 'X-Stainless-Retry-Count': '0', 'Authorization': 'Bearer x'}}}})
 .then(r => r.json().then(x => window.out = r.headers.get('X-Kvant-Ignored-Fields') + ' ' + x.usage.completion_tokens)).catch(e => window.out = 'blocked')"""


def check_other_origin(b):
    """B4: a library's own headers (X-Stainless-*) pass the browser's preflight from an allowed origin, and from no other."""
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{web.server_address[1]}"
    for allowed, want in ((here, "zebra 2"), ("http://other.example", "blocked")):
        with Server(BUILD, "-c", "512", "-np", "1", "--cors-origins", allowed) as s:
            b.call("Page.navigate", url=here)
            C.ok(b.wait("document.title === 'elsewhere' && document.readyState === 'complete'", 20), "B4 the other page")
            b.js(CALL.format(s.port) + "; true")
            got = b.wait("window.out", 20)
            C.ok(got == want, f"B4 allowed {allowed}: {got}, want {want}")
    web.shutdown()


def main():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program or not built(BUILD):
        print("SKIP check_serve_page: no chromium found" if not program else "SKIP check_serve_page: this build has no server")
        return C.end()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Server(BUILD, "-c", "16384", "-np", "4") as s:
        b = Browser(program, folder)
        try:
            check_page(b, s)
            check_key(b)
            check_other_origin(b)
        finally:
            b.close()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
