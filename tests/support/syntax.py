"""syntax.py BUILD SUITE: the compiler of a configured build reads files without making code: those of the suite's own instruction sets and an
eighth of the others.  A file that includes what only a build makes is left out.  Ends with `syntax: N passed, M failed`."""
import concurrent.futures
import json
import os
import re
import subprocess
import sys

from suites import ROOT, part, read

OWN = re.compile(r"_(neon|dotprod|i8mm)\.c$")


def made_by_the_build(entry):
    places = [os.path.dirname(entry["file"]), *re.findall(r"-I(\S+)", entry["command"])]
    names = re.findall(rb'^\s*#\s*include\s+"([^"]+\.inc)"', read(ROOT, entry["file"]), re.M)
    return any(not any(os.path.exists(os.path.join(place, name.decode())) for place in places) for name in names)


def compile_one(entry):
    command = re.sub(r" -o \S+ -c ", " -fsyntax-only ", entry["command"])
    r = subprocess.run(command, shell=True, cwd=entry["directory"], capture_output=True, text=True, check=False)
    return r.returncode == 0, f"FAIL syntax {os.path.relpath(entry['file'], ROOT)}: {r.stderr[:600]}"


def main(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        entries = {e["file"]: e for e in json.load(f) if "/src/" in e["file"] or "/generated/" in e["file"]}
    entries = [e for e in entries.values() if not made_by_the_build(e)]
    own = [e for e in entries if OWN.search(e["file"])]
    chosen = own + part([e for e in entries if not OWN.search(e["file"])], 0)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(compile_one, chosen))
    for ok, text in results:
        if not ok:
            print(text)
    passed = sum(ok for ok, _ in results)
    print(f"syntax: {passed} passed, {len(results) - passed} failed")
    return passed < len(results) or not own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
