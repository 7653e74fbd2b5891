"""elements.py: the kernels of element-wise ops in every dialect, made of their formulas: one thread a value, at row i of n, group j of h
and place e of d, which are the axes of the operand that is written ([n][d] or [n][h][d])."""
import re
from ops.formula import write
from ops.operands import reach
from ops.structs import HEAD

AXES = {2: ("i", "e"), 3: ("i", "j", "e")}
CHOICE = re.compile(r"\w+ \? (\w+) : 1$")
PUSH_BYTES = 128


class Space:
    """Where the values of an op lie."""

    def __init__(self, card):
        self.card, formula = card, card.formula
        self.to = card.by_name[formula.result]
        self.counts = [self.count(rows) for rows, _ in self.to.dims]
        if len(self.counts) not in AXES or self.counts[0] != card.rows or len(set(self.counts)) < len(self.counts):
            card.fail(f"formula: {formula.result} has the sizes {' '.join(self.counts)}, wanted {card.rows} rows of values or of groups of values")
        self.flat = all(self.dense(f) for f in card.operands() if len(f.dims) == len(self.counts))
        for name, row in formula.values:
            self.axes(card.by_name[name], row)
        for f in card.operands():
            if f is not self.to and not any(f.name in (name, row) for name, row in formula.values):
                card.fail(f"formula: {f.name} does not occur")

    def count(self, rows):
        m = CHOICE.match(rows)
        count = m.group(1) if m else rows
        if not re.fullmatch(r"\w+", count):
            self.card.fail(f"formula: the size '{rows}' is no field and no number")
        return count

    @staticmethod
    def dense(f):
        return all(not ld for _, ld in f.dims)

    def axes(self, f, row):
        """Of each dimension the axis, "row" where a row is chosen."""
        found = ["row"] if row else []
        for rows, _ in f.dims[len(found):]:
            if self.count(rows) not in self.counts:
                self.card.fail(f"formula: {f.name} has the size {rows}, which is none of {self.to.name}'s; wanted {f.name}[the operand that chooses its row]")
            found.append(AXES[len(self.counts)][self.counts.index(self.count(rows))])
        if row and (row not in self.card.by_name or self.card.by_name[row].kind != "operand" or self.card.by_name[row].type != "i32"):
            self.card.fail(f"formula: {f.name}[{row}]: {row} is no i32 operand")
        return found

    def at(self, f, row, size, wide=""):
        """The index of f's value: terms of the flat index u, or of axes; size: how a field is written."""
        axes, terms = self.axes(f, row), []
        if self.flat and not row and len(axes) == len(self.counts):
            return "u"
        for k, axis in enumerate(axes):
            stride = f.dims[k][1] or "*".join(rows for rows, _ in f.dims[k + 1:])
            factors = [size(s) for s in stride.split("*")] if stride else []
            if axis != "row":
                terms.append(" * ".join([wide + axis] + factors if factors else [axis]))
        return " + ".join(terms)

    def step(self, f, size):
        """From one row that may be chosen to the next."""
        return " * ".join(size(s) for s in ([f.dims[0][1]] if f.dims[0][1] else [rows for rows, _ in f.dims[1:]]))

    def total(self, size):
        return " * ".join(size(c) for c in self.counts)

    def places(self, flat):
        """Axes whose place some operand needs."""
        need = set()
        for name, row in [*self.card.formula.values, (self.to.name, None)]:
            f = self.card.by_name[name]
            found = self.axes(f, row)
            whole = flat and self.flat and not row and len(found) == len(self.counts)
            need |= set() if whole else set(found) - {"row"}
            need |= {"i"} if row else set()
        return need

    def split(self, kind, size, flat=True):
        """Declares the places of the flat index u."""
        d, h = size(self.counts[-1]), size(self.counts[1])
        how = {"e": f"u % {d}", "j": f"u / {d} % {h}", "i": f"u / {d}" + (f" / {h}" if len(self.counts) == 3 else "")}
        need = [f"{axis} = {how[axis]}" for axis in ("e", "j", "i") if axis in self.places(flat)]
        return f"{kind} {', '.join(need)};" if need else ""


# ---- what all dialects share: one function of the values, in the formula's order ----

def function(card, head, functions, f32, exact=""):
    """The value at one place of the operands' values there and the numbers."""
    f = card.formula
    if f.copies:
        return ""
    given = [f"{'float' if card.by_name[n].type == 'f32' else 'int'} v_{n}" for n, _ in f.values]
    given += [f"{'float' if card.by_name[n].kind == 'float' else 'int'} v_{n}" for n in f.numbers]
    kinds = {"f": "float", "i": "int", "b": "bool"}
    lines = "".join(f"    const {kinds[kind]} v_{name} = {write(tree, functions, f32)};\n" for name, kind, tree in f.lines)
    last = write(f.tree, functions, f32)
    lines += f"    precise float v = {last};\n    return v;\n" if exact else f"    return {last};\n"
    return f"{head}float {card.name}_value({', '.join(given)})\n{{\n{lines}}}\n\n"


def result(card, loads, number):
    """A call of that function: loads are the values' texts, in order."""
    f = card.formula
    return loads[0] if f.copies else f"{card.name}_value({', '.join(loads + [number(n) for n in f.numbers])})"


def numbers(card):
    return [f for f in card.fields if f.kind in ("count", "size", "int", "float", "stride")]


def optional(card):
    return [f for f in card.operands() if f.optional]


# ---- CUDA ----

CUDA = {"exp": "expf({})", "log": "logf({})", "tanh": "tanhf({})", "sqrt": "sqrtf({})", "abs": "fabsf({})", "sigmoid": "sigmoid_dev({})",
        "float": "(float)({})"}


def cuda_load(card, space, name, row):
    def size(s):
        return s if s.isdigit() else f"a.{s}"
    f, given = card.by_name[name], ""
    at = space.at(f, row, size)
    if row:
        chosen = card.by_name[row]
        index = f"a.{row}[{space.at(chosen, None, size)}]"
        index = f"(a.{row} ? (int64_t){index} * {space.step(f, size)} : 0)" if chosen.optional else f"(int64_t){index} * {space.step(f, size)}"
        at = f"{index} + {at}" if at else index
    given = f"a.{name}[{at}]"
    return f"(a.{name} ? {given} : 0)" if f.optional else given


def cuda_kernel(card):
    space = Space(card)

    def size(s):
        return s if s.isdigit() else f"a.{s}"
    split = space.split("const int64_t", size)
    value = result(card, [cuda_load(card, space, n, r) for n, r in card.formula.values], lambda n: f"a.{n}")
    return (f"static __global__ void {card.name}_kernel({card.struct} a)\n{{\n    pdl_go();\n    pdl_wait();\n"
            f"    const int64_t n = (int64_t){space.total(size)};\n"
            "    for (int64_t u = blockIdx.x * (int64_t)THREADS + threadIdx.x; u < n; u += (int64_t)gridDim.x * THREADS)"
            + (f" {{\n        {split}" if split else "") + f"\n        a.{space.to.name}[{space.at(space.to, None, size)}] = {value};\n"
            + ("    }\n" if split else "") + "}\n\n")


def cuda_wide(card):
    """Rows of whole float4 words, one row per blockIdx.y and turn."""
    space = Space(card)
    rows, d = space.counts
    used = [card.by_name[n] for n, _ in card.formula.values]
    if len(space.counts) != 2 or any(space.axes(f, None) != ["i", "e"] or f.type != "f32" or f.optional for f in used):
        card.fail("wide: every operand must be f32 rows of values")
    strides = {f.name: f.dims[0][1] or d for f in [*used, space.to]}
    words = "".join(f"        const float4 v_{f.name} = *(const float4 *)(a.{f.name} + i * a.{strides[f.name]} + e);\n" for f in used)
    parts = ", ".join(result(card, [f"v_{f.name}.{w}" for f in used], lambda n: f"a.{n}") for w in "xyzw")
    to = space.to.name
    return (f"static __global__ void __launch_bounds__(THREADS) {card.name}_wide_kernel({card.struct} a)\n{{\n"
            "    const int e = (blockIdx.x * THREADS + threadIdx.x) * 4;\n    pdl_go();\n    pdl_wait();\n"
            f"    for (int i = blockIdx.y; e < a.{d} && i < a.{rows}; i += gridDim.y) {{\n{words}"
            f"        *(float4 *)(a.{to} + i * a.{strides[to]} + e) = make_float4({parts});\n    }}\n}}\n\n")


def cuda_run(card):
    space = Space(card)
    used = {card.by_name[n] for n, _ in card.formula.values} | {space.to}
    head = (f"static int {card.name}_run(cuda_device *d, const void *args, kvant_diag *diag)\n{{\n"
            f"    const {card.struct} *a = (const {card.struct} *)args;\n    const int64_t n = (int64_t){space.total(lambda s: s if s.isdigit() else f'a->{s}')};\n"
            "    (void)diag;\n")
    plain = f"cuda_launch(d, {card.name}_kernel, dim3(grid_of(n)), THREADS, 0, *a);\n    return KVANT_OK;\n}}\n\n"
    if not card.wide:
        return head + f"    if (n > 0)\n        {plain}"
    rows, d = space.counts
    places = " | ".join(f"(uintptr_t)a->{f.name}" for f in card.operands() if f in used)
    strides = " | ".join(dict.fromkeys([f"a->{f.dims[0][1]}" for f in card.operands() if f in used and f.dims[0][1]] + [f"a->{d}"]))
    return (head + f"    const uintptr_t at = {places};\n    if (n > 0 && ((at | (uintptr_t)(4 * ({strides}))) & 15) == 0)\n"
            f"        cuda_launch(d, {card.name}_wide_kernel, dim3(cuda_blocks(a->{d}, 4 * THREADS), (unsigned)(a->{rows} < 4096 ? a->{rows} : 4096)),\n"
            f"                    THREADS, 0, *a);\n    else if (n > 0)\n        {plain}")


def cuda(cards):
    out = [HEAD]
    for c in cards:
        out += [function(c, "static __device__ __forceinline__ ", CUDA, "f"), cuda_kernel(c), cuda_wide(c) if c.wide else "", cuda_run(c),
                f"const cuda_op cuda_op_{c.name} = {{ NULL, NULL, {c.name}_run }};\n\n"]
    return "".join(out)


# ---- GLSL: one file per op ----

GLSL = {"tanh": "tanh(clamp({}, -15.0, 15.0))"}        # tanh(15) is 1; a driver's may overflow


def glsl_number(f):
    return ("float" if f.kind == "float" else "uint") + f" a_{f.name};"


def glsl_load(card, space, name, row):
    def size(s):
        return s + "u" if s.isdigit() else f"args.a_{s}"
    f, operands = card.by_name[name], [o.name for o in card.operands()]
    how = "ld" if card.formula.copies else "ldi" if f.type == "i32" else "ldf"
    at, here = space.at(f, row, size), f"P({operands.index(name)}, a_{name})"
    if row:
        chosen = card.by_name[row]
        index = f"ld(P({operands.index(row)}, a_{row}), {space.at(chosen, None, size)})"
        index = f"args.has_{row} != 0u ? {index} : 0u" if chosen.optional else index
        here, at = f"at_mul({here}, {index}, {space.step(f, size)})", at or "0u"
    text = f"{how}({here}, {at})"
    zero = "0.0" if how == "ldf" else "0"
    return f"(args.has_{name} != 0u ? {text} : {zero})" if f.optional else text


def glsl(card):
    def size(s):
        return s + "u" if s.isdigit() else f"args.a_{s}"
    space, operands = Space(card), card.operands()
    fields = [f"ARGPTR a_{f.name};" for f in operands] + [glsl_number(f) for f in numbers(card)] + [f"uint has_{f.name};" for f in optional(card)]
    big = "#define BIG_ARGS\n" if 8 * len(operands) + 4 * (len(fields) - len(operands)) > PUSH_BYTES else ""
    split = space.split("const uint", size)
    to = f"P({operands.index(space.to)}, a_{space.to.name}), {space.at(space.to, None, size)}"
    value = result(card, [glsl_load(card, space, n, r) for n, r in card.formula.values],
                   lambda n: f"args.a_{n}" if card.by_name[n].kind == "float" else f"int(args.a_{n})")
    return ("#version 450\n" + HEAD + f"#define SLOTS {len(operands)}\n#define ARGS {' '.join(fields)}\n" + big
            + '#include "devices/vulkan/core/kv.glsl"\nlayout(local_size_x = 128) in;\n\n'
            + function(card, "", GLSL, "", "precise" if card.tolerance == "EXACT" else "")
            + "void main()\n{\n    const uint u = group_at() * GROUP + gl_LocalInvocationIndex;\n"
            + (f"    {split}\n" if split else "")
            + f"    if (u < {space.total(size)})\n        {'st' if card.formula.copies else 'stf'}({to}, {value});\n}}\n")


def total(card):
    return card.c(" * ".join(Space(card).counts), True)


def vulkan_groups(card):
    return f"(uint64_t)({card.c(card.groups, True)})" if card.groups else f"groups({card.c(card.threads, True) if card.threads else total(card)})"


def vulkan(cards):
    """The dispatches of those shaders, and of shaders that somebody wrote where the card says how many groups or threads they have: ARGS
    are the operands, the numbers, and has_<operand> of those that may be NULL, each in the card's order."""
    out = [HEAD]
    for c in cards:
        lines = "".join(f"    vk_{'float' if f.kind == 'float' else 'uint'}(&c, a->{f.name});\n" for f in numbers(c))
        lines += "".join(f"    vk_uint(&c, a->{f.name} != NULL);\n" for f in optional(c))
        out.append(f"static int {c.name}_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)\n{{\n    const {c.struct} *a = args;\n"
                   f"    vk_call c;\n    vk_call_begin(&c, VK_SHADER_{c.name});\n    vk_operands(d, &c, KVANT_OP_{c.name.upper()}, args);\n{lines}"
                   f"    return vk_dispatch(d, l, &c, {vulkan_groups(c)}, 1, 1, diag);\n}}\n\n"
                   f'const vk_op vk_op_{c.name} = {{ .name = "{c.name}", .counted = 1, .run = {c.name}_run }};\n\n')
    return "".join(out)


# ---- the portable language: one file for all, its parameters, its dispatches ----

PORTABLE = {"abs": "fabs({})", "float": "(float)({})"}


def portable_load(card, space, name, row):
    def size(s):
        return s if s.isdigit() else f"p.{s}"
    f = card.by_name[name]
    at = space.at(f, row, size, "(int64_t)")
    if row:
        chosen = card.by_name[row]
        index = f"(int64_t){row}[{space.at(chosen, None, size, '(int64_t)')}] * {space.step(f, size)}"
        index = f"(p.has_{row} ? {index} : 0)" if chosen.optional else index
        at = f"{index} + {at}" if at else index
    return f"(p.has_{name} ? {name}[{at}] : 0)" if f.optional else f"{name}[{at}]"


def portable_kernel(card):
    space, operands = Space(card), card.operands()
    space.flat = False

    def size(s):
        return s if s.isdigit() else f"p.{s}"
    types = {f.name: ("const " if f is not space.to else "") + ("uint32_t" if card.formula.copies and f.type == "f32" else "float" if f.type == "f32" else "int32_t")
             for f in operands}
    buffers = " ".join(f"BUFFER({types[f.name]}, {f.name}, {k})" for k, f in enumerate(operands))
    opened = " ".join(f"OPEN({types[f.name]}, {f.name})" for f in operands)
    value = result(card, [portable_load(card, space, n, r) for n, r in card.formula.values], lambda n: f"p.{n}")
    places = "".join(f"    const int {axis} = {group};\n" for axis, group in (("i", "GROUP_X"), ("j", "GROUP_Y")) if axis in space.places(False))
    return (f"KERNEL({card.name})({buffers} PARAMS({card.name}, {len(operands)}))\n{{\n    {opened}\n{places}    EACH_VALUE(e, {size(space.counts[-1])})\n"
            f"        {space.to.name}[{space.at(space.to, None, size, '(int64_t)')}] = {value};\n}}\n\n")


def portable(cards):
    return (HEAD + '#include "devices/portable/core/k_dialect.h"\n#include "ops/elements_params.h"\n\n'
            "#define EACH_VALUE(e, n) \\\n"
            "    for (int e = GROUP_Z * ROWS_SPAN + THREAD, e##_end = min((GROUP_Z + 1) * ROWS_SPAN, n); e < e##_end; e += THREADS)\n\n"
            "FN float sigmoid(float x)\n{\n    return 1.0f / (1.0f + exp(-x));\n}\n\n"
            + "".join(function(c, "FN ", PORTABLE, "f") + portable_kernel(c) for c in cards))


def parameters(cards):
    """Those of 8 bytes first."""
    types = {"stride": "int64_t", "float": "float"}
    return (HEAD + '#include "devices/portable/ops/ops_params.h"\n\n'
            + "".join(f"struct p_{c.name} {{ "
                      + " ".join([f"{types.get(f.kind, 'int32_t')} {f.name};" for f in sorted(numbers(c), key=lambda f: f.kind != "stride")]
                                 + [f"int32_t has_{f.name};" for f in optional(c)])
                      + " };\n" for c in cards))


def portable_groups(card):
    """Rows, groups of values in them, spans of those."""
    counts = Space(card).counts
    h = card.c(counts[1]) if len(counts) == 3 else "1"
    return f"{card.c(counts[0])}, {h}, ({card.c(counts[-1])} + ROWS_SPAN - 1) / ROWS_SPAN"


def portable_supports(card):
    """Kernels number their threads by an int."""
    return (f"static int {card.name}_supports(port_device *d, const void *args, kvant_diag *diag)\n{{\n    const {card.struct} *a = args;\n"
            f'    return fits(d, "{card.name}", {card.c(card.threads, True)}, diag);\n}}\n\n')


def portable_runs(cards):
    out = [HEAD]
    for c in cards:
        out += [portable_supports(c)] if c.threads else []
        given = [f".{f.name} = a->{f.name}" for f in numbers(c)] + [f".has_{f.name} = a->{f.name} != NULL" for f in optional(c)]
        groups = (f"{c.c(c.groups, True)}, 1, 1" if c.groups else f"({c.c(c.threads, True)} + PORT_THREADS - 1) / PORT_THREADS, 1, 1" if c.threads
                  else portable_groups(c))
        out.append(f"static int {c.name}_run(port_device *d, const void *args, kvant_diag *diag)\n{{\n    const {c.struct} *a = args;\n"
                   f"    const struct p_{c.name} p = {{ {', '.join(given)} }};\n    port_call c = PORT_CALL({c.name}, p);\n"
                   f"    port_operands(d, &c, KVANT_OP_{c.name.upper()}, args);\n"
                   f"    return port_dispatch(d, &c, {groups}, diag);\n}}\n"
                   f"PORT_OP({c.name}, {f'{c.name}_supports' if c.threads else 'NULL'}, {c.name}_run)\n\n")
    return "".join(out)


def portable_list(cards):
    return HEAD + "".join(f'PORT_KERNEL({c.name}, "ops/elements.k")\n' for c in cards)


# ---- the harness: cases of a card that names no generator ----

def case_fields(card, space):
    """Assignments to *a: numbers, strides from the groups to the rows, then memory."""
    chosen = {row: card.by_name[name] for name, row in card.formula.values if row}
    known = {space.counts[0]: "n", space.counts[-1]: "d", **({space.counts[1]: "3"} if len(space.counts) == 3 else {})}
    out = ""
    for f in card.fields:
        if f.kind in ("count", "size", "int", "float"):
            out += f"    a->{f.name} = {card.tries.get(f.name) or known.get(f.name) or {'float': '0.5f', 'int': '1'}.get(f.kind, '4')};\n"
    for k, f in enumerate(card.operands()):
        for at in range(len(f.dims) - 1, -1, -1):
            rows, ld = f.dims[at]
            if not ld:
                continue
            within = "*".join(card.c(r, True) for r, _ in f.dims[at + 1:])
            if at == 0 and len(f.dims) == 3 and f.dims[1][1]:
                within = f"({card.c(f.dims[1][0], True)} - 1) * a->{f.dims[1][1]} + {card.c(f.dims[2][0], True)}"
            if f"a->{ld} =" not in out:
                out += f"    a->{ld} = {within} + {2 * k + 1};\n"
    for k, f in enumerate(card.operands()):
        values = f"(size_t)({reach(card, f.dims)})" if f.dims[0][0] != "*" else f"9 * (size_t)({inner(card, f)})"
        if f.optional:
            out += "    if (with)\n"
        at = "        " if f.optional else "    "
        if f.type == "i32":
            rows = chosen[f.name].dims[0][0] if f.name in chosen else "0"
            out += f"{at}a->{f.name} = case_whole(c, {values}, {'9' if rows == '*' else card.c(rows)}, {card.tries.get(f.name, 7)});\n"
        elif f is space.to and f.access == "w":
            out += f"{at}a->{f.name} = vcase_out(c, {values});\n"
        else:
            out += f"{at}a->{f.name} = vcase_normal(c, {values}, {k + 1});\n" + (f"{at}vcase_result(c, a->{f.name});\n" if f is space.to else "")
    return out


def inner(card, f):
    return card.c(f.dims[0][1], True) if f.dims[0][1] else " * ".join(card.c(r, True) for r, _ in f.dims[1:])


def limit(card):
    m = re.fullmatch(r"NMSE\(([0-9.e+-]+)\)", card.tolerance)
    if not m and card.tolerance != "EXACT":
        card.fail(f"formula: tolerance {card.tolerance}: wanted EXACT or NMSE(x), or cases that somebody wrote")
    return m.group(1) if m else "0.0"


def cases(cards):
    out, made = [HEAD], [c for c in cards if c.cases is None]
    for c in made:
        space, some = Space(c), optional(c)
        subject = "with ? \"" + some[0].name + "\" : \"\"" if some else '""'
        out.append(f"static void made_{c.name}(vcase *c, int n, int d, const char *shape, int with)\n{{\n    {c.struct} args = {{ 0 }}, *a = &args;\n"
                   f"    (void)with;\n    if (!vcase_begin(c, KVANT_OP_{c.name.upper()}, shape, {subject}))\n        return;\n{case_fields(c, space)}"
                   f'    vcase_about(c, "n %d d %d, gaps where there may be some", n, d);\n    vcase_run(c, a, {limit(c)});\n}}\n\n'
                   f"static void case_{c.name}(vcase *c, int n, int d, const char *shape)\n{{\n    made_{c.name}(c, n, d, shape, 0);\n"
                   + (f"    made_{c.name}(c, n, d, shape, 1);\n" if some else "") + "}\n\n")
    return "".join(out) + "void cases_formula(vcase *c)\n{\n" + "".join(f"    each_size(c, case_{c.name});\n" for c in made) + "}\n"
