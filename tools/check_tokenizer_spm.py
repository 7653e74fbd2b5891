#!/usr/bin/env python3
"""Compares kvant's SentencePiece vocabularies with the `sentencepiece` package, an implementation that shares no code with it.

  tools/check_tokenizer_spm.py check [--program build/release/bin/check_tokenizer] [--cases 20000] [--seed 1]
  tools/check_tokenizer_spm.py golden      writes tests/golden/tokenizer/spm-*.gguf, spm.tsv and unigram/tokenizer.model

Needs the packages sentencepiece, protobuf, tokenizers and gguf; nothing of this is needed to build, to run or to test kvant.  Small vocabularies are trained
on texts made here: `prefix` as Llama's (a space before the text, bytes for unknown characters), `plain` as Gemma's (no such
space, user-defined tokens), `unk` without byte tokens; of unigram models `best` as those of Japanese Llamas, `nfkc` (not a golden
one: its map is large) as T5's, `user` with user-defined tokens.  The files' keys and token kinds are those that the field's
converter writes.  Bytes that are not UTF-8 are not compared: the package replaces them."""
import argparse, io, random, subprocess, sys, tempfile
from pathlib import Path
import gguf, sentencepiece, tokenizers
from sentencepiece import sentencepiece_model_pb2
import check_tokenizer_hf as hf

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/tokenizer"
RULES = {"A": "a", "\u00c9": "\u00e9", "e\u0301": "\u00e9", "\u3000": " ", "\t": " ", "\ufb01": "fi", "\u2026": "...", "\u00a8": " \u0308", "\u200b": ""}
MODELS = {
    "prefix": dict(byte_fallback=True, add_dummy_prefix=True),
    "plain": dict(byte_fallback=True, add_dummy_prefix=False, user_defined_symbols=["<table>", "\n\n", "\u2581\u2581", "<tab", "{u}"]),
    "unk": dict(byte_fallback=False, add_dummy_prefix=True),
    "best": dict(model_type="unigram", byte_fallback=True, add_dummy_prefix=True, remove_extra_whitespaces=True),
    "nfkc": dict(model_type="unigram", byte_fallback=False, add_dummy_prefix=True, remove_extra_whitespaces=True, normalization_rule_name="nmt_nfkc"),
    "user": dict(model_type="unigram", byte_fallback=False, add_dummy_prefix=False, user_defined_symbols=["<table>", "{u}"]),
}


def train(name):
    rng = random.Random(5)
    lines = [" ".join(rng.choice(hf.WORDS + ["return", "static int", "    if (", "def f(x):", "==", "the", "and"])
                      for _ in range(12)) for _ in range(2000)]
    out = io.BytesIO()
    how = dict(model_type="bpe", vocab_size=620, character_coverage=0.995, normalization_rule_name="identity",
               remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True, minloglevel=2,
               num_threads=1, hard_vocab_limit=False)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("".join("%s\t%s\n" % (" ".join("%X" % ord(c) for c in a), " ".join("%X" % ord(c) for c in b)) for a, b in RULES.items()))
        rules.flush()
        if name == "best":
            del how["normalization_rule_name"]
            how["normalization_rule_tsv"] = rules.name
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, **{**how, **MODELS[name]})
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def write(sp, name, path):
    """As the field's converter: user-defined texts have spaces, every token a score and a kind."""
    tokens, scores, kinds = [], [], []
    for i in range(sp.vocab_size()):
        piece = sp.id_to_piece(i)
        kind = 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 5 if sp.is_unused(i) else 6 if sp.is_byte(i) else 1
        if piece in [u.replace(" ", "\u2581") for u in MODELS[name].get("user_defined_symbols", [])]:
            piece, kind = piece.replace("\u2581", " "), 4
        tokens.append(piece)
        scores.append(sp.get_score(i))
        kinds.append(kind)
    w = gguf.GGUFWriter(path, "llama")
    proto = sentencepiece_model_pb2.ModelProto.FromString(sp.serialized_model_proto())
    w.add_tokenizer_model("t5" if proto.trainer_spec.model_type == 1 else "llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_scores(scores)
    w.add_token_types(kinds)
    w.add_bos_token_id(sp.bos_id())
    w.add_eos_token_id(sp.eos_id())
    w.add_unk_token_id(sp.unk_id())
    w.add_add_space_prefix(MODELS[name]["add_dummy_prefix"])
    if proto.trainer_spec.model_type == 1:
        w.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
        if proto.normalizer_spec.precompiled_charsmap:
            w.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


class Doubles:
    """A unigram model's ids by `tokenizers`, which adds scores up in f64 as kvant does: sentencepiece's f32 sums decide near ties
    by their rounding.  Texts are normalised by sentencepiece."""
    def __init__(self, sp):
        proto = sentencepiece_model_pb2.ModelProto.FromString(sp.serialized_model_proto())
        self.sp, self.own = sp, proto.trainer_spec.model_type == 1
        self.user = [p.piece for p in proto.pieces if p.type == 4]
        if self.own:
            vocab = [(p.piece if p.type in (1, 6) else "\0%d" % i, p.score) for i, p in enumerate(proto.pieces)]
            self.model = tokenizers.models.Unigram(vocab, sp.unk_id(), proto.trainer_spec.byte_fallback)

    def ids(self, text):
        want = self.sp.encode(text)
        if not self.own or any(u in text for u in self.user):
            return want
        return [t.id for t in self.model.tokenize(self.sp.normalize(text))]


class Kvant:
    def __init__(self, program, vocab):
        self.p = subprocess.Popen([program, "--stdin", str(vocab)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ids(self, data):
        self.p.stdin.write("0 %s\n" % data.hex())
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        return line.strip() if not line or line.startswith("error") else [int(x) for x in line.split()]


def texts(seed, n):
    rng = random.Random(seed)
    for t in hf.fixed():
        yield t
    for i in range(n):
        k = i % 4
        if k == 0:
            yield hf.random_text(rng)
        elif k == 1:
            yield "".join(rng.choice("ab  \n<table>{u}\u2581th") for _ in range(rng.randint(1, 30))).encode()
        elif k == 2:
            yield " ".join(rng.choice(hf.WORDS) for _ in range(rng.randint(1, 8))).encode()
        else:
            yield (rng.choice(["a", "the", " ", "\n", "aa ", "\u2581", "é", "日"]) * rng.randint(1, 80)).encode()


def valid(data, name):
    """The text, or None: not compared.  U+2581 itself is a space for the package: also in a user-defined token, that kvant (and
    llama.cpp) look for in the text as it came."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if name in ("plain", "user") and "\u2581" in text else text


def check(args):
    bad = done = near = 0
    with tempfile.TemporaryDirectory() as d:
        for name in MODELS:
            sp = train(name)
            write(sp, name, Path(d) / "v.gguf")
            doubles = Doubles(sp)
            us = Kvant(args.program, Path(d) / "v.gguf")
            for data in texts(args.seed, args.cases):
                text = valid(data, name)
                if text is None:
                    continue
                want, got = sp.encode(text), us.ids(data)
                done += 1
                if want != got and got == doubles.ids(text):
                    near += 1
                    continue
                bad += want != got
                if want != got and bad <= 10:
                    print("DIFFERS", name, data[:120], "\n  want", want[:40], "\n  got ", got[:40])
            us.p.stdin.close()
    print(f"{done} texts over {len(MODELS)} vocabularies, seed {args.seed}: {bad} differ, "
          f"{near} only from sentencepiece's f32 sums")
    return 1 if bad else 0


def golden(_):
    with open(GOLDEN / "spm.tsv", "w") as f:
        f.write("# made by tools/check_tokenizer_spm.py golden with sentencepiece %s: do not edit\n"
                "# vocabulary, text in hex, ids\n" % sentencepiece.__version__)
        for name in [n for n in MODELS if n != "nfkc"]:
            sp = train(name)
            write(sp, name, GOLDEN / f"spm-{name}.gguf")
            if name == "best":
                (GOLDEN / "unigram/tokenizer.model").write_bytes(sp.serialized_model_proto())
            doubles = Doubles(sp)
            for data in list(texts(3, 120))[::2]:
                if valid(data, name) is not None and len(data) < 200 and sp.encode(data.decode()) == doubles.ids(data.decode()):
                    f.write("%s\t%s\t%s\n" % (name, data.hex(), " ".join(map(str, sp.encode(data.decode())))))
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["check", "golden"])
    p.add_argument("--program", default=str(ROOT / "build/release/bin/check_tokenizer"))
    p.add_argument("--cases", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    sys.exit({"check": check, "golden": golden}[args.command](args))


if __name__ == "__main__":
    main()
