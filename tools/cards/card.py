"""card.py: reads the cards (src/formats/**/*.toml): what each cache format and each weight type is made of.  The dialects (c.py,
glsl.py) turn them into code; docs/howto-format.md says what the fields mean.  Owns the checks: an unknown field or a size that does
not add up ends the run with the card's path."""
import os
import re
import struct
import tomllib

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FORMATS = os.path.join(ROOT, "src", "formats")
SPACES = ("real", "p32", "r128", "h128", "sketch")
FLOATS = {"f32": 4, "f16": 2, "bf16": 2, "e4m3": 1}
SCALES = ("f16", "f16_nibbles", "bf16", "param", "e8m0_half")
PAGE_ROWS = 64                                  # KVANT_PAGE
SUBS = ("six_bit_pairs", "i8", "ue4m3_half", "fields")
NORMS = ("largest", "rms", "length", "corrected")
BEST = {"tries", "centre", "most", "reach"}
# Integer levels, too short for tables.toml: e2m1 times two; the levels of IQ4_NL.
INTEGERS = {"e2m1_doubled": (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12),
            "iq4_levels": (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)}
FIELDS = {"values", "bytes", "float", "space", "scale", "minimum", "sub", "codes", "high", "centre", "levels", "boundaries", "signs",
          "residual", "book_signs", "norm", "best", "integers", "name", "gguf", "file_type", "grid", "page"}


def use_root(root):
    """Reads the cards of another tree."""
    global ROOT, FORMATS
    ROOT, FORMATS = root, os.path.join(root, "src", "formats")


def fail(path, text):
    raise SystemExit(f"{os.path.relpath(path, ROOT)}: {text}")


def is_weight(path):
    return os.path.basename(path).startswith("wtype_")


class Table:
    """A list of f32 by bit patterns."""

    def __init__(self, name, entry):
        self.name, self.macro, self.credit = name, entry["macro"], entry.get("credit")
        self.steps = {int(k): v for k, v in entry.get("steps", {}).items()}
        self.bits = [int(w, 16) for w in entry["bits"].split()]
        self.values = [struct.unpack("<f", struct.pack("<I", b))[0] for b in self.bits]

    def __len__(self):
        return len(self.bits)


class Codes:
    """Where the code of value v lies: bits `shift` .. of the byte (or bytes) at `at`.

    stream: codes follow each other, lowest bit first.  halves: within `span` values, which take span * bits / 8 = `row` bytes, value v
    lies in byte v % row, above the values before it there.  trellis: nine bits at every `step` bits.  trits: 256 codes of 0, 1 and 2 in
    52 bytes, five to a byte, as TQ1_0 has them."""

    def __init__(self, path, spec, values):
        self.at, self.bits, self.order = spec["at"], spec["bits"], spec["order"]
        self.signed, self.step = spec.get("signed", False), spec.get("step")
        self.span = spec.get("span", values)
        self.row = self.span * self.bits // 8
        if self.order not in ("stream", "halves", "trellis", "trits"):
            fail(path, f"codes.order: {self.order}, wanted stream, halves, trellis or trits")
        if self.order == "trits" and (self.bits != 2 or values != 256 or not is_weight(path)):
            fail(path, "codes.order: trits: wanted 256 values of a weight type, 2 bits each")
        self.mask = (1 << self.bits) - 1

    def end(self, values):
        if self.order == "trits":
            return self.at + 52
        per_value = self.step if self.order == "trellis" else self.bits
        return self.at + (values * per_value + 7) // 8


class Card:
    def __init__(self, path, tables):
        with open(path, "rb") as f:
            spec = tomllib.load(f)
        unknown = set(spec) - FIELDS
        if unknown:
            fail(path, f"unknown field {sorted(unknown)[0]}")
        self.path, self.symbol = path, re.sub(r"^wtype_", "", os.path.basename(path)[:-5])
        self.name, self.gguf, self.file_type = spec.get("name", self.symbol), spec.get("gguf"), spec.get("file_type")
        self.values, self.bytes, self.float = spec["values"], spec["bytes"], spec.get("float")
        self.space, self.scale, self.minimum, self.sub = (spec.get(k) for k in ("space", "scale", "minimum", "sub"))
        self.codes = Codes(path, spec["codes"], self.values) if "codes" in spec else None
        self.high = Codes(path, spec["high"], self.values) if "high" in spec else None
        self.grid_spec, self.grid = spec.get("grid"), None     # grid.py: of the table
        self.centre, self.signs, self.residual = spec.get("centre", 0), spec.get("signs", False), spec.get("residual")
        self.norm, self.best = spec.get("norm"), spec.get("best")
        self.page = spec.get("page")                           # page scope: what 64 rows share
        self.integers = INTEGERS.get(spec["integers"]) if "integers" in spec else None
        self.levels, self.boundaries, self.book_signs = (self.table(tables, spec, k) for k in ("levels", "boundaries", "book_signs"))
        self.check(spec)

    def table(self, tables, spec, key):
        if key not in spec:
            return None
        if spec[key] not in tables:
            fail(self.path, f"{key}: no table {spec[key]} in tables.toml")
        return tables[spec[key]]

    def check(self, spec):
        if self.float is not None and FLOATS.get(self.float) != self.bytes:
            fail(self.path, f"float {self.float}: {self.bytes} bytes, wanted {FLOATS.get(self.float)}")
        if sum(x is not None for x in (self.float, self.codes, self.grid_spec)) != 1:
            fail(self.path, "wanted one of float, codes and grid")
        if self.grid_spec is not None and not is_weight(self.path):
            fail(self.path, "a grid: wanted in weight types only")
        if self.scale and self.scale["type"] not in SCALES:
            fail(self.path, f"scale.type: {self.scale['type']}, wanted one of {', '.join(SCALES)}")
        if self.sub and self.sub["type"] not in SUBS:
            fail(self.path, f"sub.type: {self.sub['type']}, wanted one of {', '.join(SUBS)}")
        if self.space is not None and self.space not in SPACES:
            fail(self.path, f"space: {self.space}, wanted one of {', '.join(SPACES)}")
        if self.norm is not None and self.norm not in NORMS:
            fail(self.path, f"norm: {self.norm}, wanted one of {', '.join(NORMS)}")
        if self.best and (set(self.best) != BEST or len(self.best["tries"]) != 8 or len(self.best["centre"]) != 2):
            fail(self.path, f"best: wanted {', '.join(sorted(BEST))}: 8 tries, 2 numbers of the centre")
        if "integers" in spec and self.integers is None:
            fail(self.path, f"integers: {spec['integers']}, wanted one of {', '.join(INTEGERS)}")
        if self.page:
            self.check_page()
        for part in (self.codes, self.high):
            if part and part.end(self.values) > self.bytes:
                fail(self.path, f"codes end at byte {part.end(self.values)} of {self.bytes}")
        if self.levels and self.codes.order != "trellis" and len(self.levels) != 1 << self.bits():
            fail(self.path, f"{len(self.levels)} levels for codes of {self.bits()} bits")
        if self.boundaries and len(self.boundaries) != len(self.levels) - 1:
            fail(self.path, f"{len(self.boundaries)} boundaries between {len(self.levels)} levels")

    def check_page(self):
        """Codes of 64 rows, then their f16 scales, the i8 mean, their start bytes, in 64 records of `bytes`."""
        if self.codes is None or self.codes.order != "trellis" or self.levels is None:
            fail(self.path, "a page: wanted codes of order trellis, and levels")
        at = PAGE_ROWS * (self.codes.end(self.values) - self.codes.at)
        wanted = {"scale": at, "mean": at + 2 * PAGE_ROWS, "start": at + 2 * PAGE_ROWS + self.values}
        if self.page != wanted:
            fail(self.path, f"page: {self.page}, wanted {wanted}")
        if wanted["start"] + PAGE_ROWS != PAGE_ROWS * self.bytes:
            fail(self.path, f"bytes: {self.bytes}, wanted {(wanted['start'] + PAGE_ROWS) // PAGE_ROWS}")

    def bits(self):
        return self.codes.bits + (self.high.bits if self.high else 0)

    def is_symmetric(self):
        return self.levels is not None and all(a == -b for a, b in zip(self.levels.values, reversed(self.levels.values)))

    # What the tensor-core kernels of a device write once for all formats that share it.
    def code_class(self):
        if self.float:
            return {"f32": "NONE", "f16": "HALF", "bf16": "BF16", "e4m3": "FLOAT8"}[self.float]
        if self.signs:
            return "SIGN"
        if self.codes.order == "trellis":
            return "TRELLIS"
        if self.codes.signed and self.bits() == 8:
            return "INT8"
        if self.bits() == 4:
            return "SYM4" if self.is_symmetric() else "LUT4"
        return "LUT3" if self.bits() == 3 else "NONE"

    def code_layout(self):
        if self.float:
            return "PLAIN" if self.float == "e4m3" else "NONE"
        if self.code_class() in ("SIGN", "TRELLIS"):
            return "WORDS"
        if self.code_class() == "NONE":
            return "NONE"
        if self.high:
            return "PLANES"
        if self.bits() == 4:
            return "HALVES" if self.codes.order == "halves" else "SIGNED" if self.residual else "PAIRS"
        return "BYTE" if self.bits() == 8 else "STREAM"


def names_of(path, macro):
    with open(os.path.join(FORMATS, path), encoding="utf-8") as f:
        return re.findall(rf"^{macro}\((\w+)\)", f.read(), re.M)


def find_cards():
    """Paths of the cards by symbol and kind."""
    found = {"cache": {}, "weight": {}}
    for folder, _, files in os.walk(FORMATS):
        for name in files:
            if name.endswith(".toml") and name not in ("tables.toml", "grids.toml"):
                kind = "weight" if name.startswith("wtype_") else "cache"
                found[kind][name[:-5].removeprefix("wtype_")] = os.path.join(folder, name)
    return found


def load():
    """Tables by name; cards of cache formats and of weight types, in the order of formats.def and wtypes.def."""
    with open(os.path.join(FORMATS, "tables.toml"), "rb") as f:
        tables = {name: Table(name, entry) for name, entry in tomllib.load(f).items()}
    found, cards = find_cards(), {}
    for kind, path, macro in (("cache", "formats.def", "KVANT_FORMAT"), ("weight", "weights/wtypes.def", "KVANT_WTYPE")):
        names = names_of(path, macro)
        for name in set(names) ^ set(found[kind]):
            raise SystemExit(f"src/formats/{path}: {name} " + ("has no card" if name in names else f"is missing: {found[kind][name]}"))
        cards[kind] = [Card(found[kind][name], tables) for name in names]
    return tables, cards["cache"], cards["weight"]
