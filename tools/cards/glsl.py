"""glsl.py: the Vulkan dialect: numbers that C and GLSL share, the device's buffer of tables ("books"), and decoders of eight values.
What does not depend on a card is in devices/vulkan/shaders/eight.glsl."""
from cards.c import HEAD

# Tables that no card names as levels: the rotations'.
ROTATIONS = ("wht_signs1", "wht_signs2", "tbq_signs32")


def u(n):
    return f"{n}u"


def div(x, n):
    return x if n == 1 else f"({x} >> {n.bit_length() - 1})"


def mod(x, n):
    return "0u" if n == 1 else f"({x} & {n - 1}u)"


def times(k, x):
    return x if k == 1 else f"{k}u * {x}"


# ---- books ----

def books(cache):
    """[(name, [tables])]: a book is a format's levels, signs that its decoder adds, and boundaries of its encoder."""
    out, seen = [], set()
    for c in cache:
        if c.levels and c.levels.name not in seen:
            seen.add(c.levels.name)
            out.append((c.levels.name, [t for t in (c.levels, c.book_signs, c.boundaries) if t]))
    return out


def book_sizes(card):
    """How many values of its book the decoder and the encoder use."""
    if not card.levels:
        return 0, 0
    decode = len(card.levels) + (len(card.book_signs) if card.residual else 0)
    return decode, sum(len(t) for t in (card.levels, card.book_signs, card.boundaries) if t)


def numbers(tables, cache, weights):
    out = HEAD + "#ifndef KVANT_CARDS_VULKAN_H\n#define KVANT_CARDS_VULKAN_H\n\n"
    for i, c in enumerate(cache):
        out += f"#define VK_FMT_{c.symbol} {i}\n"
    out += f"#define VK_FMT_COUNT {len(cache)}\n\n"
    for i, s in enumerate(("REAL", "P32", "R128", "H128", "SKETCH")):
        out += f"#define VK_SPACE_{s} {i}\n"
    out += "\n" + "".join(f"#define VK_WT_{w.symbol} {i}\n" for i, w in enumerate(weights)) + f"#define VK_WT_COUNT {len(weights)}\n\n"
    at, macros = 0, []
    for name in ROTATIONS:
        out += f"#define VK_BOOK_{name} {at}\n"
        at += len(tables[name])
        macros.append(tables[name].macro)
    for name, parts in books(cache):
        out += f"#define VK_BOOK_{name} {at}\n"
        at += sum(len(t) for t in parts)
        macros += [t.macro for t in parts]
    out += f"#define VK_BOOK_FLOATS {at}\n\n/* Their values, of tables.inc. */\n#define VK_BOOKS \\\n    " + ", \\\n    ".join(macros) + "\n"
    return out + "#endif\n"


def lists(cache, weights):
    """VULKAN_FORMAT(name, space, book, decode, encode), VULKAN_WTYPE(symbol, name)."""
    out = HEAD + "#ifdef VULKAN_FORMAT\n"
    for c in cache:
        book = f"VK_BOOK_{c.levels.name}" if c.levels else "0"
        decode, encode = book_sizes(c)
        out += f"VULKAN_FORMAT({c.symbol}, {c.space.upper()}, {book}, {decode}, {encode})\n"
    out += "#endif\n#ifdef VULKAN_WTYPE\n"
    return out + "".join(f'VULKAN_WTYPE({w.symbol}, "{w.name}")\n' for w in weights) + "#endif\n"


# ---- decoders ----

def codes(part, values, name):
    """Statements that fill uint name[8] with the codes of chunk k of the record at byte r."""
    v = "8u * k" if values > 8 else "0u"
    if part.order == "trellis":
        return [f"    codes_trellis(p, r + {u(part.at)} + {times(part.step, 'k')}, {u(part.step)}, {u(part.mask)}, {name});"]
    if part.order == "stream":
        return [f"    codes_stream(p, r + {u(part.at)} + {times(part.bits, 'k')}, {u(part.bits)}, {name});"]
    span = "" if part.span == values else f" + {times(part.row, div(f'({v})', part.span))}"
    inner = f"({v})" if part.span == values else mod(f"({v})", part.span)
    return [f"    codes_halves(p, r + {u(part.at)}{span} + {mod(inner, part.row)}, {times(part.bits, div(inner, part.row))}, {u(part.mask)}, {name});"]


def all_codes(card):
    lines = ["    uint code[8];"] + codes(card.codes, card.values, "code")
    if card.high:
        lines += ["    uint high[8];"] + codes(card.high, card.values, "high")
        lines += ["    [[unroll]] for (uint i = 0u; i < 8u; i++)", f"        code[i] |= high[i] << {card.codes.bits};"]
    return lines


def scale_of(card):
    s = card.scale
    if not s:
        return "1.0"
    if s["type"] == "param":
        return "param"
    if s["type"] == "e8m0_half":
        return f"e8m0_half(ld_u8(p, r + {u(s['at'])}))"
    text = f"{'half' if s['type'] == 'f16' else 'bf16'}_of(ld_u16(p, r + {u(s['at'])}))"
    return f"uintBitsToFloat(0x{s['times']:08x}u) * {text}" if "times" in s else text


def places(card):
    if card.values == 1:
        return [f"    const uint r = b + {times(8 * card.bytes, 'c')};"]
    return [f"    const uint r = b + {times(card.bytes, div('c', card.values // 8))}, k = {mod('c', card.values // 8)};"]


def values_of(card, out):
    """Statements that fill `out`[8] without the scale."""
    if card.float:
        return [f"    eight_{card.float}(p, r, {out});"]
    if card.codes.signed:
        return [f"    eight_i8(p, r + {u(card.codes.at)} + 8u * k, {out});"]
    value = "float(code[i])" if not card.centre else f"float(int(code[i]) - {card.centre})"
    if card.signs:
        value = "code[i] != 0u ? 1.0 : -1.0"
    elif card.levels:
        value = "fmt_lut[lut + code[i]]"
    elif card.integers:
        value = "e2m1_doubled(code[i])"
    lines = all_codes(card) + ["    [[unroll]] for (uint i = 0u; i < 8u; i++)", f"        {out}[i] = {value};"]
    if card.residual:
        r = card.residual
        lines += [f"    const float one = uintBitsToFloat(0x{r['size']:08x}u), s = (ld_u8(p, r + {u(r['at'])}) & 1u) != 0u ? one : -one;",
                  "    [[unroll]] for (uint i = 0u; i < 8u; i++)", f"        {out}[i] += s * fmt_lut[lut + {u(len(card.levels))} + 8u * k + i];"]
    return lines


def cache_eight(card):
    out = f"float fmt8_{card.symbol}(PTR p, uint b, uint c, uint lut, float param, out float v[8])\n{{\n"
    return out + "\n".join(places(card) + values_of(card, "v")) + f"\n    return {scale_of(card)};\n}}\n\n"


def weight_scale(card):
    if not card.sub:
        return [f"    const float scale = {scale_of(card)};"]
    at, k = u(card.sub["at"]), div("(8u * k)", card.sub["values"])
    if card.sub["type"] == "six_bit_pairs":
        return [f"    const uint s = six_bit_pairs(p, r + {at}, {k});",
                f"    precise float scale = {scale_of(card)} * float(s & 63u), least = half_of(ld_u16(p, r + {u(card.minimum['at'])})) * float(s >> 6);"]
    if card.sub["type"] == "i8":
        return [f"    precise float scale = {scale_of(card)} * float(bitfieldExtract(int(ld_u8(p, r + {at} + {k})), 0, 8));"]
    return [f"    const float scale = ue4m3_half(ld_u8(p, r + {at} + {k}));"]


def weight_eight(card):
    out = f"void wt8_{card.symbol}(PTR p, uint b, uint c, out float w[8])\n{{\n" + "\n".join(places(card) + values_of(card, "w")) + "\n"
    if not card.float:
        tail = " - least" if card.minimum else ""
        out += "\n".join(weight_scale(card)) + "\n    [[unroll]] for (uint i = 0u; i < 8u; i++) {\n"
        out += f"        precise float v = scale * w[i]{tail};\n        w[i] = v;\n    }}\n"
    return out + "}\n\n"


def chain(cards, prefix, call):
    return "".join(f"    if ({prefix[0]} == {prefix[1]}_{c.symbol})\n        {call.format(c.symbol)}\n" for c in cards)


def decoders(cache, weights):
    out = HEAD + '#ifndef EIGHT_GLSL\n#define EIGHT_GLSL\n#include "eight.glsl"\n#endif\n\n#ifdef CARDS_FORMATS\n' + "".join(cache_eight(c) for c in cache)
    out += "float fmt8(uint F, PTR p, uint b, uint c, uint lut, float param, out float v[8])\n{\n"
    out += chain(cache[:-1], ("F", "VK_FMT"), "return fmt8_{}(p, b, c, lut, param, v);")
    out += f"    return fmt8_{cache[-1].symbol}(p, b, c, lut, param, v);\n}}\n#endif\n\n#ifdef CARDS_WEIGHTS\n"
    out += "".join(weight_eight(w) for w in weights)
    out += "void wt8_of_file(uint T, PTR p, uint b, uint c, out float w[8])\n{\n"
    out += chain(weights[:-1], ("T", "VK_WT"), "{{ wt8_{}(p, b, c, w); return; }}")
    return out + f"    wt8_{weights[-1].symbol}(p, b, c, w);\n}}\n#endif\n"
