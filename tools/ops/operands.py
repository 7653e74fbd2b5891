"""operands.py: for every op, the memory that its arguments name: where each address stands in the struct, whether the op reads or
writes there, and how far it reaches."""
from ops.opcard import BYTES
from ops.structs import HEAD

SEQS = (("q0", "seqs.n_seqs + 1"), ("pos0", "seqs.n_seqs"), ("prompt", "seqs.n_seqs"), ("table", "0"), ("tail_table", "0"),
        ("slot_in", "seqs.n_seqs"), ("slot_out", "seqs.n_seqs"))


def reach(card, dims):
    """Values from the operand's address to the last one; 0 where no count bounds it."""
    if any(rows == "*" for rows, _ in dims):
        return "0"
    total = "1"
    for rows, ld in reversed(dims):
        n = card.c(rows, True)
        total = f"reach_of({n}, {card.c(ld, True) if ld else total}, {total})"
    return total


def dense(card, f):
    """True where the op writes every value that it reaches."""
    if f.partly or any(rows == "*" for rows, _ in f.dims):
        return "0"
    tests, within = [], "1"
    for rows, ld in reversed(f.dims):
        if ld:
            tests.append(f"(({card.c(rows, True)}) <= 1 || {card.c(ld, True)} == {within})")
        within = f"{within} * ({card.c(rows, True)})" if within != "1" else f"({card.c(rows, True)})"
    return " && ".join(tests) or "1"


def rows(card, f):
    """The operand's rows, where a field says how far they lie apart."""
    if not f.dims[0][1]:
        return ""
    return f"    operand_rows(o, {BYTES[f.type]} * (int64_t)({card.c(f.dims[0][1], True)}), {BYTES[f.type]} * ({reach(card, f.dims[1:])}));\n"


def one(card, f, struct):
    flags = {"r": "OPERAND_READ", "w": "OPERAND_WRITE", "rw": "OPERAND_READ | OPERAND_WRITE"}
    if f.kind == "operand":
        return (f"    operand_put(o, offsetof({struct}, {f.name}), a->{f.name}, {flags[f.access]}, {BYTES[f.type]} * ({reach(card, f.dims)}), "
                f"{dense(card, f)});\n" + rows(card, f))
    if f.kind == "weight":
        return f"    operand_put(o, offsetof({struct}, {f.name}), a->{f.name}, OPERAND_WEIGHT, 0, 0);\n"
    if f.kind == "seqs":
        return "".join(f"    operand_put(o, offsetof({struct}, seqs.{n}), a->seqs.{n}, OPERAND_READ, 4 * ({card.c(size, True)}), 1);\n" for n, size in SEQS)
    if f.kind == "side":
        return "".join(f"    operand_put(o, offsetof({struct}, {f.name}.{n}), a->{f.name}.{n}, {how}, 0, 0);\n" for n, how in
                       (("param", "OPERAND_READ"), ("pages", flags[f.access]), ("tail", "OPERAND_READ | OPERAND_WRITE" if "w" in f.access else "OPERAND_READ")))
    return ""


def weight_use(cards):
    """An op that reads f32 rows beside a weight multiplies them with it; another takes rows of the weight."""
    out = ["\nstatic inline int operands_weight_use(int id)\n{\n    switch (id) {\n"]
    for c in cards:
        if any(f.kind == "weight" for f in c.fields):
            multiplied = any(f.kind == "operand" and (f.access, f.type) == ("r", "f32") for f in c.fields)
            out += [f"    case KVANT_OP_{op.upper()}: return KVANT_WEIGHT_{'MATMUL' if multiplied else 'EMBED'};\n" for op in c.ops]
    return "".join(out) + "    default: return 0;\n    }\n}\n"


def table(cards):
    out = [HEAD]
    for c in cards:
        out.append(f"static inline void operands_{c.name}(const void *args, op_operands *o)\n{{\n"
                   f"    const {c.struct} *a = (const {c.struct} *)args;\n" + "".join(one(c, f, c.struct) for f in c.fields) + "}\n\n")
    out.append("static inline void operands_fill(int id, const void *args, op_operands *o)\n{\n    switch (id) {\n")
    for c in cards:
        for op in c.ops:
            out.append(f"    case KVANT_OP_{op.upper()}: operands_{c.name}(args, o); break;\n")
    return "".join(out) + "    default: break;\n    }\n}\n" + weight_use(cards)
