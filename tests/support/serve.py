"""serve.py: starts `kvant serve` for the tests and talks to it with nothing but the standard library."""
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DEMO = os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf")
SLOW = float(os.environ.get("KVANT_TEST_SLOW", "1"))        # sanitizers and loaded machines: time limits times this


class Checks:
    """Counts like the C tests do, and prints what failed with its place."""

    def __init__(self, name):
        self.name, self.passed, self.failed = name, 0, 0

    def ok(self, condition, text):
        if condition:
            self.passed += 1
        else:
            self.failed += 1
            frame = sys._getframe(1)
            print(f"FAIL {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}: {text}", flush=True)
        return condition

    def end(self):
        print(f"{self.name}: {self.passed} passed, {self.failed} failed")
        return self.failed > 0


def is_sanitized(build):
    try:
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as f:
            return re.search(r"^KVANT_SANITIZE:\w+=\w", f.read(), re.M) is not None
    except OSError:
        return False


def built(build):
    """Whether this build has the server."""
    r = subprocess.run([os.path.join(build, "bin", "kvant"), "serve", "-m", "/nonexistent", "--port", "0"], capture_output=True, text=True,
                       check=False)
    return "no server" not in r.stderr


class Server:
    """kvant serve on a free port.  build: the build folder (its bin/kvant).  model: None where args name what is served."""

    def __init__(self, build, *args, model=DEMO, env=None, limits=None, stdout=subprocess.DEVNULL, stdin=None):
        """limits: {resource.RLIMIT_...: n} of the process."""
        self.sanitized = is_sanitized(build)
        self.lines = []
        self.reading = threading.Event()
        self.reading.set()
        command = [os.path.join(build, "bin", "kvant"), "serve", *(["-m", model] if model else []), "--port", "0", *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=stdout, stdin=stdin, text=True, errors="replace",
                                        env=dict(os.environ, **(env or {})),
                                        preexec_fn=lambda: [resource.setrlimit(k, (n, n)) for k, n in (limits or {}).items()])
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.port = None
        self._wait()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            self.reading.wait()

    def pause_log(self):
        """From now on nobody reads its messages, until go_on_log."""
        self.reading.clear()

    def go_on_log(self):
        self.reading.set()

    def _wait(self):
        end = time.time() + 60 * SLOW
        while time.time() < end:
            text = "\n".join(self.lines)
            m = re.search(r"listening on http://[^:]+:(\d+)", text)
            if m:
                self.port = int(m.group(1))
            if self.port and "ready:" in text:
                return
            if self.process.poll() is not None:
                self.reader.join(10)        # its last words may still be on their way
                raise RuntimeError("the server ended:\n" + "\n".join(self.lines))
            time.sleep(0.05)
        raise RuntimeError("the server did not become ready:\n" + "\n".join(self.lines))

    def request(self, method, path, body=None, headers=None, timeout=120):
        """Status, headers (lower case), body as bytes."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        data = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
        send = dict(headers or {})
        if data is not None:
            send.setdefault("Content-Type", "application/json")
        try:
            conn.request(method, path, data, send)
            r = conn.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            conn.close()

    def post(self, path, body, **kw):
        status, _, data = self.request("POST", path, body, **kw)
        return status, json.loads(data)

    def get(self, path, **kw):
        status, _, data = self.request("GET", path, **kw)
        return status, json.loads(data)

    def open(self, path, body, headers=None):
        """A socket on which the request was sent: for streams, and for clients that leave."""
        s = self.connect()
        data = json.dumps(body).encode() if body is not None else b""
        extra = "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items())
        s.sendall((f"{'POST' if body is not None else 'GET'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{extra}" +
                   (f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if body is not None else "") + "\r\n").encode() + data)
        return s

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60 * SLOW)

    def raw(self, data, wait=5.0):
        """What comes back for these bytes until the server closes, or a pause."""
        with self.connect() as s:
            s.settimeout(wait * SLOW)
            out = b""
            try:
                s.sendall(data)
                while True:
                    more = s.recv(65536)
                    if not more:
                        break
                    out += more
                    if re.search(rb"\r\n\r\n.*\}$", out, re.S):
                        s.settimeout(0.3)
            except (TimeoutError, ConnectionError):
                pass
            return out

    def stats(self):
        """The first message of /debug/events."""
        with self.open("/debug/events", None) as s:
            out = b""
            while b"\n\ndata: " not in out or not out.endswith(b"\r\n"):
                out += s.recv(65536)
                m = re.search(rb"data: (\{.*\})\n\n", out, re.S)
                if m:
                    return json.loads(re.sub(rb"\r\n[0-9a-f]+\r\n", b"", m.group(1)))
        return {}

    def metric(self, name, headers=None):
        text = self.request("GET", "/metrics", headers=headers)[2].decode()
        m = re.search(rf"^kvant:{name}\{{[^}}]*\}} (\S+)$", text, re.M)
        return float(m.group(1)) if m else None

    def idle(self, seconds=20):
        """Waits until nothing runs and no page is in use (but for the prefix cache)."""
        end = time.time() + seconds * SLOW
        while time.time() < end:
            if self.metric("num_requests_running") == 0 and self.metric("num_requests_waiting") == 0:
                return True
            time.sleep(0.05)
        return False

    def memory_kb(self):
        """Resident kB; 0 in a sanitized build, which keeps what was freed: budgets of memory are judged by the plain builds."""
        if self.sanitized:
            return 0
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self, sig=signal.SIGTERM, seconds=40):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.wait(seconds)

    def wait(self, seconds=40):
        """The exit code of a server that ends by itself: a second signal would cut its drain short."""
        try:
            return self.process.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()


def until(condition, seconds=20):
    """Whether the condition came to hold in time."""
    end = time.time() + seconds * SLOW
    while time.time() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def read_all(s):
    """Everything until the other side closes, or the end of a chunked answer."""
    out = b""
    while not out.endswith(b"0\r\n\r\n"):
        more = s.recv(65536)
        if not more:
            break
        out += more
    return out


def unchunk(data):
    """Body of a chunked answer (as far as it came)."""
    body, rest = b"", data.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        n = int(size or b"0", 16)
        if not n:
            break
        body, rest = body + rest[:n], rest[n + 2:]
    return body


def events(data):
    """Data of an event stream, parsed, without [DONE]."""
    found = re.findall(r"^data: (.*)$", data.decode(), re.M)
    return [json.loads(x) for x in found if x != "[DONE]"]
