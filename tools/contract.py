#!/usr/bin/env python3
"""contract.py: docs/evidence/contract.json: which kernel ran with which fixture on which target, from the reports of docs/evidence.

    tools/contract.py            rewrites the file
    tools/contract.py --check    exit 1 if it is not what would be written, or a kernel of PUBLIC is not verified somewhere

A row is kernel, target (a report), fixture, cases, status and commit.  Kernels are those of the public fixtures (docs/formats/golden.md) by
their names there, then kvant's own formats.  A fixture is a golden file (on the CPU, every variant), or a class of cases of the harness, whose
inputs are made and whose results are the scalar reference's; or a public fixture that the device itself ran.  Status: verified, failed, unsupported (the device refuses it),
missing (the report has no such case: it is older than the kernel, or the CPU's was made without golden files).  older: sources of the
target changed since that commit (tools/evidence_age.py).  Standard library only."""
import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import evidence_age                             # noqa: E402
from gen_verify_md import ROOT, reports      # noqa: E402

PATH = "docs/evidence/contract.json"
FIXTURE_REPORT = "docs/evidence/fixtures.json"
# kernel, op of the harness, its subject; golden files of the CPU that have its vectors
PUBLIC = [
    ("turbo3", "attn_score", "turbo3", ["turbo3.json"]), ("turbo4", "attn_score", "turbo4", ["turbo4.json"]),
    ("turbo4 of 66 bytes", "attn_score", "turbo4_66", ["variant_buun_turbo4_derived.json"]),
    ("turbo3_tcq", "attn_score", "turbo3_tcq", ["turbo3_tcq.json"]),
    ("qjl", "attn_score", "qjl1_256", ["qjl1_256_marsaglia.json", "qjl1_256_boxmuller.json"]),
    ("polar", "attn_score", "q4_polar", ["q4_polar.json"]), ("polar with residual", "attn_score", "q4_polar_r", ["q4_polar.json"]),
    ("tbq3_0", "attn_score", "tbq3_0", ["tbq3_0.json"]), ("tbq4_0", "attn_score", "tbq4_0", ["tbq4_0.json"]),
    ("fused_attn_qjl_tbq", "attn", "qjl1_256:tbq3_0", ["fused_attn_qjl_tbq.json"]),
    ("fused_attn_qjl_polar", "attn", "qjl1_256:q4_polar", ["fused_attn_qjl_polar.json"]),
]
# kernel, its files of tools/make_fixtures.py: run on the device itself (docs/evidence/fixtures.json)
FIXTURES = [(k, [k]) for k in ("turbo3", "turbo4", "turbo3_tcq", "qjl", "polar", "polar_preht")] + [("polar with residual", ["polar_qjl"])] + \
    [(k, [k, k + "_causal"]) for k in ("fused_attn_qjl_tbq", "fused_attn_qjl_polar")]
DEVICES = ("cpu", "vulkan", "opencl")       # those that every machine of the CI has
OWN = [(f, "attn_score", f, []) for f in ("ptcq2", "ptcq3", "ptcq4")]


def status(failed, states):
    if failed or "failed" in states:
        return "failed"
    return "unsupported" if "unsupported" in states else "verified" if states and set(states) == {"verified"} else "missing"


def harness_row(kernel, op, subject, target, report):
    cases = [e for e in report["ops"] if e["op"] == op and e.get("subject") == subject]
    shapes = " ".join(sorted({e["shape"] for e in cases}))
    return [kernel, target, f"{op} {subject}" + (f": {shapes}" if shapes else ""), sum(e.get("cases", 0) for e in cases),
            status(sum(e.get("failed", 0) for e in cases), [e["state"] for e in cases])]


def golden_row(kernel, name, target, report):
    """Verified: every entry of the file has vectors that passed, and none that failed."""
    ran = [g for g in report.get("golden") or [] if g["file"] == name]
    return [kernel, target, f"tests/golden/{name}", sum(g["passed"] for g in ran),
            status(sum(g["failed"] for g in ran), ["verified" if g["passed"] > 0 and g["format"] else "missing" for g in ran])]


def is_cpu(target):
    """cpu, cpu-NAME, or the part `cpu` of a report of several devices."""
    return target.split()[-1].split("-")[0] == "cpu"


def commit_of(report):
    found = re.search(r"\(([0-9a-f]{7,})\)", report["library"])
    return found[1] if found else None


def fixture_reports():
    path = os.path.join(ROOT, FIXTURE_REPORT)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return json.load(file)["reports"]


def fixture_row(kernel, name, report):
    """Verified: the device itself gave the numbers of the fixture, and none was left out."""
    ran = [g for g in report["golden"] if g["file"] == name + ".json"]
    states = ["verified" if g["passed"] > 0 and not g["skipped"] else "missing" for g in ran]
    return [kernel, f"{report['name']}: {report['device']}", f"tools/make_fixtures.py {name}.json", sum(g["passed"] for g in ran),
            status(sum(g["failed"] for g in ran), states)]


def fixture_rows(marked):
    for report in fixture_reports():
        for kernel, files in FIXTURES:
            for name in files:
                yield as_row(fixture_row(kernel, name, report), report, FIXTURE_REPORT.split("/")[-1] in marked)


def as_row(row, report, older):
    return dict(zip(("kernel", "target", "fixture", "cases", "status"), row), commit=commit_of(report) or "unknown", **({"older": True} if older else {}))


def rows():
    marked = evidence_age.listed(ROOT)
    for target, file, report in reports():
        for kernel, op, subject, files in PUBLIC + OWN:
            found = [harness_row(kernel, op, subject, target, report)]
            found += [golden_row(kernel, f, target, report) for f in files if is_cpu(target) or report.get("golden")]
            for row in found:
                yield as_row(row, report, file in marked)
    yield from fixture_rows(marked)


def text_of(table):
    body = ",\n".join(json.dumps(r) for r in table)
    return '{"about": "made by tools/contract.py from the reports of this folder", "rows": [\n' + body + "\n]}\n"


def check(table):
    public = {k[0] for k in PUBLIC + FIXTURES}
    bad = [f"{r['kernel']} on {r['target']}, {r['fixture']}: {r['status']}" for r in table if r["kernel"] in public and r["status"] != "verified"]
    if not any(is_cpu(r["target"]) for r in table):
        bad.append("no report of the CPU, where the golden files are read")
    ran = {r["name"] for r in fixture_reports()}
    bad += [f"no fixtures ran on {name}: tools/make_fixtures.py --report" for name in DEVICES if name not in ran]
    with open(os.path.join(ROOT, PATH), encoding="utf-8") as file:
        if file.read() != text_of(table):
            bad.append(f"{PATH} is not what the reports say: run tools/contract.py")
    print("\n".join(f"contract: {b}" for b in bad) if bad else f"contract: {len(table)} rows")
    return 1 if bad else 0


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true")
    chosen = options.parse_args()
    table = list(rows())
    if chosen.check:
        return check(table)
    with open(os.path.join(ROOT, PATH), "w", encoding="utf-8") as file:
        file.write(text_of(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
