#!/usr/bin/env python3
"""coverage.py: line coverage by file from a --coverage build whose tests have run.

    tools/coverage.py build/cov        prints a table, the least covered file first, and the total of src/

Uses gcov's JSON output; a line counts as covered if any test program ran it."""
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile


def lines_of(build, root):
    """path -> {line: was run}, over every object file of the build."""
    seen = {}
    data = glob.glob(os.path.join(build, "**", "*.gcda"), recursive=True)
    if not data:
        sys.exit(f"coverage: no .gcda files under {build}: build with the preset 'cov' and run the tests first")
    with tempfile.TemporaryDirectory() as work:
        for start in range(0, len(data), 50):
            subprocess.run(["gcov", "--json-format", *map(os.path.abspath, data[start:start + 50])], cwd=work, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for path in glob.glob(os.path.join(work, "*.gcov.json.gz")):
                with gzip.open(path) as file:
                    report = json.load(file)
                os.remove(path)
                for entry in report["files"]:
                    name = os.path.relpath(os.path.join(report["current_working_directory"], entry["file"]), root)
                    if name.startswith("src/"):
                        lines = seen.setdefault(name, {})
                        for line in entry["lines"]:
                            n = line["line_number"]
                            lines[n] = lines.get(n, False) or line["count"] > 0
    return seen


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    seen = lines_of(sys.argv[1], root)
    rows = sorted((sum(lines.values()) / len(lines), name, lines) for name, lines in seen.items() if lines)
    for share, name, lines in rows:
        missing = [str(n) for n, ran in sorted(lines.items()) if not ran]
        text = ", ".join(missing[:12]) + (", ..." if len(missing) > 12 else "")
        print(f"{100 * share:6.1f} %  {len(lines):5d} lines  {name}  {text}")
    ran, total = sum(sum(lines.values()) for _, _, lines in rows), sum(len(lines) for _, _, lines in rows)
    print(f"coverage: {ran} of {total} lines, {100 * ran / max(total, 1):.1f} %")


if __name__ == "__main__":
    main()
