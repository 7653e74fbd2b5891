#!/usr/bin/env python3
"""check_lint: every place of tools/lint that reports finds a planted violation and accepts the same file without it (finding
C3: a rule that looked for names that occur nowhere could not fail), and what the rules look for occurs in the real tree."""
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
LINT = os.path.join(ROOT, "tools", "lint")
DEFS = {
    "src/formats/formats.def": "KVANT_FORMAT(tbq4_0)\nKVANT_FORMAT(q8_0)\n", "src/model/archs.def": "KVANT_ARCH(qwen3)\n",
    "src/devices/devices.def": "KVANT_DEVICE(cpu)\n", "include/kvant/ops.def": "KVANT_OP(ATTN, attn)\n",
}
BODY = "/* It owns nothing. */\n"
LONG = "    x++;\n" * 101
# rule, path, text with the violation, text without it
CASES = [
    ("include-direction", "src/ops/a.c", BODY + '#include "engine/engine.h"\n', BODY + '#include "base/mem.h"\n'),
    ("include-direction", "src/server/a.c", BODY + '#include "cache/kv.h"\n', BODY + '#include "engine/engine.h"\n'),
    ("include-direction", "src/elsewhere/a.c", BODY + '#include "base/mem.h"\n', BODY + '#include "kvant/format.h"\n'),
    ("include-direction", "src/base/a.c", BODY + '#include "formats/format.h"\n', BODY + '#include "kvant/format.h"\n'),
    ("include-direction", "src/engine/a.c", BODY + '#include "make/quantize.h"\n', BODY + '#include "text/tokenizer.h"\n'),
    ("include-direction", "src/text/a.c", BODY + '#include "model/model.h"\n', BODY + '#include "model/gguf/gguf.h"\n'),
    ("include-direction", "src/model/gguf/a.c", BODY + '#include "model/build.h"\n', BODY + '#include "model/gguf/gguf.h"\n'),
    ("switch-table", "src/engine/a.c", BODY + "int f(int x)\n{\n    switch (x) {\n    case KVANT_OP_ATTN: return 1;\n    }\n}\n",
     BODY + "int f(int x)\n{\n    return table[x];\n}\n"),
    ("name-compare", "src/engine/a.c", BODY + 'int f(const char *s)\n{\n    return strcmp(s, "tbq4_0") && strcmp(s, "q8_0");\n}\n',
     BODY + 'int f(const char *s)\n{\n    return strcmp(s, "other") && strcmp(s, "q8_0");\n}\n'),
    ("allocates", "src/formats/a.c", BODY + "void f(void)\n{\n    g(malloc(3));\n}\n", BODY + "void f(void)\n{\n    g(3);\n}\n"),
    ("prints", "src/ops/a.c", BODY + 'void f(void)\n{\n    printf("x");\n}\n', BODY + 'void f(void)\n{\n    snprintf(a, 1, "x");\n}\n'),
    ("ends", "src/model/a.c", BODY + "void f(void)\n{\n    abort();\n}\n", BODY + "void f(void)\n{\n    assert(1);\n}\n"),
    ("global", "src/formats/a.c", BODY + "static int count = 0;\n", BODY + "static const int count = 0;\n"),
    ("function-length", "src/engine/a.c", BODY + "int f(int x)\n{\n" + LONG + "}\n", BODY + "int f(int x)\n{\n    x++;\n}\n"),
    ("file-length", "tests/check_a.c", BODY + "\n" * 1001, BODY + "\n" * 900),
    ("line-length", "src/engine/a.c", BODY + "int x" + "x" * 120 + ";\n", BODY + "int x;\n"),
    ("whitespace", "src/engine/a.c", BODY + "\tint x;\n", BODY + "    int x;\n"),
    ("file-header", "src/engine/a.c", "#include <stdio.h>\n", BODY + "#include <stdio.h>\n"),
    ("forbidden-word", "src/engine/a.c", BODY + "/* TO" "DO: finish */\n", BODY + "/* finished */\n"),
    ("undocumented", "include/kvant/a.h", BODY + "\nint kvant_a(int x);\n", BODY + "\n/* Adds. */\nint kvant_a(int x);\n"),
    ("nan-passes", "tests/check_a.c", BODY + "int f(double err)\n{\n    if (err > 1)\n        return 1;\n}\n",
     BODY + "int f(double err)\n{\n    if (!(err <= 1))\n        return 1;\n}\n"),
    *(("speech", path, bad, good) for path, bad, good in (
        ("src/engine/a.c", BODY + "/* What a row has. */\nint x;\n", BODY + "/* Fields of a row, as What it has. */\nint x;\n"),
        ("src/engine/a.h", BODY + "int x; /* Who asks. */\n", BODY + "int x; /* Whole rows. */\n"),
        ("src/engine/a.c", "/* a.c: Where rows are. */\nint x;\n", "/* a.c: places of rows. */\nint x;\n"),
        ("include/kvant/a.h", BODY + "/*\n * Whether x. */\nint x;\n", BODY + "/* Returns 1\n * Whether or not. */\nint x;\n"),
        ("src/devices/cuda/a.cu", BODY + "    // The same.\n", BODY + "// This is\n// The same.\n"),
        ("src/engine/a.c", BODY + "/* A row.  Where it is. */\n", BODY + "/* A row is e.g. what it is. */\n"),
        ("src/engine/a.c", BODY + "/* A row.\n * Of all. */\n", BODY + "/* A row\n * Of all. */\n"),
        ("src/devices/vulkan/a.comp", "// Of a row.\n", "// Offsets of a row.\n"),
        ("src/devices/portable/a.k", "/* Its row. */\n", "/* It is a row. */\n"),
        ("src/server/ui/a.js", "// What it is.\n", "x = '// What it is.';\n"))),
    *(("file-name", path, bad, good) for path, bad, good in (
        ("src/engine/a.c", "/* b.c: owns nothing. */\n", "/* a.c: owns nothing. */\n"),
        ("src/engine/a.c", BODY + "/* As engine/b.h has it. */\n", BODY + "/* As engine/a.c and cards/decode.h have it. */\n"),
        ("src/engine/a.c", BODY + "/* See gone/a.c. */\n", BODY + 'int x = y("gone/a.c");\n'),
        ("docs/a.md", "# A\n\n`b.md`\n", "# A\n\n`a.md`, src/model/archs.def, tests/check_NAME.c, NAME.c\n"),
        ("docs/a.md", "gone.cuh\n", "{one,two}.cuh *.cuh\n"),
        ("README.md", "docs/gone.md\n", "README.md\n"))),
    ("unique-name", "src/engine/b.c", BODY, None),
    ("folder-size", "src/cache/b.c", BODY, None),
    ("long-functions", "tools/long_functions.txt", "src/engine/a.c f because\n", "# none\n"),
    ("long-functions", "tools/long_functions.txt", "src/engine/a.c f\n", "# none\n"),
    ("file-length", "README.md", "x\n" * 151, "x\n" * 150),
    ("file-length", "tools/a.py", "# a\n" * 1001, "# a\n" * 900),
    ("file-header", "tools/a.sh", "#!/bin/sh\necho\n", "#!/bin/sh\n# a.sh: echoes.\necho\n"),
    ("exceptions", "src/base/trace.c", BODY, BODY + 'void f(FILE *f)\n{\n    fputs("x", f);\n}\n'),
    # Device code that asks which format it has: every way in which it does so today.
    *(("format-branch", path, BODY + f"int f(int F)\n{{\n    {bad}\n}}\n", BODY + "int f(int F)\n{\n    return bits[F];\n}\n")
      for path, bad in (("src/devices/cuda/a.cuh", "switch (F) { case FMT_q8_0: return 1; }"),
                        ("src/devices/cuda/a.cu", "return F == FMT_tbq4_0;"),
                        ("src/devices/cuda/a.cu", "return F != FMT_f16 ? 2 : 3;"),
                        ("src/devices/cuda/a.cu", "return side<FMT_turbo3>(F);"),
                        ("src/devices/cuda/a.cu", "if constexpr (T == WT_bf16) return 1;"),
                        ("src/devices/vulkan/a.c", "return F == VK_FMT_q4_0;"),
                        ("src/devices/vulkan/a.c", "return F <= VK_FMT_bf16;"),
                        ("src/devices/vulkan/attn/a.comp", "return F == VK_FMT_f32 ? 1 : 0;"),
                        ("src/devices/vulkan/matmul/a.glsl", "return F == VK_WT_q6_k ? 1 : 0;"),
                        ("src/devices/metal/a.c", "return F == FMT_f32;"))),
    ("format-branch", "tools/format_branches.txt", "src/engine/gone.c 3\n", "# none\n"),
    ("format-branch", "tools/format_branches.txt", "src/engine/gone.c\n", "# none\n"),
    *(("op-branch", path, BODY + f"int f(int id)\n{{\n    return {bad};\n}}\n", BODY + "int f(int id)\n{\n    return table[id];\n}\n")
      for path, bad in (("src/devices/cuda/a.cu", "id == KVANT_OP_ATTN"), ("src/engine/a.c", "id != KVANT_OP_MATMUL"), ("src/devices/vulkan/a.c", "KVANT_OP_ROPE == id"))),
    ("op-branch", "tools/op_branches.txt", "src/engine/gone.c 3\n", "# none\n"),
    ("assembly", "src/devices/cuda/a.cuh", BODY + 'int f(void)\n{\n    asm volatile("x");\n}\n', BODY + "/* asm */\nint f(void)\n{\n    return g();\n}\n"),
    ("positional", "src/engine/a.c", BODY + "void f(p *x)\n{\n    *x = (p){ 1, y, z->a[3],\n              0, NULL };\n}\n",
     BODY + "void f(p *x)\n{\n    *x = (p){ .a = 1, .b = y, .c = 2, .d = 0, .e = NULL };\n    *x = (p){ 1, 2, 3, 4 };\n}\n"),
    *(("struct-size", "src/engine/a.h", BODY + bad, BODY + good) for bad, good in (
        ("struct a {\n" + "    int x, y;\n" * 20 + "    int z;\n};\n", "struct a {\n" + "    int x, y;\n" * 20 + "};\n"),
        ("typedef struct {\n" + "    int (*f)(int a, int b);\n" * 41 + "} a;\n", "typedef struct {\n" + "    int (*f)(int a, int b);\n" * 40 + "} a;\n"))),
    *(("src-length", path, BODY + "\n" * 500, BODY + "\n" * 499) for path in ("src/engine/a.c", "src/base/a.h", "src/devices/cuda/a.cu", "src/devices/cuda/a.cuh")),
    ("src-length", "tools/long_files.txt", "src/engine/gone.c 3\n", "# none\n"),
    ("struct-name", "src/engine/a.c", BODY + "typedef struct {\n    int x;\n} one;\n", BODY + "struct two {\n    int x;\n};\n"),
    ("struct-name", "tools/struct_names.txt", "gone\n", "# none\n"),
]
# Files beside that of a case.
BESIDE = {"unique-name": {"src/cache/b.c": BODY}, "struct-name": {"src/cache/b.h": BODY + "struct one {\n    int y;\n};\n"}, "folder-size": {f"src/cache/f{i}.c": BODY for i in range(25)}}
OPTION_TABLE = {"src/cli/options/options.def": """/* options.def: one row. */
KVANT_OPTION(QUIET, "-q --quiet", OPT_T_FLAG, OPT_G_OUTPUT)
KVANT_OPTION(LEVEL, "--level", OPT_T_INT, OPT_G_OUTPUT)
KVANT_OPTION(MMAP, "--mmap", OPT_T_NOTED, OPT_G_OUTPUT)
KVANT_OPTION(LORA, "--lora", OPT_T_REFUSED, OPT_G_OUTPUT)
"""}
READS = BODY + "int f(const opts *o)\n{\n    return opt_flag(o, OPT_QUIET) || x(opt_origin(o, OPT_LEVEL)) || %s;\n}\n"
OPTIONS = [     # C4: what code does with OPT_LEVEL and others, findings
    ("opt_int(o, OPT_LEVEL)", []), ("list[i].id == OPT_LEVEL", []), ("opt_int(o, x ? OPT_QUIET : OPT_LEVEL)", []),
    ("0", ["option-unread"]), ("opt_origin(o, OPT_LEVEL)", ["option-unread"]), ("/* opt_int(o, OPT_LEVEL) */ 0", ["option-unread"]),
    ("opt_int(o, OPT_LEVEL) || opt_flag(o, OPT_MMAP)", ["option-unread"]),
]
ONE = BODY + "int f(int F)\n{\n    return F == FMT_f32;\n}\n"
RATCHET = [     # how often the list says, findings
    (1, []), (0, ["format-branch"]), (2, ["format-branch"]),
]
# Reports and their age, in a tree with history: the source now, the list, the page; findings.  HASH is the report's commit.
OLD, NEW, NAMED = "int x;\n", "int y;\n", "[r](evidence/cpu.json) is older, commit HASH\n"
REPORTS = [
    (OLD, "", "", []), (NEW, "cpu.json\n", NAMED, []), (NEW, "", "", ["old-report"]), (NEW, "# cpu.json\n", NAMED, ["old-report"]),
    (NEW, "cpu.json\n", "cpu.json\n\nolder\n", ["old-report"]), (OLD, "cpu.json\n", NAMED, ["old-report"]),
    (OLD, "gone.json\n", "gone.json is older\n", ["old-report"]), (OLD, "", "[r](evidence/cpu.json), commit abcdef1\n", ["old-report"]),
]
reported = set()        # lines of tools/lint that reported


def load_lint():
    loader = importlib.machinery.SourceFileLoader("lint", LINT)
    sys.dont_write_bytecode = True
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lint", loader))
    loader.exec_module(module)
    report = module.Lint.report

    def recorded(self, path, line, rule, text):
        reported.add(sys._getframe(1).f_lineno)
        report(self, path, line, rule, text)
    module.Lint.report = recorded
    return module


def findings(module, files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**DEFS, **files}.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        lint = module.Lint(root)
        lint.run()
        return [rule for _, _, rule, _ in lint.findings]


def aged(module, source, older, page):
    """Findings of a tree whose report was made at its first commit."""
    with tempfile.TemporaryDirectory() as root:
        def put(path, text):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)

        def git(*words):
            done = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, capture_output=True, text=True, check=True)
            return done.stdout.strip()
        for path, text in {**DEFS, "src/formats/a.c": BODY + OLD}.items():
            put(path, text)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "x")):
            git(*words)
        commit = git("rev-parse", "HEAD")[:9]
        for path, text in (("src/formats/a.c", BODY + source), ("docs/evidence/cpu.json", json.dumps({"library": f"0.1.0 ({commit})"})),
                           ("docs/evidence/older.txt", older), ("docs/a.md", page.replace("HASH", commit))):
            put(path, text)
        lint = module.Lint(root)
        lint.run()
        return [rule for _, _, rule, _ in lint.findings]


def exit_status(files):
    """What the program says of a tree that holds `files`: (status, last line)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**DEFS, **files}.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        run = subprocess.run([sys.executable, LINT, "--root", root], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout.splitlines()[-1]


def silent_places():
    """Lines of tools/lint that report and that no case reached."""
    with open(LINT, encoding="utf-8") as file:
        places = {i: line.strip() for i, line in enumerate(file, 1) if "self.report(" in line and "def report" not in line}
    return [f"{i}: {text}" for i, text in places.items() if i not in reported]


def what_is_looked_for(module):
    """(ok, text): the names, folders and files that the rules speak of exist in this tree."""
    lint = module.Lint(ROOT)
    code = {path: lint.read(path) for path in lint.files() if path.startswith(("src/", "include/", "tools/cards/"))}
    yield all(lint.names.values()), f"empty table of names: {lint.names}"
    for folder in set(module.LAYERS) | module.LIBRARY:
        yield os.path.isdir(os.path.join(ROOT, "src", folder)), f"no folder src/{folder}"
    for rule, path in module.EXCEPTIONS:
        yield os.path.exists(os.path.join(ROOT, path)), f"EXCEPTIONS: {rule} names {path}, which does not exist"
    for kind in ("KVANT_OP_[A-Z]", r"\bFMT_[a-z{]", r"\bVK_FMT_[a-z{]", r"\bWT_[a-z{]", r"\bVK_WT_[a-z{]"):
        yield any(re.search(kind, text) for text in code.values()), f"nothing in src, include or tools/cards is named {kind}"


def results(module):
    for rule, path, bad, good in CASES:
        found = findings(module, {path: bad, **BESIDE.get(rule, {})})
        yield found == [rule], f"{rule} in {path}: found {found}"
        if good is not None:
            found = findings(module, {path: good})
            yield found == [], f"{rule}: the good file of {path} gave {found}"
    for n, wanted in RATCHET:
        found = findings(module, {"src/devices/cuda/a.cu": ONE, "tools/format_branches.txt": f"src/devices/cuda/a.cu {n}\n"})
        yield found == wanted, f"a file that names one format, {n} allowed: found {found}"
    for source, older, page, wanted in REPORTS:
        found = aged(module, source, older, page)
        yield found == wanted, f"a report, source {source!r}, older.txt {older!r}, page {page!r}: found {found}"
    for text, wanted in ((BODY, (0, "lint: 0 findings")), ("int x;\n", (1, "lint: 1 findings"))):
        got = exit_status({"src/engine/a.c": text})
        yield got == wanted, f"exit status and last line {got}, wanted {wanted}"
    for use, wanted in OPTIONS:
        found = findings(module, {"src/cli/a.c": READS % use, **OPTION_TABLE})
        yield found == wanted, f"options, {use}: found {found}"
    silent = silent_places()
    yield not silent, "no planted violation reaches tools/lint:" + ", ".join(silent)
    yield from what_is_looked_for(module)


def main():
    passed = failed = 0
    for ok, text in results(load_lint()):
        passed, failed = passed + ok, failed + (not ok)
        if not ok:
            print(f"FAIL check_lint: {text}")
    print(f"check_lint: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
