#!/usr/bin/env python3
"""check_serve_events: what routers of other projects find in a worker: /render, the fields of vllm-router, /v1/models, metrics under vLLM's names,
and KV events (docs/use/workers.md) read by a decoder of its own: order, parents, replay, tenants never mixed, boundaries of hybrids."""
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import kv_events    # noqa: E402
from serve import DEMO, ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_events")
PLAIN = os.path.join(ROOT, "tests", "golden", "tiny", "qwen3.gguf")      # every layer has attention: any page can be resumed
CHAT = [{"role": "user", "content": "Tell me about the sea."}]
EVENTS = ("--kv-events", "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*")


def port_of(s, option):
    return next(int(m.group(1)) for line in s.lines if (m := re.search(rf"{option}: tcp://127\.0\.0\.1:(\d+)", line)))


def ids(seed, n):
    """Tokens that differ from those of another seed from the first on."""
    return [(seed * 1009 + 37 * i + i * i) % 200 + 10 for i in range(n)]


def ask(s, tokens, key=None, **fields):
    """Cached tokens of a completion that reads the prompt alone."""
    body = dict({"prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True}, **fields)
    status, r = s.post("/v1/completions", body, headers={"Authorization": "Bearer " + key} if key else {})
    C.ok(status == 200, f"{status} {r}")
    return r["usage"]["prompt_tokens_details"]["cached_tokens"] if status == 200 else -1


# ---- routes ----

def check_render():
    """A rendered request has the tokens that the request itself would have."""
    with Server(BUILD, "-c", "512", "-np", "1", "--metrics-compat", "vllm") as s:
        status, r = s.post("/v1/chat/completions/render", {"messages": CHAT, "max_tokens": 5, "temperature": 0.5, "cache_salt": "x"})
        n = s.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 1})[1]["usage"]["prompt_tokens"]
        C.ok(status == 200 and len(r["token_ids"]) == n and r["request_id"].startswith("render-") and r["cache_salt"] == "x" and
             r["sampling_params"] == {"n": 1, "max_tokens": 5, "temperature": 0.5, "top_p": r["sampling_params"]["top_p"]}, r)
        text = s.post("/apply-template", {"messages": CHAT})[1]["prompt"]
        want = s.post("/tokenize", {"content": text, "add_special": False, "parse_special": True})[1]["tokens"]
        C.ok(r["token_ids"] == want, (r["token_ids"], want))
        status, two = s.post("/v1/completions/render", {"prompt": ["The sea", [5, 6, 7]]})
        C.ok(status == 200 and [x["token_ids"] for x in two] == [s.post("/tokenize", {"prompt": "The sea"})[1]["tokens"], [5, 6, 7]] and
             two[0]["request_id"] != two[1]["request_id"], two)
        status, r = s.post("/v1/responses/render", {"input": CHAT[0]["content"]})
        C.ok(status == 200 and r["token_ids"] == want, r)
        C.ok(s.post("/v1/chat/completions/render", {"messages": []})[0] == 400, "no messages")
        C.ok(s.metric("prompt_tokens_total") == n, "render runs nothing")
        model = s.get("/v1/models")[1]["data"][0]
        C.ok(model["id"] == model["root"] == "novella-hybrid-q8_0" and model["max_model_len"] == 512 and model["owned_by"] == "kvant", model)
        text = s.request("GET", "/metrics")[2].decode()
        for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"):
            C.ok(re.search(rf'^vllm:{name}\{{model_name="novella-hybrid-q8_0",engine="0"\}} 0$', text, re.M), name)
        C.ok(re.search(r'^vllm:cache_config_info\{.*block_size="64",num_gpu_blocks="\d+"\} 1$', text, re.M), "cache_config_info")
        check_fields(s)


def check_fields(s):
    """Fields that routers send with every chat: their usual values change nothing; others do what they say or are refused by name."""
    usual = {"no_stop_trim": False, "ignore_eos": False, "continue_final_message": False, "skip_special_tokens": True, "separate_reasoning": True,
             "stream_reasoning": True, "return_hidden_states": False, "include_reasoning": True}
    status, r = s.post("/v1/chat/completions", dict(usual, messages=CHAT, max_tokens=3))
    C.ok(status == 200, r)
    for name in ("no_stop_trim", "skip_special_tokens", "return_hidden_states"):
        status, r = s.post("/v1/chat/completions", {"messages": CHAT, name: not usual[name]})
        C.ok(status == 400 and r["error"]["param"] == name, (name, status, r))
    for name in ("ignore_eos", "continue_final_message", "separate_reasoning", "include_reasoning"):
        status, r = s.post("/v1/chat/completions", {"messages": CHAT, name: "no"})
        C.ok(status == 400 and r["error"]["param"] == name, (name, status, r))


# ---- events ----

def read(s, reader):
    """All messages so far, in order and without a gap, as blocks."""
    got = reader.quiet(port_of(s, "--kv-events-replay"))
    C.ok(reader.fault is None, reader.fault)
    C.ok([m[1] for m in got] == list(range(len(got))), f"numbers: {[m[1] for m in got]}")
    C.ok(all(len(m[2]) == 3 and m[2][2] == 0 and isinstance(m[2][0], float) for m in got), "batches of [time, events, rank]")
    blocks = kv_events.Blocks()
    for m in got:
        blocks.take(m[2])
    C.ok(not blocks.faults, blocks.faults[:3])
    return got, blocks


def check_plain():
    """Every page of a model with attention alone; a pool of 16 pages, so that blocks leave."""
    args = ("-c", "512", "-np", "2", "-ctk", "f16", "-ctv", "f16", "--kv-pool-size", "16P")
    with Server(BUILD, *pool_of(args), *EVENTS, model=PLAIN) as s:
        reader = kv_events.Reader(port_of(s, "--kv-events"))
        other = kv_events.PeerReader(port_of(s, "--kv-events"))
        a = ids(1, 300)
        ask(s, a)
        _, blocks = read(s, reader)
        C.ok(blocks.matched(a) == 256 and len(blocks.have) == 4, f"{blocks.matched(a)} of 300 tokens, {len(blocks.have)} blocks")
        for seed in range(2, 9):
            ask(s, ids(seed, 300))
            _, blocks = read(s, reader)
            C.ok(ask(s, ids(seed, 300)) == blocks.matched(ids(seed, 300)) == 256, f"prompt {seed}")
        got, blocks = read(s, reader)
        removed = sum(len(e["block_hashes"]) for m in got for e in m[2][1] if e["type"] == "BlockRemoved")
        C.ok(removed > 0 and blocks.matched(a) < 256, f"{removed} blocks left, {blocks.matched(a)} tokens of the first prompt are told still")
        C.ok(s.metric("evicted_pages_total") == removed, f"{removed} removed, {s.metric('evicted_pages_total')} evicted")
        C.ok(len(reader.messages) >= len(got) - 1, f"{len(reader.messages)} of {len(got)} messages were published")
        again, ended = kv_events.replay(port_of(s, "--kv-events-replay"), 3)
        C.ok(ended and again == [(m[1], m[2]) for m in got[3:]], f"replay: {len(again)} of {len(got) - 3}")
        again, ended = kv_events.replay(port_of(s, "--kv-events-replay"), 10000)
        C.ok(ended and not again, "replay of what is not there yet")
        kv_events.Peer(port_of(s, "--kv-events-replay"), "DEALER").send(b"odd")
        s.post("/cache?action=clear", {})
        got, blocks = read(s, reader)
        C.ok(not blocks.have and got[-1][2][1][-1] == {"type": "AllBlocksCleared"}, got[-1][2])
        C.ok(ask(s, a) == 0, "cleared")
        if other:
            got = reader.quiet(port_of(s, "--kv-events-replay"))
            seen = other(len(got))
            C.ok(len(seen) > 3 and seen == got[-len(seen):], f"pyzmq and msgpack read {len(seen)} messages otherwise")
        else:
            print("SKIP check_serve_events: pyzmq and msgpack are not here (KVANT_TEST_VENV): this decoder alone read the messages")
        check_greedy(s)
        C.ok(s.stop() == 0, "SIGTERM: the loop takes it, not the thread of the events")


def check_greedy(s):
    """A reader that asks for everything 10,000 times and takes nothing costs little and stops nobody; frames that are too long end a connection."""
    port = port_of(s, "--kv-events-replay")
    whole, before = kv_events.replay(port, 0), s.memory_kb()
    greedy = [kv_events.Peer(port, "DEALER") for _ in range(2)]
    for _ in range(5000):
        for peer in greedy:
            peer.send(b"", bytes(8))
    C.ok(kv_events.replay(port, 0) == whole and whole[1], "replay beside a reader that takes nothing")
    C.ok(s.memory_kb() - before < 40 << 10, f"{before} -> {s.memory_kb()} kB for {len(whole[0])} messages")
    for option in ("--kv-events-replay", "--kv-events"):
        peer = kv_events.Peer(port_of(s, option), "DEALER" if "replay" in option else "SUB")
        try:
            peer.send(b"", b"x" * 5000)
            peer.s.settimeout(10)
            peer.recv()
            C.ok(False, f"{option}: an answer to 5,000 bytes")
        except (ConnectionError, TimeoutError) as e:
            C.ok(isinstance(e, ConnectionError), f"{option}: {e!r} after 5,000 bytes")
    C.ok(sum("a request of" in x for x in s.lines) == 1, "an odd request is told once")


def pool_of(args):
    """16P: bytes of 16 pages of the plain model."""
    r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "plan", "-m", PLAIN, "-c", "512", "-ctk", "f16", "-ctv", "f16", "--json"],
                       capture_output=True, text=True, check=False)
    per_token = int(re.search(r'"kv_bytes_per_token":\s*(\d+)', r.stdout).group(1))
    return [str(16 * 64 * per_token) if a == "16P" else a for a in args]


def check_hybrid():
    """A hybrid's events end where a state is kept; events as arrays, with a topic."""
    with Server(BUILD, "-c", "1024", "-np", "1", "--kv-events-encoding", "array", "--kv-events-topic", "kv@a@b", *EVENTS) as s:
        reader = kv_events.Reader(port_of(s, "--kv-events"), b"kv@")
        a = ids(1, 700)
        ask(s, a)
        got, blocks = read(s, reader)
        ask(s, ids(3, 200))
        C.ok(all(m[0] == b"kv@a@b" for m in read(s, reader)[0][-1:]) and isinstance(got[0][2][1][0], list), got[0][:2])
        C.ok(blocks.matched(a) == 640 and blocks.ends, f"{blocks.matched(a)} of 700")
        for h in blocks.ends:          # each can be resumed to the token
            tokens = list(blocks.chain(h))
            cached = ask(s, tokens + ids(99, 8))
            C.ok(cached == len(tokens), f"an event ends at {len(tokens)}, {cached} tokens can be resumed")


def check_system():
    """A hybrid keeps a state at the end of the system part: the second conversation resumes there, in every API's words, also where both come at once."""
    rules = " ".join(f"Rule {i}: the ship {i * 37 % 101} lies at pier {i % 9}." for i in range(20))
    tools = [{"type": "function", "function": {"name": f"tool_{i}", "description": rules, "parameters": {"type": "object", "properties": {}}}} for i in range(2)]
    asks = {"system": lambda q: ("/v1/chat/completions", {"messages": [{"role": "system", "content": rules}, {"role": "user", "content": q}]}),
            "developer, an answer": lambda q: ("/v1/chat/completions", {"messages": [
                {"role": "developer", "content": "Short. " + rules}, {"role": "user", "content": q}, {"role": "assistant", "content": "Yes?"},
                {"role": "user", "content": q}]}),
            "tools": lambda q: ("/v1/chat/completions", {"messages": [{"role": "user", "content": q}], "tools": tools}),
            "messages": lambda q: ("/v1/messages", {"system": "Kind. " + rules, "messages": [{"role": "user", "content": q}]}),
            "responses": lambda q: ("/v1/responses", {"instructions": "Brief. " + rules, "input": q, "max_output_tokens": 16})}

    def cached(s, how, question):
        path, body = asks[how](question)
        status, r = s.post(path, {"max_tokens": 1, "temperature": 0, **body} if path != "/v1/responses" else body)
        C.ok(status == 200, f"{how}: {status} {r}")
        u = r["usage"]
        return u["cache_read_input_tokens"] if path == "/v1/messages" else u.get("prompt_tokens_details", u.get("input_tokens_details"))["cached_tokens"]
    with Server(BUILD, "-c", "4096", "-np", "4", "--snapshots", "64") as s:
        for how in asks:
            first = cached(s, how, "Which pier has the most ships of all? " * 4)
            second = cached(s, how, "And who is the captain?")
            C.ok(first < 64 and second >= 256, f"{how}: {first} tokens of the first conversation were there, {second} of the second's")
        rules = "At once. " + rules
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            got = sorted(pool.map(lambda i: cached(s, "system", f"{i} ships left, which?"), range(3)))
        C.ok(got[0] < 64 and got[1] >= 256, f"three conversations at once: {got} tokens were there")


def check_tenants():
    """The hashes of one tenant's blocks are nobody else's, for the same tokens."""
    keys = ("alpha", "beta")
    with Server(BUILD, "-c", "512", "-np", "6", *EVENTS, *(x for k in keys for x in ("--api-key", k)), model=PLAIN) as s:
        reader = kv_events.Reader(port_of(s, "--kv-events"))
        a, hashes = ids(1, 300), []
        for key, salt in ((keys[0], None), (keys[1], None), (keys[0], "x"), (keys[0], "y")):
            before = set(read(s, reader)[1].have)
            C.ok(ask(s, a, key, **({"cache_salt": salt} if salt else {})) == 0, f"{key} {salt}: another's prefix")
            hashes.append({h for _, h in set(read(s, reader)[1].have) - before})
        C.ok([len(h) for h in hashes] == [4, 4, 4, 4] and len(set().union(*hashes)) == 16, [len(h) for h in hashes])
        parents = {h: p for (_, h), (p, _) in read(s, reader)[1].have.items()}
        C.ok(all(parents[h] is None or parents[h] in own for own in hashes for h in own), "a block follows on another tenant's")
    with Server(BUILD, "-c", "512", "-np", "2", *EVENTS, "--api-key", keys[0], "--api-key", keys[1], model=PLAIN) as s:
        reader = kv_events.Reader(port_of(s, "--kv-events"))
        ask(s, a, keys[0])
        C.ok({h for _, h in read(s, reader)[1].have} == hashes[0], "another process gives the same blocks other hashes")


def check_store():
    """A worker that was killed left its prefixes for the next one, and for another; not for another key."""
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "made")
        args = ("-c", "1024", "-np", "1", "--kv-store", folder, "--api-key", "alpha", "--api-key", "beta")
        a = ids(5, 700)
        with Server(BUILD, *args) as s:
            C.ok(ask(s, a, "alpha") == 0, "first")
            end = time.time() + 20
            while time.time() < end and s.metric("kv_store_written_total", {"Authorization": "Bearer alpha"}) < 10:
                time.sleep(0.05)
            s.stop(signal.SIGKILL)
        with Server(BUILD, *args) as s, Server(BUILD, *args) as t:
            C.ok(ask(s, a, "alpha") == ask(t, a, "alpha") == 640, "a worker that was killed left nothing")
            C.ok(ask(t, a, "beta") == 0, "another key's prefix from the folder")
            C.ok(s.metric("kv_store_hits_total", {"Authorization": "Bearer alpha"}) == 10, "blocks of the folder")


def check_refused():
    """What cannot be is refused at the start, by name; without the option there is no socket and no library."""
    for args, word in ((("--kv-events", "nonsense"), "--kv-events nonsense"), (("--kv-events-replay", "tcp://*:0"), "--kv-events-replay"),
                       (("--kv-store", "/nonexistent/x"), "/nonexistent/x"), (("--kv-host-memory", "1G"), "--kv-pool-size"),
                       (("--kv-store-size", "1G"), "--kv-store DIR"), (("--kv-store", "/tmp", "--no-prefix-cache"), "--no-prefix-cache"),
                       (("--kv-events", "tcp://127.0.0.1:*", "--no-prefix-cache"), "--no-prefix-cache"),
                       (("--kv-events", "tcp://127.0.0.1:*", "--models-dir", os.path.dirname(DEMO)), "--models-dir")):
        r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "serve", *([] if "--models-dir" in args else ["-m", DEMO]), "--port", "0", *args],
                           capture_output=True, text=True, check=False, timeout=60)
        C.ok(r.returncode != 0 and word in r.stderr, (args, r.returncode, r.stderr[-200:]))
    with Server(BUILD, "-c", "256", "-np", "1") as s:
        with open(f"/proc/{s.process.pid}/maps", encoding="ascii") as f:
            C.ok("libzmq" not in f.read(), "libzmq is loaded though nobody asked")


def main():
    if not built(BUILD):
        print("SKIP check_serve_events: this build has no server")
        return 0
    check_render()
    r = subprocess.run([os.path.join(BUILD, "bin", "kvant"), "serve", "-m", DEMO, "--port", "0", "--kv-events", "nonsense"], capture_output=True, text=True,
                       check=False, timeout=60)
    if "libzmq.so.5 is not there" in r.stderr:
        print("SKIP check_serve_events: KV events: libzmq is not installed (./dev deps)")
        return C.end()
    check_refused()
    check_plain()
    check_hybrid()
    check_system()
    check_tenants()
    check_store()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
