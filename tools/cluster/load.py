"""load: the conversations that every router of `./dev cluster` gets, and what its processes have in common: free ports, waiting, ends."""
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MODEL = os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf")
NAME = "novella-hybrid-q8_0"
WORKERS, CONVERSATIONS, TURNS, AT_ONCE, ANSWER = 3, 16, 12, 4, 12
SYSTEM = "You answer questions about a harbour town. " + " ".join(
    f"Rule {i}: a ship of the line number {i * 37 % 101} lies at pier {i % 9}, its captain is called {'Anna Bert Carl Dora Emil'.split()[i % 5]}." for i in range(45))
#: Of `kvant serve`, behind each router.
OPTIONS = ["-np", "4", "-c", "4096", "-t", "1", "--kv-pool-size", "64M", "--snapshots", "128", "--drain-seconds", "20"]


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def answered(url, seconds=2):
    """What url answers with 200, or None."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as r:
            return r.read().decode()
    except (urllib.error.URLError, OSError):
        return None


def wait_for(url, process, what, seconds=90, ready=lambda text: True):
    end = time.time() + seconds
    while time.time() < end:
        if process.poll() is not None:
            raise SystemExit(f"cluster: {what} ended with {process.returncode}")
        text = answered(url)
        if text is not None and ready(text):
            return
        time.sleep(0.2)
    raise SystemExit(f"cluster: {what} did not become ready")


def end(process):
    """SIGTERM, and after 10 s SIGKILL."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def post(url, body, seconds=120):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=seconds) as r:
        return json.load(r)


class Conversation:
    def __init__(self, i):
        self.messages = [{"role": "system", "content": SYSTEM}]
        self.i, self.turn = i, 0

    def ask(self, url):
        """(prompt tokens, of them cached), or None: the request was lost."""
        self.turn += 1
        self.messages.append({"role": "user", "content": f"Guest {self.i * 7919} asks for the {self.turn}th time about pier {(self.i + self.turn) % 9}."})
        body = {"model": NAME, "messages": self.messages, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True}
        try:
            r = post(url + "/v1/chat/completions", body)
        except (urllib.error.URLError, OSError) as e:
            print(f"cluster: conversation {self.i}, turn {self.turn}: {e}", file=sys.stderr)
            return None
        usage = r["usage"]
        if usage["completion_tokens"] != ANSWER:
            print(f"cluster: conversation {self.i}, turn {self.turn}: {usage['completion_tokens']} tokens found, {ANSWER} wanted", file=sys.stderr)
            return None
        self.messages.append({"role": "assistant", "content": r["choices"][0]["message"]["content"]})
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def talk(url, conversations, turns, meanwhile=lambda turn: None):
    """Turns of all conversations, a turn of each after the other; meanwhile(turn) is called while a turn's requests run, and the next turn waits for it."""
    out, t0 = [], time.time()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for turn in range(turns):
            todo = [pool.submit(c.ask, url) for c in conversations]
            meanwhile(turn)
            out += [f.result() for f in todo]
    lost = sum(x is None for x in out)
    prompt, cached = (sum(x[k] for x in out if x) for k in (0, 1))
    return {"requests": len(out), "lost": lost, "prompt_tokens": prompt, "reused_tokens": cached, "share": round(cached / max(prompt, 1), 4),
            "seconds": round(time.time() - t0, 1)}
