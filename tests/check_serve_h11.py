#!/usr/bin/env python3
"""check_serve_h11: H-05: requests with one thing wrong, or just strange, against h11, a strict HTTP/1.1 parser.  What h11 refuses must not be
answered with 200, and what is answered must be the body that h11 reads: two parsers that disagree are how requests are smuggled.  h11
comes with the openai package (.venv, made by ./dev test); without it this test says SKIP."""
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
VENV = os.environ.get("KVANT_TEST_VENV", os.path.join(ROOT, ".venv"))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import SLOW, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_h11")
BODY = b'{"content":"The sea and the town"}'
HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"


def plain(extra=b"", head=HEAD, body=BODY):
    return head + b"Content-Length: %d\r\n" % len(body) + extra + b"\r\n" + body


def chunked(sizes=None, extra=b"", end=b"0\r\n\r\n", field=b"Transfer-Encoding: chunked\r\n"):
    size = sizes or b"%x" % len(BODY)
    return HEAD + field + extra + b"\r\n" + size + b"\r\n" + BODY + b"\r\n" + end


def grid():
    """A7: a length and an encoding side by side, each whole, continued on a second line (obs-fold), with blanks, in other case or twice, in
    either order; the body is the one or the other, and a second request hides behind it."""
    n = b"%d" % len(BODY)
    lengths = [b"", b"Content-Length: %s\r\n" % n, b"Content-Length:\r\n %s\r\n" % n, b"Content-Length: %s\r\n \r\n" % n, b"content-length:%s\t\r\n" % n,
               b"Content-Length: %s\r\nContent-Length: %s\r\n" % (n, n), b"Content-Length : %s\r\n" % n, b"X: y\r\n Content-Length: %s\r\n" % n]
    codings = [b"", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n", b"Transfer-Encoding:\r\n\tchunked\r\n", b"Transfer-Encoding: \r\n chunked\r\n",
               b"Transfer-Encoding: chunk\r\n ed\r\n", b"Transfer-Encoding: chunked\r\n \r\n", b"transfer-encoding:chunked\r\n", b"Transfer-Encoding\t: chunked\r\n",
               b"TRANSFER-ENCODING: CHUNKED\r\n", b"Transfer-Encoding: identity\r\n", b"X: y\r\n Transfer-Encoding: chunked\r\n"]
    for a in lengths:
        for b in codings:
            for fields in (a + b, b + a):
                yield HEAD + fields + b"\r\n" + BODY
                yield HEAD + fields + b"\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


def cases():
    n, x = b"%d" % len(BODY), b"%x" % len(BODY)
    for value in (n + b", " + n, n + b"," + n, b"+" + n, b"-" + n, b"0x" + x, b"0" + n, n + b" ", b"\t" + n, n + b".0", n + b"e0", b"", b"abc", n + b"\x00",
                  n + b"\x0b", b"184467440737095516" + n, n[:1], n + b"0"):
        yield HEAD + b"Content-Length: " + value + b"\r\n\r\n" + BODY
    for field in (b"content-length", b"Content-Length ", b" Content-Length", b"Content-Length\t", b"Content_Length", b"Content-Length:", b"Content-Len\x00gth"):
        yield HEAD + field + b": " + n + b"\r\n\r\n" + BODY
    for value in (b"chunked", b"Chunked", b" chunked ", b"chunked, chunked", b"gzip, chunked", b"identity", b"chunked;q=1", b"xchunked", b"chunke", b'"chunked"',
                  b"chunked\x0b", b"\x00chunked", b"chunked,", b",chunked"):
        yield chunked(field=b"Transfer-Encoding: " + value + b"\r\n")
    for size in (x.upper(), b"0" + x, b"0x" + x, b"+" + x, b"-" + x, b" " + x, x + b" ", x + b";a=b", x + b";a=\"\r\n\"", x + b"\t", b"", b"g", b"1" * 20, x + b";" + b"y" * 400,
                 b"8000000000000000" + x):
        yield chunked(size)
    for end in (b"0\r\n\r\n", b"00\r\n\r\n", b"0;x\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\nContent-Length: 3\r\n\r\n", b"0\r\n", b"0\n\n", b"-0\r\n\r\n", b"", b"0\r\n X\r\n\r\n"):
        yield chunked(end=end)
    yield from grid()
    yield chunked(extra=b"Content-Length: " + n + b"\r\n")
    yield plain(b"Transfer-Encoding: chunked\r\n")
    yield plain(b"Content-Length: " + n + b"\r\n")
    yield chunked(extra=b"Transfer-Encoding: chunked\r\n")
    for line in (b"POST  /tokenize HTTP/1.1", b"POST /tokenize  HTTP/1.1", b"POST /tokenize HTTP/1.1 ", b" POST /tokenize HTTP/1.1", b"POST\t/tokenize\tHTTP/1.1",
                 b"post /tokenize HTTP/1.1", b"POST /tokenize HTTP/1.2", b"POST /tokenize HTTP/2.0", b"POST /tokenize HTTP/0.9", b"POST /tokenize http/1.1",
                 b"POST /tokenize HTTP/1.1\r", b"POST /tok\x00enize HTTP/1.1", b"POST /tokenize", b"POST /tok enize HTTP/1.1", b"\r\nPOST /tokenize HTTP/1.1"):
        yield line + plain()[HEAD.index(b"\r\n"):]
    for extra in (b"X: a\r\n b\r\n", b"X : y\r\n", b"X\r\n", b": y\r\n", b"X: \x00\r\n", b"X: a\rb\r\n", b"X: a\nY: b\r\n", b"\xff: y\r\n", b"X: \xff\r\n", b"X(): y\r\n",
                  b"Host: other\r\n", b"X: " + b"y" * 9000 + b"\r\n"):
        yield plain(extra)
    yield plain().replace(b"\r\n", b"\n")
    yield plain().replace(b"Host: localhost\r\n", b"")
    r = random.Random(5)
    for i in range(300):
        raw = bytearray(plain() if i % 2 else chunked())
        at = r.randrange(len(raw) - len(BODY) - 8)
        what = r.randrange(3)
        if what == 0:
            raw[at] = r.choice(b"\r\n\t\x00 :;,0\x7f\xff-+")
        elif what == 1:
            raw[at:at] = bytes([r.choice(b"\r\n\t\x00 :;,0\x7f\xff-+")])
        else:
            del raw[at]
        yield bytes(raw)


def strict(raw):
    """The body that h11 reads from one whole request, or None."""
    import h11
    conn, body = h11.Connection(h11.SERVER), b""
    try:
        conn.receive_data(raw)
        conn.receive_data(b"")
        while True:
            event = conn.next_event()
            if isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return body
            elif not isinstance(event, h11.Request):
                return None
    except h11.RemoteProtocolError:
        return None


def tolerated(raw):
    """What h11 refuses and libmicrohttpd takes before anything of ours sees it.  RFC 9112 lets a server skip an empty line in front, take
    a bare LF for CRLF (2.2), and any white space between the parts of the request line (3).  A bare CR or a NUL in the head it should not
    take: the library cuts the line or the value there."""
    head = raw.partition(b"\r\n\r\n")[0]
    return (raw[:1] in b"\r\n" or b"\n\n" in raw or b"  /" in raw or b"\t/" in raw or b"\x00" in head or
            re.search(rb"\r(?!\n)|(?<!\r)\n", head) is not None)


def ask(s, raw):
    return raw, s.raw(raw, 0.7)


def main():
    python = os.path.join(VENV, "bin", "python")
    if sys.prefix != os.path.realpath(VENV) and sys.prefix != VENV:
        if os.path.exists(python) and subprocess.run([python, "-c", "import h11"], capture_output=True, check=False).returncode == 0:
            return subprocess.run([python, os.path.abspath(__file__), BUILD], check=False).returncode
        print("SKIP check_serve_h11: no h11 package in .venv (./dev test makes it where pip works)")
        return C.end()
    if not built(BUILD):
        print("SKIP check_serve_h11: this build has no server")
        return C.end()
    with Server(BUILD, "-c", "512", "-np", "2") as s:
        want = s.post("/tokenize", json.loads(BODY))[1]["tokens"]
        C.ok(strict(plain()) == strict(chunked()) == BODY, "h11 reads both")
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda raw: ask(s, raw), cases()))
        both = 0
        for raw, data in answers:
            body, good = strict(raw), data.startswith(b"HTTP/1.1 200")
            C.ok(data.count(b"HTTP/1.1 200") <= 1, f"H-05 two answers: {raw[:200]}")
            C.ok(not good or body is not None or tolerated(raw), f"H-05 h11 refuses, 200: {raw[:260]}")
            if good and body is not None:
                both += 1
                m = re.search(rb'"tokens":\[([0-9,]*)\]', data)
                C.ok(body != BODY or (m and [int(t) for t in m.group(1).split(b",")] == want), f"H-05 another body: {raw[:260]}")
        C.ok(s.request("GET", "/health")[0] == 200 and both > 30, f"H-05 alive; {both} accepted by both")
        print(f"check_serve_h11: {len(answers)} requests, {both} accepted by both")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
