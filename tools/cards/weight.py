"""weight.py: what the dialects need to know of a weight type's card: where its small scales lie, and which layout of the CPU's
products holds it (devices/cpu/matmul/matmul_pack.h)."""
from cards.card import INTEGERS, fail

FIELD = {"bit", "bits", "step", "per", "skip"}
SUB = {"values", "at", "type", "low", "high", "centre", "odd", "times"}


class Field:
    """Small numbers in a record: number n has `bits` bits from bit  bit + step * (n % per) + skip * (n / per)  on, lowest bit first."""

    def __init__(self, path, spec):
        if not {"bit", "bits"} <= set(spec) <= FIELD:
            fail(path, f"field {spec}: wanted bit, bits, step and, for two steps, per and skip")
        self.bit, self.bits, self.step = spec["bit"], spec["bits"], spec.get("step", 0)
        self.per, self.skip = spec.get("per"), spec.get("skip", 0)
        if not 1 <= self.bits <= 9:
            fail(path, f"field of {self.bits} bits, wanted 1 to 9")

    def last(self, n):
        """The first bit after number n."""
        at = self.bit + self.step * n if not self.per else self.bit + self.step * (n % self.per) + self.skip * (n // self.per)
        return at + self.bits


def fields_of(card, spec, n):
    """The fields `low` and, if there is one, `high` above it, of n numbers."""
    found = [Field(card.path, spec[k]) for k in ("low", "high") if k in spec]
    for f in found:
        if max(f.last(i) for i in range(n)) > 8 * card.bytes:
            fail(card.path, f"a field ends at bit {max(f.last(i) for i in range(n))} of {8 * card.bytes}")
    return found


def check(card):
    sub, least = card.sub, card.minimum
    if least and set(least) - {"at", "type", "add", "low", "high"}:
        fail(card.path, f"minimum: unknown field {sorted(set(least) - {'at', 'type', 'add', 'low', 'high'})[0]}")
    if least and card.centre:
        fail(card.path, "a minimum and a centre: wanted one of them")
    if not sub:
        return
    if set(sub) - SUB:
        fail(card.path, f"sub: unknown field {sorted(set(sub) - SUB)[0]}")
    if card.values % sub["values"] or sub["values"] not in (16, 32):
        fail(card.path, f"sub.values: {sub['values']}, wanted 16 or 32")
    if sub["type"] == "fields":
        fields_of(card, sub, card.values // sub["values"])
    if least and sub["type"] != "six_bit_pairs" and not fields_of(card, least, card.values // sub["values"]):
        fail(card.path, "minimum: wanted low, where its factors lie")


def sub_range(card):
    """Least and largest factor of a sub-block, before `times`."""
    sub = card.sub
    if sub["type"] == "six_bit_pairs":
        return 0, 63
    if sub["type"] == "i8":
        return -128, 127
    top = (1 << sum(f.bits for f in fields_of(card, sub, 1))) - 1
    return (1, 2 * top + 1) if sub.get("odd") else (-sub.get("centre", 0), top - sub.get("centre", 0))


# ---- the CPU's layouts ----

class Layout:
    """store: how codes lie in a panel and what turns them into signed bytes (byte nibble two three five six; table: 16 levels of up to
    15; wide: 16 levels of a byte).  scales: f16 bf16 f16_min sub part sub_min.  group: values of a scale.  steps: how many products of a
    pair of signed codes with unsigned bytes fit 16 bits (0: none)."""

    def __init__(self, card):
        self.group = card.sub["values"] if card.sub else 32
        self.levels, self.factor = levels_of(card), card.sub.get("times", 1.0) if card.sub else 1.0
        self.scales = self.scale_kind(card)
        self.span = 32 if self.scales == "bf16" else card.values
        self.min = int(self.scales.endswith("min"))
        self.store, self.centre, largest = self.store_of(card)
        self.steps = next((n for n in (8, 4, 2) if 2 * 255 * largest * n <= 32767 and n <= self.group // 4), 0)
        if card.values % 32:
            fail(card.path, f"values: {card.values}, wanted a multiple of 32")

    def scale_kind(self, card):
        top = card.scale["type"] if card.scale else None
        if not card.sub:
            return "bf16" if top == "e8m0_half" else "f16_min" if card.minimum else "f16"
        if card.sub["type"] == "ue4m3_half":
            return "bf16"
        low, high = sub_range(card)
        if low < (0 if card.minimum else -128) or high > (255 if card.minimum else 127):
            fail(card.path, f"sub: factors {low} to {high} do not fit a byte")
        return "sub_min" if card.minimum else "sub" if self.factor == 1.0 else "part"

    def store_of(self, card):
        """Store, what is taken from an unsigned code, and the largest signed code."""
        if self.levels:
            largest = max(abs(v) for v in self.levels)
            return ("table", largest, largest) if largest <= 15 else ("wide", 0, 128)
        if card.grid or card.codes.signed or card.bits() > 6:
            return "byte", 0, 128
        store = {1: "two", 2: "two", 3: "three", 4: "nibble", 5: "five", 6: "six"}[card.bits()]
        return store, card.centre, max(card.centre, (1 << card.bits()) - 1 - card.centre)

    def name(self):
        return f"{self.store}{self.steps}_{self.scales}_{self.group}"


def levels_of(card):
    """The 16 integers that a code indexes, or None."""
    return card.integers
