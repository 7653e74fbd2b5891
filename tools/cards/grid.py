"""grid.py: codes that stand for whole groups of values: an entry of a grid (weights/grids.toml) and signs beside it."""
import os
import tomllib

from cards.card import fail
from cards.weight import Field

PARTS = {"table", "low", "high", "signs", "shift"}


class Grid:
    """Group n of `per` values is the entry of number low[n] (high[n] above it); its words hold `bits` bits of each value: a level.
    signs: bit i of number n is that of value 8n + i, where seven bits are stored the eighth makes their count even.  Or shift: number n, a
    bit, says whether values 8n .. 8n + 7 are one less than their levels or one more."""

    def __init__(self, card, spec, tables):
        if not {"table", "low"} <= set(spec) <= PARTS or ("signs" in spec) == ("shift" in spec):
            fail(card.path, f"grid {spec}: wanted table, low, maybe high, and signs or shift")
        if spec["table"] not in tables:
            fail(card.path, f"grid.table: no table {spec['table']} in grids.toml")
        table = tables[spec["table"]]
        self.name, self.per, self.levels = spec["table"], table["per"], table["levels"]
        self.words = [int(w, 16) for w in table["words"].split()]
        self.bits = 16 // self.per
        self.low, self.high, self.signs, self.shift = (Field(card.path, spec[k]) if k in spec else None for k in ("low", "high", "signs", "shift"))
        index = self.low.bits + (self.high.bits if self.high else 0)
        if 1 << index != len(self.words):
            fail(card.path, f"grid: numbers of {index} bits for {len(self.words)} entries")
        for f, n in ((self.low, card.values // self.per), (self.high, card.values // self.per), (self.signs or self.shift, card.values // 8)):
            if f and max(f.last(i) for i in range(n)) > 8 * card.bytes:
                fail(card.path, f"grid: a field ends after the record's {card.bytes} bytes")

    def index(self):
        return [f for f in (self.low, self.high) if f]

    def padded(self):
        """A level for every number that `bits` bits can be."""
        return (self.levels + [0] * 16)[:1 << self.bits]


def load(formats):
    with open(os.path.join(formats, "weights", "grids.toml"), "rb") as f:
        return tomllib.load(f)


def used(weights):
    """Grids by name, once each."""
    return {w.grid.name: w.grid for w in weights if w.grid}


def numbers(tables):
    """cards/grids.h: the grids as lists for C."""
    out = "#ifndef KVANT_CARDS_GRIDS_H\n#define KVANT_CARDS_GRIDS_H\n\n"
    for name, table in tables.items():
        words = [f"0x{w}" for w in table["words"].split()]
        rows = [", ".join(words[i:i + 12]) for i in range(0, len(words), 12)]
        out += f"#define GRID_{name} \\\n    " + ", \\\n    ".join(rows) + "\n"
        out += f"#define GRID_LEVELS_{name} {', '.join(map(str, table['levels']))}\n"
    return out + "\n#endif\n"
