#!/usr/bin/env python3
"""Compares kvant's tokenizer with Hugging Face's `tokenizers`, an implementation that shares no code with it.

  tools/check_tokenizer_hf.py check    [--program build/release/bin/check_tokenizer] [--cases 2000] [--seed 1]
  tools/check_tokenizer_hf.py golden   writes tests/golden/tokenizer/{novella-vocab.gguf,golden.tsv}

Makes a virtual environment (build/tokenizer-venv) with the pinned package when the running Python lacks it; nothing of
this is needed to build, to run or to test kvant: CI reads the golden file.

Source: novella-tokenizer.json in $KVANT_MODELS (default ../shared/models).  The same vocabulary is put behind each of
the pre-tokenizers, each with the normaliser and the ignore_merges of the models that use it.

Characters are drawn from those assigned in Unicode 14: \\p{L}, \\p{M} and \\p{N} follow the Unicode version of the library
(PCRE2 10.42: 14), so later characters may be cut differently.  Bytes that are not UTF-8 cannot be given to `tokenizers`:
expected are the ids of every valid run, with the byte's own token between."""
import argparse, json, os, random, struct, subprocess, sys, unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/tokenizer"
PINNED = "tokenizers==0.22.1"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
MIXED = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
QWEN2 = CONTRACTION + "|" + WORD + r"|\p{N}|" + MIXED + "|" + SPACES
LLAMA3 = CONTRACTION + "|" + WORD + r"|\p{N}{1,3}|" + MIXED + "|" + SPACES
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGITS = {"type": "Digits", "individual_digits": True}
CJK = r"[一-龥぀-ゟ゠-ヿ]+"
PUNCT_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"


def cased(tail, han="", digits=r"\p{N}{1,3}", after=r"[\r\n/]*"):
    up, low = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]" % han, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]" % han
    first = r"[^\r\n\p{L}\p{N}]?"
    return "|".join([first + up + "*" + low + "+" + tail, first + up + "+" + low + "*" + tail, digits,
                     r" ?[^\s\p{L}\p{N}]+" + after, SPACES])


# As the models' tokenizer.json files publish them: one after another, each Split and Isolated.
PATTERNS = {
    "qwen35": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES],
    "qwen2": [QWEN2],
    "llama-bpe": [LLAMA3],
    "gpt-2": [],
    "gpt-4o": [cased(CONTRACTION + "?")],
    "tekken": [cased("", digits=r"\p{N}")],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", DIGITS],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, PUNCT_WORD + r"[\r\n]*|" + SPACES],
    "spark2_5": [r"\p{N}{1,3}", CJK, PUNCT_WORD + r"|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + CJK, cased(CONTRACTION + "?", digits=r"\p{N}")],
    "smollm": [DIGITS, GPT2],
    "command-r": [DIGITS, GPT2],
    "falcon": [{"type": "Punctuation", "behavior": "Contiguous"}, GPT2, "[0-9][0-9][0-9]"],
    "seed-coder": [CONTRACTION + "|" + WORD + r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES],
    "kimi-k2": [r"[\p{Han}]+|" + cased(CONTRACTION + "?", r"&&[^\p{Han}]", after=r"[\r\n]*")],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", cased(CONTRACTION + "?")],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "viking": [r" ?[^(\s|[.,!?…。，、।۔،])]+", DIGITS],
    "jais-2": [CONTRACTION + "|" + WORD + r"|\p{N}{1,3}|" + MIXED + r"|\s*[\r\n]+|" +
               "|".join(r"\s{%d}(?!\S)" % n for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"],
    "exaone-moe": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|"
                   r"\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", CONTRACTION + "|" + WORD + r"|\p{N}+|" + MIXED + "|" + SPACES],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "ufakzeka": [WORD + r"|\p{N}|" + MIXED + "|" + SPACES],
    "chameleon": [r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", DIGITS,
                  r"[\p{P}!-/:-@\[-`{-~]", GPT2],
}
NFC = {"qwen2", "qwen35", "command-r"}
IGNORE_MERGES = {"llama-bpe", "tekken", "youtu", "minicpm5"}
PRES = list(PATTERNS)
FIRST = ["qwen35", "qwen2", "llama-bpe", "gpt-2"]   # golden ids as well, long runs (the reference is quadratic with others)


def models_dir():
    return Path(os.environ.get("KVANT_MODELS", ROOT / "../shared/models"))


def source():
    return json.loads((models_dir() / "novella-tokenizer.json").read_text())


def ensure_package():
    try:
        import tokenizers  # noqa: F401
        return
    except ImportError:
        pass
    venv = ROOT / "build/tokenizer-venv"
    python = venv / "bin/python"
    if python == Path(sys.executable):
        sys.exit("the virtual environment lacks " + PINNED)
    if not python.exists():
        subprocess.check_call([sys.executable, "-m", "venv", str(venv)])
        subprocess.check_call([str(python), "-m", "pip", "install", "-q", PINNED])
    os.execv(str(python), [str(python)] + sys.argv)


def hf_tokenizer(pre, special):
    """The tokenizer of the file behind pre-tokenizer `pre`; special: control tokens in the text are recognised."""
    from tokenizers import Tokenizer
    t = source()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pre == "gpt-2"}
    stages = [p if isinstance(p, dict) else {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
              for p in PATTERNS[pre]]
    t["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": stages + [byte_level]}
    t["normalizer"] = {"type": "NFC"} if pre in NFC else None
    t["model"]["ignore_merges"] = pre in IGNORE_MERGES
    if not special:
        t["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(t))


class Reference:
    def pieces(self, text):
        """Byte offsets where the pieces of a text end, before any normalisation."""
        end, out = 0, []
        for piece, _ in self.plain.pre_tokenizer.pre_tokenize_str(text):
            end += len(piece)           # in the byte alphabet: one character a byte
            out.append(end)
        return out

    def __init__(self, pre):
        self.plain, self.special = hf_tokenizer(pre, False), hf_tokenizer(pre, True)
        alphabet = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
        extra = [b for b in range(256) if b not in alphabet]
        char = {b: chr(b) for b in alphabet} | {b: chr(256 + i) for i, b in enumerate(extra)}
        self.byte_id = [self.plain.token_to_id(char[b]) for b in range(256)]

    def ids(self, data, special):
        t, out = self.special if special else self.plain, []
        while data:
            try:
                text, bad = data.decode("utf-8"), None
                rest = b""
            except UnicodeDecodeError as e:
                text, bad, rest = data[:e.start].decode("utf-8"), data[e.start], data[e.start + 1:]
            if text:
                out += t.encode(text, add_special_tokens=False).ids
            if bad is not None:
                out.append(self.byte_id[bad])
            data = rest
        return out


# ---- texts ----

WORDS = """the of and a to in He was that it his her she had with as for not on at be said him they which but Marianne
I'll don't We've it's THEY'RE o'clock I'd she'D 'tis l'été naïve façade Übermaß smørrebrød über straße ﬁ Ångström
Привет мир Ελλάδα Ά ά שלום مرحبا नमस्ते क्षत्रिय हिन्दी বাংলা ไทย ภาษา 日本語 こんにちは カタカナ 漢字 中文字符 한국어 조선말 ﷽ ꦗꦮ
x+=1; printf("%d\\n",i); foo_bar->baz[12] http://a.b/c?d=e&f#g 3.14159 1234567890 ١٢٣ Ⅷ ½ ² ①""".split()
MARKS = "\u0300\u0301\u0302\u0308\u0323\u0327\u0328\u0345\u064b\u0651\u05b0\u093c\u094d\u0e38\u3099\u309a\u20dd\u0f71\u0f72\u1dc4"
SPACE = [" ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\v", "\f", "\u180e",
         "\u200b", "\u200d", "\ufeff", "\u1680", "\x00", "\x1c", "\x1f"]
EMOJI = ["👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "☺", "🤷🏿‍♀️", "1️⃣", "🧑‍🚀"]
COMPOSING = ["e\u0301", "a\u0323\u0302", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u212b", "\u2126", "\u0958", "\u0344", "\u1e9b\u0323",
             "\u0fb2\u0f71\u0f80", "q\u0307\u0323", "\u09c7\u09be", "\U0001d15e", "\ufb2c", "\u0374", "\u037e", "\u2000", "\u2329",
             "\uf900", "\u0cc6\u0cc2\u0cd5", "\u1b05\u1b35", "\U00011099\U000110ba", "'\u017f", "\u017f", "\u212a", "'\u212a"]
CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "<|im_end", "|>", "<|<|im_end|>", "<|im_end|><|im_end|>"]


def assigned(rng, lo=0x20, hi=0x2FFFF):
    while True:
        c = rng.randint(lo, hi)
        if unicodedata.category(chr(c)) not in ("Cn", "Cs"):
            return chr(c)


def random_text(rng):
    out = []
    for _ in range(rng.randint(1, 12)):
        k = rng.random()
        if k < .30:
            out.append(rng.choice(WORDS))
        elif k < .48:
            out.append(rng.choice(SPACE) * (1 if rng.random() < .8 else rng.randint(2, 6)))
        elif k < .55:
            out.append(rng.choice(EMOJI))
        elif k < .63:
            out.append(rng.choice(COMPOSING))
        elif k < .70:
            out.append("".join(rng.choice(MARKS) for _ in range(rng.randint(1, 5))))
        elif k < .76:
            out.append(rng.choice(CONTROL))
        elif k < .82:
            out.append(rng.choice("aZ .\n0-中\u0301") * rng.randint(1, 20))
        elif k < .91:
            out.append("".join(assigned(rng, 0x20, 0x52F) for _ in range(rng.randint(1, 6))))
        else:
            out.append("".join(assigned(rng) for _ in range(rng.randint(1, 4))))
        if rng.random() < .3:
            out.append(" ")
    return "".join(out).encode("utf-8")


BAD = [b"\xff", b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x91", b"\xe4\xb8", b"\x80", b"\xbf\xbf",
       b"\xc3", b"\xfe\xfe\xff\xff", b"\xf8\x88\x80\x80\x80"]


def spoil(rng, data):
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(data))
        data = data[:at] + rng.choice(BAD) + data[at:]
    return data


def cases(seed, n):
    rng = random.Random(seed)
    for i in range(n):
        text = random_text(rng)
        yield spoil(rng, text) if i % 5 == 4 else text


def fixed():
    yield from (b"a", b" ", b"\n", b"  ", b"\n\n", b" \n", b"\n ", b"  a", b"\t\ta", "é".encode(), "e\u0301".encode(), b"\xff", b"\x00")
    yield from (w.encode() for w in WORDS + EMOJI + COMPOSING + CONTROL + SPACE)
    yield from ((c * n).encode() for c in ("A", "Z", " ", "\n", ".", "7", "a", "中", "\u0301", "👩‍", "\r\n", " \n", "'s", "=-")
                for n in (2, 3, 7, 64))
    yield b"The number of Clara is 48213.\n\n[Note: the number of Clara is 48213.]\r\n\tWhat?  "


def piece_texts():
    """Every kind of space between things that could join over it, where ids alone would not tell."""
    rng = random.Random(99)
    ends = ["a", "7", ".", "\n", " ", "\u0301", "'s", "\u4e2d"]
    for space in SPACE + ["\u2009", "\u202f", "\u205f", "\u200a", "\u200c", "\u2060", "\u1681"]:
        for _ in range(4):
            yield rng.choice(ends) + space + rng.choice(["", " ", space]) + rng.choice(ends)
    for _ in range(100):
        yield random_text(rng).decode("utf-8")


def long_runs():
    for c in ("A", "Z", "a", " ", "\n", ".", "7", "中", "\u0301", "\u0323\u0301", "👩‍", "ab", "the "):
        yield (c * (131072 // len(c))).encode()


# ---- kvant ----

class Kvant:
    def __init__(self, program, vocab, pre):
        self.p = subprocess.Popen([program, "--stdin", str(vocab), pre], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ids(self, data, special):
        self.p.stdin.write("%d %s\n" % (special, data.hex()))
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if line.startswith("error") or not line:
            return line.strip() or "no answer"
        return [int(x) for x in line.split()]


def check(args):
    bad = done = 0
    pres = args.pre or PRES
    for pre in pres:
        ref, us = Reference(pre), Kvant(args.program, GOLDEN / "novella-vocab.gguf", pre)
        texts = list(fixed()) + list(cases(args.seed, args.cases))
        if pre in FIRST:
            texts += list(long_runs())
        if pre == "qwen35" and (models_dir() / "valid.txt").exists():
            texts.append((models_dir() / "valid.txt").read_bytes())
        for data in texts:
            for special in (0, 1):
                want, got = ref.ids(data, special), us.ids(data, special)
                done += 1
                if want == got:
                    continue
                bad += 1
                if bad <= 10:
                    print("DIFFERS", pre, "special" if special else "plain", data[:120], "\n  want", want[:40], "\n  got ",
                          got[:40])
        us.p.stdin.close()
    print(f"{done} texts over {len(pres)} pre-tokenizers, seed {args.seed}: {bad} differ")
    return 1 if bad else 0


def gguf_string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def write_vocab(path):
    """The tokenizer keys of the model files, without any tensor."""
    t = source()
    vocab = sorted(t["model"]["vocab"].items(), key=lambda kv: kv[1])
    control = {a["id"] for a in t["added_tokens"] if a["special"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    kv = [("general.architecture", 8, gguf_string("qwen3")), ("tokenizer.ggml.model", 8, gguf_string("gpt2")),
          ("tokenizer.ggml.pre", 8, gguf_string("qwen35")),
          ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(vocab)) + b"".join(gguf_string(k) for k, _ in vocab)),
          ("tokenizer.ggml.token_type", 9, struct.pack("<IQ", 5, len(vocab)) +
           b"".join(struct.pack("<i", 3 if i in control else 1) for _, i in vocab)),
          ("tokenizer.ggml.merges", 9, struct.pack("<IQ", 8, len(merges)) + b"".join(gguf_string(m) for m in merges)),
          ("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 0)), ("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 0))]
    body = b"".join(gguf_string(k) + struct.pack("<I", kind) + v for k, kind, v in kv)
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(kv)) + body
    path.write_bytes(out + bytes(-len(out) % 32))


def golden(_):
    GOLDEN.mkdir(parents=True, exist_ok=True)
    write_vocab(GOLDEN / "novella-vocab.gguf")
    import tokenizers
    with open(GOLDEN / "golden.tsv", "w") as f:
        f.write("# made by tools/check_tokenizer_hf.py golden with tokenizers %s and Python's Unicode %s: do not edit\n"
                "# pre-tokenizer, special tokens parsed, text in hex, ids\n" % (tokenizers.__version__, unicodedata.unidata_version))
        for pre in FIRST:
            ref = Reference(pre)
            for data in list(fixed()) + list(cases(7, 150)):
                for special in (0, 1):
                    ids = ref.ids(data, special)
                    if special and ids == ref.ids(data, 0):
                        continue
                    f.write("%s\t%d\t%s\t%s\n" % (pre, special, data.hex(), " ".join(map(str, ids))))
    with open(GOLDEN / "pieces.tsv", "w") as f:
        f.write("# made by tools/check_tokenizer_hf.py golden with tokenizers %s: do not edit\n"
                "# pre-tokenizer, text in hex, byte offsets where its pieces end\n" % tokenizers.__version__)
        for pre in PRES:
            ref = Reference(pre)
            for text in list(piece_texts())[::1 if pre in FIRST else 4]:
                f.write("%s\t%s\t%s\n" % (pre, text.encode("utf-8").hex(), " ".join(map(str, ref.pieces(text)))))
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["check", "golden"])
    p.add_argument("--program", default=str(ROOT / "build/release/bin/check_tokenizer"))
    p.add_argument("--pre", nargs="*", help="these pre-tokenizers only")
    p.add_argument("--cases", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    ensure_package()
    sys.exit({"check": check, "golden": golden}[args.command](args))


if __name__ == "__main__":
    main()
