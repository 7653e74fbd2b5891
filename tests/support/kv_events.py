"""kv_events.py: reads KV events as a router does, by a decoder of its own: ZMTP 3.0 (rfc.zeromq.org/spec/23, NULL mechanism) and MessagePack,
with nothing but the standard library.  Where pyzmq and msgpack are there (this interpreter, or $KVANT_TEST_VENV) `PeerReader` reads the same
socket with those."""
import glob
import os
import socket
import struct
import sys
import threading
import time

BLOCK = 64


# ---- MessagePack ----

def unpack(data):
    value, end = _value(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes behind the value")
    return value


def _value(d, i):
    t = d[i]
    i += 1
    if t < 0x80:
        return t, i
    if t < 0x90:
        return _map(d, i, t & 15)
    if t < 0xA0:
        return _array(d, i, t & 15)
    if t < 0xC0:
        return d[i:i + (t & 31)].decode(), i + (t & 31)
    if t == 0xC0:
        return None, i
    if t == 0xCB:
        return struct.unpack(">d", d[i:i + 8])[0], i + 8
    if 0xCC <= t <= 0xCF:
        n = 1 << (t - 0xCC)
        return int.from_bytes(d[i:i + n], "big"), i + n
    if t in (0xD9, 0xDA):
        n = t - 0xD8
        size = int.from_bytes(d[i:i + n], "big")
        return d[i + n:i + n + size].decode(), i + n + size
    if t in (0xDC, 0xDD):
        n = 2 if t == 0xDC else 4
        return _array(d, i + n, int.from_bytes(d[i:i + n], "big"))
    raise ValueError(f"type {t:#x}")


def _array(d, i, n):
    out = []
    for _ in range(n):
        v, i = _value(d, i)
        out.append(v)
    return out, i


def _map(d, i, n):
    out = {}
    for _ in range(n):
        k, i = _value(d, i)
        out[k], i = _value(d, i)
    return out, i


# ---- ZMTP ----

class Peer:
    """A socket of type SUB or DEALER."""

    def __init__(self, port, kind, topic=b""):
        self.s = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.rest = b""
        self.s.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        greeting = self._bytes(64)
        if greeting[0] != 0xFF or greeting[12:16] != b"NULL":
            raise ValueError(f"greeting {greeting!r}")
        self._frame(4, b"\5READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind.encode() + b"\x08Identity\0\0\0\0")
        if not self._command().startswith(b"\5READY"):
            raise ValueError("no READY")
        if kind == "SUB":
            self._frame(0, b"\1" + topic)

    def _bytes(self, n):
        while len(self.rest) < n:
            more = self.s.recv(65536)
            if not more:
                raise ConnectionError("closed")
            self.rest += more
        out, self.rest = self.rest[:n], self.rest[n:]
        return out

    def _frame(self, flags, body):
        size = struct.pack(">BB", flags, len(body)) if len(body) < 256 else struct.pack(">BQ", flags | 2, len(body))
        self.s.sendall(size + body)

    def _read(self):
        flags = self._bytes(1)[0]
        size = struct.unpack(">Q", self._bytes(8))[0] if flags & 2 else self._bytes(1)[0]
        return flags, self._bytes(size)

    def _command(self):
        flags, body = self._read()
        if not flags & 4:
            raise ValueError("no command")
        return body

    def send(self, *frames):
        for i, f in enumerate(frames):
            self._frame(i + 1 < len(frames), f)

    def recv(self):
        frames = []
        while True:
            flags, body = self._read()
            if flags & 4:
                continue
            frames.append(body)
            if not flags & 1:
                return frames

    def close(self):
        self.s.close()


class Reader(threading.Thread):
    """Messages of a PUB socket as (topic, number, batch), from the time on when it is connected."""

    def __init__(self, port, topic=b""):
        super().__init__(daemon=True)
        self.peer, self.messages, self.fault = Peer(port, "SUB", topic), [], None
        self.start()

    def run(self):
        self.peer.s.settimeout(None)
        try:
            while True:
                frames = self.peer.recv()
                if len(frames) != 3 or len(frames[1]) != 8:
                    raise ValueError(f"{len(frames)} frames")
                self.messages.append((frames[0], int.from_bytes(frames[1], "big"), unpack(frames[2])))
        except (OSError, ConnectionError):
            pass
        except ValueError as e:
            self.fault = str(e)

    def quiet(self, port, seconds=0.15):
        """Waits until nothing came for so long; all messages.  Those before the subscription reached the worker are asked for again at the
        replay socket `port`, as routers do."""
        n = -1
        while n != len(self.messages):
            n = len(self.messages)
            time.sleep(seconds)
        got = list(self.messages)
        first = got[0][1] if got else 1 << 62
        return [(got[0][0] if got else b"", k, batch) for k, batch in replay(port, 0)[0] if k < first] + got


def replay(port, first):
    """[(number, batch)] of what is given again, and whether the end was told."""
    peer = Peer(port, "DEALER")
    peer.send(b"", first.to_bytes(8, "big"))
    out = []
    while True:
        empty, number, data = peer.recv()
        if empty:
            raise ValueError("no empty frame")
        if number == b"\xff" * 8:
            peer.close()
            return out, data == b""
        out.append((int.from_bytes(number, "big"), unpack(data)))


def PeerReader(port):
    """The same messages by pyzmq and msgpack; None where they are not there."""
    sys.path += glob.glob(os.path.join(os.environ.get("KVANT_TEST_VENV", "/nonexistent"), "lib", "python3*", "site-packages"))
    try:
        import msgpack
        import zmq
    except ImportError:
        return None
    s = zmq.Context.instance().socket(zmq.SUB)
    s.connect(f"tcp://127.0.0.1:{port}")
    s.setsockopt(zmq.SUBSCRIBE, b"")

    def read(n):
        out = []
        while len(out) < n and s.poll(5000):
            topic, number, data = s.recv_multipart()
            out.append((topic, int.from_bytes(number, "big"), msgpack.unpackb(data)))
        return out
    return read


# ---- what a router keeps ----

def as_map(event):
    """An event that came as an array."""
    if isinstance(event, dict):
        return event
    names = {"BlockStored": ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"],
             "BlockRemoved": ["type", "block_hashes", "medium"], "AllBlocksCleared": ["type"]}[event[0]]
    if len(names) != len(event):
        raise ValueError(f"{event[0]} of {len(event)} values, wanted {len(names)}")
    return dict(zip(names, event))


class Blocks:
    """The blocks that a worker has, by its events; `faults` says what no router could follow."""

    def __init__(self):
        self.have, self.faults, self.ends = {}, [], []      # (medium, hash) -> (parent, tokens)

    def take(self, batch):
        for e in map(as_map, batch[1]):
            if e["type"] == "BlockStored":
                self._stored(e)
            elif e["type"] == "BlockRemoved":
                self._removed(e)
            elif e["type"] == "AllBlocksCleared":
                self.have.clear()
            else:
                self.faults.append(f"type {e['type']}")
        return self

    def _stored(self, e):
        parent, n, medium = e["parent_block_hash"], len(e["block_hashes"]), e["medium"]
        if e["block_size"] != BLOCK or len(e["token_ids"]) != n * BLOCK or n == 0 or e["lora_id"] is not None or e["lora_name"] is not None:
            self.faults.append(f"shape: {n} blocks, {len(e['token_ids'])} tokens, block_size {e['block_size']}")
        if parent is not None and not any((m, parent) in self.have for m in ("GPU", "CPU", "STORAGE")):
            self.faults.append(f"parent {parent:x} of {medium} is not here")
        for i, h in enumerate(e["block_hashes"]):
            if (medium, h) in self.have:
                self.faults.append(f"block {h:x} of {medium} twice")
            self.have[medium, h] = (parent, tuple(e["token_ids"][i * BLOCK:(i + 1) * BLOCK]))
            parent = h
        self.ends.append(parent)

    def _removed(self, e):
        for h in e["block_hashes"]:
            if self.have.pop((e["medium"], h), None) is None:
                self.faults.append(f"block {h:x} of {e['medium']} leaves and was not here")

    def chain(self, h):
        """Tokens from the first block to h."""
        out = ()
        while h is not None:
            parent, tokens = next(self.have[m, h] for m in ("GPU", "CPU", "STORAGE") if (m, h) in self.have)
            out, h = tokens + out, parent
        return out

    def matched(self, tokens, medium="GPU", roots=None):
        """How many of the tokens a router takes as known: by chains of equal blocks."""
        parents, n = {None}, 0
        while parents and n + BLOCK <= len(tokens):
            block = tuple(tokens[n:n + BLOCK])
            parents = {h for (m, h), (p, t) in self.have.items() if m == medium and p in parents and t == block and
                       (roots is None or n > 0 or h in roots)}
            n += BLOCK if parents else 0
        return n
