#!/usr/bin/env python3
"""make_fixtures.py: the eleven fixtures of the public Metal and Vulkan kernels, in their form, from vectors that an independent program
wrote (tests/golden): decimal JSON with a kernel, a query, rows and scores, or cases of fused attention.

    tools/make_fixtures.py OUT                      writes OUT/*.json; then: kvant verify --golden OUT --device vulkan
    tools/make_fixtures.py --report [BUILD]         runs them on every device that this machine has and writes docs/evidence/fixtures.json

docs/formats/golden.md has the fields.  Standard library only."""
import json
import os
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
REPORT = "docs/evidence/fixtures.json"
ROWS = 8
# file, kernel, golden file, fields of bytes, scores and query, block bytes, what else the fixture says
ROW_KINDS = [
    ("turbo3", "turbo3", "turbo3", "enc", "score_f32", "q_f32", 14, {"n_kv": ROWS}),
    ("turbo4", "turbo4", "turbo4", "enc", "score_f32", "q_f32", 18, {"n_kv": ROWS}),
    ("turbo3_tcq", "turbo3_tcq", "turbo3_tcq", "enc", "score_f32", "q_f32", 52, {"n_kv": ROWS}),
    ("qjl", "qjl", "qjl1_256_marsaglia", "enc", "score_f32", "q_sketch_f32", 34, {"n_tokens": ROWS, "n_heads": 1, "n_kv_heads": 1, "proj_dim": 256}),
    ("polar", "polar", "q4_polar", "enc_noqjl", "score_noqjl_f32", "q_f32", 82, {"n_rows": ROWS, "use_qjl": 0}),
    ("polar_qjl", "polar", "q4_polar", "enc_qjl", "score_qjl_f32", "q_f32", 82, {"n_rows": ROWS, "use_qjl": 1}),
]
FUSED = [("fused_attn_qjl_tbq", "out_f32", 14, 4, {}), ("fused_attn_qjl_polar", "out_useqjl1_f32", 82, 1, {"use_qjl": 1})]


def floats(text):
    data = bytes.fromhex(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def decimals(values):
    return [float(f"{x:.9g}") for x in values]


def golden(name):
    with open(os.path.join(ROOT, "tests", "golden", name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def vectors(g, score):
    """The first ROWS of one group whose numbers are ordinary: seven digits are then well within 1e-3."""
    rows = [v for v in g["vectors"] if not v["informative_only"] and len(bytes.fromhex(v["x_f32"])) == 512]
    return [v for v in rows if abs(floats(v[score])[0]) < 30][:ROWS]


def row_fixture(kernel, name, enc, score, query, block, more):
    g = golden(name)
    rows = vectors(g, score)
    return {"kernel": kernel, "head_dim": 128, "block_bytes": block, **more, "q_sketch" if kernel == "qjl" else "q": decimals(floats(g[query][0])),
            "k_blocks": [b for v in rows for b in bytes.fromhex(v[enc])], "expected_scores": decimals(floats(v[score])[0] for v in rows)}


def preht_fixture():
    g = golden("q4_polar")
    rows = [v for v in vectors(g, "score_noqjl_f32") if abs(floats(v["score_qjl_f32"])[0]) < 30]
    fixture = {"kernel": "polar_preht", "head_dim": 128, "n_rows": len(rows), "block_bytes": 82, "hadamard_inv_scale": 0.0078125,
               "q": decimals(floats(g["q_f32"][0])), "hq": decimals(floats(g["q_preht_f32"][0]))}
    for end, of in (("", "noqjl"), ("_qjl", "qjl")):
        fixture["k_blocks" + end] = [b for v in rows for b in bytes.fromhex(v["enc_" + of])]
        fixture["expected_scores" + end] = decimals(floats(v[f"score_{of}_f32"])[0] for v in rows)
    return fixture


def fused_fixture(kernel, out, block, blocks, more, causal):
    """Cases of the first one's sm_scale: a fixture has one for all."""
    cases, scale = [], golden(kernel)["cases"][0]["sm_scale"]
    for c in golden(kernel)["cases"]:
        of = c.get("causal_variant") if causal else c
        if of and c["sm_scale"] == scale:
            cases.append({**{k: c[k] for k in ("n_heads", "n_kv_heads", "n_kv")}, **({"causal": 1, "q_pos_base": of["q_pos_base"]} if causal else {}),
                          "q_sketch": decimals(floats(c["q_sketch_f32"])), "k_blocks": list(bytes.fromhex(c["k_blocks"])),
                          "v_blocks": list(bytes.fromhex(c["v_blocks"])), "expected_out": decimals(floats(of[out]))})
    return {"kernel": kernel, "head_dim": 128, "proj_dim": 256, "k_block_bytes": 34, "v_block_bytes": block, "v_blocks_per_token": blocks, **more,
            "sm_scale": scale, "q_is_pre_projected": 1, "cases": cases}


def fixtures():
    """{file name without .json: fixture}"""
    made = {file: row_fixture(*kind) for file, *kind in ROW_KINDS}
    made["polar_preht"] = preht_fixture()
    for kernel, *kind in FUSED:
        made[kernel] = fused_fixture(kernel, *kind, causal=False)
        made[kernel + "_causal"] = fused_fixture(kernel, *kind, causal=True)
    return made


def write(folder, made):
    os.makedirs(folder, exist_ok=True)
    for name, fixture in made.items():
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(fixture, f)


def devices(kvant):
    """Names of the devices that are here, one of a kind."""
    lines = subprocess.run([kvant, "--list-devices"], capture_output=True, text=True, check=True).stdout.splitlines()
    here = [line.split()[0] for line in lines if line.strip() and " unavailable: " not in line]
    return list(dict.fromkeys(name.split(":")[0] for name in here))


def report(build):
    kvant, reports = os.path.join(build, "bin", "kvant"), []
    with tempfile.TemporaryDirectory() as folder:
        write(folder, fixtures())
        for name in devices(kvant):
            path = os.path.join(folder, "report")
            code = subprocess.run([kvant, "verify", "--golden", folder, "--device", name, "--json", path], check=False).returncode
            if code not in (0, 6):
                return code
            with open(path, encoding="utf-8") as f:
                reports.append({"name": name, **json.load(f)})
    with open(os.path.join(ROOT, REPORT), "w", encoding="utf-8") as f:
        f.write('{"about": "made by tools/make_fixtures.py --report", "reports": [\n' + ",\n".join(json.dumps(r) for r in reports) + "\n]}\n")
    return 0


def main():
    words = sys.argv[1:]
    if words[:1] == ["--report"]:
        return report(words[1] if len(words) > 1 else os.path.join(ROOT, "build", "release"))
    if len(words) != 1 or words[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    write(words[0], fixtures())
    return 0


if __name__ == "__main__":
    sys.exit(main())
