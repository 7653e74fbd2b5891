#!/usr/bin/env python3
"""train_mtp.py: trains a block that predicts further tokens (MTP) for a small dense qwen3 model, by distillation from the model itself.

    nice python3 tools/train_mtp.py TRUNK.gguf TEXT.txt HEAD.gguf [--minutes 12] [--threads 1]

HEAD.gguf has the tensors blk.N.* and blk.N.nextn.* behind the trunk's N layers, and the keys that say so; `kvant run -m TRUNK.gguf -md HEAD.gguf`.
The text: half of it, and what the trunk itself writes after pieces of that half.  The other half is held out: the share of its tokens where the
head's likeliest token is the trunk's is printed, also of the second and third token that it guesses from its own hidden states.

Row q of the block has the embedding of token q and the trunk's hidden state of token q - 1, both normed (row 0: zeros for the state), and predicts
what the trunk predicts at q.  For further tokens its own normed output stands for the hidden state.  Needs torch, gguf, tokenizers; any CPU."""
import argparse
import json
import math
import sys
import time

import gguf
import numpy as np
import torch
import torch.nn.functional as F

SEED, PIECE, BATCH, RATE = 7, 256, 8, 3e-3


# ---- the trunk ----

class Trunk:
    def __init__(self, path):
        r = gguf.GGUFReader(path)
        get = lambda k: r.fields[k].contents()
        assert get("general.architecture") == "qwen3", "wanted a dense qwen3 model"
        self.n, self.e = get("qwen3.block_count"), get("qwen3.embedding_length")
        self.heads, self.kv = get("qwen3.attention.head_count"), get("qwen3.attention.head_count_kv")
        self.hd, self.base, self.eps = get("qwen3.attention.key_length"), get("qwen3.rope.freq_base"), get("qwen3.attention.layer_norm_rms_epsilon")
        self.w = {t.name: tensor(t) for t in r.tensors}
        self.tokens, self.merges = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.merges")
        self.half = {k: v.bfloat16() for k, v in self.w.items()}
        self.out = self.half.get("output.weight", self.half["token_embd.weight"])


def tensor(t):
    raw = np.array(t.data)
    if t.tensor_type == gguf.GGMLQuantizationType.BF16:
        x = torch.from_numpy(raw.view(np.int16).copy()).view(torch.bfloat16).float()
    else:
        x = torch.from_numpy(raw.astype(np.float32))
    return x.reshape([int(d) for d in reversed(t.shape)])


def rms(x, w, eps):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def rope(x, base, pos0=0):
    d, n = x.shape[-1], x.shape[-2]
    f = base ** (-torch.arange(0, d, 2).float() / d)
    a = (torch.arange(pos0, pos0 + n).float()[:, None] * f[None])
    c, s = a.cos().to(x.dtype), a.sin().to(x.dtype)
    u, v = x[..., :d // 2], x[..., d // 2:]
    return torch.cat([u * c - v * s, u * s + v * c], -1)


def block(t, w, p, x, past=None):
    """x[b][n][e] -> the same; past: (k, v) of earlier rows, which grow."""
    b, n, _ = x.shape
    a = rms(x, w[p + "attn_norm.weight"], t.eps)
    heads = lambda name, h: F.linear(a, w[p + name]).view(b, n, h, t.hd).transpose(1, 2)
    pos0 = past[0].shape[2] if past else 0
    q = rope(rms(heads("attn_q.weight", t.heads), w[p + "attn_q_norm.weight"], t.eps), t.base, pos0)
    k = rope(rms(heads("attn_k.weight", t.kv), w[p + "attn_k_norm.weight"], t.eps), t.base, pos0)
    v = heads("attn_v.weight", t.kv)
    if past:
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=True)
    x = x + F.linear(o.transpose(1, 2).reshape(b, n, -1), w[p + "attn_output.weight"])
    f = rms(x, w[p + "ffn_norm.weight"], t.eps)
    x = x + F.linear(F.silu(F.linear(f, w[p + "ffn_gate.weight"])) * F.linear(f, w[p + "ffn_up.weight"]), w[p + "ffn_down.weight"])
    return x, (k, v)


@torch.no_grad()
def trunk_hidden(t, ids):
    x = t.half["token_embd.weight"][ids]
    for l in range(t.n):
        x, _ = block(t, t.half, f"blk.{l}.", x)
    return rms(x, t.half["output_norm.weight"], t.eps)


@torch.no_grad()
def write_texts(t, prompts, n, temp):
    """prompts[b][p] -> texts [b][n] by the trunk, and its hidden states; temp[b]."""
    past, ids, out, states = [None] * t.n, prompts, [prompts], []
    while True:
        x = t.half["token_embd.weight"][ids]
        for l in range(t.n):
            x, past[l] = block(t, t.half, f"blk.{l}.", x, past[l])
        states.append(rms(x, t.half["output_norm.weight"], t.eps))
        if sum(x.shape[1] for x in out) == n:
            return torch.cat(out, 1), torch.cat(states, 1)
        ids = torch.multinomial(torch.softmax(F.linear(states[-1][:, -1], t.out).float() / temp[:, None], -1), 1)
        out.append(ids)


@torch.no_grad()
def likeliest(t, hidden):
    return torch.cat([F.linear(h, t.out).argmax(-1) for h in hidden.split(BATCH)])


# ---- the head ----

def fresh_head(t):
    """Begins as the trunk's last block, whose input is the hidden state and some of the embedding."""
    last = f"blk.{t.n - 1}."
    w = {k[len(last):]: v.clone() for k, v in t.w.items() if k.startswith(last)}
    eye = torch.eye(t.e)
    w["nextn.eh_proj.weight"] = torch.cat([eye, eye], 1) + torch.randn(t.e, 2 * t.e) * 0.01
    w["nextn.enorm.weight"], w["nextn.hnorm.weight"] = torch.ones(t.e), torch.ones(t.e)
    w["nextn.shared_head_norm.weight"] = t.w["output_norm.weight"].clone()
    return {k: v.requires_grad_() for k, v in w.items()}


def head_rows(t, w, emb, hidden):
    """Row q: token q and the hidden state of q - 1 -> the head's normed output."""
    before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], 1)
    x = torch.cat([rms(emb, w["nextn.enorm.weight"], t.eps), rms(before, w["nextn.hnorm.weight"], t.eps)], -1)
    x, _ = block(t, w, "", F.linear(x, w["nextn.eh_proj.weight"]))
    return rms(x, w["nextn.shared_head_norm.weight"], t.eps)


def passes(t, w, ids, depth, hidden):
    emb, h = t.half["token_embd.weight"][ids], hidden
    for _ in range(depth):
        h = head_rows(t, w, emb, h)
        yield h


@torch.no_grad()
def agreement(t, w, data, depth=3):
    """Shares of tokens at which the head's likeliest is the trunk's: by how many of its own states it went on from."""
    half, hit, n = {k: v.detach().bfloat16() for k, v in w.items()}, np.zeros(depth), 0
    for i in range(0, len(data), BATCH):
        ids = data[i:i + BATCH]
        hidden = trunk_hidden(t, ids)
        want = likeliest(t, hidden)[:, depth:]
        n += want.numel()
        for d, got in enumerate(passes(t, half, ids, depth, hidden)):
            hit[d] += (likeliest(t, got)[:, depth:] == want).sum().item()
    return hit / n


def loss_of(t, got, hidden, best):
    """Its state is to be the trunk's, and its likeliest token the trunk's: of every second row, to save time."""
    near = F.smooth_l1_loss(got.float(), hidden.float(), beta=0.5)
    logits = F.linear(got[:, 1::2], t.out).float()
    return 2.0 * near + F.cross_entropy(logits.flatten(0, 1), best[:, 1::2].flatten())


def train(t, data, minutes, depth, report):
    ids, hidden, best = data
    w = fresh_head(t)
    wide, thin = [v for v in w.values() if v.dim() > 1], [v for v in w.values() if v.dim() == 1]
    opts = [torch.optim.Muon(wide, lr=RATE, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"), torch.optim.AdamW(thin, lr=RATE, weight_decay=0)]
    start, step = time.time(), 0
    while (done := (time.time() - start) / (60 * minutes)) < 1:
        if step % (len(ids) // BATCH) == 0:
            order = torch.randperm(len(ids))
        at = order[step * BATCH % (len(ids) // BATCH * BATCH):][:BATCH]
        for g in opts[0].param_groups + opts[1].param_groups:
            g["lr"] = RATE * min(1, (step + 1) / 20) * (0.02 + 0.98 * min(1, 2 * (1 - done)))
        rows = passes(t, {k: v.bfloat16() for k, v in w.items()}, ids[at], 1 + step % depth, hidden[at])
        loss = sum(0.7 ** d * loss_of(t, got, hidden[at], best[at]) for d, got in enumerate(rows))
        for v in w.values():
            v.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
        for o in opts:
            o.step()
        if step % 30 == 0:
            print(f"step {step}, {100 * done:.0f} %: loss {loss.item():.3f}", flush=True)
        step += 1
        if step % 150 == 0:
            report(w)
    report(w)


# ---- files ----

def save(t, w, path):
    g = gguf.GGUFWriter(path, "qwen3")
    g.add_name("a block that predicts further tokens, for novella-dense")
    g.add_uint32("qwen3.block_count", t.n + 1)
    g.add_uint32("qwen3.nextn_predict_layers", 1)
    for k, v in w.items():
        x = v.detach()
        if x.dim() > 1:
            q = gguf.quants.quantize(x.numpy(), gguf.GGMLQuantizationType.Q8_0)
            g.add_tensor(f"blk.{t.n}.{k}", q, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            g.add_tensor(f"blk.{t.n}.{k}", x.numpy())
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


def encode(path, text):
    from tokenizers import Tokenizer
    return torch.tensor(Tokenizer.from_file(path).encode(text, add_special_tokens=False).ids)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("trunk")
    a.add_argument("text")
    a.add_argument("head")
    a.add_argument("--tokenizer", required=True, help="tokenizer.json of the trunk")
    a.add_argument("--minutes", type=float, default=12)
    a.add_argument("--texts", type=int, default=6, help="rounds of 256 texts that the trunk writes")
    a.add_argument("--depth", type=int, default=2, help="tokens that it learns to guess")
    a.add_argument("--threads", type=int, default=1)
    a = a.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(a.threads)
    t = Trunk(a.trunk)
    text = open(a.text, encoding="utf-8").read()
    ids = encode(a.tokenizer, text[:len(text) // 2])
    held = encode(a.tokenizer, text[len(text) // 2:])
    cut = lambda x: x[:len(x) // PIECE * PIECE].view(-1, PIECE)
    own = cut(ids)
    data = [(own, torch.cat([trunk_hidden(t, x) for x in own.split(BATCH)]))]
    for r in range(a.texts):
        at = torch.randint(0, len(ids) - 64, (256,))
        data.append(write_texts(t, torch.stack([ids[i:i + 8] for i in at]), PIECE, torch.rand(256) * 0.9 + 0.15))
        print(f"texts: {(r + 1) * 256 * PIECE} tokens", flush=True)
    texts, hidden = (torch.cat(x) for x in zip(*data))

    def report(w):
        save(t, w, a.head)
        print(json.dumps({"held-out": agreement(t, w, cut(held)[:48]).round(4).tolist()}), flush=True)

    train(t, (texts, hidden, likeliest(t, hidden)), a.minutes, a.depth, report)


if __name__ == "__main__":
    sys.exit(main())
