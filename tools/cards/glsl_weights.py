"""glsl_weights.py: weight types in the Vulkan dialect: eight values at a time."""
from cards.card import INTEGERS
from cards.dialect import GLSL
from cards.grid import used
from cards.glsl_dot import record
from cards.glsl_text import places, scale_of, u, values_of
from cards.weight import fields_of


def levels(weights):
    """wt_<table>(n): level n of 16, four to a word.  Once, however many SRC there are."""
    out = "#ifndef WT_LEVELS\n#define WT_LEVELS\n"
    for name in sorted({n for n, v in INTEGERS.items() for w in weights if w.integers is v}):
        packed = [sum((v & 255) << 8 * i for i, v in enumerate(INTEGERS[name][at:at + 4])) for at in range(0, 16, 4)]
        out += f"float wt_{name}(uint n)\n{{\n    const uvec4 four = uvec4({', '.join(f'0x{w:08x}u' for w in packed)});\n"
        out += "    return float(bitfieldExtract(int(four[n >> 2]), int(8u * (n & 3u)), 8));\n}\n\n"
    return out + grids(weights) + "#endif\n\n"


def grids(weights):
    """wt_grid_<table>(n): entry n, two to a word, in the device's buffer of grids, WT_GRID: as an array of a shader every invocation
    would have its own copy."""
    return "".join(f"uint wt_grid_{name}(uint n)\n{{\n    return ld(WT_GRID, VK_GRID_{name} + (n >> 1)) >> 16u * (n & 1u) & 0xffffu;\n}}\n\n"
                   for name in used(weights))


def grid_values(grid):
    """Statements that fill w[8] without the scale."""
    def entry(n):
        return f"wt_grid_{grid.name}({GLSL.number_of(grid.index(), n)})"
    word = f"{entry('(2u * k)')} | {entry('(2u * k + 1u)')} << 16" if grid.per == 4 else entry("k")
    packed = [sum((v & 255) << 8 * i for i, v in enumerate((grid.padded() + [0] * 8)[at:at + 4])) for at in (0, 4)]
    lines = [f"    const uint q = {word};"]
    if grid.shift:
        value = "level + shift"
        lines += [f"    const int shift = 1 - 2 * int({GLSL.field_at(grid.shift, 'k')});"]
    else:
        value, signs = "(signs >> i & 1u) != 0u ? -level : level", GLSL.field_at(grid.signs, "k")
        lines += [f"    const uint signs = {signs if grid.signs.bits == 8 else f'even_signs({signs})'};"]
    return lines + ["    [[unroll]] for (uint i = 0u; i < 8u; i++) {",
                    f"        const uint n = q >> {grid.bits}u * i & {(1 << grid.bits) - 1}u;",
                    f"        const int level = bitfieldExtract(int(n < 4u ? 0x{packed[0]:08x}u : 0x{packed[1]:08x}u), int(8u * (n & 3u)), 8);",
                    f"        w[i] = float({value});", "    }"]


def factor_of(card, k):
    """Declarations, and the expression of the factor of sub-block k as a float."""
    sub = card.sub
    if sub["type"] == "i8":
        return [], f"float(bitfieldExtract(int(ld_u8(p, {record(card, sub['at'])} + {u(sub['at'])} + {k})), 0, 8))"
    if sub["type"] == "six_bit_pairs":
        return [f"    const uint s = six_bit_pairs(p, r + {u(sub['at'])}, {k});"], "float(s & 63u)"
    lines = [f"    const uint s = {GLSL.number_of(fields_of(card, sub, 1), k)};"]
    return lines, "float(2u * s + 1u)" if sub.get("odd") else f"float(int(s) - {sub.get('centre', 0)})"


def weight_scale(card):
    """Declarations of `scale`, and of `least` where there are minima."""
    least = card.minimum and f"half_of(ld_u16(p, r + {u(card.minimum['at'])}))"
    if not card.sub:
        return [f"    const float scale = {scale_of(card)}" + (f", least = {least};" if least else ";")]
    k = GLSL.div("(8u * k)", card.sub["values"])
    if card.sub["type"] == "ue4m3_half":
        return [f"    const float scale = ue4m3_half(ld_u8(p, r + {u(card.sub['at'])} + {k}));"]
    lines, factor = factor_of(card, k)
    by = f" * {card.sub['times']}" if "times" in card.sub else ""
    lines += [f"    precise float scale = {scale_of(card)} * {factor}{by};"]
    if least:
        pair = card.sub["type"] == "six_bit_pairs"
        lines += [f"    precise float least = {least} * float({'s >> 6' if pair else GLSL.number_of(fields_of(card, card.minimum, 1), k)});"]
    return lines


def weight_eight(card):
    out = f"void wt8_{card.symbol}(SRC p, uint b, uint c, out float w[8])\n{{\n" + "\n".join(places(card) + (grid_values(card.grid) if card.grid else values_of(card, "w"))) + "\n"
    if not card.float:
        tail = "" if not card.minimum else " + least" if card.minimum.get("add") else " - least"
        out += "\n".join(weight_scale(card)) + "\n    [[unroll]] for (uint i = 0u; i < 8u; i++) {\n"
        out += f"        precise float v = scale * w[i]{tail};\n        w[i] = v;\n    }}\n"
    return out + "}\n\n"


def decoders(weights):
    return levels(weights) + "".join(weight_eight(w) for w in weights)
