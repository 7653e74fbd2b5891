#!/usr/bin/env python3
"""check_libqjl: libqjl as a program loads it: blocks, scores and int8 scores of tests/golden/qjl1_256_boxmuller.json, which another program
wrote; projections by layer out of raw files and .npy, their count and fingerprint; shapes that do not fit."""
import ctypes
import hashlib
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, is_sanitized      # noqa: E402

C = Checks("check_libqjl")
EINVAL, EFORMAT, ENOENT = -1, -4, -5
VALUES = 128 * 256


class Diag(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 256)]


def golden():
    with open(os.path.join(ROOT, "tests", "golden", "qjl1_256_boxmuller.json"), encoding="utf-8") as f:
        return json.load(f)


def floats(text):
    data = bytes.fromhex(text)
    return (ctypes.c_float * (len(data) // 4)).from_buffer_copy(data)


def check_golden(lib, g, pi):
    for v in g["vectors"]:
        if v["informative_only"] or len(v["x_f32"]) != 128 * 8 or float(v.get("min_abs_sketch_over_norm", 1)) < 1e-5:
            continue
        block = ctypes.create_string_buffer(34)
        lib.qjl_quantize(pi, floats(v["x_f32"]), 1, block)
        C.ok(block.raw[:32].hex() == v["enc"][:64], f"{v['name']}: signs {block.raw[:32].hex()}, want {v['enc'][:64]}")
        C.ok(abs(struct.unpack("<H", block.raw[32:])[0] - struct.unpack("<H", bytes.fromhex(v["enc"])[32:])[0]) <= 1, f"{v['name']}: norm")
    case = g["gqa"]
    heads, kv, n = case["n_heads"], case["n_kv_heads"], case["n_tokens"]
    sketches, blocks = floats(case["q_sketch_f32"]), bytes.fromhex(case["k_blocks"])
    got, q, scales = (ctypes.c_float * (heads * n))(), (ctypes.c_int8 * (heads * 256))(), (ctypes.c_float * heads)()
    for name, want in (("f32", "scores_f32"), ("int8", "scores_i8_f32")):
        if name == "f32":
            rc = lib.qjl_score(sketches, heads, blocks, kv, n, got)
        else:
            lib.qjl_query_i8(sketches, heads, q, scales)
            rc = lib.qjl_score_i8(q, scales, heads, blocks, kv, n, got)
        worst = max(abs(a - b) for a, b in zip(got, floats(case[want])))
        C.ok(rc == 0 and worst <= 1e-4, f"{name} scores of {heads}/{kv} heads: {rc}, {worst}")
    for bad in ((heads, kv + 1, n), (0, 1, n), (heads, 0, n), (heads, kv, -1)):
        rc = [lib.qjl_score(sketches, bad[0], blocks, bad[1], bad[2], got), lib.qjl_score_i8(q, scales, bad[0], blocks, bad[1], bad[2], got)]
        C.ok(rc == [EINVAL, EINVAL], f"shape {bad}: {rc}")


def npy(shape, data):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def check_files(lib, pi, folder):
    raw = bytes(pi)
    two = raw + struct.pack("<f", 3.0) + raw[4:]
    got, mark = (ctypes.c_float * (2 * VALUES))(), hashlib.sha256(two).digest()
    diag, path = Diag(), os.path.join(folder, "projections")

    def read(data, layers, fingerprint=None):
        with open(path, "wb") as f:
            f.write(data)
        return lib.qjl_projections_read(path.encode(), layers, fingerprint, got, ctypes.byref(diag)), diag.text.decode()

    for data in (two, npy("(2, 128, 256)", two)):
        for fingerprint in (None, mark):
            rc, text = read(data, 2, fingerprint)
            C.ok(rc == 0 and bytes(got) == two and text == "", f"two layers: {rc} {text}")
    made = ctypes.create_string_buffer(32)
    lib.qjl_fingerprint(got, 2, made)
    C.ok(made.raw == mark, "fingerprint: not what sha256sum says")
    rc, text = read(two, 2, hashlib.sha256(raw).digest())
    C.ok(rc == EFORMAT and "fingerprint begins with " + mark.hex()[:8] in text, f"another fingerprint: {rc} {text}")
    rc, text = read(two, 3)
    C.ok(rc == EINVAL and "2 matrices, want 3" in text, f"a layer too few: {rc} {text}")
    rc, text = read(two[:-1], 2)
    C.ok(rc == EFORMAT and "262143 bytes" in text, f"a byte less: {rc} {text}")
    rc, text = read(struct.pack("<f", float("nan")) + two[4:], 2)
    C.ok(rc == EFORMAT and "nan" in text, f"NaN: {rc} {text}")
    rc, text = read(npy("(256, 128)", raw), 1)
    C.ok(rc == EFORMAT and "(256, 128)" in text, f"another shape: {rc} {text}")
    os.remove(path)
    C.ok(lib.qjl_projections_read(path.encode(), 1, None, got, None) == ENOENT, "no such file, no diag")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
    if is_sanitized(build):
        print("SKIP check_libqjl: a library with a sanitizer is not loaded by Python")
        return C.end()
    lib = ctypes.CDLL(os.path.join(build, "lib", "libqjl.so"))
    lib.qjl_isa.restype = lib.qjl_isa_i8.restype = ctypes.c_char_p
    lib.qjl_projection_build.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
    g, pi = golden(), (ctypes.c_float * VALUES)()
    lib.qjl_projection_build(42, pi)
    C.ok(struct.pack("<f", pi[0]) == bytes.fromhex("ba5ddcbe"), f"seed 42 begins with {pi[0]}, want -0.430402577")
    check_golden(lib, g, pi)
    with tempfile.TemporaryDirectory() as folder:
        check_files(lib, pi, folder)
    print(f"check_libqjl: {lib.qjl_isa().decode()}, int8 {lib.qjl_isa_i8().decode()}")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
