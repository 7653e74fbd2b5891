"""dialect.py: what C and GLSL write alike, places and packed fields: a dialect is how it writes a number, and its function for a field."""


def shift_of(n):
    assert n & (n - 1) == 0, n
    return n.bit_length() - 1


class Dialect:
    """Expressions, as short as they can be written."""

    def __init__(self, suffix, field):
        self.suffix, self.field = suffix, field

    def number(self, n):
        return f"{n}{self.suffix}"

    def div(self, x, n):
        return x if n == 1 else f"({x} >> {shift_of(n)})"

    def mod(self, x, n):
        return self.number(0) if n == 1 else f"({x} & {self.number(n - 1)})"

    def times(self, k, x):
        return x if k == 1 else f"{self.number(k)} * {x}"

    def field_at(self, field, n):
        """Number n of a field of the record."""
        at = [self.number(field.bit)] if field.bit else []
        if field.per:
            at += [self.times(field.step, self.mod(n, field.per))] if field.step else []
            at += [self.times(field.skip, self.div(n, field.per))]
        elif field.step:
            at += [self.times(field.step, n)]
        return f"{self.field}, {' + '.join(at) or self.number(0)}, {self.number(field.bits)})"

    def number_of(self, fields, n):
        """Number n, whose lowest bits are those of the first field."""
        text, shift = self.field_at(fields[0], n), fields[0].bits
        for f in fields[1:]:
            text, shift = f"{text} | {self.field_at(f, n)} << {shift}", shift + f.bits
        return text


C = Dialect("", "port_field(b")
GLSL = Dialect("u", "field(p, r")
