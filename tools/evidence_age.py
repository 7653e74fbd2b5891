#!/usr/bin/env python3
"""evidence_age.py: which reports of docs/evidence are older than the sources they speak of, and whether the pages say so.

    tools/evidence_age.py            a line for each report that names a commit: how many of its sources differ from that commit
    tools/evidence_age.py --renew    writes docs/evidence/older.txt; then run tools/gen_verify_md.py, contract.py, quality.py render

A report names the commit that made it ("library" or "version" in its JSON).  It is older when a file of its sources differs from that
commit, or the history lacks it.  A GPU is not at hand for every commit, so an older report may stay, but not in silence:
docs/evidence/older.txt lists it, and a page names it in a line that says `older`.  tools/lint holds that, and that a line of a page
which links a report and names a commit names the report's.  Wants git; a source archive or a shallow clone cannot tell."""
import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
FOLDER = "docs/evidence"
LIST = f"{FOLDER}/older.txt"
COMMIT = re.compile(r'"(?:library|version)": ?"[^"]*\(([0-9a-f]{7,})\)')
SOURCES = ["src/formats", "src/ops", "src/verify"]
FOLDERS = {"cpu": ["src/devices/cpu"], "cuda": ["src/devices/cuda"], "vulkan": ["src/devices/vulkan"], "hip": ["src/devices/hip", "src/devices/portable"],
           "opencl": ["src/devices/opencl", "src/devices/portable"],}
# docs/evidence/fixtures.json: attn_score and attn of three devices over some formats.
FIXTURES = ["src/formats", "src/verify/golden", "src/ops/attention.c", "src/devices/cpu/attn", "src/devices/vulkan/attn", "src/devices/portable/attn"]
# Of whole models, made by tools/quality.py.
MODELS = ["src/formats", "src/ops", "src/devices/cpu", "src/cache", "src/engine", "src/model"]


def sources(name):
    device = re.split(r"[-. ]", name)[0]
    if device == "fixtures":
        return FIXTURES
    return SOURCES + FOLDERS[device] if device in FOLDERS else MODELS


def read(root, path):
    try:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def reports(root):
    """{file name: its commits, in order} of the reports that name one."""
    folder = os.path.join(root, FOLDER)
    names = sorted(n for n in os.listdir(folder) if n.endswith(".json") and n != "contract.json") if os.path.isdir(folder) else []
    found = {n: list(dict.fromkeys(COMMIT.findall(read(root, f"{FOLDER}/{n}")))) for n in names}
    return {n: commits for n, commits in found.items() if commits}


def git(root, *words):
    return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)


def has_history(root):
    try:
        here = git(root, "rev-parse", "--show-toplevel", "--is-shallow-repository").stdout.split("\n")
    except FileNotFoundError:
        return False
    return here[1:2] == ["false"] and os.path.realpath(here[0]) == os.path.realpath(root)


def age(root, name, commits):
    """Files of the report's sources that differ now from one of its commits; -1: a commit is not in the history."""
    changed = set()
    for commit in commits:
        r = git(root, "diff", "--name-only", commit, "--", *sources(name))
        if r.returncode:
            return -1
        changed |= set(r.stdout.split())
    return len(changed)


def listed(root=ROOT):
    """The names that older.txt has, and their lines."""
    lines = read(root, LIST).splitlines()
    return {line.split()[0]: i for i, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")}


def pages(root):
    for folder, _, names in [w for top in ("docs", "bench") for w in os.walk(os.path.join(root, top))]:
        for name in sorted(n for n in names if n.endswith(".md")):
            path = os.path.relpath(os.path.join(folder, name), root)
            yield path, read(root, path).splitlines()


def wrong_commits(found, path, lines):
    """Lines that link a report and name commits, of which none is the report's."""
    for i, line in enumerate(lines, 1):
        for name in set(re.findall(r"\]\((?:\.\./)*(?:docs/)?(?:evidence/)?([\w-]+\.json)\)", line)) & set(found):
            named = re.findall(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b", line)
            if named and not any(a.startswith(b) or b.startswith(a) for a in named for b in found[name]):
                yield path, i, f"names commit {named[0]} beside {name}, which is of {', '.join(found[name])}"


def findings(root):
    """(path, line, text) of everything that is not as the head of this file says."""
    found, marked, said = reports(root), listed(root), set()
    for path, lines in pages(root):
        yield from wrong_commits(found, path, lines)
        said |= {n for n in marked for line in lines if re.search(rf"\b{re.escape(n)}\b", line) and re.search(r"\bolder\b", line)}
    for name, line in marked.items():
        if name not in found:
            yield LIST, line, f"{name}: no such report that names a commit"
        elif name not in said:
            yield f"{FOLDER}/{name}", 1, "is older than its sources, and no page says so in a line that names it"
    for name, commits in found.items() if has_history(root) else ():
        n = age(root, name, commits)
        if n and name not in marked:
            yield f"{FOLDER}/{name}", 1, (f"{n} files of its sources changed since" if n > 0 else "the history has no") + f" {', '.join(commits)}: " \
                "tools/evidence_age.py --renew, tools/gen_verify_md.py, tools/contract.py, tools/quality.py render"
        elif not n and name in marked:
            yield LIST, marked[name], f"{name} is as old as its sources: strike it (tools/evidence_age.py --renew)"


def main():
    if not has_history(ROOT):
        print("evidence_age: no history here, or a shallow one", file=sys.stderr)
        return 1
    ages = {name: age(ROOT, name, commits) for name, commits in reports(ROOT).items()}
    if sys.argv[1:] == ["--renew"]:
        with open(os.path.join(ROOT, LIST), "w", encoding="utf-8") as file:
            file.write("# Reports that are older than the sources they speak of; tools/evidence_age.py --renew writes this, tools/lint compares.\n")
            file.write("".join(f"{name}\n" for name, n in ages.items() if n))
        return 0
    for name, n in ages.items():
        print(f"{name}: {'a commit is not in the history' if n < 0 else f'{n} files of its sources changed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
