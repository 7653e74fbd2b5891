#!/usr/bin/env python3
"""Chat templates against jinja2, over chats of random shape: texts and refusals must be equal, byte by byte.

  tools/check_templates.py DIR... [--chats 1200] [--seed 1] [--jobs 2] [--program PROGRAM] [--out FILE.json]

Every *.jinja in the folders is run, each text once however many names it has.  jinja2 is set up as Transformers does
(make_template_golden.py).  PROGRAM is check_jinja.  A chat may lack contents, have lists, nulls, tool calls whose arguments
are texts or objects, thoughts by several names, results of any type, odd orders of roles, markers and blanks of all kinds."""
import argparse, hashlib, json, random, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from make_template_golden import ROOT, compiled

WORDS = ["Hello", "Paris", "é", "中文", "😀", "\u200d", "a\u0301", "<b>", "&amp;", "it's", '"quoted"', "\\", "\\n", "{{ x }}", "{% if %}", "C:\\dir",
         "<think>", "</think>", "<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "[INST]", "<s>", "1", "2.50", "-0", "null", "None", "True",
         "```json\n{}\n```", "{\"a\": 1}", "[1, 2]", "%s", "%", "#", "|", "/think", "/no_think", "$1", "İ", "ß", "ǆ", "Σς"]
BLANKS = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\x0b", "\x1c", "\x85"]
NAMES = ["get_weather", "search", "now", "a.b", "do-it", "f1"]


class Chats:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def maybe(self, p=0.5):
        return self.r.random() < p

    def text(self, most=8):
        r = self.r
        return "".join(r.choice(WORDS) + r.choice(BLANKS) * self.maybe(0.7) if self.maybe(0.9) else r.choice(BLANKS) for _ in range(r.randrange(most)))

    def value(self, depth=0):
        r = self.r
        kind = r.randrange(7 if depth > 2 else 10)
        if kind < 3:
            return self.text(4)
        if kind < 7:
            return r.choice([None, True, False, 0, -1, 3, 12345678901234567, 1.5, -0.25, 1e-7, 1e16, 2.0])
        if kind < 9:
            return {r.choice(["k", "city", "é", "a b", "items", "keys", "0", ""]) + str(i or ""): self.value(depth + 1) for i in range(r.randrange(4))}
        return [self.value(depth + 1) for _ in range(r.randrange(4))]

    def arguments(self):
        v = {k: self.value(1) for k in self.r.sample(["city", "unit", "days", "q", "opts", "content"], self.r.randrange(4))}
        return v if self.maybe(0.75) else json.dumps(v) if self.maybe(0.8) else self.r.choice(["", "{", "null", "[]"])

    def call(self):
        f = {"name": self.r.choice(NAMES), "arguments": self.arguments()}
        if self.maybe(0.1):
            return f
        c = {"type": "function", "function": f}
        if self.maybe(0.8):
            c = {"id": self.r.choice(["abcdefghi", "call_1", "functions.search:0", "000000001", ""]), **c}
        return c

    def content(self):
        r = self.r
        kind = r.randrange(20)
        if kind < 14:
            return self.text()
        if kind < 18:
            return [self.part() for _ in range(r.randrange(4))]
        return None if kind == 18 else self.value()

    def part(self):
        r = self.r
        return r.choice([lambda: {"type": "text", "text": self.text()}] * 4 + [
            lambda: {"type": "image"}, lambda: {"type": "image_url", "image_url": {"url": "http://x/y.png"}}, lambda: {"type": "video"},
            lambda: {"type": "audio", "audio": "a"}, lambda: {"type": "input_audio", "input_audio": {"data": "QQ=="}}, lambda: {"text": self.text()},
            lambda: self.text(), lambda: {"type": "image", "image": "p.png"}])()

    def message(self, role):
        r, m = self.r, {"role": role}
        if self.maybe(0.96):
            m["content"] = self.content()
        if role == "assistant":
            if self.maybe(0.35):
                m["tool_calls"] = [self.call() for _ in range(r.choice([1, 1, 1, 2, 3, 0]))]
                if self.maybe(0.4):
                    m["content"] = r.choice([None, ""])
            elif self.maybe(0.05):
                m["tool_calls"] = None
            if self.maybe(0.3):
                m[r.choice(["reasoning_content", "reasoning_content", "reasoning", "thinking", "thought"])] = r.choice([self.text(), self.text(), None, ""])
        if role in ("tool", "ipython", "function"):
            m["tool_call_id"] = r.choice(["abcdefghi", "call_1", "functions.search:0", "000000001"])
            if self.maybe(0.7):
                m["name"] = r.choice(NAMES)
        if self.maybe(0.04):
            m[r.choice(["name", "weight", "mask", "tools", "documents", "prefix"])] = self.value()
        return m

    def roles(self):
        r = self.r
        if self.maybe(0.15):
            return [r.choice(["system", "user", "assistant", "tool", "developer", "function", "ipython", "critic"]) for _ in range(r.randrange(7))]
        out = ["system"] * self.maybe(0.45)
        for _ in range(r.randrange(1, 5)):
            out += ["user"] + ["assistant", "tool"] * (r.randrange(3) if self.maybe(0.3) else 0) + ["assistant"] * self.maybe(0.9)
        return out[:-1] if out[-1] == "assistant" and self.maybe() else out

    def schema(self, depth=0):
        r, s = self.r, {}
        if self.maybe(0.93):
            s["type"] = r.choice(["string", "integer", "number", "boolean", "array", "object", ["string", "null"]])
        if self.maybe(0.6):
            s["description"] = self.text(5)
        if self.maybe(0.15):
            s["enum"] = [self.value(3) for _ in range(r.randrange(1, 4))]
        if self.maybe(0.1):
            s["default"] = self.value(2)
        if self.maybe(0.06):
            s[r.choice(["anyOf", "oneOf", "allOf"])] = [self.schema(3) for _ in range(2)]
        if self.maybe(0.1):
            s[r.choice(["minimum", "maxLength", "nullable", "format", "$ref", "title", "items", "properties"])] = self.value(2)
        if s.get("type") == "array" and self.maybe(0.9):
            s["items"] = self.schema(depth + 1) if depth < 3 else {}
        if s.get("type") == "object" and self.maybe(0.9):
            s["properties"] = {k: self.schema(depth + 1) for k in r.sample(["city", "a_b", "type", "items", "é"], r.randrange(3 if depth < 3 else 1))}
        return s

    def tool(self):
        r = self.r
        f = {"name": r.choice(NAMES), "description": self.text(), "parameters": {
            "type": "object", "properties": {k: self.schema() for k in r.sample(["city", "unit", "days", "q"], r.randrange(4))}}}
        if self.maybe(0.7):
            f["parameters"]["required"] = r.sample(["city", "unit"], r.randrange(3))
        if self.maybe(0.12):
            f.pop(r.choice(["description", "parameters"]))
        if self.maybe(0.1):
            f[r.choice(["strict", "return", "response", "output"])] = self.value(1)
        return f if self.maybe(0.07) else {"type": "function", "function": f}

    def options(self):
        r = self.r
        every = {"enable_thinking": [True, False], "thinking": [True, False], "reasoning_effort": ["low", "high", "none"], "date_string": ["1 Jan 2026"],
                 "tools_in_user_message": [True, False], "xml_tools": [["x"]], "builtin_tools": [["wolfram_alpha"], ["code_interpreter"]],
                 "model_identity": ["I am."], "custom_instructions": ["Be kind."], "keep_past_thinking": [True], "thinking_budget": [0, 512, -1],
                 "citations": ["on"], "preserve_thinking": [True], "clear_thinking": [False, True], "today": ["2026-01-01"], "thinking_mode": ["auto"]}
        return {k: r.choice(every[k]) for k in r.sample(sorted(every), r.choice([0, 0, 1, 2, 3]))}

    def chat(self):
        r = self.r
        v = dict(messages=[self.message(role) for role in self.roles()], tools=[self.tool() for _ in range(r.randrange(1, 4))] if self.maybe(0.4) else None,
                 documents=[{"title": self.text(3), "text": self.text()} for _ in range(2)] if self.maybe(0.1) else None,
                 add_generation_prompt=self.maybe(0.7), bos_token=r.choice(["<s>", "<|begin|>", ""]), eos_token=r.choice(["</s>", "<|im_end|>", ""]))
        return v | self.options()


def render(source, line):
    try:
        return compiled(source).render(**json.loads(line))
    except Exception:       # any refusal: the template's own, Python's TypeErrors, RecursionError
        return None


def compare(job):
    """(name, texts, [cases that differ], the first in words)"""
    path, lines, cases, program = job
    source = path.read_text()
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(source)
        f.flush()
        out = subprocess.run([program, "--render", f.name, cases], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
    got = [json.loads(line) for line in out.split("\n") if line]
    got += [{"error": "the template is no program"}] * (len(lines) - len(got))
    want = [render(source, line) for line in lines]
    differ = [i for i, (g, w) in enumerate(zip(got, want)) if g.get("text") != w]
    first = ""
    if differ:
        g, w = got[differ[0]], want[differ[0]]
        at = next((i for i, (a, b) in enumerate(zip(g.get("text", ""), w or "")) if a != b), min(len(g.get("text", "")), len(w or "")))
        first = f"case {differ[0]}: {g.get('error') or repr(g['text'][max(0, at - 40):at + 40])}, want {w if w is None else repr(w[max(0, at - 40):at + 40])}"
    return path.name, sum(w is not None for w in want), differ, first


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", nargs="+")
    p.add_argument("--chats", type=int, default=1200)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/check_jinja"))
    p.add_argument("--out")
    p.add_argument("--cases", help="also write the chats here")
    args = p.parse_args()
    chats = Chats(args.seed)
    lines = [json.dumps(chats.chat(), ensure_ascii=False) for _ in range(args.chats)]
    paths = {hashlib.sha256(f.read_bytes()).hexdigest(): f for d in args.dir for f in sorted(Path(d).glob("*.jinja"))}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.writelines(line + "\n" for line in lines)
        f.flush()
        if args.cases:
            Path(args.cases).write_text(Path(f.name).read_text())
        with ThreadPoolExecutor(args.jobs) as pool:
            rows = list(pool.map(compare, [(path, lines, f.name, args.program) for path in paths.values()]))
    bad = sum(len(r[2]) for r in rows)
    for name, _, differ, first in rows:
        if differ:
            print(f"{name}: {len(differ)} of {len(lines)} differ; {first}")
    sums = dict(templates=len(rows), chats=len(lines), compared=len(rows) * len(lines), texts=sum(r[1] for r in rows), seed=args.seed,
                templates_equal=sum(not r[2] for r in rows), differ=bad)
    print(", ".join(f"{k} {v}" for k, v in sums.items()))
    if args.out:
        Path(args.out).write_text(json.dumps(sums | {"names": sorted(r[0] for r in rows)}, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
