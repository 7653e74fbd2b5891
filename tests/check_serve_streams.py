#!/usr/bin/env python3
"""check_serve_streams: streams that a client comes back to (X-Conversation-Id, /v1/stream, /v1/streams/lookup): what is read again is what was sent,
byte for byte; streams go on without their client, for several readers at once, while their model is loaded; keys, stops, limits of time and
memory, hostile names."""
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from urllib.parse import quote

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import SLOW, Checks, Server, built, read_all, unchunk, until    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_streams")
CHAT = {"messages": [{"role": "user", "content": "Tell me about the sea."}], "stream": True, "temperature": 0, "max_tokens": 60, "ignore_eos": True}
LONG = {**CHAT, "max_tokens": 6000}
KEYS = {"a": {"Authorization": "Bearer key-a"}, "b": {"Authorization": "Bearer key-b"}}


def named(name, headers=None):
    return {"X-Conversation-Id": name, **(headers or {})}


def path_of(name, start=None):
    return f"/v1/stream?conv_id={quote(name, safe='')}" + ("" if start is None else f"&from={start}")


def post(s, name, body=None, path="/v1/chat/completions", headers=None):
    return s.request("POST", path, body or CHAT, named(name, headers))


def again(s, name, start=None, headers=None):
    """Status and bytes from there on, to the stream's end."""
    status, _, data = s.request("GET", path_of(name, start), headers=headers)
    return status, data


def lookup(s, *names, headers=None):
    return {x["conversation_id"]: x for x in s.post("/v1/streams/lookup", {"conversation_ids": list(names)}, headers=headers)[1]}


def is_done(s, name, headers=None):
    return lookup(s, name, headers=headers).get(name, {}).get("is_done")


def begin(s, name, body=None, headers=None):
    """A client that has read the beginning."""
    k = s.open("/v1/chat/completions", body or LONG, named(name, headers))
    got = b""
    while got.count(b"data: ") < 4:
        got += k.recv(4096)
    return k, got


def text_of(data):
    chunks = [json.loads(x[6:]) for x in data.decode().split("\n\n") if x.startswith("data: {")]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


def message_of(data):
    return json.loads(data)["error"]["message"]


# ---- what comes again ----

def check_replay(s):
    name = "chat 1::org/model"
    status, headers, whole = post(s, name)
    C.ok(status == 200 and whole.endswith(b"data: [DONE]\n\n"), (status, whole[-80:]))
    status, again_headers, data = s.request("GET", path_of(name, 0))
    C.ok(status == 200 and data == whole and again_headers["content-type"] == headers["content-type"], (status, len(data), len(whole)))
    C.ok(again(s, name) == (200, whole), "without from: all of it")
    for start in (1, 500, len(whole) - 1, len(whole)):
        C.ok(again(s, name, start) == (200, whole[start:]), f"from {start}")
    x = lookup(s, "chat 1", "other")[name]
    C.ok(x["is_done"] is True and x["total_bytes"] == len(whole) and x["completed_at"] >= x["started_at"] > 1e9, x)
    C.ok(lookup(s, "chat", "chat 1:", name + "::x") == {}, "a part of a name, and more than it, find nothing")
    C.ok(set(lookup(s, name)) == {name}, "a whole name")
    C.ok(s.request("HEAD", path_of(name))[0] == 405, "HEAD would be a reader")


def check_other_apis(s):
    for path, body, end in (("/v1/completions", {"prompt": "The sea", "max_tokens": 9}, b"data: [DONE]\n\n"), ("/completion", {"prompt": "The sea", "n_predict": 9}, b"}\n\n"),
                            ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": 9}, b'"message_stop"}\n\n'), ("/v1/responses", {"input": "The sea", "max_output_tokens": 9}, b"}\n\n"),
                            ("/api/chat", {"messages": CHAT["messages"], "options": {"num_predict": 9}}, b"}\n")):
        status, headers, whole = post(s, "api" + path, {**body, "stream": True}, path)
        C.ok(status == 200 and whole.endswith(end), (path, status, whole[-60:]))
        status, again_headers, data = s.request("GET", path_of("api" + path))
        C.ok(status == 200 and data == whole and again_headers["content-type"] == headers["content-type"], path)


def check_left(s):
    """A client leaves: the answer is the one that it would have got, and two others read it from two places while it is made."""
    want = text_of(s.request("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 800})[2])
    k, got = begin(s, "left", {**CHAT, "max_tokens": 800})
    k.close()
    readers, out = [], {}
    for start in (0, 300):
        readers.append(threading.Thread(target=lambda n=start: out.update({n: again(s, "left", n)})))
        readers[-1].start()
    for r in readers:
        r.join()
    C.ok(out[0][0] == 200 and text_of(out[0][1]) == want and out[0][1].endswith(b"[DONE]\n\n"), (out[0][0], out[0][1][-80:]))
    C.ok(out[300] == (200, out[0][1][300:]), "another reader, from byte 300")
    C.ok(out[0][1].startswith(unchunk(got)[:400]), "the first client got the same bytes")
    C.ok(lookup(s, "left")["left"]["total_bytes"] == len(out[0][1]) and is_done(s, "left"), "it is whole")
    with s.open("/v1/chat/completions", {**CHAT, "max_tokens": 20}, named("at once")):
        pass                                    # it leaves before its request is read
    C.ok(until(lambda: is_done(s, "at once")), "a request whose client left at once")
    C.ok(again(s, "at once")[1].endswith(b"[DONE]\n\n"), "is answered for who comes back")


def check_no_stream(s):
    status, _, data = s.request("POST", "/v1/chat/completions", {**CHAT, "stream": False}, named("whole"))
    C.ok(status == 200 and json.loads(data)["object"] == "chat.completion" and again(s, "whole")[0] == 404, "a whole answer is not kept")
    status, _, data = post(s, "bad", {**CHAT, "temperature": 9})
    C.ok(status == 400 and again(s, "bad")[0] == 404 and lookup(s, "bad") == {}, "a refused request leaves nothing")
    k = s.open("/v1/chat/completions", {**LONG, "stream": False}, named("whole, left"))
    k.close()
    C.ok(until(lambda: lookup(s, "whole, left") == {}) and s.idle(), "nor does a whole answer's client that leaves")
    k = s.open("/v1/chat/completions", LONG, named(""))
    C.ok(k.recv(100).startswith(b"HTTP/1.1 200"), "an empty name is none")
    k.close()
    C.ok(s.idle(), "and leaving ends its request")


# ---- stops ----

def check_stop(s):
    k, got = begin(s, "stop")
    r = s.open(path_of("stop", 0), None)
    C.ok(s.request("DELETE", path_of("stop"))[0] == 204, "DELETE")
    for one, name in ((unchunk(got + read_all(k)), "its client"), (unchunk(read_all(r)), "a reader")):
        error = json.loads(one.decode().strip().split("\n\n")[-1][6:])["error"]
        C.ok("stopped" in error["message"] and error["code"] == 400 and b"[DONE]" not in one, (name, error))
    C.ok(s.idle() and again(s, "stop")[0] == 404 and s.request("DELETE", path_of("stop"))[0] == 204, "it is gone, and may be stopped again")
    k, got = begin(s, "twice")
    status, _, whole = post(s, "twice")
    C.ok(b"stopped" in unchunk(got + read_all(k)) and status == 200 and again(s, "twice") == (200, whole), "a name is of the newest request")
    C.ok(s.idle(), "the older one ended")


def check_waiting():
    """A router: the request waits for its model.  Who asks for the stream is told to come again; a stop is told to the client that waits."""
    with tempfile.TemporaryDirectory() as d:
        for name in ("qwen2", "phi3"):
            shutil.copy(os.path.join(ROOT, "tests", "archs", name + ".gguf"), d)
        with Server(BUILD, "--models-dir", d, "--models-max", "1", "-np", "1", "-c", "2048", "--stream-timeout", "600", model=None) as s:
            body = {"prompt": [5, 6, 7], "stream": True, "max_tokens": 1900, "temperature": 0, "ignore_eos": True, "logprobs": 20}
            first = s.open("/v1/completions", {**body, "model": "qwen2"})     # it is not read: its model stays
            C.ok(first.recv(20).startswith(b"HTTP/1.1 200"), "the first model is there")
            body = {**body, "model": "phi3", "max_tokens": 4}
            stopped, left = (s.open("/v1/completions", body, named(x)) for x in ("stopped", "left"))
            C.ok(until(lambda: set(lookup(s, "stopped", "left")) == {"stopped", "left"}), "both wait")
            for name in ("stopped", "left"):
                status, headers, data = s.request("GET", path_of(name))
                C.ok(status == 503 and headers["retry-after"] == "1" and "try later" in message_of(data), (status, data))
            left.close()
            C.ok(s.request("DELETE", path_of("stopped"))[0] == 204, "DELETE")
            answer = stopped.recv(4096)
            C.ok(answer.startswith(b"HTTP/1.1 400") and b"cancelled" in answer, answer)
            C.ok(again(s, "stopped")[0] == 404 and again(s, "left")[0] == 503, "the other one still waits")
            first.close()
            C.ok(until(lambda: again(s, "left")[0] == 200, 40), "its model came although its client had left")
            C.ok(again(s, "left")[1].endswith(b"[DONE]\n\n"), "and its answer is whole")


# ---- keys ----

def key_file(folder):
    with open(os.path.join(folder, "keys"), "w", encoding="ascii") as f:
        f.write("key-a a\nkey-b b\n")
    os.chmod(f.name, 0o600)
    return f.name


def tokens_of(s, key):
    text = s.request("GET", "/metrics", headers=KEYS[key])[2].decode()
    return int(text.split(f'kvant_key_generation_tokens_total{{key="{key}"}} ')[1].split("\n")[0])


def check_keys():
    with tempfile.TemporaryDirectory() as d, Server(BUILD, "-c", "8192", "-np", "4", "--api-key-file", key_file(d)) as s:
        status, _, whole = post(s, "mine", headers=KEYS["a"])
        C.ok(status == 200 and again(s, "mine", headers=KEYS["a"]) == (200, whole), "key a reads its own")
        C.ok(again(s, "mine", headers=KEYS["b"])[0] == 404 and lookup(s, "mine", headers=KEYS["b"]) == {}, "key b finds nothing")
        C.ok(again(s, "mine")[0] == 401 and s.request("DELETE", path_of("mine"))[0] == 401, "without a key")
        C.ok(s.request("DELETE", path_of("mine"), headers=KEYS["b"])[0] == 204 and again(s, "mine", headers=KEYS["a"])[0] == 200, "key b stops nothing")
        k, _ = begin(s, "mine", headers=KEYS["b"])
        C.ok(again(s, "mine", headers=KEYS["a"]) == (200, whole), "one name, two keys, two streams")
        k.close()
        s.request("DELETE", path_of("mine"), headers=KEYS["b"])
        C.ok(until(lambda: s.metric("num_requests_running", KEYS["a"]) == 0), "key b's ends")
        C.ok(tokens_of(s, "a") == CHAT["max_tokens"], (tokens_of(s, "a"), "key a's tokens count once, however often they are read"))
        before = tokens_of(s, "b")
        C.ok(before > 0, "those of a stream that was stopped count")
        begin(s, "alone", {**CHAT, "max_tokens": 300}, KEYS["b"])[0].close()
        C.ok(until(lambda: is_done(s, "alone", KEYS["b"])) and tokens_of(s, "b") - before == 300, "and those that nobody read")


# ---- limits ----

def check_hostile(s):
    C.ok(s.request("GET", "/v1/stream")[0] == 400 and s.request("DELETE", "/v1/stream?conv_id=")[0] == 400, "no name")
    for name in ("n" * 512, "n" * 4000):
        for status, _, data in (post(s, name), s.request("GET", path_of(name)), s.request("DELETE", path_of(name))):
            C.ok(status == 400 and "wanted 1 to 511" in message_of(data), (status, data))
    C.ok(post(s, "n" * 511)[0] == 200 and again(s, "n" * 511)[0] == 200, "the longest name")
    for escaped in ("%FF", "%00", "a%00b", "%0a", "%7f"):
        C.ok(s.request("GET", "/v1/stream?conv_id=" + escaped)[0] == 400, escaped)
    raw = json.dumps(CHAT).encode()
    for name in (b"\xff", b"a\x01b"):
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Conversation-Id: " + name
        C.ok(s.raw(head + b"\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw).startswith(b"HTTP/1.1 400"), name)
    post(s, "caf\u00e9 \u6d77".encode().decode("latin-1"))
    C.ok(again(s, "caf\u00e9 \u6d77")[0] == 200, "a name in UTF-8")
    post(s, "from")
    for value, word in (("-1", "wanted"), ("x", "wanted"), ("1e3", "wanted"), ("9" * 30, "wanted"), ("999999999", "has")):
        status, _, data = s.request("GET", path_of("from") + "&from=" + value)
        C.ok(status == 400 and word in message_of(data), (value, data))
    for body in (b"", b"[]", b"{}", b'{"conversation_ids":"x"}', b'{"conversation_ids":[1]}', b'{"conversation_ids":["' + b"x" * 5000 + b'"]}'):
        status = s.request("POST", "/v1/streams/lookup", body)[0]
        C.ok(status == (413 if len(body) > 4096 else 400), (body[:40], status))
    C.ok(s.post("/v1/streams/lookup", {"conversation_ids": [""]}) == (200, []), "an empty name is no name's beginning")


def large(mega):
    """A stream that tells its metadata three times: many bytes for little work."""
    return {"input": "The sea", "stream": True, "max_output_tokens": 1, "metadata": {"a": "x" * int(mega / 3 * (1 << 20))}}


def check_memory():
    """More than a stream may hold, and more than a key may."""
    with Server(BUILD, "-c", "8192", "-np", "4") as s:
        status, _, whole = post(s, "large", large(6), "/v1/responses")
        C.ok(status == 200 and len(whole) > 6 << 20 and whole.endswith(b"}\n\n"), f"its client gets all of it: {len(whole)} bytes")
        status, data = again(s, "large", 0)
        C.ok(status == 400 and "kept from byte" in message_of(data), data[:200])
        start = int(message_of(data).split("from byte ")[1].split()[0])
        C.ok(len(whole) - start <= 4 << 20 and again(s, "large", start) == (200, whole[start:]), f"the last {len(whole) - start} bytes are there")
        C.ok(again(s, "large", start - 1)[0] == 400, "and no byte more")
        at = s.memory_kb()
        for i in range(8):
            C.ok(post(s, f"more {i}", large(3.5), "/v1/responses")[0] == 200, "another one")
        kept = [i for i in range(8) if again(s, f"more {i}", 1 << 20)[0] != 404]
        C.ok(kept and kept == list(range(8 - len(kept), 8)) and len(kept) <= 4, f"of eight the last ones are kept: {kept}")
        C.ok(again(s, "large", start)[0] == 404, "the oldest went first")
        C.ok(s.memory_kb() - at < 40 << 10, f"{s.memory_kb() - at} kB more")


def check_all():
    """All keys together have --max-body-memory: the oldest stream of the key that holds most makes room for another key's."""
    with tempfile.TemporaryDirectory() as d, Server(BUILD, "-c", "8192", "-np", "2", "--api-key-file", key_file(d), "--max-body", "4M", "--max-body-memory", "10M") as s:
        for key, name in (("b", "old"), ("b", "new"), ("a", "other")):
            status, _, whole = post(s, name, large(3.5), "/v1/responses", KEYS[key])
            C.ok(status == 200 and whole.endswith(b"}\n\n"), (name, status))
        C.ok(again(s, "other", 0, KEYS["a"]) == (200, whole), "key a's is kept from its first byte on")
        C.ok([again(s, name, 0, KEYS["b"])[0] for name in ("old", "new")] == [404, 200], "the oldest of key b made room")


def check_slow():
    """A reader that is behind by all that is kept holds the stream; who does not read at all is cut, and the stream goes on."""
    with Server(BUILD, "-c", "8192", "-np", "4", "--stream-timeout", str(int(4 * SLOW))) as s:
        k = s.open("/v1/responses", large(12), named("slow"))
        C.ok(until(lambda: lookup(s, "slow").get("slow", {}).get("total_bytes", 0) > 3 << 20), "it is kept as far as it fits")
        x = lookup(s, "slow")["slow"]
        C.ok(not x["is_done"] and x["total_bytes"] < 5 << 20, x)
        C.ok(until(lambda: is_done(s, "slow")), "its client is cut")
        k.close()
        size = lookup(s, "slow")["slow"]["total_bytes"]
        C.ok(size > 12 << 20 and again(s, "slow", size - 100)[1].endswith(b"}\n\n"), "and the rest is kept")


def check_many():
    """64 streams of a key: of those that ended the oldest goes; those that run stay, and one more is refused."""
    with Server(BUILD, "-c", "2048", "-np", "2") as s:
        for i in range(66):
            post(s, f"n{i}", {**CHAT, "max_tokens": 1})
        C.ok([x for x in range(66) if f"n{x}" not in lookup(s, *(f"n{i}" for i in range(66)))] == [0, 1], "the two oldest are gone")
        clients = [s.open("/v1/chat/completions", {**CHAT, "max_tokens": 1500}, named(f"runs {i}")) for i in range(64)]
        C.ok(until(lambda: len(lookup(s, *(f"runs {i}" for i in range(64)))) == 64), "64 run or wait")
        status, headers, data = post(s, "one more")
        C.ok(status == 429 and "found 64 streams" in message_of(data) and headers["retry-after"] == "1", (status, data))
        for k in clients:
            k.close()
        for i in range(64):
            s.request("DELETE", path_of(f"runs {i}"))
        C.ok(s.idle() and post(s, "one more")[0] == 200, "room again")


def check_time():
    with Server(BUILD, "-c", "8192", "-np", "4", "--stream-keep-seconds", "2", "--drain-seconds", "1") as s:
        status, _, whole = post(s, "ended")
        k, _ = begin(s, "alone")
        k.close()
        C.ok(again(s, "ended") == (200, whole), "it is kept")
        C.ok(until(lambda: again(s, "ended")[0] == 404), "for a while")
        C.ok(until(lambda: lookup(s, "alone") == {}) and s.idle(), "one that nobody reads any more is stopped")
        k, _ = begin(s, "left at the end")
        k.close()
        C.ok(s.stop(signal.SIGTERM) == 0, "the server ends although one goes on alone")
    with Server(BUILD, "-c", "8192", "-np", "4", "--stream-keep-seconds", "0") as s:
        k, _ = begin(s, "none")
        k.close()
        status, data = again(s, "none")
        C.ok(s.idle() and status == 501 and "--stream-keep-seconds" in message_of(data), (status, data))


def main():
    if not built(BUILD):
        print("check_serve_streams: skipped, this build has no server")
        return 0
    with Server(BUILD, "-c", "8192", "-np", "4") as s:
        for check in (check_replay, check_other_apis, check_left, check_no_stream, check_stop, check_hostile):
            check(s)
    for check in (check_waiting, check_keys, check_memory, check_all, check_slow, check_many, check_time):
        check()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
