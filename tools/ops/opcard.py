"""opcard.py: reads the op cards (src/ops/cards/**/*.toml).  docs/howto-op.md says what the fields mean.  An unknown key, type or
interval ends the run with the card's path."""
import os
import re
import tomllib
from ops.formula import Formula

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
KEYS = {"text", "ops", "tolerance", "parts", "cases", "about", "constants", "fields", "rules", "good", "formula", "wide", "tries", "groups", "threads"}
C_TYPES = {"f32": "float", "i32": "int32_t", "u8": "uint8_t", "any": "void"}
BYTES = {"f32": 4, "i32": 4, "u8": 1, "any": 1}
OPERAND = re.compile(r"(r|w|rw) (f32|i32|u8|any) ((?:\[[^\]]+\])+)((?: optional| partly)*)$")
NUMBER = re.compile(r"(int|float|stride|bytes)(?: ([\[(])(.+), (.+)([\])]))?$")
NAME = re.compile(r"\b[a-z]\w*(?:\.\w+)?\b")


def fail(path, text):
    raise SystemExit(f"{os.path.relpath(path, ROOT)}: {text}")


class Field:
    """One line of a card: kind is operand, weight, seqs, side, compute, count, size, int, float, stride or bytes."""

    def __init__(self, path, name, spec):
        self.name, self.low, self.high, self.dims, self.ends = name, None, None, [], "[]"
        operand, number = OPERAND.match(spec), NUMBER.match(spec)
        if operand:
            self.kind, self.access, self.type = "operand", operand.group(1), operand.group(2)
            self.optional, self.partly = "optional" in operand.group(4), "partly" in operand.group(4)
            self.dims = [tuple(p.strip() for p in (d + " @ ").split("@")[:2]) for d in re.findall(r"\[([^\]]+)\]", operand.group(3))]
        elif number:
            self.kind = number.group(1)
            if number.group(2):
                self.low, self.high, self.ends = number.group(3), number.group(4), number.group(2) + number.group(5)
        elif re.match(r"side (r|w|rw) \((.+), (.+)\)$", spec):
            self.kind = "side"
            self.access, self.heads, self.width = re.match(r"side (r|w|rw) \((.+), (.+)\)$", spec).groups()
        elif spec in ("weight", "weight single", "seqs pages", "seqs slots", "compute", "count", "size"):
            self.kind, _, self.more = spec.partition(" ")
        else:
            fail(path, f"field {name}: '{spec}' is no operand, number, weight, seqs, side, compute, count or size")
        self.const = "const " if self.kind == "operand" and self.access == "r" else ""

    def c_type(self):
        """The type as it is declared, and what stands before the name."""
        if self.kind == "operand":
            return self.const + C_TYPES[self.type], "*"
        return {"weight": ("const kvant_weight", "*"), "seqs": ("kvant_seqs", ""), "side": ("kvant_kv_side", ""),
                "float": ("float", ""), "stride": ("int64_t", ""), "bytes": ("size_t", "")}.get(self.kind, ("int", ""))


class Card:
    """An argument struct, and the ops that take it."""

    def __init__(self, path):
        with open(path, "rb") as f:
            d = tomllib.load(f)
        for key in d.keys() - KEYS:
            fail(path, f"'{key}' is unknown, wanted one of {', '.join(sorted(KEYS))}")
        self.path, self.name = path, os.path.basename(path)[:-5]
        self.struct = f"kvant_{self.name}_args"
        try:
            self.ops = d["ops"] if "ops" in d else {self.name: d["text"]}
            self.tolerance, self.about = d["tolerance"], d["about"].strip("\n")
            self.cases = d.get("cases") if "formula" in d else d["cases"]
            lines = [line.split(None, 1) for line in d["fields"].strip().split("\n")]
        except KeyError as e:
            fail(path, f"{e} is missing")
        self.parts, self.constants = d.get("parts", ""), d.get("constants", "").strip("\n")
        self.rules, self.good = d.get("rules", []), d.get("good", {})
        self.fields = [Field(path, name, spec.strip()) for name, spec in lines]
        self.by_name = {f.name: f for f in self.fields}
        for text in [e for f in self.fields for dim in f.dims for e in dim] + [r[0] for r in self.rules]:
            self.check_names(text)
        self.rows = "seqs.n_tokens" if "seqs" in self.by_name else next((f.name for f in self.fields if f.kind == "count"), None)
        if self.rows is None:
            fail(path, "no field is a count or seqs: nothing says how many rows there are")
        self.wide, self.tries, self.groups, self.threads = d.get("wide", False), d.get("tries", {}), d.get("groups"), d.get("threads")
        for key in [k for k in ("groups", "threads") if d.get(k)]:
            self.check_names(d[key])
            if "formula" in d:
                fail(path, f"{key}: a formula has kernels of its own")
        if self.groups and self.threads:
            fail(path, "threads: groups are given as well")
        self.formula = Formula(self, d["formula"]) if "formula" in d else None

    def fail(self, text):
        fail(self.path, text)

    def check_names(self, text):
        for name in NAME.findall(text):
            if name.split(".")[0] not in self.by_name and not re.fullmatch(r"[0-9].*|size_t|f", name):
                fail(self.path, f"'{text}' names {name}, which is no field")

    def operands(self):
        return [f for f in self.fields if f.kind == "operand"]

    def c(self, text, wide=False):
        """An expression over fields as C over the struct `a`; wide: in 64 bits."""
        def name(m):
            word = m.group(0)
            head, dot, tail = word.partition(".")
            if head not in self.by_name:
                return word
            at = f"a->{head}" + ((("->" if self.by_name[head].kind == "weight" else ".") + tail) if dot else "")
            return f"(int64_t){at}" if wide and self.kind_of(word) in ("int", "count", "size", "seqs") else at
        return NAME.sub(name, text)

    def kind_of(self, word):
        return self.by_name[word.split(".")[0]].kind

    def mentions_memory(self, text):
        """Rules about addresses and sequences hold where there are rows."""
        return any(n.split(".")[0] in self.by_name and self.kind_of(n) in ("operand", "side", "seqs") for n in NAME.findall(text))


def load(root=None):
    """All cards, by the names of their ops."""
    folder = os.path.join(root or ROOT, "src", "ops", "cards")
    paths = [os.path.join(at, f) for at, _, files in os.walk(folder) for f in files if f.endswith(".toml")]
    cards = [Card(p) for p in sorted(paths, key=os.path.basename)]
    names = [op for c in cards for op in c.ops]
    for name in {n for n in names if names.count(n) > 1}:
        raise SystemExit(f"src/ops/cards: two cards have an op {name}")
    return cards
