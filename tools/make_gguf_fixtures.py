#!/usr/bin/env python3
"""Writes the seeds of the GGUF fuzzer (tests/fuzz/corpus/gguf) and its dictionary (tests/fuzz/gguf.dict).

A second writer of the format, independent of the C code.  Standard library only.  Run from the repository root."""
import os
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q", I64: "<q", F64: "<d"}
# type number: (values per block, bytes per block)
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2),
          39: (32, 17), 40: (64, 36)}


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STRING:
        return string(v)
    if kind == ARRAY:
        elem, items = v
        return struct.pack("<iQ", elem, len(items)) + b"".join(value(elem, x) for x in items)
    return struct.pack(PACK[kind], v)


def gguf(keys, tensors, version=3, alignment=32):
    """tensors: (name, shape, type)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, v in keys:
        head += string(name) + struct.pack("<i", kind) + value(kind, v)
    at, data = 0, b""
    for name, shape, kind in tensors:
        n = 1
        for d in shape:
            n *= d
        block, size = BLOCKS[kind]
        size = n // block * size
        head += string(name) + struct.pack("<I%dqiQ" % len(shape), len(shape), *shape, kind, at)
        data += bytes((7 * i + at) & 255 for i in range(size)) + b"\0" * (-size % alignment)
        at = len(data)
    return head + (b"\0" * (-len(head) % alignment) + data if tensors else b"")


EVERY_KIND = [("k.u8", U8, 200), ("k.i8", I8, -3), ("k.u16", U16, 65535), ("k.i16", I16, -300), ("k.u32", U32, 7),
              ("k.i32", I32, -7), ("k.f32", F32, 1e-6), ("k.bool", BOOL, 1), ("k.str", STRING, "text"), ("k.empty", STRING, ""),
              ("k.u64", U64, 1 << 40), ("k.i64", I64, -(1 << 40)), ("k.f64", F64, 2.5), ("k.none", ARRAY, (I32, [])),
              ("k.i32s", ARRAY, (I32, [11, 11, 10, 0])), ("k.bools", ARRAY, (BOOL, [1, 0])), ("k.f64s", ARRAY, (F64, [1.5])),
              ("k.strs", ARRAY, (STRING, ["", "a", "long token", b"\xff\xfe"]))]
SEEDS = {
    "empty": gguf([], []),
    "version2": gguf([("general.architecture", STRING, "llama")], [("a", [8], 0)], version=2),
    "kinds": gguf(EVERY_KIND, []),
    "align8": gguf([("general.alignment", U32, 8)], [("a", [2], 0), ("b", [4], 30)], alignment=8),
    "align256": gguf([("general.alignment", U32, 256)], [("a", [2, 3], 1), ("b", [32], 8)], alignment=256),
    "blocks": gguf([("general.file_type", U32, 15)], [("q4_0", [32, 2], 2), ("q8_0", [32], 8), ("mxfp4", [32, 2, 2], 39),
                                                      ("nvfp4", [64], 40), ("q4_k", [256], 12), ("q5_k", [256], 13),
                                                      ("q6_k", [256], 14)]),
    "shapes": gguf([], [("d%d" % n, [8] + [2] * (n - 1), 0) for n in (1, 2, 3, 4)]),
    "split": gguf([("split.no", U16, 0), ("split.count", U16, 1), ("split.tensors.count", I32, 1)], [("t", [4], 0)]),
    "split3": gguf([("split.no", U16, 0), ("split.count", U16, 3), ("split.tensors.count", I32, 1)], [("t", [4], 0)]),
    "tiny-qwen3": gguf([("general.architecture", STRING, "qwen3"), ("qwen3.block_count", U32, 1),
                        ("qwen3.embedding_length", U32, 32), ("qwen3.attention.head_count", U32, 1),
                        ("qwen3.attention.layer_norm_rms_epsilon", F32, 1e-6),
                        ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b", "ab"])),
                        ("tokenizer.ggml.token_type", ARRAY, (I32, [1, 1, 1])),
                        ("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"]))],
                       [("token_embd.weight", [32, 3], 8), ("output_norm.weight", [32], 0), ("blk.0.attn_q.weight", [32, 8], 2)]),
}
WORDS = ["GGUF", "general.alignment", "general.architecture", "split.no", "split.count", "split.tensors.count",
         "tokenizer.ggml.tokens"]
NUMBERS = [1 << 63, (1 << 64) - 1, (1 << 64) - 32, 1 << 62, 1 << 32, 1 << 31, 1 << 30, 32, 9, 8, 2, 3]


def escaped(b):
    return '"' + "".join("\\x%02x" % c for c in b) + '"\n'


def main():
    folder = "tests/fuzz/corpus/gguf"
    os.makedirs(folder, exist_ok=True)
    for name, data in SEEDS.items():
        assert len(data) < 4096, (name, len(data))
        with open("%s/%s.gguf" % (folder, name), "wb") as f:
            f.write(data)
    with open("tests/fuzz/gguf.dict", "w") as f:
        f.write("# Words and numbers of GGUF files; written by tools/make_gguf_fixtures.py.\n")
        f.writelines(escaped(w.encode()) for w in WORDS)
        f.writelines(escaped(struct.pack("<Q", n)) for n in NUMBERS)


if __name__ == "__main__":
    main()
