"""glsl_dot.py: which weight types matmul_dot takes (devices/vulkan/matmul/matmul_dot.comp): its form of load, by what the card says, the
rule of a type within it, and the parts in which the device keeps its rows, so that a load of 16 bytes has codes alone."""
from cards.card import fail, is_weight
from cards.dialect import GLSL

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
    return "".join(f"#define VK_DOT_{s} {i}\n" for i, s in enumerate(FORMS)) + "\n"


def lists(weights):
    """VULKAN_WTYPE(symbol, name, dot, grid, parts)."""
    def braces(w):
        return ", ".join(f"{{ {n}, {at} }}" for n, at in parts(w) or [(0, 0)])
    return "".join(f'VULKAN_WTYPE({w.symbol}, "{w.name}", VK_DOT_{form(w)}, {int(w.grid is not None)}, {braces(w)})\n' for w in weights)


def asks(weights):
    """wt_bytes(T): whether a row is signed bytes, then scales."""
    named = " || ".join(f"T == VK_WT_{w.symbol}" for w in weights if form(w) == "BYTES")
    return f"bool wt_bytes(uint T)\n{{\n    return {named or 'false'};\n}}\n\n"


def rules(weights):
    """dot_rule_of(T)."""
    out = "dot_rule dot_rule_of(uint T)\n{\n"
    for w in weights:
        if form(w) != "NONE":
            out += f"    if (T == VK_WT_{w.symbol})\n        return dot_rule({'true' if w.high else 'false'}, {w.centre}u);\n"
    return out + "    return dot_rule(false, 0u);\n}\n"
