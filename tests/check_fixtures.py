#!/usr/bin/env python3
"""check_fixtures: `kvant verify --golden` reads the fixtures of the public Metal and Vulkan kernels (B24): decimal JSON with a kernel,
a query, rows and scores.  The fixtures are made here, from rows and scores of tests/golden, which an independent program wrote."""
import json
import os
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
ROWS = 8
# kernel, golden file, fields of bytes, scores and query, block bytes, what else the fixture says
KINDS = [
    ("turbo3", "turbo3", "enc", "score_f32", "q_f32", 14, {"n_kv": ROWS}), ("turbo4", "turbo4", "enc", "score_f32", "q_f32", 18, {"n_kv": ROWS}),
    ("turbo3_tcq", "turbo3_tcq", "enc", "score_f32", "q_f32", 52, {"n_kv": ROWS}),
    ("qjl", "qjl1_256_marsaglia", "enc", "score_f32", "q_sketch_f32", 34, {"n_tokens": ROWS, "n_heads": 1, "n_kv_heads": 1, "proj_dim": 256}),
    ("polar", "q4_polar", "enc_noqjl", "score_noqjl_f32", "q_f32", 82, {"n_rows": ROWS, "use_qjl": 0}),
    ("polar", "q4_polar", "enc_qjl", "score_qjl_f32", "q_f32", 82, {"n_rows": ROWS, "use_qjl": 1}),
]


def floats(text):
    data = bytes.fromhex(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def fixture(kernel, name, enc, score, query, block, more):
    with open(os.path.join(ROOT, "tests", "golden", name + ".json"), encoding="utf-8") as f:
        golden = json.load(f)
    rows = [v for v in golden["vectors"] if not v["informative_only"] and len(bytes.fromhex(v["x_f32"])) == 512]
    rows = [v for v in rows if abs(floats(v[score])[0]) < 30][:ROWS]        # seven digits are then well within 1e-3
    return {"kernel": kernel, "head_dim": 128, "block_bytes": block, **more,
            "q_sketch" if kernel == "qjl" else "q": [float(f"{x:.7g}") for x in floats(golden[query][0])],
            "k_blocks": [b for v in rows for b in bytes.fromhex(v[enc])], "expected_scores": [float(f"{floats(v[score])[0]:.7g}") for v in rows]}


def verify(build, *fixtures, args=()):
    with tempfile.TemporaryDirectory() as folder:
        for i, x in enumerate(fixtures):
            with open(os.path.join(folder, f"{i}.json"), "w", encoding="utf-8") as f:
                json.dump(x, f)
        return subprocess.run([os.path.join(build, "bin", "kvant"), "verify", "--golden", folder, *args], capture_output=True, text=True,
                              timeout=120, check=False)


def cases(build):
    """(ok, text) of every check."""
    all_of = [fixture(*k) for k in KINDS]
    r = verify(build, *all_of)
    yield r.returncode == 0 and ", 0 failed" in r.stdout and "skipped" in r.stdout, r.stdout + r.stderr
    for (kernel, *_), x in zip(KINDS, all_of):
        yield len(x["expected_scores"]) == ROWS, f"{kernel}: {len(x['expected_scores'])} rows"
        wrong = dict(x, expected_scores=[s + 0.01 * (i == 5) for i, s in enumerate(x["expected_scores"])])
        r = verify(build, wrong)
        yield r.returncode == 6 and "score 5 of head 0" in r.stdout, f"{kernel}, a wrong score: {r.returncode} {r.stdout}{r.stderr}"
        wrong = dict(x, k_blocks=x["k_blocks"][:-1])
        r = verify(build, wrong)
        yield r.returncode == 6 and "bytes" in r.stdout, f"{kernel}, a byte less: {r.returncode} {r.stdout}{r.stderr}"
    for key, value in (("head_dim", 100), ("head_dim", 1e9), ("n_kv", 0), ("n_kv", -1), ("n_kv", 4097), ("q", []), ("k_blocks", [256] * 448),
                       ("k_blocks", "00"), ("expected_scores", None)):
        r = verify(build, dict(all_of[0], **{key: value}))
        yield r.returncode == 6 and "FAILED" in r.stdout, f"{key} = {value}: {r.returncode} {r.stdout}{r.stderr}"
    r = verify(build, dict(all_of[0], block_bytes=15), all_of[1])
    yield r.returncode == 6 and "turbo3: block_bytes 15" in r.stdout, f"a known kernel that is not run: {r.returncode} {r.stdout}{r.stderr}"
    r = verify(build, dict(all_of[0], kernel="other"))
    yield r.returncode == 3 and "found no golden vector" in r.stderr, f"another kernel: {r.returncode} {r.stdout}{r.stderr}"


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
