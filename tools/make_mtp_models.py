#!/usr/bin/env python3
"""make_mtp_models.py: small models with a block that predicts further tokens, for tests: a model's file, its last block of attention once more behind
the trunk, and random nextn tensors (seeded); or a model's file and a head that tools/train_mtp.py trained.

    python3 tools/make_mtp_models.py                             writes tests/mtp/NAME.gguf from tests/archs/NAME.gguf
    python3 tools/make_mtp_models.py TRUNK.gguf HEAD.gguf OUT.gguf

Needs the gguf package."""
import os
import sys

import gguf
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = ("qwen2vl", "glm4moe", "deepseek2", "qwen35")


def key(reader, name):
    arch = reader.fields["general.architecture"].contents()
    return reader.fields[f"{arch}.{name}"].contents()


def copy_keys(reader, writer, arch):
    for f in reader.fields.values():
        if f.name.startswith("GGUF.") or f.name == "general.architecture":
            continue
        value = f.contents() + 1 if f.name == f"{arch}.block_count" else f.contents()
        if f.types[0] == gguf.GGUFValueType.ARRAY:
            if f.name.startswith(arch) and len(value) == key(reader, "block_count"):
                value = value + [value[-1] if not isinstance(value[-1], bool) else False]
            writer.add_array(f.name, value)
        else:
            writer.add_key_value(f.name, value, f.types[0])
    writer.add_uint32(f"{arch}.nextn_predict_layers", 1)


def random_block(reader, n):
    """The last block with attention, and what makes its input, as (name, array)."""
    rng, e = np.random.default_rng(5), key(reader, "embedding_length")
    blocks = [int(t.name.split(".")[1]) for t in reader.tensors if t.name.endswith(("attn_output.weight",))]
    for t in reader.tensors:
        if t.name.startswith(f"blk.{max(blocks)}."):
            yield f"blk.{n}." + t.name.split(".", 2)[2], np.array(t.data)
    yield f"blk.{n}.nextn.eh_proj.weight", (rng.standard_normal((e, 2 * e)) / np.sqrt(2 * e)).astype(np.float32)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        yield f"blk.{n}.nextn.{name}.weight", (1 + 0.2 * rng.standard_normal(e)).astype(np.float32)


def write(trunk, out, head=None):
    reader = gguf.GGUFReader(trunk)
    arch, n = reader.fields["general.architecture"].contents(), key(reader, "block_count")
    writer = gguf.GGUFWriter(out, arch)
    copy_keys(reader, writer, arch)
    for t in reader.tensors:
        writer.add_tensor(t.name, np.array(t.data), raw_dtype=t.tensor_type)
    if head:
        for t in gguf.GGUFReader(head).tensors:
            writer.add_tensor(t.name, np.array(t.data), raw_dtype=t.tensor_type)
    else:
        for name, data in random_block(reader, n):
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(args):
    if args:
        write(args[0], args[2], args[1])
        return
    for name in NAMES:
        write(os.path.join(ROOT, "tests", "archs", name + ".gguf"), os.path.join(ROOT, "tests", "mtp", name + ".gguf"))


if __name__ == "__main__":
    main(sys.argv[1:])
