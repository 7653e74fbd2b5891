"""try_package: the installed package against golden files, NumPy's own sums and `kvant run`: try_package.py REPOSITORY.  Prints
"try_package: N passed, M failed"."""
import glob
import json
import os
import subprocess
import sys
import time
import urllib.request

import numpy as np
from counted import ended, ok, refused

import kvant
from kvant._c import program

ROOT = sys.argv[1]
MODEL = os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf")


def check_formats():
    seen = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "tests/golden/*.json")) + glob.glob(os.path.join(ROOT, "tests/golden/own/*.json"))):
        for name, found in kvant.formats.check_golden(path).items():
            ok(found.rows > 0 and found.differ == 0 and found.ties * 10 <= found.rows, f"{path}: {name}: {found}")
            seen[name] = seen.get(name, 0) + found.rows
    rows = {name for name in kvant.formats.names() if not kvant.formats.get(name).is_paged}
    ok(set(seen) == rows, f"no golden rows: {rows - set(seen)}")
    x = np.random.default_rng(1).standard_normal((64, 128)).astype(np.float32)
    for name in kvant.formats.names():
        f = kvant.formats.get(name)
        rows = f.encode(x)
        back = f.decode(rows, 128)
        ok(rows.shape == (64, f.row_bytes(128)) and f.bits(128) == rows.shape[1] / 16, f"{name}: {rows.shape}")
        if name != "qjl1_256":         # whose scores are not those of its decoded rows
            ok(np.abs(f.score(x, rows) - x @ back.T).max() < 1e-4, f"{name}: score {np.abs(f.score(x, rows) - x @ back.T).max()}")
            ok(np.abs(f.weighted_sum(x[:, :64], rows, 128) - x[:, :64] @ back).max() < 1e-4, f"{name}: weighted_sum")
    planted = kvant.formats.get("tbq4_0").encode(x)
    planted[0, 3] ^= 1
    ok(np.abs(kvant.formats.get("tbq4_0").decode(planted, 128) - kvant.formats.get("tbq4_0").decode(kvant.formats.get("tbq4_0").encode(x), 128)).max() > 0,
       "a changed byte changes nothing")
    f = kvant.formats.get("tbq4_0")
    refused(kvant.KvantError, ["nope", "known:"], kvant.formats.get, "nope")
    refused(kvant.KvantError, ["80", "multiple"], f.encode, np.zeros((1, 80)))
    refused(ValueError, ["(63, 128)", "64"], kvant.formats.get("ptcq3").encode, x[:63])
    refused(ValueError, ["ptcq3", "exact tail"], kvant.ops.PagedCache, 1, 128, 1, "ptcq3")
    refused(ValueError, ["(128,)", "[n, d]"], f.encode, np.zeros(128))
    refused(kvant.KvantError, ["100096"], f.decode, np.zeros((1, f.row_bytes(100096)), np.uint8), 100096)
    refused(ValueError, ["uint8"], f.decode, np.full((1, 72), 300.7), 128)
    refused(ValueError, ["(1, 3)", "[n, 72]"], f.decode, np.zeros((1, 3), np.uint8), 128)
    refused(ValueError, ["(2, 2)", "[128, 256]"], kvant.formats.get, "qjl1_256", np.zeros((2, 2)))


def softmax_attention(q, k, v, start):
    """f64, causal; query head j reads head j // (H / h)."""
    out, group = np.empty(q.shape[:2] + v.shape[2:]), q.shape[1] // k.shape[1]
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            s = k[:start + i + 1, j // group].astype(float) @ q[i, j] / q.shape[2] ** 0.5
            w = np.exp(s - s.max())
            out[i, j] = w @ v[:start + i + 1, j // group] / w.sum()
    return out


def check_attention():
    rng = np.random.default_rng(2)
    n, h, queries, d, table = 150, 2, 4, 64, [5, 1, 3]
    k, v = rng.standard_normal((2, n, h, d)).astype(np.float32)
    q = rng.standard_normal((n, queries, d)).astype(np.float32)
    for name in ("f32", "f16", "q8_0", "tbq4_0"):
        f, cache = kvant.formats.get(name), kvant.ops.PagedCache(h, d, 8, name)
        cache.write(k[:100], v[:100], table)
        cache.write(k[100:], v[100:], table, start=100)
        kd, vd = (f.decode(f.encode(x.reshape(-1, d)), d).reshape(x.shape) for x in (k, v))
        ok(np.abs(cache.attend(q, table, 0) - softmax_attention(q, kd, vd, 0)).max() < 1e-5, f"{name}: prompt")
        ok(np.abs(cache.attend(q[-1:], table, n - 1) - softmax_attention(q[-1:], kd, vd, n - 1)).max() < 1e-5, f"{name}: one query")
    refused(ValueError, ["193", "192"], cache.write, k[:1], v[:1], table, 192)
    refused(ValueError, ["8", "0 to 7"], cache.write, k[:1], v[:1], [8])
    refused(ValueError, ["-64", "0 or more"], cache.write, k[:1], v[:1], table, -64)
    refused(ValueError, ["(1, 3, 64)"], cache.attend, q[:1, :3], table, 0)


def check_recurrent():
    rng = np.random.default_rng(3)
    n, hk, hv, dk, dv = 70, 2, 4, 32, 32
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in rng.standard_normal((2, n, hk, dk)).astype(np.float32))
    v, g, b = rng.standard_normal((n, hv, dv)).astype(np.float32), -rng.random((n, hv)).astype(np.float32), rng.random((n, hv)).astype(np.float32)
    state, out = np.zeros((hv, dk, dv)), np.empty((n, hv, dv))
    for t in range(n):
        for j in range(hv):
            state[j] *= np.exp(g[t, j])
            state[j] += np.outer(k[t, j % hk], b[t, j] * (v[t, j] - state[j].T @ k[t, j % hk]))
            out[t, j] = state[j].T @ q[t, j % hk] / dk ** 0.5
    o, s = kvant.ops.gated_delta_rule(q, k, v, g, b)
    ok(np.abs(o - out).max() < 1e-5 and np.abs(s - state.transpose(0, 2, 1)).max() < 1e-5, "gated delta rule")
    o, s = kvant.ops.gated_delta_rule(q[:69], k[:69], v[:69], g[:69], b[:69])
    o, s = kvant.ops.gated_delta_rule(q[69:], k[69:], v[69:], g[69:], b[69:], s)
    ok(np.abs(o[0] - out[69]).max() < 1e-5, "gated delta rule, a step after a prompt")
    x, w, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, 6), (6, 4), (6,)))
    wide = np.concatenate([np.zeros((3, 6)), x])
    y = np.stack([(wide[t:t + 4].T * w).sum(1) + bias for t in range(n)])
    made, held = kvant.ops.causal_conv(x, w, None, bias)
    ok(np.abs(made - y / (1 + np.exp(-y))).max() < 1e-5 and np.array_equal(held, x[-3:].T), "causal convolution")
    refused(ValueError, ["(70, 6)", "[c, k]"], kvant.ops.causal_conv, x, w[:5])
    refused(ValueError, ["(1,)", "[6]"], kvant.ops.causal_conv, x, w, bias=np.zeros(1))


def check_engine():
    engine = kvant.Engine(MODEL, n_ctx=512, k="tbq4_0", v="tbq3_0")
    made = engine.generate("Once upon a time", 24)
    run = subprocess.run([program(), "run", "-m", MODEL, "-p", "Once upon a time", "-n", "24", "--temp", "0", "-c", "512", "--device", "cpu", "-ctk", "tbq4_0",
                          "-ctv", "tbq3_0", "--json"], capture_output=True, text=True, check=False)
    said = json.loads(run.stdout)
    ok(len(said["ids"]) >= 20 and made.tokens[:len(said["ids"])] == said["ids"] and made.text.startswith(said["text"]), f"tokens: {made.tokens} {said['ids']}")
    ids = engine.model.tokenize("Once upon a time") + made.tokens
    lp = engine.logprobs(ids)
    ok(lp.shape == (len(ids), engine.model.n_vocab) and np.abs(np.exp(lp.astype(float)).sum(1) - 1).max() < 1e-5, "log-probabilities sum to 1")
    ok(max(abs(lp[4 + i, t] - made.logprobs[i]) for i, t in enumerate(made.tokens)) < 0.05, "log-probabilities of steps are those of a prompt")
    a, b = engine.embed("a dog"), engine.embed("a dog", pooling="last")
    ok(abs(float(a @ a) - 1) < 1e-5 and not np.array_equal(a, b), "embeddings")
    ok(engine.generate("x", 8, temperature=1.0, seed=5).tokens == engine.generate("x", 8, temperature=1.0, seed=5).tokens, "a seed's tokens")
    refused(TypeError, ["top_q"], engine.generate, "x", 1, top_q=1)
    with engine.sequence():
        refused(kvant.KvantError, ["1 are in use"], engine.sequence)
    dropped = engine.sequence()
    del dropped
    with engine.sequence():
        ok(True, "a sequence that nobody holds gives its place back")
    refused(kvant.KvantError, ["no such file"], kvant.Engine, "/nonexistent.gguf")


def check_serve():
    with kvant.serve(MODEL, "-c", "256") as server:
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 4}).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            ok(json.load(answer)["usage"]["completion_tokens"] == 4, "a completion")
    ok(server.process.returncode == 0, f"the server ended with {server.process.returncode}")
    refused(RuntimeError, ["no such file"], kvant.serve, "/nonexistent.gguf")


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"      # one that nobody waits for has ended too
    except OSError:
        return False


def check_killed():
    """A program that is killed takes its server along, also where the thread that started it has ended before."""
    code = """if True:
        import sys, threading, time, kvant
        made = []
        starter = threading.Thread(target=lambda: made.append(kvant.serve(sys.argv[1], "-c", "256")))
        starter.start()
        starter.join()
        time.sleep(0.5)
        print(made[0].process.pid, made[0].process.poll(), flush=True)
        time.sleep(600)"""
    with subprocess.Popen([sys.executable, "-c", code, MODEL], stdout=subprocess.PIPE, text=True) as program_of_user:
        pid, ended_before = program_of_user.stdout.readline().split()
        ok(ended_before == "None" and runs(int(pid)), "the server outlives the thread that started it")
        program_of_user.kill()
    end = time.time() + 30
    while runs(int(pid)) and time.time() < end:
        time.sleep(0.05)
    ok(not runs(int(pid)), "the server ends with the program")


for check in (check_formats, check_attention, check_recurrent, check_engine, check_serve, check_killed):
    check()
sys.exit(ended("try_package"))
