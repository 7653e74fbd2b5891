#!/usr/bin/env python3
"""check_howto: the commands of docs/use are run as they stand, page by page, in an empty folder with a model in it.

    tests/check_howto.py BUILD [PAGE]

Every block of a page that is marked `sh` is run; blocks marked `text` (installing, other machines) are not.  The program, model.gguf,
text.txt and two adapters are there; `kvant serve` runs beside the commands after it, until the next one or the end of the page."""
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from support.serve import DEMO, ROOT, SLOW, Checks, built, is_sanitized    # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
C = Checks("check_howto")


def commands(text):
    """The commands of the page's blocks, continued lines joined."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield line.strip()


def write_adapter(path, rank):
    """A small adapter of the demo model's first feed-forward matrix (384 inputs, 1,024 outputs), as a GGUF file."""
    def text(t):
        return struct.pack("<Q", len(t)) + t.encode()

    keys = [text(k) + struct.pack("<I", 8) + text(v) for k, v in
            (("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", "qwen35"))]
    keys.append(text("adapter.lora.alpha") + struct.pack("<If", 6, 2.0 * rank))
    heads, data = b"", b""
    for name, inputs, outputs in (("lora_a", 384, rank), ("lora_b", rank, 1024)):
        heads += text("blk.0.ffn_gate.weight." + name) + struct.pack("<IQQIQ", 2, inputs, outputs, 0, len(data))
        data += struct.pack(f"<{inputs * outputs}f", *(0.01 * ((7 * i) % 11 - 5) for i in range(inputs * outputs)))
        data += bytes(-len(data) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 2, len(keys)) + b"".join(keys) + heads
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


class Page:
    def __init__(self, name, folder):
        self.name, self.folder, self.server, self.port = name, folder, None, None
        self.env = dict(os.environ, PATH=os.path.join(BUILD, "bin") + os.pathsep + os.environ["PATH"])
        os.symlink(DEMO, os.path.join(folder, "model.gguf"))
        shutil.copy(os.path.join(ROOT, "models", "demo-filler.txt"), os.path.join(folder, "text.txt"))
        for rank, adapter in enumerate(("story.gguf", "law.gguf"), 2):
            write_adapter(os.path.join(folder, adapter), rank)

    def stop(self):
        if self.server:
            self.server.terminate()
            C.ok(self.server.wait(60 * SLOW) == 0, f"{self.name}: kvant serve ended with {self.server.returncode}")
            self.server = None

    def serve(self, command):
        self.stop()
        with socket.socket() as s:              # another program may have the port that the page names
            s.bind(("127.0.0.1", 0))
            self.port = str(s.getsockname()[1])
        command += " --port " + self.port
        log = os.path.join(self.folder, "serve.log")
        with open(log, "w", encoding="utf-8") as err:
            self.server = subprocess.Popen(["sh", "-c", "exec " + command], cwd=self.folder, env=self.env, stderr=err)
        end = time.monotonic() + 60 * SLOW
        while time.monotonic() < end and self.server.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5):
                    C.ok(True, command)
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        with open(log, encoding="utf-8") as f:
            C.ok(False, f"{self.name}: {command}: not ready: {f.read()[-500:]}")

    def run(self, command):
        if command.startswith("kvant serve"):
            self.serve(command)
            return
        if self.server:
            command = command.replace(":8686", ":" + self.port)
        if command.startswith("curl "):
            command = command.replace("curl ", "curl --fail ", 1)
        r = subprocess.run(["sh", "-c", command], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, errors="replace", timeout=200 * SLOW, check=False)
        C.ok(r.returncode == 0, f"{self.name}: `{command}` ended with {r.returncode}: {(r.stderr + r.stdout)[-500:]}")
        C.ok(bool(r.stdout.strip()) or ">" in command, f"{self.name}: `{command}` printed nothing")


def skipped(command):
    """Why a command cannot be run here, or None."""
    if command.startswith("curl") and not shutil.which("curl"):
        return "no curl"
    if re.match(r"curl|kvant (serve|bench-serve)", command) and not built(BUILD):
        return "this build has no server"
    return None


def check_page(path):
    name = os.path.basename(path)
    with open(path, encoding="utf-8") as f:
        found = list(commands(f.read()))
    with tempfile.TemporaryDirectory() as folder:
        page = Page(name, folder)
        for command in found:
            why = skipped(command)
            if why:
                print(f"SKIP check_howto: {name}: {command}: {why}")
            else:
                page.run(command)
        page.stop()
    return len(found)


def main():
    if is_sanitized(BUILD):
        print("SKIP check_howto: the same commands run in the program's own tests under sanitizers")
        return C.end()
    use = os.path.join(ROOT, "docs", "use")
    only = sys.argv[2] if len(sys.argv) > 2 else None
    n = sum(check_page(os.path.join(use, name)) for name in sorted(os.listdir(use)) if name.endswith(".md") and only in (None, name))
    C.ok(n >= (1 if only else 20), f"{n} commands found in docs/use")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
