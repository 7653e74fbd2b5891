"""glsl.py: the Vulkan dialect: numbers that C and GLSL share, the device's buffer of tables ("books"), decoders of eight values, and
what the encoders have to know of a format: its rule, and where codes and scale go.
What does not depend on a card is in devices/vulkan/core/eight.glsl."""
from cards import glsl_dot, glsl_weights
from cards.c import HEAD
from cards.card import NORMS, PAGE_ROWS, fail
from cards.dialect import GLSL
from cards.grid import used
from cards.glsl_text import places, scale_of, values_of

# Tables that no card names as levels: the rotations'.
ROTATIONS = ("wht_signs1", "wht_signs2", "tbq_signs32")
# Who encodes: a thread some values of a format without groups, or a group; a workgroup a path through a trellis, or a sketch; shaders of
# their own a page.
CLASSES = ("FLOAT", "GROUP", "TRELLIS", "SKETCH", "PAGE")
MOST_BYTES = 128                                # of a unit: packed[] of encode/encode.glsl


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


def numbers(tables, cache, weights, pages):
    out = HEAD + "#ifndef KVANT_CARDS_VULKAN_H\n#define KVANT_CARDS_VULKAN_H\n\n"
    for i, c in enumerate(cache):
        out += f"#define VK_FMT_{c.symbol} {i}\n"
    out += f"#define VK_FMT_COUNT {len(cache)}\n\n/* Of page scope: behind the others. */\n"
    for i, c in enumerate(pages):
        out += f"#define VK_FMT_{c.symbol} {len(cache) + i}\n"
    out += f"#define VK_FMT_ALL {len(cache) + len(pages)}\n\n"
    for i, s in enumerate(("REAL", "P32", "R128", "H128", "SKETCH")):
        out += f"#define VK_SPACE_{s} {i}\n"
    for i, s in enumerate(CLASSES):
        out += f"#define VK_ENCODE_{s} {i}\n"
    for i, s in enumerate(NORMS):
        out += f"#define VK_NORM_{s.upper()} {i}\n"
    out += "\n" + "".join(f"#define VK_WT_{w.symbol} {i}\n" for i, w in enumerate(weights)) + f"#define VK_WT_COUNT {len(weights)}\n"
    out += glsl_dot.numbers()
    at, macros = 0, []
    for name in ROTATIONS:
        out += f"#define VK_BOOK_{name} {at}\n"
        at += len(tables[name])
        macros.append(tables[name].macro)
    for name, parts in books(cache + pages):
        out += f"#define VK_BOOK_{name} {at}\n"
        at += sum(len(t) for t in parts)
        macros += [t.macro for t in parts]
    out += f"#define VK_BOOK_FLOATS {at}\n\n/* Their values, of tables.inc. */\n#define VK_BOOKS \\\n    " + ", \\\n    ".join(macros) + "\n"
    return out + grid_numbers(weights) + "#endif\n"


def grid_numbers(weights):
    """Where each grid begins in the device's buffer of grids, in words of two entries; their values, of grids.h."""
    out, at = "\n", 0
    for name, grid in used(weights).items():
        out += f"#define VK_GRID_{name} {at}\n"
        at += len(grid.words) // 2
    return out + f"#define VK_GRID_WORDS {at}\n#define VK_GRIDS {', '.join(f'GRID_{name}' for name in used(weights))}\n"


def lists(cache, weights, pages):
    """VULKAN_FORMAT(name, space, book, values of it that the decoder uses, and the encoder, class of the encoder, values and bytes of a
    unit, whether its parameter is a factor, whether attn_matrix knows its records, what stands for zero, bits of a symbol of a trellis), and glsl_dot.lists."""
    out = HEAD + "#ifdef VULKAN_FORMAT\n"
    for c in cache + pages:
        book = f"VK_BOOK_{c.levels.name}" if c.levels else "0"
        decode, encode = book_sizes(c)
        out += f"VULKAN_FORMAT({c.symbol}, {c.space.upper()}, {book}, {decode}, {encode}, {encode_class(c)}, "
        out += f"{unit(c)}, {unit_bytes(c)}, {int(has_factor(c))}, {int(has_nibbles(c))}, {c.centre}, "
        out += f"{c.codes.step or 0 if c.codes else 0})\n"
    out += "#endif\n#ifdef VULKAN_WTYPE\n"
    return out + glsl_dot.lists(weights) + "#endif\n"


# ---- decoders ----

def cache_eight(card):
    out = f"float fmt8_{card.symbol}(SRC p, uint b, uint c, uint lut, float param, out float v[8])\n{{\n"
    return out + "\n".join(places(card) + values_of(card, "v")) + f"\n    return {scale_of(card)};\n}}\n\n"


def chain(cards, prefix, call):
    return "".join(f"    if ({prefix[0]} == {prefix[1]}_{c.symbol})\n        {call.format(c.symbol)}\n" for c in cards)


def page_decoders(pages):
    """Row r of a head's page, by the chain that fmt8 is."""
    out = "float page8(uint F, SRC p, uint head, uint r, uint c, uint lut, out float v[8])\n{\n"
    calls = [f"    return page_eight(p, head + {GLSL.times(PAGE_ROWS * c.bytes, '(c >> 4)')}, r, c & 15u, {c.codes.step}u, lut, v);\n" for c in pages]
    for c, call in list(zip(pages, calls))[:-1]:
        out += f"    if (F == VK_FMT_{c.symbol})\n    {call}"
    return out + calls[-1] + "}\n"


def decoders(cache, weights, pages):
    out = HEAD + '#include "devices/vulkan/core/eight.glsl"\n\n#ifdef CARDS_FORMATS\n' + "".join(cache_eight(c) for c in cache)
    out += "float fmt8(uint F, SRC p, uint b, uint c, uint lut, float param, out float v[8])\n{\n"
    out += chain(cache[:-1], ("F", "VK_FMT"), "return fmt8_{}(p, b, c, lut, param, v);")
    out += f"    return fmt8_{cache[-1].symbol}(p, b, c, lut, param, v);\n}}\n\n" + page_decoders(pages) + "#endif\n\n#ifdef CARDS_WEIGHTS\n"
    out += glsl_weights.decoders(weights)
    wide = [w for w in weights if w.float]
    out += "bool wt_wide(uint T)\n{\n    return " + " || ".join(f"T == VK_WT_{w.symbol}" for w in wide) + ";\n}\n\n"
    out += "float wt1(uint T, SRC p, uint b, uint k)\n{\n" + chain(wide, ("T", "VK_WT"), "return one_{}(p, b, k);")
    out += "    return 0.0;\n}\n\n" + glsl_dot.asks(weights) + "void wt8(uint T, SRC p, uint b, uint c, out float w[8])\n{\n"
    out += chain(weights[:-1], ("T", "VK_WT"), "{{ wt8_{}(p, b, c, w); return; }}")
    return out + f"    wt8_{weights[-1].symbol}(p, b, c, w);\n}}\n#endif\n"


# ---- encoders ----

def has_factor(card):
    return card.scale is not None and card.scale["type"] == "param"


def has_nibbles(card):
    """Records of an f16 and 16 bytes: value j in the low nibble of byte j, value j + 16 in the high one."""
    c = card.codes
    return (c is not None and card.scale == {"at": 0, "type": "f16"} and (card.values, card.bytes, c.at, c.bits, c.order) == (32, 18, 2, 4, "halves")
            and not card.high and not card.residual)


def encode_class(card):
    return "PAGE" if card.page else "FLOAT" if card.float else "SKETCH" if card.signs else "TRELLIS" if card.codes.order == "trellis" else "GROUP"


def unit(card):
    """Values that are encoded together: what a rotation mixes, else a record."""
    return {"p32": 32, "r128": 128, "h128": 128, "sketch": 128, "real": card.values}[card.space]


def unit_bytes(card):
    return card.bytes if card.signs else unit(card) // card.values * card.bytes


def norm(card):
    """The rule of the scale: what the card says, else the usual one."""
    return (card.norm or ("rms" if card.levels else "largest")).upper()


def limits(card):
    """Least and largest integer, what is added to it for its code."""
    if card.levels:
        return 0, len(card.levels) - 1, 0
    top = (1 << card.bits()) - 1
    return (-(top >> 1), top >> 1, 0) if card.codes.signed else (-card.centre, top - card.centre, card.centre)


def encode_rule(card):
    lo, hi, centre = limits(card)
    edges = len(card.levels) + (len(card.book_signs) if card.book_signs else 0) if card.boundaries else 0
    size = f"uintBitsToFloat(0x{card.residual['size']:08x}u)" if card.residual else "0.0"
    levels = len(card.levels) if card.levels else 0
    return f"encode_rule(VK_NORM_{norm(card)}, VK_SPACE_{card.space.upper()}, {unit(card)}u, {levels}u, {edges}u, {lo}, {hi}, {centre}, {size})"


def put(part, card, value):
    """The statement that stores `value`, of value e of the record at bit r."""
    to = f"{'r + ' if records(card) > 1 else ''}{8 * part.at}u"
    if part.order == "stream":
        return f"        put_bits({to} + {GLSL.times(part.bits, 'e')}, {value});\n"
    inner = "e" if part.span == card.values else GLSL.mod("e", part.span)
    span = "" if part.span == card.values else f" + {GLSL.times(8 * part.row, GLSL.div('e', part.span))}"
    return f"        put_bits({to}{span} + 8u * {GLSL.mod(inner, part.row)} + {GLSL.times(part.bits, GLSL.div(inner, part.row))}, {value});\n"


def records(card):
    return unit(card) // card.values


def pack(card):
    """pack_<format>: codes and scale of a unit into its records."""
    kind, at, centre = card.scale["type"], card.scale["at"], limits(card)[2]
    if kind != "f16" or "times" in card.scale or unit_bytes(card) > MOST_BYTES:
        fail(card.path, f"scale {kind}, {unit_bytes(card)} bytes: the Vulkan device encodes plain f16 scales, at most {MOST_BYTES} bytes")
    out = f"void pack_{card.symbol}(uint scale, bool bit)\n{{\n    [[dont_unroll]] for (uint j = 0u; j < {unit(card)}u; j++) {{\n        const uint "
    out += f"r = {8 * card.bytes}u * {GLSL.div('j', card.values)}, e = {GLSL.mod('j', card.values)}, " if records(card) > 1 else "e = j, "
    out += f"c = uint(code[j]{f' + {centre}' if centre else ''});\n" + put(card.codes, card, f"c & {card.codes.mask}u")
    if card.high:
        out += put(card.high, card, f"c >> {card.codes.bits}u & {card.high.mask}u")
    out += "    }\n"
    if records(card) > 1:
        out += f"    for (uint r = 0u; r < {8 * unit_bytes(card)}u; r += {8 * card.bytes}u) {{\n"
        out += f"        put_bits(r + {8 * at}u, scale & 255u);\n        put_bits(r + {8 * at + 8}u, scale >> 8);\n    }}\n"
    else:
        out += f"    put_bits({8 * at}u, scale & 255u);\n    put_bits({8 * at + 8}u, scale >> 8);\n"
    if card.residual:
        out += f"    put_bits({8 * card.residual['at']}u, bit ? 1u : 0u);\n"
    return out + "}\n\n"


def float_code(card):
    value = "div_exact(v, factor)" if has_factor(card) else "v"
    return {"f32": f"floatBitsToUint({value})", "f16": f"to_half({value})", "bf16": f"to_bf16({value})", "e4m3": f"to_e4m3({value})"}[card.float]


def encoders(cache):
    floats, groups = ([c for c in cache if encode_class(c) == k] for k in ("FLOAT", "GROUP"))
    out = HEAD + "encode_rule rule_of(uint F)\n{\n"
    out += "".join(f"    if (F == VK_FMT_{c.symbol})\n        return {encode_rule(c)};\n" for c in groups[:-1])
    out += f"    return {encode_rule(groups[-1])};\n}}\n\nuint float_code(uint F, float v, float factor)\n{{\n"
    out += "".join(f"    if (F == VK_FMT_{c.symbol})\n        return {float_code(c)};\n" for c in floats)
    out += "    return 0u;\n}\n\n" + "".join(pack(c) for c in groups) + "void pack(uint F, uint scale, bool bit)\n{\n"
    return out + chain(groups, ("F", "VK_FMT"), "pack_{}(scale, bit);") + "}\n"
