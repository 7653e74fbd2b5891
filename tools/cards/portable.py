"""portable.py: what the portable kernels (src/devices/portable) know of a cache format besides its decoder: its space, the class of its
encoder, its tables, its rule and where codes and scale go.  A program is made for one format or pair: a kernel asks by JOIN(space_, FMT)
and the like.  Rules are those of the Vulkan dialect, written in C."""
from cards import bound, glsl
from cards.c import HEAD
from cards.card import NORMS, SPACES

# GLSL's words in C.
WORDS = (("[[dont_unroll]] ", ""), ("uint(code[j]", "(uint32_t)(code[j]"), ("const uint ", "const uint32_t "), ("(uint j", "(uint32_t j"),
         ("(uint r", "(uint32_t r"), ("put_bits(", "put_bits(packed, "), ("(uint scale, bool bit)", ""))


def table(name, macro, n):
    return f"CONST_TABLE float {name}[{n}] = {{ {macro} }};\n"


def tables_of(tables, cache):
    """Tables that the decoders do not have: of rotations, and boundaries of encoders."""
    known = {t.name for c in cache for t in (c.levels, c.book_signs) if t}
    more = {name: tables[name] for name in glsl.ROTATIONS}
    more.update({c.boundaries.name: c.boundaries for c in cache if c.boundaries})
    out = "CONST_TABLE float fmt_none[1] = { 0.0f };\n"
    return out + "".join(table(f"fmt_c_{n}", t.macro, len(t)) for n, t in more.items() if n not in known) + "\n"


def rule(card):
    """Codes of a group: how many levels of a table, or 0 and the limits of integers, what is added to them for their codes; whether codes
    are found by boundaries; what the residual adds or takes away."""
    lo, hi, centre = glsl.limits(card)
    size = f"port_bits(0x{card.residual['size']:08x}u)" if card.residual else "0.0f"
    return [("norm", f"NORM_{glsl.norm(card)}"), ("n_levels", len(card.levels) if card.levels else 0), ("low", f"({lo})"), ("high", hi), ("centre", centre),
            ("has_edges", int(card.boundaries is not None)), ("has_residual", int(card.residual is not None)), ("residual", size)]


def pack(card):
    text = glsl.pack(card)
    for old, new in WORDS:
        text = text.replace(old, new)
    return "FN " + text.replace(f"pack_{card.symbol}", f"pack_{card.symbol}(OWN uint32_t *packed, OWN const int *code, uint32_t scale, int bit)")


def float_code(card):
    value = "encode_div(v, factor)" if glsl.has_factor(card) else "v"
    of = {"f32": "port_word", "f16": "port_to_half", "bf16": "port_to_bf16", "e4m3": "encode_e4m3"}[card.float]
    return f"#define float_code_{card.symbol}(v, factor) {of}({value})\n"


def values_of(card):
    """value_<format>: value e of row r of a head, whose rows begin at `head`; shared: shared_<format>, what all rows of its page have there."""
    name, args = card.symbol, "head, row_bytes, r, e, factor, shared"
    if card.page:
        return (f"#define paged_{name} 1\n#define shared_{name}(head, e) page_mean_{name}(head, e)\n"
                f"#define value_{name}({args}) page_{name}(head, r, e, shared)\n")
    return f"#define paged_{name} 0\n#define shared_{name}(head, e) 0.0f\n#define value_{name}({args}) fmt_{name}((head) + (r) * (row_bytes), e, factor)\n"


def format_facts(card):
    name = card.symbol
    facts = [("space", f"SPACE_{card.space.upper()}"), ("encoder", f"ENCODER_{glsl.encode_class(card)}"),
             ("unit", glsl.unit(card)), ("unit_bytes", glsl.unit_bytes(card))]
    if not card.float:
        facts += [(k, f"fmt_c_{t.name}" if t else "fmt_none") for k, t in (("levels", card.levels), ("signs", card.book_signs), ("edges", card.boundaries))]
    if glsl.encode_class(card) == "GROUP":
        facts += rule(card)
    if card.codes and card.codes.order == "trellis":
        facts += [("step", card.codes.step)]
    return "".join(f"#define {k}_{name} {v}\n" for k, v in facts) + values_of(card)


def header(tables, cache, pages):
    """cards/portable.h: macros, and in programs that encode (CARDS_ENCODE) what stores codes."""
    out = HEAD + "#ifndef KVANT_CARDS_PORTABLE_H\n#define KVANT_CARDS_PORTABLE_H\n\n#define CARDS_PAGES\n#include \"cards/decode.h\"\n\n"
    for kind, names in (("SPACE", SPACES), ("ENCODER", glsl.CLASSES), ("NORM", NORMS)):
        out += "".join(f"#define {kind}_{n.upper()} {i}\n" for i, n in enumerate(names)) + "\n"
    out += tables_of(tables, cache) + "\n".join(format_facts(c) for c in cache + pages) + "\n#ifdef CARDS_ENCODE\n"
    kinds = {k: [c for c in cache if glsl.encode_class(c) == k] for k in ("FLOAT", "GROUP")}
    return out + "".join(float_code(c) for c in kinds["FLOAT"]) + "\n" + "".join(pack(c) for c in kinds["GROUP"]) + "#endif\n\n#endif\n"


def lists(cache, weights, pages):
    """PORTABLE_FORMAT(name, ENCODER, values and bytes of a unit, whether its parameter is a factor, whether every value fits a half),
    PORTABLE_WTYPE(symbol, name, whether every value fits a half)."""
    out = HEAD + "#ifdef PORTABLE_FORMAT\n"
    for c in cache + pages:
        out += (f"PORTABLE_FORMAT({c.symbol}, {glsl.encode_class(c)}, {glsl.unit(c)}, {glsl.unit_bytes(c)}, {int(glsl.has_factor(c))}, "
                f"{int(bound.fits_half(c))})\n")
    out += "#endif\n#ifdef PORTABLE_WTYPE\n"
    return out + "".join(f'PORTABLE_WTYPE({w.symbol}, "{w.name}", {int(bound.fits_half(w))})\n' for w in weights) + "#endif\n"
