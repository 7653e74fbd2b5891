"""c_weights.py: weight types in the C dialect: the decoders of eight values (C and CUDA), and what the CPU needs to lay a type out for
its products: eight codes, the scales of a group, and the list of layouts."""
from cards.c_text import plus, stream_helpers
from cards.card import INTEGERS
from cards.dialect import C
from cards.grid import used
from cards.weight import Layout, fields_of


def blocks(weights):
    return [w for w in weights if not w.float]


def stream_bits(weights):
    """Widths of codes that are read eight at once."""
    return {p.bits for w in weights for p in (w.codes, w.high) if p and p.order == "stream" and 1 < p.bits < 8}


def tables(weights):
    out = ""
    for name in sorted({n for n, v in INTEGERS.items() for w in weights if w.integers is v}):
        out += f"PORT_TABLE signed char wt_{name}[16] = {{ {', '.join(map(str, INTEGERS[name]))} }};\n"
    return out + grids(weights)


def grids(weights):
    """Entries and levels of the grids."""
    out = ""
    for name, grid in used(weights).items():
        out += f"PORT_TABLE uint16_t wt_grid_{name}[{len(grid.words)}] = {{ GRID_{name} }};\n"
        out += f"PORT_TABLE signed char wt_levels_{name}[{len(grid.padded())}] = {{ {', '.join(map(str, grid.padded()))} }};\n"
    return out


# ---- codes ----

def chunk_codes(codes, values, name):
    """Declarations for eight codes that begin at value v, and the expression of code i."""
    if codes.order == "halves":
        span = "" if codes.span == values else f" + {C.times(codes.row, C.div('v', codes.span))}"
        inner = "v" if codes.span == values else C.mod("v", codes.span)
        lines = [f"    PORT_MEM const uint8_t *{name} = {plus('b', codes.at)}{span} + {C.mod(inner, codes.row)};"]
        if codes.row == codes.span:
            return lines, f"{name}[i]"
        lines += [f"    const int {name}_shift = {C.times(codes.bits, C.div(inner, codes.row))};"]
        return lines, f"{name}[i] >> {name}_shift & {codes.mask}"
    if codes.order == "trits":
        return [f"    PORT_MEM const uint8_t *{name} = {plus('b', codes.at)};"], f"port_trit({name}, v + i)"
    if codes.bits == 1:
        return [f"    const int {name} = b[{codes.at} + (v >> 3)];"], f"{name} >> i & 1"
    if codes.bits == 8:
        return [f"    PORT_MEM const uint8_t *{name} = b + {codes.at} + v;"], f"{name}[i]"
    kind = "uint32_t" if codes.bits <= 4 else "uint64_t"
    lines = [f"    const {kind} {name} = port_le{codes.bits}(b + {codes.at} + {C.times(codes.bits, '(v >> 3)')});"]
    return lines, f"{name} >> {codes.bits} * i & {codes.mask}"


def grid_values(grid):
    """Declarations for eight values that begin at v, and the expression of value i, an integer."""
    def entry(n):
        return f"wt_grid_{grid.name}[{C.number_of(grid.index(), n)}]"
    if grid.per == 4:
        word = f"{entry('(v >> 2)')} | (uint32_t){entry('((v >> 2) + 1)')} << 16"
    else:
        word = entry("(v >> 3)")
    lines = [f"    const uint32_t q = {word};"]
    level = f"wt_levels_{grid.name}[q >> {grid.bits} * i & {(1 << grid.bits) - 1}]"
    if grid.shift:
        return lines + [f"    const int shift = 1 - 2 * {C.field_at(grid.shift, '(v >> 3)')};"], f"{level} + shift"
    signs = C.field_at(grid.signs, "(v >> 3)")
    lines += [f"    const int signs = {signs if grid.signs.bits == 8 else f'port_even_signs({signs})'};"]
    return lines, f"{level} * (1 - 2 * (signs >> i & 1))"


def all_codes(card):
    if card.grid:
        return grid_values(card.grid)
    lines, code = chunk_codes(card.codes, card.values, "q")
    if card.high:
        more, high = chunk_codes(card.high, card.values, "h")
        lines, code = lines + more, f"({code}) | ({high}) << {card.codes.bits}"
    return lines, code


# ---- scales ----

def top_of(card):
    """The scale of the whole record, or None."""
    kind = card.scale and card.scale["type"]
    if kind == "f16_nibbles":
        return f"port_half_nibbles({plus('b', card.scale['at'])})"
    if kind == "f16":
        return f"port_half({plus('b', card.scale['at'])})"
    return f"port_e8m0_half(b[{card.scale['at']}])" if kind == "e8m0_half" else None


def factor_of(card, k):
    """Declarations, and the integer expression of the factor of sub-block k."""
    sub = card.sub
    if sub["type"] == "i8":
        return [], f"(int8_t)b[{plus(k, sub['at'])}]"
    if sub["type"] == "six_bit_pairs":
        return [f"    const int s = port_six_bit_pairs(b + {sub['at']}, {k});"], "(s & 63)"
    lines = [f"    const int s = {C.number_of(fields_of(card, sub, 1), k)};"]
    return lines, "(2 * s + 1)" if sub.get("odd") else f"(s - {sub['centre']})" if sub.get("centre") else "s"


def least_factor(card, k):
    return "(s >> 6)" if card.sub["type"] == "six_bit_pairs" else f"(int)({C.number_of(fields_of(card, card.minimum, 1), k)})"


def weight_scale(card):
    """Declarations of `scale`, and of `least` where there are minima."""
    least = card.minimum and f"port_half({plus('b', card.minimum['at'])})"
    if not card.sub:
        return [f"    const float scale = {top_of(card)}" + (f", least = {least};" if least else ";")]
    k = C.div("v", card.sub["values"])
    if card.sub["type"] == "ue4m3_half":
        return [f"    const float scale = port_ue4m3_half(b[{plus(k, card.sub['at'])}]);"]
    lines, factor = factor_of(card, k)
    by = f" * {card.sub['times']}f" if "times" in card.sub else ""
    lines += [f"    const float scale = {top_of(card)} * (float){factor}{by};"]
    return lines + ([f"    const float least = {least} * (float){least_factor(card, k)};"] if least else [])


# ---- eight values ----

def weight_float(card):
    one = {"f32": "port_f32", "f16": "port_half", "bf16": "port_bf16"}[card.float]
    return (f"PORT_FN float wt_{card.symbol}_one(PORT_MEM const uint8_t *row, int64_t k)\n{{\n    return {one}(row + {card.bytes} * k);\n}}\n\n"
            f"PORT_FN void wt_{card.symbol}(PORT_MEM const uint8_t *row, int64_t c, PORT_OWN float *w)\n{{\n"
            f"    port_eight_{card.float}(row + {8 * card.bytes} * c, w);\n}}\n\n")


def weight_eight(card):
    if card.float:
        return weight_float(card)
    lines, code = all_codes(card)
    if card.integers is not None:
        name = next(n for n, v in INTEGERS.items() if v is card.integers)
        value = f"(float)wt_{name}[{code}]"
    elif card.codes and card.codes.signed:
        value = f"(float)(int8_t){code}"
    else:
        value = f"(float)({code})" if not card.centre else f"(float)((int)({code}) - {card.centre})"
    out = f"PORT_FN void wt_{card.symbol}(PORT_MEM const uint8_t *row, int64_t c, PORT_OWN float *w)\n{{\n"
    out += f"    PORT_MEM const uint8_t *b = row + {C.times(card.bytes, C.div('c', card.values // 8))};\n"
    out += f"    const int v = 8 * (int){C.mod('c', card.values // 8)};\n"
    out += "\n".join(lines + weight_scale(card)) + "\n"
    tail = "" if not card.minimum else " + least" if card.minimum.get("add") else " - least"
    return out + f"    for (int i = 0; i < 8; i++)\n        w[i] = scale * {value}{tail};\n}}\n\n"


def decoders(weights):
    out = "/* ---- wt_<type>(row, c, w): values 8c .. 8c+7 of a row; wt_<type>_one(row, k): one, of types without blocks, whose rows are\n"
    return out + " * 16-byte aligned in wt_<type> ---- */\n\n" + "".join(weight_eight(w) for w in weights)


# ---- the CPU's products ----

def pack_codes(card, layout):
    """wt_<type>_codes: eight codes as the layout's store wants them."""
    lines, code = all_codes(card)
    if layout.store == "byte" and card.codes and not card.codes.signed:
        code = f"(int)({code}) - {card.centre}"
    out = f"static void wt_{card.symbol}_codes(const uint8_t *b, int v, uint8_t *to)\n{{\n" + "\n".join(lines)
    return out + f"\n    for (int i = 0; i < 8; i++)\n        to[i] = (uint8_t)({code});\n}}\n\n"


def pack_scales(card, layout):
    """wt_<type>_scales: of the group that value v is in."""
    out = f"static matmul_scales wt_{card.symbol}_scales(const uint8_t *b, int v)\n{{\n    matmul_scales to = {{ 0 }};\n"
    lines = []
    if layout.scales == "bf16":
        top = top_of(card) or f"port_ue4m3_half(b[{plus(C.div('v', card.sub['values']), card.sub['at'])}])"
        lines = [f"    to.top = f32_to_bf16({top});"] + ([] if card.sub else ["    (void)v;"])
    else:
        load = "port_nibbles" if card.scale["type"] == "f16_nibbles" else "load_u16"
        lines = [f"    to.top = {load}({plus('b', card.scale['at'])});"]
        lines += [f"    to.least_top = load_u16({plus('b', card.minimum['at'])});"] if card.minimum else []
        if card.sub:
            k = C.div("v", card.sub["values"])
            more, factor = factor_of(card, k)
            lines = more + lines + [f"    to.factor = (uint8_t){factor};"]
            lines += [f"    to.least = (uint8_t){least_factor(card, k)};"] if card.minimum else []
        else:
            lines += ["    (void)v;"]
    return out + "\n".join(lines) + "\n    return to;\n}\n\n"


def pack_kind(card, layout):
    levels = f"{{ {', '.join(map(str, layout.levels))} }}" if layout.levels else "{ 0 }"
    least = 0 if not card.minimum or card.minimum.get("add") else 1
    return (f'    {{ .ggml_id = {card.gguf}, .layout = LAYOUT_{layout.name()}, .group = {layout.group}, .span = {layout.span}, '
            f".centre = {layout.centre},\n      .taken = {least}, .factor = {layout.factor}f, .store = STORE_{layout.store}, "
            f".scales = SCALES_{layout.scales},\n      .block = {card.values}, .bytes = {card.bytes}, .levels = {levels},\n"
            f"      .codes = wt_{card.symbol}_codes, .scales_of = wt_{card.symbol}_scales }},\n")


def pack(weights):
    """cards/pack.inc: for devices/cpu/matmul/matmul_pack.c."""
    cards = [(w, Layout(w)) for w in blocks(weights)]
    out = grids(weights) + stream_helpers(stream_bits(weights)) + "".join(pack_codes(w, at) + pack_scales(w, at) for w, at in cards)
    out += "static const struct pack_kind kinds[] = {\n" + "".join(pack_kind(w, at) for w, at in cards)
    for w in (w for w in weights if w.float):
        out += f"    {{ .ggml_id = {w.gguf}, .layout = LAYOUT_{w.float.upper()}, .pack = pack_{w.float} }},\n"
    return out + "};\n"


def layouts(weights):
    """cards/layouts.h: the layouts and the tiles that the weight types need, once each."""
    found, tiles = {}, {}
    for at in map(Layout, blocks(weights)):
        found.setdefault(at.name(), at)
        tiles.setdefault((at.steps, at.group, at.min), at)
    rows = [f"    M({n}, {at.store}, {at.scales}, {at.group}, {at.min}, {at.steps})" for n, at in found.items()]
    out = "/* M(name, store, scales, k per scale, has minima, steps): devices/cpu/matmul/matmul_pack.h */\n#define INT_LAYOUTS(M) \\\n"
    out += " \\\n".join(rows) + "\n/* M(steps, k per scale, has minima) */\n#define INT_TILES(M) \\\n"
    return out + " \\\n".join(f"    M({s}, {g}, {m})" for s, g, m in sorted(tiles)) + "\n"
