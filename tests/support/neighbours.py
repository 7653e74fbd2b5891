#!/usr/bin/env python3
"""neighbours.py PORT KEY_A KEY_B: clients that take all they can get, in a process of their own, until SIGTERM.

Key A: 16 clients whose prompts share beginnings, 8 that read their streams slowly, one with a grammar that explodes, 4 with tools whose
schemas do, or are as deep, as wide or as many as they can be.  Key B: 80 clients
that ask again at once, each time with another cache_salt, and 10 whose bodies never end.  No key: 30 whose bodies never end.
They run at the lowest priority: elsewhere they would have CPUs of their own, and it is the server that is to be fair, not this machine.
Prints one JSON object of counts: {"shared": {"ok": 12, "refused": 3, ...}, ...}."""
import collections
import json
import os
import random
import selectors
import signal
import socket
import sys
import time

BODY = 8 << 20
# Nine bytes may come in any order that 14 nested choices allow: the set of places in the grammar doubles with each of them.
BOMB = "root ::= " + " ".join("([a-z]{0,40} | [a-z]{0,40} [a-z]{0,40})" for _ in range(40)) + "\n"


class Client:
    """One connection at a time; reconnects after each answer."""

    kind, key, slow, pause, path = "", None, False, 0.1, "/v1/completions"

    def __init__(self, load, seed):
        self.load, self.random, self.sock = load, random.Random(seed), None
        self.again_at = time.time() + self.random.random() * 0.2

    def body(self):
        raise NotImplementedError

    def request(self):
        data = json.dumps(self.body()).encode()
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return (f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{key}Content-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\n\r\n").encode() + data

    def start(self):
        self.sock, self.got = socket.socket(), b""
        if self.slow:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.sock.settimeout(20)
        try:
            self.sock.connect(("127.0.0.1", self.load.port))
            self.sock.setblocking(False)
        except OSError:
            return self.finish("unreachable")
        self.out = self.request()
        self.load.watch(self)
        return None

    def write(self):
        try:
            self.out = self.out[self.sock.send(self.out):]
        except BlockingIOError:
            pass
        except OSError:
            self.out = b""          # refused before all was sent: the answer is still to be read

    def read(self):
        try:
            more = self.sock.recv(900 if self.slow else 65536)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        self.got = (self.got + more)[-65536:] if self.got else more
        self.head = self.got[:12] if len(self.got) == len(more) else self.head
        if not more:
            self.finish(self.outcome())

    def outcome(self):
        if not self.got:
            return "closed"
        status = self.head.split(b" ")[1][:3].decode() if b" " in self.head else "garbled"
        if status == "200":
            return "failed" if b'"error"' in self.got else "ok"
        return {"429": "refused", "503": "refused"}.get(status, status)

    def finish(self, what):
        self.load.count(self, what, self.got)
        self.load.drop(self)
        self.again_at = time.time() + self.pause


class Shared(Client):
    kind = "shared"

    def body(self):
        r = self.random
        prompt = []
        for depth in range(r.choice((1, 2, 4, 6))):
            prompt += [3 + (7 * depth + 13 * r.randrange(2) + i) % 90 for i in range(64)]
        return {"prompt": prompt + [5 + r.randrange(80) for _ in range(r.randrange(1, 40))], "max_tokens": r.choice((4, 20, 80)),
                "temperature": 0, "ignore_eos": True, "stream": r.random() < 0.5}


class Greedy(Client):
    kind = "greedy"

    def body(self):
        return {"prompt": [5 + self.random.randrange(80) for _ in range(50)], "max_tokens": 60, "ignore_eos": True,
                "cache_salt": str(self.random.random())}


class Bomb(Client):
    kind = "bomb"

    def body(self):
        return {"prompt": "a", "max_tokens": 200, "grammar": BOMB}


def deep(n):
    return {"type": "object", "properties": {"a": deep(n - 1), "b": {"type": "array", "items": {"type": "integer"}}}} if n else {"type": "string"}


# What the arguments of a tool that must be called are to be.
SCHEMAS = [
    {"type": "string", "pattern": "^" + "([a-z]{0,40}|[a-z]{0,40}[a-z]{0,40})" * 40 + "$"},
    deep(20), deep(200),
    {"enum": [f"word {i} of many that begin alike" for i in range(20000)]},
    {"anyOf": [{"type": "object", "properties": {f"p{i}{j}": {"type": "number"} for j in range(20)}} for i in range(200)]},
    {"type": "array", "items": {"$ref": "#"}, "minItems": 100000},
    {"allOf": [{"type": "integer", "multipleOf": 3 + i} for i in range(50)]},
]


class Tools(Client):
    kind, path = "tools", "/v1/chat/completions"

    def body(self):
        schema = self.random.choice(SCHEMAS)
        one = {"type": "object", "required": ["x"], "properties": {"x": schema}}
        tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": one}} for i in range(min(64, 200000 // len(str(schema)) + 1))]
        return {"messages": [{"role": "user", "content": "call"}], "tools": tools, "tool_choice": "required", "max_tokens": 200}


class Slow(Client):
    kind, slow = "slow", True

    def body(self):
        return {"prompt": [5 + self.random.randrange(80) for _ in range(10)], "max_tokens": 1900, "ignore_eos": True, "stream": True,
                "logprobs": 5}


class Unfinished(Client):
    """Sends half of its body and then nothing."""

    kind, pause = "unfinished", 1

    def request(self):
        method, path = ("POST", "/v1/completions") if self.key else ("GET", "/health")
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{key}Content-Type: application/json\r\nContent-Length: {BODY}\r\n\r\n"
                ).encode() + b" " * (BODY // 2)


class Load:
    def __init__(self, port, key_a, key_b):
        self.port, self.counts, self.errors, self.stop = port, collections.defaultdict(collections.Counter), {}, False
        self.selector = selectors.DefaultSelector()
        self.clients = []
        for cls, n, key in ((Shared, 16, key_a), (Greedy, 80, key_b), (Bomb, 1, key_a), (Tools, 4, key_a), (Slow, 8, key_a), (Unfinished, 10, key_b),
                            (Unfinished, 30, None)):
            for _ in range(n):
                c = cls(self, len(self.clients))
                c.key = key
                self.clients.append(c)

    def watch(self, c):
        self.selector.register(c.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, c)

    def drop(self, c):
        if c.sock.fileno() >= 0:
            try:
                self.selector.unregister(c.sock)
            except KeyError:
                pass
        c.sock.close()
        c.sock = None

    def count(self, c, what, got):
        self.counts[c.kind][what] += 1
        if what not in ("ok", "refused"):
            self.errors.setdefault(f"{c.kind} {what}", got[-300:].decode(errors="replace"))

    def turn(self):
        now = time.time()
        for c in self.clients:
            if c.sock is None and now >= c.again_at:
                c.start()
        for key, mask in self.selector.select(0.02):
            c = key.data
            if mask & selectors.EVENT_WRITE and c.out:
                c.write()
            if c.sock and not c.out:
                self.selector.modify(c.sock, selectors.EVENT_READ, c)
            if mask & selectors.EVENT_READ and c.sock and not c.slow:
                c.read()
        for c in self.clients:
            if c.slow and c.sock and not c.out and now >= c.again_at:
                c.again_at = now + 0.1          # 900 bytes: 9 KB/s
                c.read()

    def run(self):
        os.nice(19)
        signal.signal(signal.SIGTERM, lambda *unused: setattr(self, "stop", True))
        print("started", flush=True)
        while not self.stop:
            self.turn()
        print(json.dumps({"counts": self.counts, "errors": self.errors}), flush=True)


if __name__ == "__main__":
    Load(int(sys.argv[1]), *sys.argv[2:4]).run()
