#!/usr/bin/env python3
"""Compares kvant with Hugging Face's `tokenizers` over random tokenizer.json files: vocabularies, added tokens with random
flags, normalizers, pre-tokenizers, spaces, post-processors; texts of added tokens, blanks between them and characters
of many scripts.  Each file is converted in memory as `kvant convert` does it.  Also mistral_common's own tokenizers.

  tools/check_tokenizer_json.py check [--tokenizers 400] [--texts 300] [--seed 1] [--out docs/evidence/ids.json]
  tools/check_tokenizer_json.py mistral [--texts 500] [--seed 1]
  tools/check_tokenizer_json.py golden     writes tests/golden/ids/golden.txt

Needs the packages tokenizers 0.23 (and mistral_common) and the tests, built; CI reads the golden file.
Characters are assigned in Unicode 14: later ones may be known to one library and not to the other."""
import argparse, json, random, resource, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import check_tokenizer_hf as hf  # noqa: E402

SPECIAL, BOS = 1, 2
MARK = "\u2581"
PRINTED = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
OTHERS = [b for b in range(256) if b not in PRINTED]
ALPHABET = {b: chr(b) for b in PRINTED} | {b: chr(256 + i) for i, b in enumerate(OTHERS)}
BLANKS = [" ", " ", " ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u2009"]
LETTERS = list("aaabbeestthx") + list("ABEZ09_-.,!'\"<>|[]{}()#/") + [
    "\u00e9", "e\u0301", "\u00c9", "\u00df", "\u0130", "\u01c5", "\ufb01", "\uff21", "\u00bd", "\u2460", "\u212b", "\u0344", "\u03a3",
    "\u4e2d", "\uac00", "\u1100\u1161", "\u304b\u3099", "\u30ab", "\u0627", "\u0301", "\u0327", "\u0928\u093f", "\U0001f680", "\U0001f468\u200d\U0001f469",
    "\u200b", "\u2019", "\u24d0", "\u0660", "\u203f", MARK]
WORDS = ["the", "The", "hello", "ab", "food", "foo", "'ll", "3.14", "x_y", "\u00c9t\u00e9", "12345"]
CONTENT = ["<|im_start|>", "<|im_end|>", "<a>", "<a><b>", "<b>", "[INST]", "foo", "fo", "the", "X", "\n", "\n\n", "  ", " ", "\t", "e\u0301x", "AbC",
           "<think>", "</think>", "\u00e9", "\uff21", "a b", " lead", "trail ", "\u4e2d\u6587", "'s", "12", "<|", "|>", "x\u0301", "\u2028", "ab!", "!"]
NORMALIZERS = [{"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"},
               {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Strip", "strip_left": True, "strip_right": False},
               {"type": "Strip", "strip_left": False, "strip_right": True}, {"type": "Prepend", "prepend": ">"},
               {"type": "Replace", "pattern": {"String": "a"}, "content": "bc"}, {"type": "Replace", "pattern": {"String": "  "}, "content": " "},
               {"type": "Replace", "pattern": {"String": "\n"}, "content": ""}]


def added(rng, vocab):
    """Added tokens with random flags; those that the vocabulary has keep their ids."""
    out, first = [], len(vocab)
    for text in rng.sample(CONTENT, rng.randint(2, 10)):
        flags = {k: rng.random() < .3 for k in ("single_word", "lstrip", "rstrip", "normalized")}
        known = text in vocab
        out.append({"id": vocab[text] if known else first, "content": text, "special": not known and rng.random() < .5, **flags})
        first += not known
    return sorted(out, key=lambda t: t["id"])


def merges(rng, tokens, n, vocab):
    """n random merges of what is there; some of merged ones."""
    out, seen = [], set()
    pool = list(tokens)
    for _ in range(n):
        a, b = rng.choice(pool), rng.choice(pool)
        if (a, b) in seen or a + b in vocab or len(a + b) > 12:
            continue
        seen.add((a, b))
        vocab[a + b] = len(vocab)
        out.append([a, b])
        pool += [a + b] * 3
    return out


def normalizer(rng, most):
    steps = [rng.choice(NORMALIZERS) for _ in range(rng.choice([0, 0, 1, 1, 1, 2, most]))]
    return None if not steps else steps[0] if len(steps) == 1 and rng.random() < .5 else {"type": "Sequence", "normalizers": steps}


def processor(rng, tokens):
    special = [t["content"] for t in tokens if t["special"]]
    if not special or rng.random() < .5:
        return None
    before = rng.sample(special, rng.randint(1, min(3, len(special))))
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": s, "type_id": 0}} for s in before] +
            [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t["content"]: {"id": t["content"], "ids": [t["id"]], "tokens": [t["content"]]} for t in tokens if t["special"]}}


def options(**more):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, **more}


def byte_level(rng):
    vocab = {ALPHABET[b]: b for b in range(256)}
    common = [ALPHABET[b] for b in b"abehstxlofABC012 .\n'\xc3\xa9\xcc\x81\xe4\xb8\xad<|>"]
    m = merges(rng, common, rng.choice([0, 10, 60, 200]), vocab)
    tokens = added(rng, vocab)
    prefix = rng.random() < .25
    step = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": rng.random() < .5, "use_regex": True}
    if not prefix:
        pre = rng.choice(hf.PRES)
        step["use_regex"] = pre == "gpt-2"
        stages = [p if isinstance(p, dict) else {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
                  for p in hf.PATTERNS[pre]]
        step = {"type": "Sequence", "pretokenizers": stages + [step]}
    return {"added_tokens": tokens, "normalizer": normalizer(rng, 3), "pre_tokenizer": step, "post_processor": processor(rng, tokens),
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "model": options(vocab=vocab, merges=m, ignore_merges=rng.random() < .4)}


def characters(rng):
    fallback, vocab = rng.random() < .6, {"<unk>": 0}
    if fallback:
        vocab |= {"<0x%02X>" % b: 1 + b for b in range(256)}
    chars = [c for c in dict.fromkeys(list("abehstxlofABC01.\n'<|>") + ["\u00e9", "\u0301", "\u4e2d", "\u304b"]) if rng.random() < .85] + [MARK]
    for c in chars:
        vocab[c] = len(vocab)
    m = merges(rng, chars + [MARK] * 4, rng.choice([0, 10, 60, 200]), vocab)
    tokens = [{"id": 0, "content": "<unk>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}]
    tokens += added(rng, vocab)
    spaces = [{"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]
    steps, pre = normalizer(rng, 2), None
    steps = [] if not steps else steps.get("normalizers", [steps])
    steps = [s for s in steps if s["type"] != "Prepend"]
    kind = rng.choice(["prepend", "replace", "always", "first", "never"])
    if kind == "prepend":
        steps = steps + spaces
    elif kind == "replace":
        steps = steps + spaces[1:]
        pre = rng.choice([None, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}])
    else:
        pre = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": kind, "split": rng.random() < .5}
    return {"added_tokens": tokens, "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None, "pre_tokenizer": pre,
            "post_processor": processor(rng, tokens), "decoder": None,
            "model": options(vocab=vocab, merges=m, unk_token="<unk>", byte_fallback=fallback, fuse_unk=rng.random() < .5)}


def make(rng):
    j = {"version": "1.0", "truncation": None, "padding": None, **(byte_level if rng.random() < .6 else characters)(rng)}
    normal = reference({**j, "added_tokens": []}).normalizer
    for t in j["added_tokens"]:     # a token that is normalised to nothing would be found everywhere
        t["normalized"] = t["normalized"] and (normal is None or normal.normalize_str(t["content"]) != "")
    return j


def text(rng, tokens):
    parts = []
    for _ in range(rng.randint(0, 12)):
        kind = rng.random()
        if kind < .35 and tokens:
            parts.append(rng.choice(tokens)["content"])
        elif kind < .6:
            parts.append("".join(rng.choice(BLANKS) for _ in range(rng.choice([1, 1, 1, 2, 3]))))
        elif kind < .75:
            parts.append(rng.choice(WORDS))
        else:
            parts.append("".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 6))))
    return "".join(parts)


SPACED = ("a  b", "the a", "b a t e", "   ab")


class Kvant:
    def __init__(self, program):
        self.p = subprocess.Popen([program, "check_ids", "serve"] if program.endswith("kvant-tests") else [program, "serve"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def line(self, data):
        self.p.stdin.write(data)
        self.p.stdin.flush()
        return self.p.stdout.readline().decode(errors="replace").rstrip("\n")

    def open(self, folder, size):
        return self.line(b"T %d %s\n" % (size, str(folder).encode()))

    def ids(self, s, flags):
        b = s.encode()
        out = self.line(b"X %d %d\n" % (flags, len(b)) + b)
        return [int(x) for x in out.split()] if not out.startswith("error") else out


def size_of(j):
    return max([*j["model"]["vocab"].values(), *(t["id"] for t in j["added_tokens"])]) + 1


def reference(j):
    from tokenizers import Tokenizer
    return Tokenizer.from_str(json.dumps(j))


def ids_of(t, s, bos):
    """None: the package panics, where a token that takes the blanks before it lies among those that another took."""
    try:
        return t.encode(s, add_special_tokens=bos).ids
    except BaseException as e:
        if type(e).__name__ != "PanicException":
            raise
        return None


def store(folder, j):
    (Path(folder) / "tokenizer.json").write_text(json.dumps(j, ensure_ascii=False), encoding="utf-8")
    (Path(folder) / "tokenizer_config.json").write_text("{}")


def check(args):
    import tokenizers
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    rng, k = random.Random(args.seed), Kvant(args.program)
    total, refused, wrong, panics, kinds = 0, 0, 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        for n in range(args.tokenizers):
            j = make(rng)
            store(folder, j)
            said = k.open(folder, size_of(j))
            if said != "ok":
                refused += 1
                kinds[said[:110]] = kinds.get(said[:110], 0) + 1
                continue
            t = reference(j)
            for _ in range(args.texts):
                s = text(rng, j["added_tokens"])
                for flags in (SPECIAL, SPECIAL | BOS) if j["post_processor"] else (SPECIAL,):
                    want, got = ids_of(t, s, bool(flags & BOS)), k.ids(s, flags)
                    if want is None:
                        panics += 1
                        continue
                    total += 1
                    if got != want:
                        wrong += 1
                        if wrong <= args.show:
                            print(f"tokenizer {n} {s!r} flags {flags}\n  kvant      {got}\n  tokenizers {want}")
                            print("  ", json.dumps({a: b for a, b in j.items() if a not in ("model", "version")}, ensure_ascii=False)[:1500])
                            (ROOT / "build").mkdir(exist_ok=True)
                            (ROOT / f"build/ids-wrong-{wrong}.json").write_text(json.dumps(j))
    result = {"tokenizers": args.tokenizers, "refused": refused, "texts": total, "different": wrong, "panics": panics, "seed": args.seed,
              "package": "tokenizers " + tokenizers.__version__, "refusals": kinds}
    print(json.dumps(result, indent=1))
    if args.out:
        Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    return wrong > 0


def plain(**change):
    """A byte-level file with a part changed: the parts that convert refuses, each by a word of its message."""
    vocab = {ALPHABET[b]: b for b in range(256)}
    j = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None,
         "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "model": options(vocab=vocab, merges=[])}
    model = change.pop("model", {})
    return {**j, **change, "model": {**j["model"], **model}}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": [*steps, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def refusals():
    late = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return [
        ("BertNormalizer", plain(normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True})),
        ("Nmt", plain(normalizer={"type": "Nmt"})),
        ("Precompiled", plain(normalizer={"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": ""}]})),
        ("pattern", plain(normalizer={"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"})),
        ("ByteLevel", plain(normalizer={"type": "ByteLevel"})),
        ("dropout", plain(model={"dropout": 0.1})),
        ("continuing_subword_prefix", plain(model={"continuing_subword_prefix": "##"})),
        ("end_of_word_suffix", plain(model={"end_of_word_suffix": "</w>"})),
        ("WordPiece", plain(model={"type": "WordPiece"})),
        ("WordLevel", plain(model={"type": "WordLevel"})),
        ("Unigram", plain(model={"type": "Unigram"})),
        ("Removed", plain(pre_tokenizer=sequence(split("x", "Removed")))),
        ("Removed", plain(pre_tokenizer=sequence(split("x", "Removed", True)))),
        ("Removed", plain(pre_tokenizer=sequence(split(r"^\n", "Removed", True)))),
        ("invert", plain(pre_tokenizer=sequence(split("x", "MergedWithNext", True)))),
        ("cuts", plain(pre_tokenizer=sequence(split(" ", "MergedWithPrevious")))),
        ("cuts", plain(pre_tokenizer=sequence(split(hf.QWEN2.replace("'m|", ""), "Isolated")))),
        ("add_prefix_space", plain(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, late]})),
        ("Whitespace", plain(pre_tokenizer=sequence({"type": "Whitespace"}))),
        ("WhitespaceSplit", plain(pre_tokenizer=sequence({"type": "WhitespaceSplit"}))),
        ("BertPreTokenizer", plain(pre_tokenizer=sequence({"type": "BertPreTokenizer"}))),
        ("post_processor", plain(post_processor={"type": "Unknown"})),
        ("replacement", plain(pre_tokenizer={"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True})),
        ("characters", plain(pre_tokenizer={"type": "Whitespace"})),
        ("characters", plain(pre_tokenizer=None)),
    ]


def chat(rng, k, tokenizer):
    """A chat by mistral_common (version 3) and its text in one pass: where they differ, else None."""
    from mistral_common.protocol.instruct.messages import AssistantMessage, UserMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    said = ["x" + text(rng, []).strip() + "y" for _ in range(rng.choice([1, 3, 5]))]
    messages = [(AssistantMessage if i % 2 else UserMessage)(content=s) for i, s in enumerate(said)]
    want = tokenizer.encode_chat_completion(ChatCompletionRequest(messages=messages)).tokens
    got = k.ids("<s>" + "".join(f" {s}</s>" if i % 2 else f"[INST] {s}[/INST]" for i, s in enumerate(said)), SPECIAL)
    return None if got == want else (said, got, want)


def mistral(args):
    """mistral_common's SentencePiece files, as tokenizer.model with legacy = false, against sentencepiece itself; chats of version 3."""
    import mistral_common
    import sentencepiece
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    rng, k, wrong, total = random.Random(args.seed), Kvant(args.program), 0, 0
    for path in sorted((Path(mistral_common.__file__).parent / "data").glob("*.model*")):
        sp = sentencepiece.SentencePieceProcessor(str(path))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer.model").write_bytes(path.read_bytes())
            (Path(folder) / "tokenizer_config.json").write_text('{"legacy": false}')
            if k.open(folder, sp.vocab_size()) != "ok":
                sys.exit(f"{path.name} is refused")
            for _ in range(args.texts):
                s = text(rng, [])
                bad = [(s, k.ids(s, 0), sp.encode(s))]
                bad = bad[0] if bad[0][1] != bad[0][2] else chat(rng, k, MistralTokenizer.v3()) if path.name.endswith(".v3") else None
                total, wrong = total + 1, wrong + (bad is not None)
                if bad and wrong <= args.show:
                    print(path.name, *bad)
    print(json.dumps({"texts": total, "different": wrong, "package": "mistral_common " + mistral_common.__version__}))
    return wrong > 0


def golden(args):
    lines, rng, left = [], random.Random(5), 18
    k = Kvant(args.program)
    squeeze = {"separators": (",", ":"), "ensure_ascii": False}
    with tempfile.TemporaryDirectory() as folder:
        while left:
            j = make(rng)
            if left == 1:   # the text begins behind what is stripped: no space before it
                j = {**characters(rng), "normalizer": NORMALIZERS[7], "version": "1.0", "truncation": None, "padding": None,
                     "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": True}}
                whole = reference({**j, "pre_tokenizer": {**j["pre_tokenizer"], "split": False}})
                if all(whole.encode(s).ids == reference(j).encode(s).ids for s in SPACED):
                    continue
            store(folder, j)
            if len(j["model"]["vocab"]) > 420 or k.open(folder, size_of(j)) != "ok":
                continue
            left -= 1
            t, short = reference(j), dict(j["model"]["vocab"])
            if "!" in short and "\u0100" in short:
                short = {"@BYTES": 0} | {a: b for a, b in short.items() if b > 255}
            lines.append(f"T {size_of(j)} " + json.dumps({**j, "model": {**j["model"], "vocab": short}}, **squeeze))
            for i in range(34):
                s, flags = SPACED[i - 30] if i >= 30 else rng.choice(["", "", " \n"]) + text(rng, j["added_tokens"]), rng.choice([SPECIAL, SPECIAL | BOS]) if j["post_processor"] else SPECIAL
                want = ids_of(t, s, bool(flags & BOS))
                if want is not None:
                    lines.append(f"X {flags} {s.encode().hex()} " + " ".join(map(str, want)))
    for what, j in refusals():
        vocab = {"@BYTES": 0}
        lines.append(f"R 256 {what} " + json.dumps({**j, "model": {**j["model"], "vocab": vocab}}, **squeeze))
    (ROOT / "tests/golden/ids").mkdir(exist_ok=True)
    (ROOT / "tests/golden/ids/golden.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(len(lines), "lines")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("what", choices=["check", "golden", "mistral"])
    a.add_argument("--program", default=str(ROOT / "build/release/bin/check_ids"))
    a.add_argument("--tokenizers", type=int, default=400)
    a.add_argument("--texts", type=int, default=300)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--show", type=int, default=5)
    a.add_argument("--out")
    args = a.parse_args()
    sys.exit({"check": check, "golden": golden, "mistral": mistral}[args.what](args))


if __name__ == "__main__":
    main()
