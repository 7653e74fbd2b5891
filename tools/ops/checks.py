"""checks.py: the check of every op's arguments, and a test for each thing that it refuses."""
import re
from ops.opcard import NAME
from ops.structs import HEAD

FORMATS = {"float": ("%g", "(double)"), "stride": ("%lld", "(long long)"), "bytes": ("%zu", "")}


def one_number(card, f):
    at, name = f"a->{f.name}", f.name
    if f.kind == "count":
        return f'    KVANT_TRY(arg_count(id, "{name}", {at}, diag));\n'
    if f.kind == "size":
        return f'    KVANT_TRY(arg_positive(id, "{name}", {at}, diag));\n'
    if f.kind == "compute":
        return f"    KVANT_TRY(arg_compute(id, {at}, diag));\n"
    if f.low is None:
        return ""
    low, high = card.c(f.low), card.c(f.high)
    if f.kind == "float":
        test = f"{at} {'>' if f.ends[0] == '(' else '>='} {low}f && {at} {'<' if f.ends[1] == ')' else '<='} {high}f"
        test = re.sub(r"(?<![.e\d])(-?\d+)f", r"\1.0f", test)
        return (f"    if (!({test}))\n"
                f'        BAD("%s: {name} = %g, wanted {f.ends[0]}{f.low}, {f.high}{f.ends[1]}", arg_op(id), (double){at});\n')
    return f'    KVANT_TRY(arg_range(id, "{name}", {at}, {low}, {high}, diag));\n'


def inner(dims):
    return " * ".join(f"({e})" if re.search(r"[-+/?]", e) else e for e, _ in dims)


def strides(card, f):
    """Rows and groups of an operand that lie further apart than they are wide."""
    dims, found = f.dims, []
    for i, (rows, ld) in enumerate(dims):
        if not ld:
            continue
        within = inner(dims[i + 1:])
        if dims[0][1] and len(dims) == 3 and i == 0:
            within = f"({dims[1][0]} - 1) * {dims[1][1]} + {dims[2][0]}" if dims[1][1] else within
        many = "" if rows == "*" else f"({card.c(rows, True)}) > 1 && "
        found.append(f"    if ({many}{card.c(ld, True)} < {widen(card, ld, within)})\n"
                     f'        return arg_narrow(id, "{ld}", (long long)a->{ld}, (long long)({card.c(within, True)}), "{within}", diag);\n')
    return "".join(reversed(found))      # groups before rows, which are measured by them


def widen(card, ld, text):
    return f"(size_t)({card.c(text)})" if card.by_name[ld].kind == "bytes" else card.c(text, True)


def rule(card, text):
    names = [n for n in dict.fromkeys(NAME.findall(text)) if n.split(".")[0] in card.by_name and card.kind_of(n) not in ("operand", "side")]
    shown = ", ".join(f"{n} = {FORMATS.get(card.kind_of(n), ('%d', ''))[0] if n != 'w.n_in' else '%lld'}" for n in names)
    values = "".join(f", {FORMATS.get(card.kind_of(n), ('', ''))[1]}{card.c(n)}" for n in names)
    rows = f"{card.c(card.rows)} > 0 && " if card.mentions_memory(text) else ""
    return f'    if ({rows}!({card.c(text)}))\n        BAD("%s: wanted {text.replace("%", "%%")}{"; found " + shown if shown else ""}", arg_op(id){values});\n'


def before(card):
    """Sequences, weights, sides: what other fields are measured by."""
    out = ""
    for f in card.fields:
        if f.kind == "seqs":
            out += f"    KVANT_TRY(arg_seqs_{f.more}(id, &a->{f.name}, diag));\n"
        elif f.kind == "weight":
            out += f"    KVANT_TRY(arg_weight(id, a->{f.name}, {int(f.more == 'single')}, diag));\n"
    return out


def sides(card):
    out = ""
    for f in card.fields:
        if f.kind == "side":
            seqs = "&a->seqs" if "seqs" in card.by_name else "NULL"
            out += f'    KVANT_TRY(arg_side(id, "{f.name}", &a->{f.name}, {card.c(f.heads)}, {card.c(f.width)}, {seqs}, diag));\n'
            if f.access == "w":
                out += f'    KVANT_TRY(arg_rows_in(id, "{f.name}", &a->{f.name}, diag));\n'
    return out


def check(card):
    need = [f.name for f in card.operands() if not f.optional]
    out = f"static int check_{card.name}(int id, const {card.struct} *a, kvant_diag *diag)\n{{\n" + before(card)
    out += "".join(one_number(card, f) for f in card.fields) + sides(card)
    out += "".join(strides(card, f) for f in card.operands())
    out += "".join(rule(card, text) for text, _ in card.rules)
    names = ", ".join(need)
    out += f'    if ({card.c(card.rows)} > 0)\n        NEED(id, "{names}", {", ".join("a->" + n for n in need)});\n    return KVANT_OK;\n}}\n'
    for op in card.ops:
        out += f"\nint check_{op}_args(const void *args, kvant_diag *diag)\n{{\n    return check_{card.name}(KVANT_OP_{op.upper()}, args, diag);\n}}\n"
    return out


def checks(cards):
    return HEAD + "\n".join(check(c) for c in cards)


# ---- tests ----

def good_value(card, f):
    if f.name in card.good:
        return str(card.good[f.name])
    if f.kind in ("count", "size"):
        return "2" if f.name == card.rows else "4"
    if f.kind == "float":
        return "0.5f"
    if f.kind == "int":
        low = f.low if f.low and re.fullmatch(r"-?\d+", f.low) else "0"
        return low if low != "1" else "4"
    return "0"


def goods(card):
    """Fields that are not strides, of an accepted example; a stride is its width."""
    values = []
    for i, f in enumerate(card.fields):
        if f.kind == "operand":
            values.append((f.name, f"(void *)buffers[{i % 24}]"))
        elif f.kind == "weight":
            values.append((f.name, f"weight({1 if f.more == 'single' else 4})"))
        elif f.kind == "seqs":
            values.append((f.name, "sequences"))
        elif f.kind == "side":
            values.append((f.name, "side_of_two_heads()"))
        elif f.kind not in ("stride", "bytes", "compute"):
            values.append((f.name, good_value(card, f)))
    return values


def good_strides(card):
    """Assignments in the order that needs none before it: groups, then rows."""
    out = []
    for f in card.operands():
        for i in range(len(f.dims) - 1, -1, -1):
            rows, ld = f.dims[i]
            if not ld:
                continue
            within = inner(f.dims[i + 1:])
            if i == 0 and len(f.dims) == 3 and f.dims[1][1]:
                within = f"({f.dims[1][0]} - 1) * {f.dims[1][1]} + {f.dims[2][0]}"
            out.append(f"    a->{ld} = {card.c(within)};\n")
    for f in card.fields:
        if f.kind == "bytes" and not any(ld == f.name for o in card.operands() for _, ld in o.dims):
            out.insert(0, f"    a->{f.name} = 16;\n")
        if f.kind == "stride" and not any(ld == f.name for o in card.operands() for _, ld in o.dims):
            out.append(f"    a->{f.name} = 128;\n")
    return out


def breakages(card):
    """(what, assignments to `b`), each of which must be refused."""
    out = []
    for f in card.fields:
        if f.kind == "operand" and not f.optional:
            out.append((f"{f.name} NULL", f"b.{f.name} = NULL"))
        elif f.kind in ("count", "size"):
            out.append((f"{f.name} negative", f"b.{f.name} = -1"))
            if f.kind == "size":
                out.append((f"{f.name} 0", f"b.{f.name} = 0"))
        elif f.kind == "compute":
            out.append((f"{f.name} unknown", f"b.{f.name} = 7"))
        elif f.kind in ("int", "float", "stride") and f.low is not None:
            low, high = (card.c(e).replace("a->", "b.") for e in (f.low, f.high))
            if f.kind == "float":
                out += [(f"{f.name} below", f"b.{f.name} = (float)({low}){'' if f.ends[0] == '(' else ' - 1.0f - fabsf((float)(' + low + ')) / 8'}"),
                        (f"{f.name} above", f"b.{f.name} = (float)({high}){'' if f.ends[1] == ')' else ' + 1.0f + fabsf((float)(' + high + ')) / 8'}"),
                        (f"{f.name} NaN", f"b.{f.name} = (float)NAN")]
            else:
                if low not in ("INT_MIN",):
                    out.append((f"{f.name} below", f"b.{f.name} = ({low}) - 1"))
                if high not in ("INT_MAX", "INT64_MAX"):
                    out.append((f"{f.name} above", f"b.{f.name} = (int)({high}) + 1"))
        elif f.kind == "seqs":
            arrays = ("q0", "pos0", "table") if f.more == "pages" else ("q0", "pos0", "prompt", "slot_in", "slot_out")
            out += [(f"seqs.{n} NULL", f"b.seqs.{n} = NULL") for n in arrays]
            out += [(f"seqs.{n} {v}", f"b.seqs.{n} = {v}") for n, v in (("n_seqs", "-1"), ("n_seqs", "0"), ("n_tokens", "-1"), ("n_few", "2"), ("few_rows", "1"), ("n_seqs", "1 << 30"))]
            out += [("seqs.table_stride 0", "b.seqs.table_stride = 0")] if f.more == "pages" else []
        elif f.kind == "side":
            out += [(f"{f.name}.{n} {v}", f"b.{f.name}.{n} = {v}") for n, v in
                    (("fmt", "NULL"), ("pages", "NULL"), ("row_bytes", "33"), ("head_bytes", "34 * 63"), ("page_bytes", "34 * 64"),
                     ("encoder", "2"), ("fmt", 'kvant_format_find("qjl1_256")'))]
            out += [(f"{f.name} without a tail table", f"b.seqs.tail_table = NULL")] if "seqs" in card.by_name else []
        elif f.kind == "weight":
            out += [(f"{f.name} NULL", f"b.{f.name} = NULL")] + [(f"{f.name}: {t}", f"b.{f.name} = {v}") for t, v in
                    (("no type", "weight_without_type()"), ("no data", "weight_without_data()"), ("n_in", "weight_of_33()"), ("scales", "weight_of_3_scales()"))]
            out += [(f"{f.name} of four experts", f"b.{f.name} = weight(4)")] if f.more == "single" else []
    for f in card.operands():
        for rows, ld in f.dims:
            if ld:
                out.append((f"{ld} too small for {f.name}", f"b.{ld} = b.{ld} - 1"))
    for text, how in card.rules:
        out.append((f"not ({text})", ", ".join("b." + part.strip() for part in how.split(","))))
    return out


def refusals(cards):
    out = [HEAD]
    for c in cards:
        values = "".join(f"    a->{n} = {v};\n" for n, v in goods(c))
        out.append(f"static void good_{c.name}({c.struct} *a)\n{{\n    memset(a, 0, sizeof *a);\n{values}{''.join(good_strides(c))}}}\n\n")
        out.append(f"static void refuse_{c.name}(int id)\n{{\n    {c.struct} good, b;\n    good_{c.name}(&good);\n    accept(id, &good, \"as it should be\");\n")
        for what, how in breakages(c):
            text = what.replace("\\", "\\\\").replace('"', '\\"')
            out.append(f'    b = good, {how}, refuse(id, &b, "{text}");\n')
        rows = c.rows
        out.append(f"    b = good, b.{rows} = 0" + (", b.seqs.n_seqs = 0, b.seqs.n_few = b.seqs.few_rows = 0" if rows.startswith("seqs") else "")
                   + "".join(f", b.{f.name} = NULL" for f in c.operands()) + ', accept(id, &b, "no rows");\n}\n\n')
    out.append("static void refuse_all(void)\n{\n" + "".join(f"    refuse_{c.name}(KVANT_OP_{op.upper()});\n" for c in cards for op in c.ops) + "}\n")
    return "".join(out)
