#!/usr/bin/env python3
"""demo.py: what ./dev demo shows: a story, a question answered from 4,000 tokens back with three caches, and a small table.

Everything is computed now, on this machine, by the program that was just built (build/release/bin/kvant): nothing here is
recorded.  The filler between the note and the question is models/demo-filler.txt, the opening of a novel in the public domain
that the model has not seen.  Python standard library only.

    tools/demo.py [--model FILE] [--kvant PROGRAM] [--quick]        --quick: no table"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
FORMATS = ("f16", "tbq4_0", "tbq3_0")
NOTES = (("Clara", "48213"), ("Edward", "90567"), ("Harriet", "31742"))
DISTANCE = 4000         # tokens wanted between the note and the question
STORY = "It was late in November, and the old house by the sea stood quite silent, when Marianne heard a knock at the door."


class Kvant:
    def __init__(self, program, model):
        self.program, self.model = program, model

    def command(self, *args):
        """`eval kl` is two words: options follow the command."""
        words = [a for a in args if not a.startswith("-")][:2] if args[0] == "eval" else [args[0]]
        return [self.program, *words, "-m", self.model, *args[len(words):]]

    def json(self, *args):
        done = subprocess.run(self.command(*args), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            sys.exit(f"demo: {' '.join(self.command(*args))} ended with status {done.returncode}")
        return json.loads(done.stdout)

    def show(self, *args):
        if subprocess.run(self.command(*args), stdin=subprocess.DEVNULL, check=False).returncode:
            sys.exit(f"demo: {' '.join(self.command(*args))} failed")


def heading(text):
    print(f"\n== {text}\n", flush=True)


def document(filler):
    """(the text up to the first note, the whole prompt): three notes spread over the filler, a question about the first."""
    paragraphs = filler.split("\n\n")
    head = "\n\n".join(paragraphs[:5])
    rest = paragraphs[5:]
    note = "[Note: the number of {} is {}.]".format
    third = len(rest) // 3
    parts = [head, note(*NOTES[0]), *rest[:third], note(*NOTES[1]), *rest[third:2 * third], note(*NOTES[2]), *rest[2 * third:],
             f"[What is the number of {NOTES[0][0]}? It is"]
    return head, "\n\n".join(parts)


def cut(filler, kvant, work):
    """Filler cut to somewhat more than DISTANCE tokens, measured with the model's own tokenizer."""
    n = token_count(filler, kvant, work)
    if n < DISTANCE:
        sys.exit(f"demo: models/demo-filler.txt is {n} tokens, wanted {DISTANCE} or more")
    end = int(len(filler) * min(1.0, 1.16 * DISTANCE / n))
    return filler[:filler.rindex("\n\n", 0, end)]


def token_count(text, kvant, work):
    path = os.path.join(work, "count.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return kvant.json("run", "-f", path, "-n", "0", "--json", "-lv", "0")["timings"]["prompt_n"]


def retrieval(kvant, work):
    with open(os.path.join(ROOT, "models", "demo-filler.txt"), encoding="utf-8") as file:
        filler = cut(file.read(), kvant, work)
    head, text = document(filler)
    back = token_count(text, kvant, work) - token_count(head, kvant, work)
    path = os.path.join(work, "document.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    if back < DISTANCE:
        sys.exit(f"demo: the note stands {back} tokens back, wanted at least {DISTANCE}")
    name, number = NOTES[0]
    heading(f"A question about a note that stands {back} tokens back: \"What is the number of {name}? It is\"")
    rows = {}
    for fmt in FORMATS:
        out = kvant.json("run", "-f", path, "-n", "8", "--temp", "0", "-ctk", fmt, "-ctv", fmt, "--json", "-lv", "1")
        answer = "".join(c for c in out["text"].split("]")[0] if c.isdigit() or c == " ").strip()
        rows[fmt] = dict(cache=out["cache"]["bytes"], tokens=out["cache"]["tokens"], right=answer == number)
        print(f"  {fmt:8s} cache: {answer:12s} {'right' if answer == number else f'wrong, it is {number}'}", flush=True)
    return rows


def kl_means(kvant):
    """Mean KL divergence to the f16 cache on the filler, per format; positions at the end of 1024-token chunks."""
    pairs = ",".join(FORMATS[1:])
    out = kvant.json("eval", "kl", "-f", os.path.join(ROOT, "models", "demo-filler.txt"), "-c", "1024", "--pairs", pairs, "--json",
                     "-lv", "1")
    return {row["type_k"]: row["mean"] for row in out["results"]}


def decode_speed(kvant):
    rows = {}
    for fmt in FORMATS:
        out = kvant.json("bench", "-p", "0", "-n", "64", "-d", "4096", "-r", "3", "-ctk", fmt, "-ctv", fmt, "-o", "json", "-lv", "1")
        rows[fmt] = out[0]["avg_ts"]
    return rows


def table(kvant, rows):
    heading("The three caches side by side (this machine, now)")
    kl, speed = kl_means(kvant), decode_speed(kvant)
    tokens = rows[FORMATS[0]]["tokens"]
    print(f"  {'cache':8s}  {f'bytes at {tokens} tokens':>22s}  {'KL to f16':>10s}  {'decode at depth 4096':>21s}  answer")
    for fmt in FORMATS:
        kl_text = f"{kl[fmt]:.5f}" if fmt in kl else "-"
        print(f"  {fmt:8s}  {rows[fmt]['cache']:22,d}  {kl_text:>10s}  {speed[fmt]:17.1f} t/s  {'right' if rows[fmt]['right'] else 'wrong'}")
    print("\n  bytes: KV pages, the exact tail and the recurrent state of this sequence; KL: mean over tokens, natural log")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf"))
    parser.add_argument("--kvant", default=os.path.join(ROOT, "build", "release", "bin", "kvant"))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    for path in (args.model, args.kvant):
        if not os.path.exists(path):
            sys.exit(f"demo: {path} is missing")
    kvant = Kvant(args.kvant, args.model)
    heading("A story, by a model of 19 million parameters")
    kvant.show("run", "-p", STORY, "-n", "160", "--temp", "0.7", "-s", "5", "--display-prompt", "-lv", "1")
    print(flush=True)
    with tempfile.TemporaryDirectory() as work:
        rows = retrieval(kvant, work)
    if not args.quick:
        table(kvant, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
