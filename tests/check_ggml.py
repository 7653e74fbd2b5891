#!/usr/bin/env python3
"""check_ggml: contrib/ggml/kvant_ggml.c, kvant's ops in ggml's graphs.  With KVANT_GGML_DIR (a source tree of ggml, or where it is installed) it is
built and run: every difference within its bound.  Without, it is compiled against the declarations of tests/support/ggml, which says so."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, is_sanitized    # noqa: E402

C = Checks("check_ggml")
HERE = os.path.join(ROOT, "contrib", "ggml")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def check_interface(build):
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Itests/support/ggml", "-Iinclude",
             "-I" + os.path.join(build, "generated", "include")]
    r = run(os.environ.get("CC", "cc"), *flags, os.path.join(HERE, "kvant_ggml.c"))
    C.ok(r.returncode == 0, r.stderr[-800:])
    with open(os.path.join(HERE, "kvant_ggml.c"), encoding="utf-8") as f:
        text = f.read()
    with tempfile.NamedTemporaryFile("w", suffix=".c") as f:       # planted: an argument too few
        f.write(text.replace("mask, a.scale, 0, 0)", "mask, a.scale, 0)"))
        f.flush()
        C.ok(run(os.environ.get("CC", "cc"), *flags, f.name).returncode != 0, "planted: a call with an argument too few compiles")


def check_run(build, ggml):
    with tempfile.TemporaryDirectory() as folder:
        prefix, made = os.path.join(folder, "kvant"), os.path.join(folder, "build")
        for command in (["cmake", "--install", build, "--prefix", prefix],
                        ["cmake", "-S", HERE, "-B", made, "-G", "Ninja", f"-DGGML_DIR={ggml}", f"-DCMAKE_PREFIX_PATH={prefix}"],
                        ["cmake", "--build", made]):
            r = run(*command)
            if not C.ok(r.returncode == 0, f"{command[1]}: {r.stdout[-400:]} {r.stderr[-400:]}"):
                return
        for threads in ("1", "2"):
            r = run(os.path.join(made, "kvant_ggml"), threads, "3")
            C.ok(r.returncode == 0 and len(re.findall(r"^\| \w", r.stdout, re.M)) == 17, f"{threads} threads:\n{r.stdout}{r.stderr}")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    check_interface(build)
    ggml = os.environ.get("KVANT_GGML_DIR")
    if not ggml or is_sanitized(build):
        print("SKIP check_ggml: compiled against its declarations alone: KVANT_GGML_DIR names no ggml, or this is a sanitizer's build")
    else:
        check_run(build, ggml)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
