#!/usr/bin/env python3
"""check_bench_serve: kvant bench-serve against a server that this test plays itself (known tokens, known pauses, text cut at any
byte), and once against kvant serve: fields, their definitions, files, plot, errors."""
import json
import os
import re
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import xml.dom.minidom

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, SLOW, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_bench_serve")
FIELDS = {"n", "reqs", "gen_total", "prompt_tok_total", "gen_per_req", "agg_tps", "decode_agg_tps", "perseq_tps", "prefill_tps", "ttft_mean",
          "ttft_p50", "ttft_p99", "ttft_max", "itl_p50", "itl_p99", "wall_s", "errors", "ttft_turn"}


class Fake(socketserver.BaseRequestHandler):
    """Streams max_tokens tokens: the first after 60 ms, the others every 10 ms; chunks are cut in odd places."""
    seen = []

    def handle(self):
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.request.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        while length and len(body) < int(length.group(1)):
            body += self.request.recv(65536)
        if head.startswith(b"GET"):
            self.answer(b'{"object":"list","data":[{"id":"fake-1","object":"model"}]}')
            return
        request = json.loads(body)
        Fake.seen.append((time.time(), request))
        if "refuse" in request:
            self.request.sendall(b"HTTP/1.1 429 Too Many\r\nContent-Length: 2\r\n\r\n{}")
            return
        self.stream(request)

    def answer(self, body):
        self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def stream(self, request):
        n = request["max_tokens"]
        self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.chunk(b": comment\n\n")
        for i in range(n):
            time.sleep(0.06 if i == 0 else 0.01)
            text = json.dumps({"choices": [{"index": 0, "text": f' "w{i}"\\', "finish_reason": None}]})
            self.chunk(b"data: " + text.encode() + b"\r\n\r\n", cut=i)
        usage = {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": n, "total_tokens": n + 100}}
        self.chunk(b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n")
        self.request.sendall(b"0\r\n\r\n")

    def chunk(self, data, cut=0):
        k = 1 + cut * 7 % (len(data) - 1)
        for part in (data[:k], data[k:]):
            self.request.sendall(b"%x\r\n%s\r\n" % (len(part), part))


class FakeServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128


def bench(*args, code=0):
    r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "bench-serve", *args], capture_output=True, text=True, timeout=120 * SLOW, check=False)
    C.ok(r.returncode == code, f"bench-serve {args}: {r.returncode}, {r.stderr[-300:]}")
    return r


def check_fake(url, folder):
    save, plot = os.path.join(folder, "runs.jsonl"), os.path.join(folder, "plot.svg")
    r = bench(url, "-c", "1,4", "-r", "2", "-n", "10", "-p", "20", "--no-warmup", "--save", save, "--plot", plot)
    C.ok(len([line for line in r.stdout.splitlines() if re.match(r"\| [14] \|", line)]) == 2, r.stdout)
    runs = [json.loads(line) for line in open(save, encoding="utf-8")]
    C.ok(len(runs) == 4 and all(FIELDS <= set(x) for x in runs), f"missing: {FIELDS - set(runs[0])}")
    for x in runs:
        n = x["reqs"]
        C.ok(x["gen_total"] == 10 * n and x["prompt_tok_total"] == 100 * n and x["errors"] == 0 and x["model"] == "fake-1", x)
        C.ok(abs(x["agg_tps"] - x["gen_total"] / x["wall_s"]) < 0.01 * x["agg_tps"], "agg_tps = gen_total / wall_s")
        C.ok(55 < x["ttft_mean"] < 200 * SLOW and x["ttft_p50"] <= x["ttft_p99"] <= x["ttft_max"] + 1e-6, f"ttft {x['ttft_mean']}")
        C.ok(5 < x["itl_p50"] < 60 * SLOW and x["itl_p50"] <= x["itl_p99"], f"itl {x['itl_p50']}")
        C.ok(abs(x["prefill_tps"] * x["ttft_max"] / 1e3 / x["prompt_tok_total"] - 1) < 0.2, "prefill_tps = prompt tokens / latest first token")
    C.ok(len(xml.dom.minidom.parse(plot).getElementsByTagName("circle")) == 8, "plot: a dot per run and panel")
    r = bench(url, "-c", "4", "-r", "2", "-n", "10", "-p", "20", "--no-warmup", "--base", save)
    C.ok("this / base" in r.stdout and re.search(r"\| 4 \| [01]\.\d+x", r.stdout), r.stdout)


def check_load(url):
    Fake.seen.clear()
    r = json.loads(bench(url, "-c", "2", "-r", "1", "-n", "3", "-p", "10", "--turns", "3", "--no-warmup", "--json", "--body", '"temperature":0').stdout)
    prompts = [x["prompt"] for _, x in Fake.seen]
    C.ok(len(prompts) == 6 and all(x["temperature"] == 0 and x["stream"] and x["ignore_eos"] for _, x in Fake.seen), "six requests")
    last = max(prompts, key=len)
    C.ok(sum(last.startswith(p) for p in prompts) == 3 and ' "w0"\\' in last, "a turn sends all before it, with the answers")
    C.ok(len(r["runs"][0]["ttft_turn"]) == 3, "ttft by turn")
    Fake.seen.clear()
    bench(url, "-c", "4", "-r", "1", "-n", "2", "-p", "40", "--shared-prefix", "0.5", "--no-warmup")
    prompts = [x["prompt"] for _, x in Fake.seen]
    common = os.path.commonprefix(prompts)
    C.ok(18 <= len(common.split()) <= 23 and len(set(prompts)) == 4, f"{len(common.split())} words shared of 40")
    Fake.seen.clear()
    bench(url, "-c", "1", "--rate", "40", "--requests", "12", "-r", "1", "-n", "2", "-p", "5", "--no-warmup")
    times = sorted(t for t, _ in Fake.seen)
    gaps = [b - a for a, b in zip(times, times[1:])]
    C.ok(len(gaps) == 11 and 0.05 < times[-1] - times[0] < 3 * SLOW and max(gaps) > 2 * min(gaps), f"Poisson: {times[-1] - times[0]:.2f} s")


def check_errors(url):
    for args, code, part in [((), 2, "URL"), (("ftp://x",), 2, "http://"), (("http://127.0.0.1:1", "-m", "x"), 1, "no request"),
                             ((url, "-c", "0"), 2, "-c"), ((url, "--body", '"refuse":1', "-r", "1", "-c", "2", "--no-warmup"), 1, "429")]:
        r = bench(*args, code=code)
        C.ok(part in r.stderr, f"{args}: {r.stderr[-200:]}")


def beside(*args, code=0, path=None):
    """tools/serve_beside.py on a small model; path: a folder before PATH."""
    env = dict(os.environ, PATH=f"{path}:{os.environ['PATH']}") if path else None
    model = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")
    r = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "serve_beside.py"), "--kvant", os.path.join(BUILD, "bin", "kvant"), "--model",
                        model, "--streams", "1,3", "--prompt-tokens", "12", "--gen-tokens", "6", *args], capture_output=True, text=True, env=env, check=False)
    C.ok(r.returncode == code, f"serve_beside {args}: exit {r.returncode}, wanted {code}: {r.stderr[-300:]}")
    return r


def check_beside(folder):
    """Two servers by turns; each fault ends the comparison by its name, and nothing is written."""
    out = os.path.join(folder, "beside")
    serve = "{kvant} serve -m {model} --port {port} -np 3"
    serve_with_key = f"x={serve} --api-key a-key"
    two = ("--out", out, "--gate", "true", "--server", f"f16={serve}", "--server", f"q8={serve} -ctk q8_0 -ctv q8_0")
    beside(*two, "--rounds", "2")
    with open(out + ".json", encoding="utf-8") as f:
        facts = json.load(f)
    order = [(r["round"], r["server"], r["n"]) for r in facts["runs"]]
    C.ok(order == [(i, s, n) for i in (0, 1) for s in ("f16", "q8") for n in (1, 3)], f"order: {order}")
    C.ok(facts["before"][-1] == facts["after"][-1] and facts["before"][0]["code"] == 0 and facts["machine"]["cpus"] > 0, facts["before"])
    with open(out + ".md", encoding="utf-8") as f:
        text = f.read()
    C.ok(text.count("| f16 | 1.00 |") == 2 and text.count("| q8 |") == 2, text[:600])
    os.unlink(out + ".md")
    smi = os.path.join(folder, "nvidia-smi")
    with open(smi, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\ncase $1 in *apps*) echo '77, other, 9 MiB';; *) echo 'a GPU, 1, 2';; esac\n")
    os.chmod(smi, 0o755)
    for args, code, part, path in [(two, 3, "the GPU is in use: 77, other", folder), ((*two, "--gate", "false"), 6, "gate 'false'", None),
                                   (("--out", out, "--gate", "true", "--server", "x=false {port}"), 1, "server x ended with code 1", None),
                                   (("--out", out, "--server", "x=sleep 9"), 2, "wanted NAME=COMMAND with {port}", None),
                                   (("--out", out, "--gate", "true", "--server", "x=nosuchprogram {port} {x}"), 2, "nosuchprogram: No such file", None),
                                   (("--out", out, "--gate", "true", "--server", serve_with_key), 1, "with 401, wanted 200", None),
                                   ((*two, "--rounds", "0"), 2, "--rounds: found 0", None),
                                   (("--out", folder + "/none/o", "--server", f"x={serve}"), 2, "--out: ", None)]:
        C.ok(part in beside(*args, code=code, path=path).stderr and not os.path.exists(out + ".md"), f"{part} wanted")


def main():
    server = FakeServer(("127.0.0.1", 0), Fake)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with tempfile.TemporaryDirectory() as folder:
        check_fake(url, folder)
    check_load(url)
    check_errors(url)
    server.shutdown()
    if built(BUILD):
        with tempfile.TemporaryDirectory() as folder:
            check_beside(folder)
        with Server(BUILD, "-c", "512", "-np", "4") as s:
            r = json.loads(bench(f"http://127.0.0.1:{s.port}/v1", "-c", "2", "-r", "1", "-n", "8", "-p", "16", "--json").stdout)["runs"][0]
            C.ok(r["gen_total"] == 16 and r["prompt_tok_total"] > 30 and r["errors"] == 0, r)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
