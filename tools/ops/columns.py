"""columns.py: the ops that treat each column of their rows, or each head of columns, by itself, and where their arguments say which."""
from ops.elements import CHOICE
from ops.structs import HEAD


def told(card, name):
    return f"offsetof({card.struct}, {name})" if name else "-1"


def entry(card):
    """The op's line in the list; "": its columns need each other, or its rows are not the counted ones."""
    to = next((f for f in card.operands() if "w" in f.access), None)
    if (card.rows != "n" or not (card.formula or card.groups or card.threads) or not to or to.type != "f32" or len(to.dims) not in (2, 3)
            or to.dims[0][0] != "n" or to.dims[1][0] not in card.by_name or len(to.dims) == 2 and card.groups):
        return ""
    rows, steps, moves = [], [], False
    for f in (f for f in card.operands() if f is not to and len(f.dims) > 1):
        m = CHOICE.match(f.dims[0][0])
        if [n for n, _ in f.dims] == [n for n, _ in to.dims]:
            rows.append(f)
        elif m and m.group(1) == to.dims[1][0]:
            steps.append(f)
        elif "w" not in f.access and not any(ld for g in (f, to) for _, ld in g.dims) and f.dims[1:] == to.dims[1:]:
            rows, moves = rows + [f], True
        else:
            return ""
    if len({bool(f.dims[0][1]) for f in rows + [to]}) > 1:
        return ""
    at = ", ".join(f"{{ {told(card, f.name)}, {told(card, f.dims[0][1])}, {told(card, f.dims[1][1])} }}" for f in rows + [to])
    steps = ", ".join(f"{{ {told(card, f.name)}, {told(card, f.dims[0][1])} }}" for f in steps)
    return (f"    [KVANT_OP_{card.name.upper()}] = {{ .rows = {told(card, 'n')}, .count = {told(card, to.dims[1][0])}, .moves = {int(moves)},\n"
            f"        .n = {len(rows) + 1}, .of = {{ {at} }}" + (f", .n_steps = {steps.count('{')}, .step = {{ {steps} }}" if steps else "") + " },\n")


def table(cards):
    return HEAD + "".join(entry(c) for c in cards)
