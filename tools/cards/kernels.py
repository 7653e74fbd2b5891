"""kernels.py: the CPU's vector kernels (src/formats/simd): the card of a cache format as macros, and for each instruction set a source
that includes the card, the code of its class and that of its space."""
import os
import struct

from cards.card import ROOT, fail
from cards.c import literal, wrap

X86, ARM = ("avx2", "avx512", "avx512vnni"), ("neon", "dotprod")
MASKS = {"avx2": "CPU_AVX2", "avx512": "CPU_AVX512", "avx512vnni": "CPU_X86_VNNI", "neon": "CPU_NEON", "dotprod": "CPU_NEON | CPU_DOTPROD"}
# What a class has: its instruction sets; of the integer path where the name says so.
FLOAT, WHOLE = ("avx2", "avx512", "neon"), X86 + ARM
LAYERS = {"avx2": "encoders/simd_encode_avx2.h", "avx512": "simd/simd_avx512.h", "avx512vnni": "simd/simd_keys_avx512vnni.h",
          "neon": "encoders/simd_encode_neon.h", "dotprod": "simd/simd_neon.h"}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def ordered(f):
    """Bits of an f32 as an integer that grows with the value, and back."""
    bits = struct.unpack("<i", struct.pack("<f", f))[0]
    return bits if bits >= 0 else -(bits & 0x7fffffff)


def of_ordered(n):
    return struct.unpack("<f", struct.pack("<I", n if n >= 0 else -n | 0x80000000))[0]


def tie_lower_limits(levels):
    """Thresholds of the nearest level with a tie to the lower code, in f32: the largest v with v - c[k] <= c[k+1] - v."""
    out = []
    for a, b in zip(levels, levels[1:]):
        low, high = ordered(a), ordered(b)
        while high - low > 1:
            mid = (low + high) // 2
            v = of_ordered(mid)
            low, high = (mid, high) if f32(v - a) <= f32(b - v) else (low, mid)
        out.append(of_ordered(low))
    return out


def vector_class(card):
    """The header of src/formats/simd that holds the card's class, the order of its codes there, and its instruction sets."""
    if card.page:
        return "pages", "windows", WHOLE
    if card.float:
        return ("float8", "bytes", FLOAT) if card.float == "e4m3" else ("wide", card.float, FLOAT)
    if card.signs:
        return "sketch", "signs", X86 + ("neon",)
    if card.codes.order == "trellis":
        return "trellis", "windows", WHOLE
    bits, order = card.bits(), card.codes.order
    halves = order == "halves" and card.codes.span == 32
    if bits == 4 and (halves or order == "stream") and not card.high:
        return "nibbles", "halves" if halves else "pairs", FLOAT if card.residual else WHOLE
    if bits == 3 and card.levels and order == "stream":
        return "three_bits", "planes" if card.high else "stream3", WHOLE
    if not card.levels and order == "stream" and not card.high and 5 <= bits <= 8 and card.codes.signed == (bits == 8):
        return "integers", "bytes" if bits == 8 else "stream", WHOLE if bits == 8 else ("avx2", "avx512") + ARM
    return None


def numbers(values):
    return [literal(struct.unpack("<I", struct.pack("<f", v))[0], v) for v in values]


def define(name, words):
    return f"#define CARD_{name} \\\n" + wrap([str(w) for w in words], "   ", "   ", " \\") + "\n"


def planes(levels):
    """The four byte planes of a table of up to 16 f32, each 16 bytes."""
    out = []
    for i in range(4):
        row = [struct.pack("<f", v)[i] for v in levels]
        out.append("{ " + ", ".join(map(str, row + [0] * (16 - len(row)))) + " }")
    return out


def byte_levels(card, bits):
    """Levels as unsigned bytes for the integer path: value = step * (u - 2^(bits - 1)).  The step is the table's own, found by least
    squares on a Gaussian, or the one that gives the largest level the last byte."""
    centre, levels = 1 << bits - 1, card.levels.values
    step = card.levels.steps.get(bits) or f32(max(map(abs, levels)) / (centre - 1))
    u = [centre + round(v / step) for v in levels]
    if min(u) < 0 or max(u) >= 2 * centre:
        fail(card.path, f"step of {card.levels.name}: {step} takes levels beyond {bits} bits")
    return step, u * (16 // len(u) or 1)


def step_macros(bits, step):
    return f"#define CARD_STEP{bits} {step:.9g}f\n#define CARD_OFFSET{bits} {1 << bits - 1}\n"


def level_macros(card):
    levels = card.levels.values
    text = define("LEVELS", [card.levels.macro]) + f"#define CARD_N {len(levels)}\n"
    if card.page:                                           # two overlapping states make 9 + k bits of the stream
        (step8, u8), k = byte_levels(card, 8), card.codes.step
        pairs = [u8[w & 511] | u8[w >> k] << 8 for w in range(512 << k)]
        return text + step_macros(8, step8) + define("BYTES8", u8) + define("PAIRS8", pairs)
    if len(levels) > 16:                                    # of a trellis: two overlapping states make 12 bits of the stream
        step, u = byte_levels(card, 7)
        step8, u8 = byte_levels(card, 8)
        text += step_macros(7, step) + step_macros(8, step8) + define("BYTES8", u8)
        return text + define("PAIRS7", [u[w & 511] | u[w >> 3] << 8 for w in range(4096)])
    text += define("PLANES", planes(levels))
    for bits in (7, 8):
        step, u = byte_levels(card, bits)
        text += define(f"BYTES{bits}", u) + step_macros(bits, step)
        if bits == 7:
            text += define("CENTRED7", [v - 64 & 255 for v in u])
    if card.boundaries:
        return text + define("MIDPOINTS", [card.boundaries.macro])
    return text + define("LIMITS", numbers(tie_lower_limits(levels)))


def integer_macros(card):
    """Codes serve the integer path as they are."""
    bits, centre = card.bits(), card.centre
    zero = 1 << bits - 1 if card.codes.signed else centre
    low = 1 - zero if card.codes.signed else -zero
    text = "#define CARD_SIGNED 1\n" if card.codes.signed else ""
    text += f"#define CARD_LOW ({low})\n#define CARD_HIGH {(1 << bits) - 1 - zero}\n"
    text += "".join(f"#define CARD_STEP{b} 1.0f\n#define CARD_OFFSET{b} {zero}\n" for b in (7, 8))
    if bits > 4:
        return text
    levels = [float(v - centre) for v in range(16)]
    return text + define("LEVELS", [f"{v:.1f}f" for v in levels]) + define("BYTES8", range(16))


def card_header(card, order):
    """The card as macros."""
    name = f"card_{card.symbol}.h"
    out = f"/* {name}: generated by tools/gen_tables from {os.path.relpath(card.path, ROOT)}; do not edit. */\n"
    out += f"#ifndef KVANT_CARD_{card.symbol.upper()}_H\n#define KVANT_CARD_{card.symbol.upper()}_H\n\n#include \"cards/tables.inc\"\n\n"
    facts = [("NAME", card.symbol), ("VALUES", card.values), ("BYTES_OF_RECORD", card.bytes), ("ORDER", order), (card.space.upper(), 1),
             ("DIGITS", 2 if card.space == "real" else 1)]
    if card.page:
        facts += [("K", card.codes.step)]
    elif card.codes:
        facts += [("BITS", card.bits()), ("CODES_AT", card.codes.at), ("BLOCK_BYTES", 4 * (card.codes.step or card.codes.bits)),
                  ("CODES_END", max(p.end(card.values) for p in (card.codes, card.high) if p))]
    if order == "pairs":
        facts += [("PAIRS", 1)]
    if card.scale and "at" in card.scale:
        facts += [("SCALE_AT", card.scale["at"])]
    if card.scale and "times" in card.scale:
        facts += [("SCALE_TIMES", f"0x{card.scale['times']:08x}u")]
    if card.residual:
        facts += [("RESIDUAL_AT", card.residual["at"]), ("RESIDUAL_BITS", f"0x{card.residual['size']:08x}u"),
                  ("RESIDUAL_SIGNS", card.book_signs.macro)]
    out += "".join(f"#define CARD_{k} {v}\n" for k, v in facts)
    if card.levels:
        out += level_macros(card)
    elif card.codes and not card.signs:
        out += integer_macros(card)
    return out + "\n#endif\n"


def headers_of(card, kind, isa):
    """The headers of a source, in their order."""
    family = "neon" if isa in ARM else isa
    if kind == "pages":
        if isa == "avx512vnni":
            return ["simd/simd_avx512.h", "ptcq/page_states_avx512vnni.h", "simd/simd_int_avx512vnni.h", "ptcq/page_int.h",
                    "ptcq/kernels_pages_q8.h"]
        path = ["ptcq/page_pairs.h", f"simd/simd_int_{family}.h", "ptcq/page_int.h"]
        if isa == "dotprod":
            return path + ["ptcq/kernels_pages_q8.h"]
        space = ["encoders/space_r128.h"]
        return ["ptcq/pages_neon.h" if isa in ARM else "ptcq/pages_x86.h"] + (["ptcq/kernels_pages.h"] if isa == "avx512" else
                                                                                space + path + ["ptcq/kernels_pages.h"])
    if kind in ("wide", "float8"):
        return [f"classes/{kind}.h"]
    if kind == "sketch":
        return [f"classes/sketch_{family}.h"]
    if kind == "nibbles" and family in ("avx2", "neon"):
        own = ["classes/nibbles.h" if card.levels else f"classes/integers_{family}.h"]
    else:
        own = [f"classes/{kind}_{family}.h"]
    if isa in ("avx2", "neon"):
        own += [f"encoders/space_{card.space}.h"]
        own += ["encoders/trellis.h"] if kind == "trellis" else ["encoders/card_codes.h", f"encoders/encode_{card.space}.h"]
    if isa == "avx512" and kind != "trellis" and (card.levels or card.bits() in (4, 8)):
        own += ["encoders/best_books_avx512.h" if card.levels else "encoders/best_integers_avx512.h"]
    return own + [f"simd/kernels_{isa}.h"]


def source(card, kind, isa):
    out = f"/* {card.symbol}_{isa}.c: generated by tools/gen_tables from {os.path.relpath(card.path, ROOT)}; do not edit. */\n"
    out += f'#include "cards/card_{card.symbol}.h"\n'
    return out + "".join(f'#include "formats/{h}"\n' for h in [LAYERS[isa]] + headers_of(card, kind, isa))


def files(cache):
    """{path under the folder of generated files: text}"""
    out, lines = {}, {isa: [] for isa in X86 + ARM}
    for card in cache:
        found = vector_class(card)
        if found is None:
            continue
        kind, order, isas = found
        out[f"cards/card_{card.symbol}.h"] = card_header(card, order)
        for isa in isas:
            out[f"formats/{card.symbol}_{isa}.c"] = source(card, kind, isa)
            lines[isa].append(f"KVANT_FORMAT_VARIANT({card.symbol}, {isa}, {MASKS[isa]})\n")
    text = "/* variants.inc: generated by tools/gen_tables from the cards; do not edit.  KVANT_FORMAT_VARIANT(format, isa, cpu_mask), of a format\n"
    text += " * from slow to fast; cpu_mask is what the file's code needs beyond the rungs below it. */\n"
    for family, isas in (("__x86_64__", X86), ("__aarch64__", ARM)):
        text += f"#if defined({family})\n" + "".join("".join(lines[isa]) for isa in isas) + "#endif\n"
    out["cards/variants.inc"] = text
    return out
