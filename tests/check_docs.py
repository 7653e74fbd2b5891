#!/usr/bin/env python3
"""check_docs: links between the pages of the repository lead somewhere, `./dev` knows the commands that README.md names, and
docs/verify.md is what the reports in docs/evidence say."""
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def pages():
    for folder, names, files in os.walk(ROOT):
        names[:] = [n for n in names if n not in (".git", "build", ".venv", "node_modules")]
        for name in files:
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def main():
    passed = failed = 0
    for page in sorted(pages()):
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            text = re.sub(r"```.*?```", "", file.read(), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:|#", target):
                continue
            path = os.path.normpath(os.path.join(ROOT, os.path.dirname(page), target.split("#")[0]))
            ok = os.path.exists(path)
            passed, failed = passed + ok, failed + (not ok)
            if not ok:
                print(f"FAIL check_docs: {page} links to {target}, which is absent")
    usage = subprocess.run(["sh", "./dev", "help"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    readme = os.path.join(ROOT, "README.md")
    commands = re.findall(r"\./dev ([a-z]+)", open(readme, encoding="utf-8").read()) if os.path.exists(readme) else []
    for command in sorted(set(commands)):
        ok = bool(re.search(rf"\b{command}\b", usage))
        passed, failed = passed + ok, failed + (not ok)
        if not ok:
            print(f"FAIL check_docs: README.md names ./dev {command}, which ./dev help does not list")
    stale = subprocess.run([sys.executable, "tools/gen_verify_md.py", "--check"], cwd=ROOT, check=False).returncode
    passed, failed = passed + (stale == 0), failed + (stale != 0)
    if stale:
        print("FAIL check_docs: docs/verify.md is stale: tools/gen_verify_md.py")
    print(f"check_docs: {passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
