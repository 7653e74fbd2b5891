"""bound.py: how large a value may be that a record decodes to, whatever bytes it has; values that are not finite aside.  What holds
decoded values in 16 bits asks: a scale that no encoder writes may still come with a file."""
from cards.weight import Field, sub_range

HALF = 65504.0                                       # the largest that an IEEE half holds
FLOATS = {"f16": HALF}                               # the others have more range, or a parameter as their factor
SCALES = {"f16": HALF, "f16_nibbles": HALF}
UE4M3_HALF = 224.0


def largest_code(card):
    if card.grid:
        return max(abs(v) for v in card.grid.levels) + (1 if card.grid.shift else 0)
    if card.signs:
        return 1.0
    if card.integers or card.levels:
        return max(abs(v) for v in card.integers or card.levels.values)
    top = (1 << card.bits()) - 1
    if card.codes.signed:
        return (top + 1) // 2
    if card.codes.order == "trits":
        top = 2
    return max(card.centre, top - card.centre)


def largest_sub(card):
    if not card.sub:
        return 1.0
    if card.sub["type"] == "ue4m3_half":
        return UE4M3_HALF
    return max(abs(v) for v in sub_range(card)) * card.sub.get("times", 1.0)


def largest_minimum(card):
    if not card.minimum:
        return 0.0
    if "low" in card.minimum:
        return HALF * ((1 << sum(Field(card.path, card.minimum[k]).bits for k in ("low", "high") if k in card.minimum)) - 1)
    return HALF * (sub_range(card)[1] if card.sub else 1.0)


def largest(card):
    if card.page:                                    # a mean beside it
        return float("inf")
    if card.float:
        return FLOATS.get(card.float, float("inf"))
    scale = SCALES.get(card.scale["type"], float("inf")) if card.scale else 1.0
    residual = HALF if card.residual else 0.0        # its size is a fraction of a level: not looked at closer
    return scale * largest_sub(card) * largest_code(card) + largest_minimum(card) + residual


def fits_half(card):
    return largest(card) <= HALF
