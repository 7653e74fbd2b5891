"""cuda.py: the cards as CUDA C++ constants.  Cache formats, for the encoders of the CUDA device (src/devices/cuda/encode): sizes, places,
levels with the boundaries between them, the rule of the scale, what the encoder `best` tries.  Weight types, for its products in
integers (src/devices/cuda/matmul/int8/int8_codes.cuh): where codes, scales and minima lie."""
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


# ---- weight types ----

SHAPES = """/* A weight type for products in integers.  wplane: `bits` of every code from byte `at` on: within `span` values, value v in byte
 * v % row, bits * (v / row) up; stream: one bit a value, in order.  wfield: as Field of tools/cards/weight.py; bits 0: none. */
struct wplane {
    int at, bits, span, row;
    bool stream;
};
struct wfield {
    int bit, bits, step, per, skip;
};
enum wscale { WSCALE_NONE, WSCALE_F16, WSCALE_E8M0 };
enum wsub { WSUB_NONE, WSUB_PAIRS, WSUB_I8, WSUB_UE4M3, WSUB_FIELDS };
struct wshape {
    bool integers;                 /* false: nothing of this but values and bytes holds it */
    int values, bytes, centre;
    bool table;                    /* codes are indices of level */
    wplane low, high;
    wscale scale;
    wsub sub;
    int scale_at, sub_at, group;   /* group: values of a factor */
    wfield factor_low, factor_high;
    int factor_centre;
    bool least, least_adds;        /* a minimum, which is added or subtracted */
    int least_at;
    wfield least_low;
    uint32_t level[4];
};

"""


def plane(codes, values):
    if codes is None:
        return "{ 0, 0, 32, 32, false }"
    whole = codes.order == "stream" and codes.bits == 8
    span, row = (values, values) if whole else (codes.span, codes.row)
    return f"{{ {codes.at}, {codes.bits}, {span}, {row}, {'true' if codes.order == 'stream' and not whole else 'false'} }}"


def field(spec):
    if not spec:
        return "{ 0, 0, 0, 256, 0 }"
    return "{ " + ", ".join(str(spec.get(k, d)) for k, d in (("bit", 0), ("bits", 0), ("step", 0), ("per", 256), ("skip", 0))) + " }"


def in_integers(w):
    return bool(w.codes) and (w.codes.order == "halves" or (w.codes.order, w.codes.bits) == ("stream", 8))


def shape(w):
    if not in_integers(w):
        return f"    {{ .integers = false, .values = {w.values}, .bytes = {w.bytes}, .group = 32 }},\n"
    sub, least = w.sub or {}, w.minimum or {}
    scale = {"f16": "F16", "e8m0_half": "E8M0"}[w.scale["type"]] if w.scale else "NONE"
    kind = {"six_bit_pairs": "PAIRS", "i8": "I8", "ue4m3_half": "UE4M3", "fields": "FIELDS"}[sub["type"]] if sub else "NONE"
    level = [sum((v & 255) << 8 * i for i, v in enumerate(w.integers[at:at + 4])) for at in range(0, 16, 4)] if w.integers else [0]
    yes = lambda x: "true" if x else "false"    # noqa: E731
    return f"""    {{ .integers = true, .values = {w.values}, .bytes = {w.bytes}, .centre = {w.centre}, .table = {yes(w.integers)},
      .low = {plane(w.codes, w.values)}, .high = {plane(w.high, w.values)},
      .scale = WSCALE_{scale}, .sub = WSUB_{kind}, .scale_at = {w.scale['at'] if w.scale else 0}, .sub_at = {sub.get('at', 0)}, .group = {sub.get('values', 32)},
      .factor_low = {field(sub.get('low'))}, .factor_high = {field(sub.get('high'))}, .factor_centre = {sub.get('centre', 0)},
      .least = {yes(least)}, .least_adds = {yes(least.get('add'))}, .least_at = {least.get('at', 0)},
      .least_low = {field(least.get('low'))}, .level = {{ {', '.join(f'0x{v:08x}u' for v in level)} }} }},
"""


def weights(types):
    out = HEAD + "#ifndef KVANT_CARDS_CUDA_WEIGHTS_CUH\n#define KVANT_CARDS_CUDA_WEIGHTS_CUH\n\n" + SHAPES
    return out + "static constexpr wshape wshapes[] = {\n" + "".join(shape(w) for w in types) + "};\n\n#endif\n"
