"""browser.py: headless Chromium for the tests, driven over its debugging pipe with nothing but the standard library."""
import base64
import json
import os
import shutil
import subprocess
import threading
import time

from serve import SLOW


def find_browser():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


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
            try:
                value = self.js(text)
            except RuntimeError as e:       # a reload that began meanwhile took the page away
                if "navigated or closed" not in str(e):
                    raise
                value = None
            if value:
                return value
            time.sleep(0.05)
        return None

    def close(self):
        self.process.terminate()
        self.process.wait(20)

    def type(self, text):
        """Keys as a keyboard sends them, into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, modifiers=0):
        """Enter, Escape, ArrowUp, Tab; modifiers: 8 is Shift."""
        code = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "Tab": 9}[key]
        more = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def screenshot(self, name):
        """A picture into the folder KVANT_SCREENSHOTS, when it is set."""
        folder = os.environ.get("KVANT_SCREENSHOTS")
        if folder:
            time.sleep(0.2)
            with open(os.path.join(folder, name + ".png"), "wb") as f:
                f.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
