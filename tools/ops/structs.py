"""structs.py: the argument structs of the public header, and the lists of ops."""
HEAD = "/* Made by tools/gen_ops of src/ops/cards; do not edit. */\n"


def comment(text):
    lines = text.split("\n")
    return "/* " + "\n * ".join(lines).replace(" * \n", " *\n") + " */\n"


def declarations(card):
    """Neighbours of one type stand in one declaration."""
    groups = []
    for f in card.fields:
        kind, star = f.c_type()
        if groups and groups[-1][0] == kind:
            groups[-1][1].append(star + f.name)
        else:
            groups.append((kind, [star + f.name]))
    return "".join(f"    {kind} {', '.join(names)};\n" for kind, names in groups)


def header(cards):
    out = [HEAD, "/* op_args.h: the arguments of every op; see kvant/ops.h, which includes it. */\n",
           "#ifndef KVANT_OP_ARGS_H\n#define KVANT_OP_ARGS_H\n\n"]
    for c in cards:
        out.append(comment(c.about) + (c.constants + "\n" if c.constants else ""))
        out.append(f"typedef struct {c.struct} {{\n{declarations(c)}}} {c.struct};\n\n")
    return "".join(out) + "#endif\n"


def contract(cards):
    out = [HEAD, "/* ops.def: one line per op.  KVANT_OP(ID, name, args struct, tolerance class, decomposition, text) */\n"]
    for c in cards:
        for op, text in c.ops.items():
            out.append(f'KVANT_OP({op.upper()}, {op}, {c.struct}, "{c.tolerance}", "{c.parts}", "{text}")\n')
    return "".join(out)


def cases(cards):
    """The generator of each op's cases in the harness."""
    return HEAD + "".join(f"VERIFY_CASES({op.upper()}, cases_{c.cases or 'formula'})\n" for c in cards for op in c.ops)
