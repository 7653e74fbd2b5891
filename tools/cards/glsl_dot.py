"""glsl_dot.py: which weight types matmul_dot takes (devices/vulkan/matmul/matmul_dot.comp): its form of load, by what the card says, and
the rule of a type within it."""

# NONE: not taken.  A load of 16 bytes has
#   BYTES   signed bytes, in blocks of 32 with an f16 scale
#   SIX     low halves of codes of six bits, beside it a load of high pairs; a signed factor for 16 values
#   PAIRS   halves of codes of 64 values; factors and minima of six bits for 32 values; beside it, maybe, a load of fifth bits
FORMS = ("NONE", "BYTES", "SIX", "PAIRS")
F16_FIRST = {"at": 0, "type": "f16"}


def lies(part, at, bits, order, span):
    return part is not None and not part.signed and (part.at, part.bits, part.order, part.span) == (at, bits, order, span)


def is_bytes(w):
    return (w.values, w.bytes) == (32, 34) and w.codes.signed and w.codes.bits == 8 and w.scale == F16_FIRST


def is_six(w):
    return (w.values == 256 and lies(w.codes, 0, 4, "halves", 128) and lies(w.high, 128, 2, "halves", 128) and
            w.sub == {"values": 16, "at": 192, "type": "i8"} and w.scale == {"at": 208, "type": "f16"})


def is_pairs(w):
    """Blocks of whole loads: the numbers, the fifth bits, the codes."""
    return (w.values == 256 and w.scale == F16_FIRST and w.minimum == {"at": 2, "type": "f16"} and not w.centre and
            w.sub == {"values": 32, "at": 4, "type": "six_bit_pairs"} and lies(w.codes, 48 if w.high else 16, 4, "halves", 64) and
            (not w.high or lies(w.high, 16, 1, "halves", 256)))


def form(w):
    if w.codes is None or w.integers:
        return "NONE"
    return "BYTES" if is_bytes(w) else "SIX" if is_six(w) else "PAIRS" if is_pairs(w) else "NONE"


def numbers():
    return "".join(f"#define VK_DOT_{s} {i}\n" for i, s in enumerate(FORMS)) + "\n"


def rules(weights):
    """dot_rule_of(T)."""
    out = "dot_rule dot_rule_of(uint T)\n{\n"
    for w in weights:
        if form(w) != "NONE":
            out += f"    if (T == VK_WT_{w.symbol})\n        return dot_rule({'true' if w.high else 'false'}, {w.centre}u);\n"
    return out + "    return dot_rule(false, 0u);\n}\n"
