#!/usr/bin/env python3
"""Golden texts for chat templates: what jinja2 renders from the models' own templates.

  tools/make_template_golden.py golden DIR                      -> tests/golden/template/golden.tsv
  tools/make_template_golden.py check DIR [--program PROGRAM]   is each template of DIR recognised as it should be?

DIR holds the templates as NAME.jinja (from the models' repositories; llama.cpp keeps many in models/templates).  They are
not part of kvant: only what they render to is.  Needs jinja2.  Rendered as Transformers does (trim_blocks, lstrip_blocks),
with bos_token empty, because kvant's text has none.

Left out are conversations that a template refuses, and what template.c says it does not render: default system prompts
of some Mistral templates, and a system message that Mistral v3 drops when an answer comes last."""
import argparse, subprocess, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/golden/template/golden.tsv"
# Part of the file name, the row of template.c's table, and what eos_token is.  First match.
KNOWN = [("Qwen2.5", "qwen2.5", ""), ("Qwen2-", "qwen2", ""), ("Qwen3-0.6B", "qwen3", ""), ("Qwen3-Thinking", "qwen3-thinking", ""),
         ("Qwen3.5-small", "qwen3.5", ""), ("Qwen3.5", "qwen3.5-thinking", ""), ("QwQ", "qwq", ""),
         ("OpenHermes", "chatml", ""), ("gemma-7b", "gemma", ""), ("gemma-2-2b", "gemma", ""), ("Llama-3.1", "llama3.1", ""), ("Llama-3.2", "llama3.1", ""),
         ("Llama-3", "llama3", ""), ("pre-v1", "v0", "</s>"), ("v1_template", "v1", "</s>"), ("v3_template", "v3", "</s>"),
         ("Nemo", "v3-tekken", "</s>"), ("v7_template", "v7", "</s>"), ("Mistral-Small-3", "v7-tekken", "</s>"),
         ("Devstral", "v7-tekken", "</s>"), ("phi-4", None, ""), ("vigogne", None, ""), ("FusionNet", None, "")]
S, U, A, T = "system", "user", "assistant", "tool"
CONVERSATIONS = [
    [(U, "Hello")],
    [(S, "You are terse."), (U, "Hello")],
    [(U, "Hello"), (A, "Hi there"), (U, "Who are you?")],
    [(S, "You are terse."), (U, "Hello"), (A, "Hi there"), (U, "Who are you?")],
    [(S, "  Be\n\nbrief. \n"), (U, "\n  Hello \u3000\n"), (A, "\u00a0  Hi \t"), (U, "\x1fWho?\u2003\n\n")],
    [(U, "Hello"), (A, "Hi there")],
    [(S, "Terse."), (U, "Hello"), (A, "Hi there")],
    [(U, "1+1?"), (A, "<think>\nOne and one.\n\n</think>\n\n2"), (U, "2+2?")],
    [(U, "1+1?"), (A, "<think>\nOne and one.\n\n</think>\n\n2")],
    [(U, "1+1?"), (A, "\n\n<think> a <think>b</think> c</think>\n\n\n2 "), (U, "2+2?"), (A, "</think>4")],
    [(U, "Weather?"), (A, "I ask."), (T, "sunny"), (T, "20 C"), (A, "Sunny, 20 C."), (U, "Thanks")],
    [(U, "Weather?"), (A, "<think>Ask.</think>I ask."), (T, "sunny"), (A, "Sunny.")],
    [(U, "Weather?"), (A, "I ask."), (U, "<tool_response>\nsunny\n</tool_response>"), (A, "Sunny.")],
    [(U, "Say <|im_end|> and <|eot_id|> and [/INST] and </s> and <end_of_turn>"), (A, "<|im_start|>"), (U, "\u00e9\u4e2d\U0001f600")],
    [(U, ""), (A, ""), (U, "")],
    [(S, "x"), (A, "<think>\nr\n</think>\n\ny")],
    [(U, "a"), (A, "b"), (U, "c"), (A, "d"), (U, "e")],
]


def known(path):
    for part, variant, eos in KNOWN:
        if part in path.name:
            return variant, eos
    sys.exit(f"{path.name}: not in KNOWN")


def render(source, messages, add, eos):
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message):
        raise jinja2.TemplateError(message)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.globals["raise_exception"] = refuse
    if "default_system_message" in source:
        env.globals["strftime_now"] = lambda f: "2026-01-01"
    if "if not enable_thinking" in source:      # a copy of QwQ's template with a switch that QwQ's own has not
        env.globals["enable_thinking"] = True
    return env.from_string(source).render(messages=messages, add_generation_prompt=add, bos_token="", eos_token=eos)


def left_out(variant, source, conversation):
    roles = [r for r, _ in conversation]
    if T in roles and (not variant.startswith("qw") or variant == "qwen2"):
        return True
    if "default_system_message" in source and S not in roles:
        return True
    if S in roles and U not in roles and not variant.startswith(("qw", "chatml", "llama", "v7")):
        return True
    return variant.startswith("v3") and S in roles and roles[-1] != U


def golden(args):
    import jinja2
    lines, used = [], 0
    for path in sorted(Path(args.dir).glob("*.jinja")):
        variant, eos = known(path)
        source = path.read_text()
        if variant is None:
            continue
        used += 1
        for conversation in CONVERSATIONS:
            if left_out(variant, source, conversation):
                continue
            messages = [{"role": r, "content": c} for r, c in conversation]
            packed = ";".join(r + ":" + c.encode().hex() for r, c in conversation)
            for add in (0, 1):
                try:
                    text = render(source, messages, bool(add), eos)
                except jinja2.TemplateError:
                    continue
                lines.append("\t".join([path.stem, variant, str(add), packed, text.encode().hex()]))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("# made by tools/make_template_golden.py with jinja2 %s from %d templates: do not edit\n"
                   "# template, row of template.c, answer opened, role:hex;..., rendered text in hex\n" % (jinja2.__version__, used) +
                   "".join(line + "\n" for line in lines))
    print(f"{used} templates, {len(lines)} cases")
    return 0


def check(args):
    bad = 0
    for path in sorted(Path(args.dir).glob("*.jinja")):
        variant = known(path)[0] or "unknown"
        got = subprocess.run([args.program, "--recognise", str(path)], capture_output=True, text=True, check=True).stdout.strip()
        print(f"{path.name}: {got}" + ("" if got == variant else f"  WANTED {variant}"))
        bad += got != variant
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["golden", "check"])
    p.add_argument("dir")
    p.add_argument("--program", default=str(ROOT / "build/release/bin/check_template"))
    args = p.parse_args()
    sys.exit({"golden": golden, "check": check}[args.command](args))


if __name__ == "__main__":
    main()
