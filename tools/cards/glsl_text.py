"""glsl_text.py: GLSL expressions and statements that decoders of cache formats and of weight types share."""
from cards.card import INTEGERS
from cards.dialect import GLSL
from cards.glsl_dot import parts, record, records

u = GLSL.number


def level_name(card):
    """The function that gives the level of a code."""
    return "wt_" + next(n for n, v in INTEGERS.items() if v is card.integers)


def codes(card, part, name):
    """Statements that fill uint name[8] with the codes of chunk k of the record at byte r."""
    values, r = card.values, record(card, part.at)
    v = "8u * k" if values > 8 else "0u"
    if part.order == "trellis":
        return [f"    codes_trellis(p, {r} + {u(part.at)} + {GLSL.times(part.step, 'k')}, {u(part.step)}, {u(part.mask)}, {name});"]
    if part.order == "trits":
        return [f"    codes_trits(p, {r} + {u(part.at)}, {v}, {name});"]
    if part.order == "stream":
        return [f"    codes_stream(p, {r} + {u(part.at)} + {GLSL.times(part.bits, 'k')}, {u(part.bits)}, {name});"]
    span = "" if part.span == values else f" + {GLSL.times(part.row, GLSL.div(f'({v})', part.span))}"
    inner = f"({v})" if part.span == values else GLSL.mod(f"({v})", part.span)
    whole = "words" if parts(card) else "codes"
    return [f"    {whole}_halves(p, {r} + {u(part.at)}{span} + {GLSL.mod(inner, part.row)}, {GLSL.times(part.bits, GLSL.div(inner, part.row))}, {u(part.mask)}, {name});"]


def all_codes(card):
    lines = ["    uint code[8];"] + codes(card, card.codes, "code")
    if card.high:
        lines += ["    uint high[8];"] + codes(card, card.high, "high")
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
    if s["type"] == "f16_nibbles":
        return f"half_of(nibbles_u16(p, r + {u(s['at'])}))"
    load = "ld_u16" if card.bytes % 2 or s["at"] % 2 else "ld_even"
    text = f"{'half' if s['type'] == 'f16' else 'bf16'}_of({load}(p, r + {u(s['at'])}))"
    return f"uintBitsToFloat(0x{s['times']:08x}u) * {text}" if "times" in s else text


def places(card):
    if card.values == 1:
        return [f"    const uint r = b + {GLSL.times(8 * card.bytes, 'c')};"]
    if parts(card):
        return records(card)
    return [f"    const uint r = b + {GLSL.times(card.bytes, GLSL.div('c', card.values // 8))}, k = {GLSL.mod('c', card.values // 8)};"]


def values_of(card, out):
    """Statements that fill `out`[8] without the scale."""
    if card.float:
        return [f"    eight_{card.float}(p, r, {out});"]
    if card.codes.signed:
        whole = "words" if parts(card) else "eight"
        return [f"    {whole}_i8(p, {record(card, card.codes.at)} + {u(card.codes.at)} + 8u * k, {out});"]
    value = "float(code[i])" if not card.centre else f"float(int(code[i]) - {card.centre})"
    if card.signs:
        value = "code[i] != 0u ? 1.0 : -1.0"
    elif card.levels:
        value = "fmt_lut[lut + code[i]]"
    elif card.integers:
        value = f"{level_name(card)}(code[i])"
    lines = all_codes(card) + ["    [[unroll]] for (uint i = 0u; i < 8u; i++)", f"        {out}[i] = {value};"]
    if card.residual:
        r = card.residual
        lines += [f"    const float one = uintBitsToFloat(0x{r['size']:08x}u), s = (ld_u8(p, r + {u(r['at'])}) & 1u) != 0u ? one : -one;",
                  "    [[unroll]] for (uint i = 0u; i < 8u; i++)", f"        {out}[i] += s * fmt_lut[lut + {u(len(card.levels))} + 8u * k + i];"]
    return lines
