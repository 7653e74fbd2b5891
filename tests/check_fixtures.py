#!/usr/bin/env python3
"""check_fixtures: `kvant verify --golden` reads the eleven fixtures of the public Metal and Vulkan kernels (decimal JSON: rows and scores, or
cases of fused attention) and runs them on the device that is named: the CPU, and where they are here Vulkan and OpenCL.  The fixtures are made
by tools/make_fixtures.py from tests/golden, which an independent program wrote.  Planted: wrong numbers, fields that do not fit, kernels that are
known and cannot run."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import make_fixtures      # noqa: E402

SCORES = [("turbo3", "expected_scores"), ("turbo4", "expected_scores"), ("turbo3_tcq", "expected_scores"), ("qjl", "expected_scores"), ("polar", "expected_scores"),
          ("polar_qjl", "expected_scores"), ("polar_preht", "expected_scores"), ("polar_preht", "expected_scores_qjl")]
FUSED = ["fused_attn_qjl_tbq", "fused_attn_qjl_tbq_causal", "fused_attn_qjl_polar", "fused_attn_qjl_polar_causal"]


def verify(build, fixtures, device="cpu"):
    """(exit status, output, golden entries by file) of these fixtures."""
    with tempfile.TemporaryDirectory() as folder:
        make_fixtures.write(os.path.join(folder, "in"), fixtures)
        report = os.path.join(folder, "report.json")
        r = subprocess.run([os.path.join(build, "bin", "kvant"), "verify", "--golden", os.path.join(folder, "in"), "--device", device, "--json", report],
                           capture_output=True, text=True, timeout=300, check=False)
        files = {}
        if os.path.exists(report):
            with open(report, encoding="utf-8") as f:
                files = {g["file"][:-len(".json")]: g for g in json.load(f)["golden"]}
        return r.returncode, r.stdout + r.stderr, files


def whole(build, made, device):
    """Every file is read, runs on this device, and passes; on another device than the CPU nothing else does."""
    code, text, files = verify(build, made, device)
    yield code == 0 and set(files) == set(made), f"{device}: {code} {text}"
    for name, fixture in made.items():
        g, least = files.get(name, {"passed": 0, "skipped": 1}), 2 * len(fixture.get("cases", [0]))
        yield g["passed"] >= least and not g["skipped"], f"{device}: {name}: {g}, want {least} passed or more"


def falsified(build, made, device):
    """A number that is wrong is found in every kind of fixture, by this device."""
    for name, field in SCORES:
        wrong = dict(made[name], **{field: [s + 0.01 * (i == 5) for i, s in enumerate(made[name][field])]})
        code, text, _ = verify(build, {name: wrong}, device)
        yield code == 6 and f"on {device}: score 5 of head 0" in text, f"{device}: {name}, a wrong {field}: {code} {text}"
    for name in FUSED:
        cases = [dict(c) for c in made[name]["cases"][:2]]
        cases[1]["expected_out"] = [x + 0.01 * (i == 200) for i, x in enumerate(cases[1]["expected_out"])]
        code, text, _ = verify(build, {name: dict(made[name], cases=cases)}, device)
        yield code == 6 and f"on {device}, case 1: value 200" in text, f"{device}: {name}, a wrong output: {code} {text}"


def misfits(build, made):
    """Fields that do not fit each other; each is a failure with its name."""
    turbo, fused, preht = made["turbo3"], made["fused_attn_qjl_tbq_causal"], made["polar_preht"]
    for key, value in (("head_dim", 100), ("head_dim", 1e9), ("n_kv", 0), ("n_kv", -1), ("n_kv", 4097), ("q", []), ("k_blocks", [256] * 448), ("k_blocks", "00"),
                       ("k_blocks", turbo["k_blocks"][:-1]), ("expected_scores", None), ("block_bytes", 15)):
        code, text, _ = verify(build, {"a": dict(turbo, **{key: value}), "b": made["polar"]})
        yield code == 6 and "FAILED a.json" in text, f"{key} = {str(value)[:20]}: {code} {text}"
    for key, value in (("hq", None), ("hq", preht["hq"][:-1]), ("hq", preht["hq"][1:] + preht["hq"][:1])):
        code, text, _ = verify(build, {"a": dict(preht, **{key: value})})
        yield code == 6 and "polar_preht: hq" in text, f"polar_preht, another {key}: {code} {text}"
    for key, value in (("v_block_bytes", 18), ("v_blocks_per_token", 1), ("cases", []), ("sm_scale", None), ("use_qjl", 1)):
        code, text, _ = verify(build, {"a": dict(fused, **{key: value})})
        yield code == 6 and "FAILED a.json" in text, f"fused, {key} = {value}: {code} {text}"
    for key, value in (("q_pos_base", 4096), ("q_pos_base", -1), ("n_kv_heads", 3), ("v_blocks", [1]), ("n_kv", None)):
        cases = [dict(fused["cases"][0], **{key: value})]
        code, text, _ = verify(build, {"a": dict(fused, cases=cases)})
        yield code == 6 and "case 0: wants" in text, f"fused case, {key} = {value}: {code} {text}"


def cases(build):
    """(ok, text) of every check."""
    made = make_fixtures.fixtures()
    yield len(made) == 11, f"{len(made)} fixtures"
    here = [d for d in make_fixtures.devices(os.path.join(build, "bin", "kvant")) if d in ("cpu", "vulkan", "opencl")]
    for device in here:
        yield from whole(build, made, device)
        yield from falsified(build, made, device)
    for device in ("vulkan", "opencl"):
        if device not in here:
            print(f"SKIP check_fixtures: {device}: not here")
    yield from misfits(build, made)
    code, text, _ = verify(build, {"a": dict(made["turbo3"], kernel="other")})
    yield code == 3 and "found no golden vector to compare on device cpu" in text, f"another kernel: {code} {text}"


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
    passed = failed = 0
    for ok, text in cases(build):
        passed, failed = passed + ok, failed + (not ok)
        if not ok:
            print(f"FAIL check_fixtures: {text}")
    print(f"check_fixtures: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
