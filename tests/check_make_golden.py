#!/usr/bin/env python3
"""check_make_golden: tools/make_golden.py, the second implementation of the formats, against golden vectors made by other programs;
and the program against vectors that make_golden.py makes afresh, from a seed that no file of the repository has.

    check_make_golden.py BUILD [SEED]"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
TOOL = os.path.join(ROOT, "tools", "make_golden.py")


def run(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def counts(text):
    """The last "N passed, M failed" of a report."""
    found = re.findall(r"(\d+) passed, (\d+) failed", text)
    return (int(found[-1][0]), int(found[-1][1])) if found else (0, 1)


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
    seed = sys.argv[2] if len(sys.argv) > 2 else "2"
    passed = failed = 0
    with tempfile.TemporaryDirectory() as fresh:
        for what, least, command in (
                ("make_golden.py against other programs' vectors", 3000, (sys.executable, TOOL, "--check", "tests/golden")),
                ("make_golden.py makes vectors", 0, (sys.executable, TOOL, "--out", fresh, "--seed", seed)),
                ("kvant verify on fresh vectors", 5000, (os.path.join(build, "bin", "kvant"), "verify", "--golden", fresh))):
            code, text = run(*command)
            good, bad = counts(text) if least else (1, 0)
            ok = code == 0 and bad == 0 and good >= least
            passed, failed = passed + ok, failed + (not ok)
            if not ok:
                print(f"FAIL check_make_golden: {what}: exit code {code}, {good} passed, {bad} failed\n{text[-1500:]}")
    print(f"check_make_golden: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
