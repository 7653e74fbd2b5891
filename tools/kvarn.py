#!/usr/bin/env python3
"""kvarn.py: KVarN (arXiv 2606.03458) beside kvant's formats: its published algorithm, written again from its description, in the cache
of a qwen3 model whose forward pass is plain PyTorch; KL divergence against the exact cache, as `kvant eval kl` counts it.

  tools/kvarn.py [--model FILE.gguf] [--text FILE] [--chunks 16] [--ctx 2048] [--tail 128] [--sink 0]
                 [--bits 4,3,2] [--check FORMAT] [--json FILE]

A tile is 128 tokens of one head after RoPE: K as [d, tokens], V as [tokens, d], both rotated by a Hadamard matrix of d.  Sixteen rounds
of balancing: the logarithm of the column scales grows by ln std of the columns (unbiased, 1e-3 .. 1e3), is clipped to -.3 .. 10, then
the same by rows; the round with the least spread (largest over smallest std, columns plus rows) counts, the unscaled tile included.
Each row of the balanced tile keeps lo and a step of (hi - lo) / (2^b - 1); f16 are row scale x step, row scale x lo and column scale.
128 x 3 x 16 bits over 128 x 128 values: b + .375 bits.

The exact tail is kvant's: query i reads page p of 64 tokens exactly while i / 64 - p < tail / 64, so both keep the same tokens.  --sink N
keeps the first N tokens exact as well, as StreamingLLM does.
--check FORMAT runs one of kvant's own formats through this forward pass (libkvant, by the Python package): its divergence must be that
of `kvant eval kl`, or this comparison means nothing."""
import argparse
import json
import math
import os
import sys

import numpy as np
import torch

PAGE, TILE = 64, 128


# ---- KVarN ----

def hadamard(n):
    h = torch.ones(1, 1)
    while len(h) < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / math.sqrt(n)


def spread(x):
    """Largest over smallest std of the columns plus that of the rows; x [..., rows, columns]."""
    parts = [x.std(axis).clamp(1e-3, 1e3) for axis in (-2, -1)]
    return sum(p.amax(-1) / p.amin(-1) for p in parts)


def balance(x):
    """x [tiles, r, c] -> row scales, column scales (logarithms), the balanced tiles."""
    log_c, log_r = torch.zeros_like(x[:, :1, :]), torch.zeros_like(x[:, :, :1])
    best, least = (log_r, log_c), spread(x)
    for _ in range(16):
        y = x * torch.exp(-log_r - log_c)
        log_c = (log_c + y.std(1, keepdim=True).clamp(1e-3, 1e3).log()).clamp(-.3, 10)
        y = x * torch.exp(-log_r - log_c)
        log_r = (log_r + y.std(2, keepdim=True).clamp(1e-3, 1e3).log()).clamp(-.3, 10)
        now = spread(x * torch.exp(-log_r - log_c))
        take = (now <= least)[:, None, None]
        best = torch.where(take, log_r, best[0]), torch.where(take, log_c, best[1])
        least = torch.minimum(now, least)
    row, column = best[0].exp(), best[1].exp()
    return row, column, x / row / column


def half(x):
    return x.half().float()


def kvarn_tiles(x, bits):
    row, column, y = balance(x)
    lo, hi = y.amin(2, keepdim=True), y.amax(2, keepdim=True)
    step = ((hi - lo) / (2 ** bits - 1)).clamp(min=1e-10)
    q = ((y - lo) / step).round().clamp(0, 2 ** bits - 1)
    return (q * half(row * step) + half(row * lo)) * half(column)


def kvarn(x, bits, keys):
    """Rows x [tokens, d] of one head, whole tiles of it as the cache would give them back."""
    n = len(x) // TILE * TILE
    h = hadamard(x.shape[1])
    tiles = (x[:n] @ h).reshape(-1, TILE, x.shape[1])
    if keys:
        tiles = tiles.transpose(1, 2)
    out = kvarn_tiles(tiles, bits)
    out = (out.transpose(1, 2) if keys else out).reshape(n, -1) @ h      # H is its own inverse
    return torch.cat([out, x[n:]])


# ---- the model ----

class Model:
    """qwen3 from GGUF: what its forward pass needs."""

    def __init__(self, path):
        from gguf import GGUFReader, dequantize
        r = GGUFReader(path)
        field = {k: f.contents() for k, f in r.fields.items() if not k.startswith("tokenizer")}
        if field["general.architecture"] != "qwen3":
            sys.exit(f"kvarn.py: {path}: architecture {field['general.architecture']} found, qwen3 wanted")
        get = lambda name: field["qwen3." + name]
        self.layers, self.heads, self.kv = get("block_count"), get("attention.head_count"), get("attention.head_count_kv")
        self.d, self.base, self.eps = get("attention.key_length"), get("rope.freq_base"), get("attention.layer_norm_rms_epsilon")
        self.w = {t.name: torch.tensor(np.array(dequantize(t.data, t.tensor_type), np.float32)) for t in r.tensors}

    def norm(self, x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.w[name]

    def rope(self, x):
        """x [heads, tokens, d], neighbours d/2 apart."""
        half_d = self.d // 2
        angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * self.base ** (-torch.arange(half_d, dtype=torch.float64) / half_d)
        c, s = angle.cos().float(), angle.sin().float()
        a, b = x[..., :half_d], x[..., half_d:]
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    def attention(self, q, k, v, store, exact):
        """Of one KV head and its queries; exact [tokens, tokens]: which keys a query reads exactly."""
        kf, vf = half(k), half(v)
        scale, seen = 1 / math.sqrt(self.d), torch.ones(len(k), len(k), dtype=torch.bool).tril()
        kc, vc = (kf, vf) if store is None else (store(k, True), store(v, False))
        out = []
        for one in q:
            s = torch.where(exact, one @ kf.T, one @ kc.T) * scale
            p = torch.softmax(s.masked_fill(~seen, -torch.inf), -1)
            out.append((p * exact) @ vf + (p * ~exact) @ vc)
        return torch.stack(out)

    def block(self, x, i, store, exact):
        at, n = f"blk.{i}.", len(x)
        y = self.norm(x, at + "attn_norm.weight")
        part = lambda name, h: (y @ self.w[at + name].T).reshape(n, h, self.d).transpose(0, 1)
        q = self.rope(self.norm(part("attn_q.weight", self.heads), at + "attn_q_norm.weight"))
        k = self.rope(self.norm(part("attn_k.weight", self.kv), at + "attn_k_norm.weight"))
        v, g = part("attn_v.weight", self.kv), self.heads // self.kv
        o = torch.cat([self.attention(q[h * g:(h + 1) * g], k[h], v[h], store, exact) for h in range(self.kv)])
        x = x + o.transpose(0, 1).reshape(n, -1) @ self.w[at + "attn_output.weight"].T
        y = self.norm(x, at + "ffn_norm.weight")
        y = torch.nn.functional.silu(y @ self.w[at + "ffn_gate.weight"].T) * (y @ self.w[at + "ffn_up.weight"].T)
        return x + y @ self.w[at + "ffn_down.weight"].T

    def log_probs(self, ids, store, tail, sink):
        page = torch.arange(len(ids)) // PAGE
        exact = (page[:, None] - page[None, :] < tail // PAGE) | (page < sink // PAGE)
        x = self.w["token_embd.weight"][ids]
        for i in range(self.layers):
            x = self.block(x, i, store, exact)
        first = len(ids) // 2                      # the second half counts, and the last token predicts nothing
        x = self.norm(x[first:-1], "output_norm.weight") @ self.w.get("output.weight", self.w["token_embd.weight"]).T
        return torch.log_softmax(x.double(), -1)


# ---- kvant's own formats, as a check ----

def kvant_store(name):
    import kvant
    f = kvant.formats.get(name)

    def store(x, _keys):
        n, d = len(x) // PAGE * PAGE, x.shape[1]
        return torch.cat([torch.tensor(f.decode(f.encode(x[:n].numpy()), d)), x[n:]])
    return store


# ---- the table ----

def chunks_of(model_path, text, ctx, most):
    import kvant
    ids = kvant.Model(model_path).tokenize(open(text, encoding="utf-8").read())
    return [torch.tensor(ids[i * ctx:(i + 1) * ctx]) for i in range(min(most, len(ids) // ctx))]


def measure(model, chunks, stores, tail, sink):
    kld, same = {name: [] for name in stores}, {name: [] for name in stores}
    for c, ids in enumerate(chunks):
        p = model.log_probs(ids, None, tail, sink)
        for name, store in stores.items():
            q = model.log_probs(ids, store, tail, sink)
            kld[name].append((p.exp() * (p - q)).sum(-1))
            same[name].append(p.argmax(-1) == q.argmax(-1))
        print(f"chunk {c + 1}/{len(chunks)}: " + ", ".join(f"{n} {k[-1].mean():.5f}" for n, k in kld.items()), file=sys.stderr, flush=True)
    out = []
    for name in stores:
        x, top = torch.cat(kld[name]), torch.cat(same[name]).double()
        out.append(dict(name=name, mean=x.mean().item(), mean_err=(x.std() / math.sqrt(len(x))).item(), median=x.median().item(),
                        p99=x.quantile(.99).item(), p99_9=x.quantile(.999).item(), same_top=top.mean().item(), rows=len(x)))
    return out


def main():
    shared = os.environ.get("KVANT_MODELS", "../shared/models")
    a = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    a.add_argument("--model", default=os.path.join(shared, "novella-dense-bf16.gguf"))
    a.add_argument("--text", default=os.path.join(shared, "valid.txt"))
    for name, value in (("chunks", 16), ("ctx", 2048), ("tail", 128), ("sink", 0)):
        a.add_argument(f"--{name}", type=int, default=value)
    a.add_argument("--bits", default="4,3,2")
    a.add_argument("--check", help="a cache format of kvant to run as well")
    a.add_argument("--json")
    o = a.parse_args()
    stores = {f"kvarn{b}": lambda x, keys, b=int(b): kvarn(x, b, keys) for b in o.bits.split(",") if b}
    if o.check:
        stores[o.check] = kvant_store(o.check)
    with torch.no_grad():
        results = measure(Model(o.model), chunks_of(o.model, o.text, o.ctx, o.chunks), stores, o.tail, o.sink)
    for r in results:
        print(f"{r['name']}: mean KLD {r['mean']:.5f} +- {r['mean_err']:.2g}, median {r['median']:.3g}, 99 % {r['p99']:.3g}, "
              f"99.9 % {r['p99_9']:.3g}, same top {100 * r['same_top']:.2f} %")
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(dict(ctx=o.ctx, chunks=o.chunks, tail=o.tail, sink=o.sink, results=results), f, indent=1)


if __name__ == "__main__":
    main()
