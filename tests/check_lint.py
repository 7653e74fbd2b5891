#!/usr/bin/env python3
"""check_lint: each rule of tools/lint finds a planted violation, and accepts the same file without it."""
import os
import subprocess
import sys
import tempfile

LINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "lint")
DEFS = {
    "src/formats/formats.def": "KVANT_FORMAT(tbq4_0)\nKVANT_FORMAT(q8_0)\n", "src/model/archs.def": "KVANT_ARCH(qwen3)\n",
    "src/devices/devices.def": "KVANT_DEVICE(cpu)\n", "include/kvant/ops.def": "KVANT_OP(ATTN, attn)\n",
}
BODY = "/* good.c: owns nothing. */\n"
LONG = "    x++;\n" * 121
# rule, path, text with the violation, text without it
CASES = [
    ("include-direction", "src/ops/a.c", BODY + '#include "engine/engine.h"\n', BODY + '#include "base/mem.h"\n'),
    ("include-direction", "src/server/a.c", BODY + '#include "cache/kv.h"\n', BODY + '#include "engine/engine.h"\n'),
    ("include-direction", "src/base/a.c", BODY + '#include "formats/format.h"\n', BODY + '#include "kvant/format.h"\n'),
    ("switch-table", "src/engine/a.c", BODY + "int f(int x)\n{\n    switch (x) {\n    case KVANT_OP_ATTN: return 1;\n    }\n}\n",
     BODY + "int f(int x)\n{\n    return table[x];\n}\n"),
    ("name-compare", "src/engine/a.c", BODY + 'int f(const char *s)\n{\n    return strcmp(s, "tbq4_0") && strcmp(s, "q8_0");\n}\n',
     BODY + 'int f(const char *s)\n{\n    return strcmp(s, "other") && strcmp(s, "q8_0");\n}\n'),
    ("allocates", "src/formats/a.c", BODY + "void f(void)\n{\n    g(malloc(3));\n}\n", BODY + "void f(void)\n{\n    g(3);\n}\n"),
    ("prints", "src/ops/a.c", BODY + 'void f(void)\n{\n    printf("x");\n}\n', BODY + 'void f(void)\n{\n    snprintf(a, 1, "x");\n}\n'),
    ("ends", "src/model/a.c", BODY + "void f(void)\n{\n    abort();\n}\n", BODY + "void f(void)\n{\n    assert(1);\n}\n"),
    ("global", "src/formats/a.c", BODY + "static int count = 0;\n", BODY + "static const int count = 0;\n"),
    ("function-length", "src/engine/a.c", BODY + "int f(int x)\n{\n" + LONG + "}\n", BODY + "int f(int x)\n{\n    x++;\n}\n"),
    ("file-length", "src/engine/a.c", BODY + "\n" * 1001, BODY + "\n" * 900),
    ("line-length", "src/engine/a.c", BODY + "int x" + "x" * 120 + ";\n", BODY + "int x;\n"),
    ("whitespace", "src/engine/a.c", BODY + "\tint x;\n", BODY + "    int x;\n"),
    ("file-header", "src/engine/a.c", "#include <stdio.h>\n", BODY + "#include <stdio.h>\n"),
    ("forbidden-word", "src/engine/a.c", BODY + "/* TO" "DO: finish */\n", BODY + "/* finished */\n"),
    ("undocumented", "include/kvant/a.h", BODY + "\nint kvant_a(int x);\n", BODY + "\n/* Adds. */\nint kvant_a(int x);\n"),
    ("nan-passes", "tests/check_a.c", BODY + "int f(double err)\n{\n    if (err > 1)\n        return 1;\n}\n",
     BODY + "int f(double err)\n{\n    if (!(err <= 1))\n        return 1;\n}\n"),
    ("unique-name", "src/engine/b.c", BODY, None),
    ("long-functions", "tools/long_functions.txt", "src/engine/a.c f because\n", "# none\n"),
    ("file-length", "README.md", "x\n" * 151, "x\n" * 150),
]


def findings(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**DEFS, **files}.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w") as file:
                file.write(text)
        run = subprocess.run([sys.executable, LINT, "--root", root], capture_output=True, text=True, check=False)
        lines = run.stdout.splitlines()
        assert (run.returncode == 0) == (lines[-1] == "lint: 0 findings"), run.stdout + run.stderr
        return [line.split(": ")[1] for line in lines[:-1]]


def main():
    passed = failed = 0
    for rule, path, bad, good in CASES:
        extra = {"src/cache/b.c": BODY} if rule == "unique-name" else {}
        found = findings({path: bad, **extra})
        results = [(found == [rule], f"{rule} in {path}: found {found}")]
        if good is not None:
            found = findings({path: good})
            results.append((found == [], f"{rule}: the good file gave {found}"))
        for ok, text in results:
            passed, failed = passed + ok, failed + (not ok)
            if not ok:
                print(f"FAIL check_lint: {text}")
    print(f"check_lint: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
