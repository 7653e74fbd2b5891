"""glsl_dot.py: which weight types matmul_dot takes (devices/vulkan/matmul/matmul_dot.comp): its form of load, by what the card says, the
rule of a type within it, and the parts in which the device keeps its rows, so that a load of 16 bytes has codes alone."""
from cards.card import fail, is_weight
from cards.dialect import GLSL
from cards.weight import fields_of

# NONE: not taken.  A load of 16 bytes has
#   BYTES   signed bytes, in blocks of 32 with an f16 scale
#   SIX     low halves of codes of six bits, beside it a load of high pairs; a signed factor for 16 values
#   PAIRS   halves of codes of 64 values; factors and minima of six bits for 32 values; beside it, maybe, a load of fifth bits
#   NIBBLES halves of codes of 32 values, lower ones first; beside it, maybe, a word of fifth bits; numbers as NUMBERS says
#   LEVELS  the same, of codes that stand for levels of signed bytes
FORMS = ("NONE", "BYTES", "SIX", "PAIRS", "NIBBLES", "LEVELS")
# Of the last two: an f16; an f16 and another that is added; an e8m0; of 256 values an f16 and fields of factors.  Their bytes.
NUMBERS = {"F16": 2, "F16_ADD": 4, "E8M0": 1, "FIELDS": 8}
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


def in_a_word(field):
    """Eight numbers of a field whose bits lie in one word of the first two."""
    return not field.per and field.bit // 32 == (field.last(7) - 1) // 32 < 2


def numbers_of(w):
    """One of NUMBERS, or None."""
    if w.sub is None and not w.minimum:
        return "F16" if w.scale == F16_FIRST else "E8M0" if w.scale == {"at": 0, "type": "e8m0_half"} else None
    if w.sub is None:
        return "F16_ADD" if w.scale == F16_FIRST and w.minimum == {"at": 2, "type": "f16", "add": True} else None
    plain = w.sub["type"] == "fields" and w.sub["values"] == 32 and w.values == 256 and not set(w.sub) & {"odd", "times"}
    return "FIELDS" if plain and not w.minimum and w.scale == F16_FIRST and all(map(in_a_word, fields_of(w, w.sub, 8))) else None


def is_nibbles(w):
    if not lies(w.codes, w.codes.at, 4, "halves", 32) or w.high and (w.high.bits, w.high.order, w.integers) != (1, "stream", None):
        return False
    kind = numbers_of(w)
    return kind is not None and w.bytes == w.values // 2 + (w.values // 8 if w.high else 0) + NUMBERS[kind]


def form(w):
    if w.codes is None:
        return "NONE"
    if w.integers:
        return "LEVELS" if is_nibbles(w) else "NONE"
    return "BYTES" if is_bytes(w) else "SIX" if is_six(w) else "PAIRS" if is_pairs(w) else "NIBBLES" if is_nibbles(w) else "NONE"


def parts(card):
    """[(bytes of a block, where they are in it)]: a row has the first part of all blocks, then the second, ...; []: rows are as in the file.
    The codes, their high bits, signed factors, and last what is left: the numbers."""
    if not is_weight(card.path) or form(card) in ("NONE", "PAIRS"):
        return []
    out = [(card.values * c.bits // 8, c.at) for c in (card.codes, card.high) if c]
    if card.sub and card.sub["type"] == "i8":
        out.append((card.values // card.sub["values"], card.sub["at"]))
    left = sorted(set(range(card.bytes)) - {b for n, at in out for b in range(at, at + n)})
    if left != list(range(left[0], left[-1] + 1)):
        fail(card.path, "the Vulkan device wants a block's numbers side by side")
    return out + [(len(left), left[0])]


def record(card, at):
    """The variable to which byte `at` of a record is added: r; of rows in parts one for each part, of the numbers r."""
    found = [i for i, (n, first) in enumerate(parts(card)) if first <= at < first + n]
    return f"r{found[0]}" if found and found[0] < len(parts(card)) - 1 else "r"


def records(card):
    """Declarations of those variables, and of k, for values 8c .. 8c + 7 of the row at byte b."""
    n, k = GLSL.div("c", card.values // 8), GLSL.mod("c", card.values // 8)
    out, before = [f"    const uint n = {n}, k = {k}, blocks = args.n_in / {card.values}u;"], 0
    for size, at in parts(card):
        start = f"b + {GLSL.times(before, 'blocks')} + " if before else "b + "
        less = f" - {at}u" if at else ""
        out.append(f"    const uint {record(card, at)} = {start}{GLSL.times(size, 'n')}{less};")
        before += size
    return out


def numbers():
    out = "".join(f"#define VK_DOT_{s} {i}\n" for i, s in enumerate(FORMS))
    return out + "".join(f"#define VK_NUMBERS_{s} {i}\n" for i, s in enumerate(NUMBERS)) + "\n"


def lists(weights):
    """VULKAN_WTYPE(symbol, name, dot, grid, parts)."""
    def braces(w):
        return ", ".join(f"{{ {n}, {at} }}" for n, at in parts(w) or [(0, 0)])
    return "".join(f'VULKAN_WTYPE({w.symbol}, "{w.name}", VK_DOT_{form(w)}, {int(w.grid is not None)}, {braces(w)})\n' for w in weights)


def asks(weights):
    """wt_bytes(T): whether a row is signed bytes, then scales."""
    named = " || ".join(f"T == VK_WT_{w.symbol}" for w in weights if form(w) == "BYTES")
    return f"bool wt_bytes(uint T)\n{{\n    return {named or 'false'};\n}}\n\n"


def rule(w):
    """A dot_rule of matmul_dot.comp; levels four to a word."""
    four = [sum((v & 255) << 8 * i for i, v in enumerate((w.integers or [0] * 16)[at:at + 4])) for at in range(0, 16, 4)]
    kind = numbers_of(w) if form(w) in ("NIBBLES", "LEVELS") else "F16"
    return (f"dot_rule({'true' if w.high else 'false'}, {w.centre}u, VK_NUMBERS_{kind}, "
            f"uvec4({', '.join(f'0x{v:08x}u' for v in four)}))")


def factor(w):
    """Factor k of a block whose first two words are `words`."""
    parts_of_it, shift = [], 0
    for f in fields_of(w, w.sub, 8):
        at = f"{f.bit % 32}u + {GLSL.times(f.step, 'k')}" if f.bit % 32 else GLSL.times(f.step, "k")
        parts_of_it.append(f"(words.{'xy'[f.bit // 32]} >> {at} & {(1 << f.bits) - 1}u)" + (f" << {shift}" if shift else ""))
        shift += f.bits
    return f"float(int({' | '.join(parts_of_it)}) - {w.sub.get('centre', 0)})"


def rules(weights):
    """dot_rule_of(T), and dot_factor(T, words, k) of the types with fields."""
    taken = [w for w in weights if form(w) != "NONE"]
    out = "dot_rule dot_rule_of(uint T)\n{\n"
    out += "".join(f"    if (T == VK_WT_{w.symbol})\n        return {rule(w)};\n" for w in taken[:-1])
    out += f"    return {rule(taken[-1])};\n}}\n\nfloat dot_factor(uint T, uvec2 words, uint k)\n{{\n"
    out += "".join(f"    if (T == VK_WT_{w.symbol})\n        return {factor(w)};\n" for w in taken if numbers_of(w) == "FIELDS")
    return out + "    return 1.0;\n}\n"
