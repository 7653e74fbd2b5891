"""cuda.py: the cards of the cache formats as CUDA C++ traits, for the encoders of the CUDA device (src/devices/cuda/encode): sizes, places,
levels with the boundaries between them, the rule of the scale, what the encoder `best` tries."""
import struct

from cards.c import HEAD, literal, wrap
from cards.card import NORMS

CLASSES = ("NONE", "LUT4", "SYM4", "LUT3", "INT8", "FLOAT8", "HALF", "BF16", "TRELLIS", "SIGN")
LAYOUTS = ("NONE", "HALVES", "PAIRS", "STREAM", "PLANES", "BYTE", "PLAIN", "WORDS", "SIGNED")


def f32(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits, struct.unpack("<f", struct.pack("<I", bits))[0]


def floats(name, values):
    """A member array of f32: the nearest ones to `values`."""
    words = [literal(*f32(v)) for v in values]
    return f"    static constexpr float {name}[{len(words)}] = {{\n" + wrap(words, "       ", "       ") + "\n    };\n"


def levels_of(card):
    """Levels that codes stand for, ascending, and the boundaries between them: the format's, else midpoints."""
    if card.levels and card.codes.order != "trellis":
        levels = card.levels.values
    elif card.centre:
        levels = [float(code - card.centre) for code in range(1 << card.bits())]
    else:
        return [], []
    return levels, card.boundaries.values if card.boundaries else [0.5 * f32(a + b)[1] for a, b in zip(levels, levels[1:])]


def real_values(card):
    return card.values // 2 if card.space == "sketch" else card.values


def traits(card):
    levels, boundaries = levels_of(card)
    best = card.best or {"tries": [0] * 8, "centre": [0.0, 0.0], "most": 0.0, "reach": 0.0}
    out = f"template <> struct card<FMT_{card.symbol}> {{\n"
    out += f"    static constexpr int values = {real_values(card)}, bytes = {card.bytes}, bits = {card.bits() if card.codes else 0}, "
    out += f"n_levels = {len(levels)};\n"
    out += f"    static constexpr int space = SPACE_{card.space.upper()}, cls = CARD_{card.code_class()}, "
    out += f"layout = CARD_{card.code_layout()}_CODES, norm = CARD_{(card.norm or 'no_norm').upper()};\n"
    residual = card.residual or {"at": 0, "size": 0}
    out += f"    static constexpr bool searched = {'true' if card.best else 'false'};\n"
    out += f"    static constexpr int residual_at = {residual['at']};         /* 0: no residual */\n"
    out += f"    static constexpr float residual = {literal(residual['size'], struct.unpack('<f', struct.pack('<I', residual['size']))[0])};\n"
    out += floats("level", levels or [0.0]) + floats("boundary", boundaries or [0.0])
    out += floats("sign", card.book_signs.values if card.residual else [1.0])
    out += f"    static constexpr int tries[8] = {{ {', '.join(map(str, best['tries']))} }};\n"
    first, times = best["centre"]
    numbers = (("first", first), ("times", times), ("most", best["most"]), ("reach", best["reach"]))
    out += "    static constexpr float " + ", ".join(f"{name} = {literal(*f32(value))}" for name, value in numbers) + ";\n"
    return out + "};\n\n"


def cards(cache):
    out = HEAD + "#ifndef KVANT_CARDS_CUDA_CUH\n#define KVANT_CARDS_CUDA_CUH\n\n"
    out += "enum card_class { " + ", ".join("CARD_" + n for n in CLASSES) + " };\n"
    out += "enum card_layout {\n" + wrap([f"CARD_{n}_CODES" for n in LAYOUTS], "   ", "   ") + "\n};\n"
    out += "enum card_norm { " + ", ".join("CARD_" + n.upper() for n in ("no_norm",) + NORMS) + " };\n\n"
    out += "/* values: real ones of a record.  tries: 256 (scale / centre - 1/2); the centre is first + times the largest value. */\n"
    out += "template <int F> struct card;\n\n"
    return out + "".join(traits(c) for c in cache) + "#endif\n"
