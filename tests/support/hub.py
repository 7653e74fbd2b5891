"""hub.py: a hub of Hugging Face's kind for tests, on this machine: the list of files, redirects, ranges, tokens; and faults on demand."""
import hashlib
import http.server
import json
import os
import threading
import time
import urllib.parse

from serve import ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"
with open(os.path.join(ROOT, "tests", "archs", "qwen2.gguf"), "rb") as model:
    MODEL = model.read()
NOISE = bytes(i * 7 % 251 for i in range(300000))
FILES = {    # of u/m
    "README.md": b"# words\n", "m-Q4_K_M.gguf": MODEL, "m-Q8_0.gguf": NOISE, "m-IQ4_K.gguf": NOISE[5:], "mmproj-m-F16.gguf": NOISE[6:],
    "BF16/m-BF16-00001-of-00002.gguf": NOISE[7:], "BF16/m-BF16-00002-of-00002.gguf": NOISE[8:],
    "my m 100%#1?-Q5_K.gguf": NOISE[10:], "../evil-Q2_K.gguf": NOISE[9:], "/abs-Q2_K.gguf": NOISE[9:], "a/../../b-Q2_K.gguf": NOISE[9:]}


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log, cut, wrong, ranges, token = [], 0, set(), True, None
    silent, pause, away, told = False, 0, None, {}     # no answer at all; seconds before each 10,000 bytes; where files are redirected to; {file: the size that the list says}
    repos = {"u/m": FILES}

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        cls = type(self)
        cls.log.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        while cls.silent:
            time.sleep(0.01)
        if cls.token and not self.path.startswith("/cdn") and self.headers.get("Authorization") != "Bearer " + cls.token:
            return self.answer(401)
        repo = "/".join(self.path.split("/")[3:5])
        if self.path.startswith("/api/models/") and repo in cls.repos:
            files = [{"rfilename": k, "size": cls.told.get(k, len(v)), "blobId": hashlib.sha1(v).hexdigest(),
                      **({"lfs": {"sha256": hashlib.sha256(v).hexdigest(), "size": len(v)}} if k.endswith("gguf") else {})} for k, v in cls.repos[repo].items()]
            return self.answer(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": files}).encode())
        if self.path.startswith("/api/models/u/broken/"):
            return self.answer(200, b'{"sha": "x"}')
        repo, _, path = self.path[1:].partition(f"/resolve/{COMMIT}/")
        if repo in cls.repos and path:
            return self.answer(302, headers=[("Location", cls.away or f"http://localhost:{self.server.server_port}/cdn/{repo}/{path}")])
        if not self.path.startswith("/cdn/"):
            return self.answer(404)
        user, repo, name = urllib.parse.unquote(self.path[5:]).split("/", 2)
        data = cls.repos[f"{user}/{repo}"][name]
        body = data if name not in cls.wrong else bytes(len(data))
        begin = int(self.headers["Range"][6:].rstrip("-")) if self.headers.get("Range") and cls.ranges else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        if cls.cut:
            cls.cut -= 1
            self.wfile.write(body[begin:begin + 1000])
            self.wfile.flush()
            self.close_connection = True
            return self.connection.shutdown(2)
        for i in range(begin, len(body), 10000):
            time.sleep(cls.pause)
            try:
                self.wfile.write(body[i:i + 10000])
            except OSError:             # who fetched it left
                self.close_connection = True
                return None
        return None


class Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Who leaves in the middle is what is tested."""


def start_hub():
    """Its address."""
    server = Quiet(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
