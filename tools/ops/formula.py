"""formula.py: the formula of an element-wise op: lines `name = expression`, the last of which gives the one operand that is written.
Every operand stands for its value at the result's place: in the axes that it has (a gate[n] is one value a row), `b[ids]` for that row
of b.  An optional operand that is NULL is 0.  Expressions are C's: ? : == != < <= > >= + - * / and the functions below; whole numbers
and f32 do not mix but by float().  An unknown name or function, or types that do not fit, end the run with the card's path."""
import re

FUNCTIONS = ("exp", "log", "tanh", "sqrt", "abs", "sigmoid", "float")
TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?)|([A-Za-z_]\w*)|(==|!=|<=|>=|[-+*/()<>?:\[\]]))")
LEVELS = (("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/"))
TYPES = {"f": "f32", "i": "a whole number", "b": "a truth"}


class Formula:
    """values: operands that are read, as (name, row's operand or None); lines: (name, type, tree) before the result's; a tree is (type,
    head, parts ...)."""

    def __init__(self, card, text):
        self.card, self.values, self.numbers, self.known = card, [], [], {}
        lines = [line.partition("=") for line in text.strip().split("\n")]
        self.lines = []
        for i, (name, _, expression) in enumerate(lines):
            name, tree = name.strip(), self.parse(expression)
            last = i == len(lines) - 1
            field = card.by_name.get(name)
            if last != (field is not None and field.kind == "operand" and "w" in field.access) or (field and not last):
                self.fail(f"'{name} =': the last line gives an operand that is written, others a new name")
            self.known[name] = tree[0]
            self.lines.append((name, tree[0], tree))
        self.result, kind, self.tree = self.lines.pop()
        if kind != "f":
            self.fail(f"'{self.result} =': {TYPES[kind]}, wanted f32")
        self.copies = self.tree[1] == "value"        # words are moved, whatever they are
        if card.tolerance == "EXACT" and not self.copies and self.inexact(self.tree):
            self.fail("tolerance EXACT: only one + - or * is exact on every device")
        if [f.name for f in card.operands() if "w" in f.access] != [self.result]:
            self.fail(f"one operand may be written: {self.result}")

    def fail(self, text):
        self.card.fail(f"formula: {text}")

    def inexact(self, tree):
        """More than one rounding, or one that is not the same everywhere."""
        return bool(self.lines) or tree[1] not in ("+", "-", "*") or any(part[1] not in ("value", "number", "literal") for part in tree[2:])

    # ---- tokens and trees ----

    def parse(self, text):
        self.text, self.tokens, at = text.strip(), [], 0
        while at < len(text.rstrip()):
            m = TOKEN.match(text, at)
            if not m:
                self.fail(f"'{text.strip()}': '{text[at:].strip()}' is no part of an expression")
            self.tokens.append(m.group(0).strip())
            at = m.end()
        tree = self.choice()
        if self.tokens:
            self.fail(f"'{self.text}': '{self.tokens[0]}' is too much")
        return tree

    def take(self, *wanted):
        if self.tokens and self.tokens[0] in wanted:
            return self.tokens.pop(0)
        return None

    def need(self, token):
        if not self.take(token):
            self.fail(f"'{self.text}': '{token}' is missing")

    def choice(self):
        test = self.level(0)
        if not self.take("?"):
            return test
        yes = self.choice()
        self.need(":")
        yes, no = self.alike(yes, self.choice(), "? :")
        if test[0] != "b":
            self.fail(f"'{self.text}': ? after {TYPES[test[0]]}, wanted a truth")
        return (yes[0], "?", test, yes, no)

    def level(self, at):
        if at == len(LEVELS):
            return self.unary()
        left = self.level(at + 1)
        while op := self.take(*LEVELS[at]):
            left, right = self.alike(left, self.level(at + 1), op)
            left = ("b" if at < 2 else left[0], op, left, right)
        return left

    def unary(self):
        if self.take("-"):
            part = self.unary()
            return (part[0], "minus", part)
        token = self.tokens.pop(0) if self.tokens else ""
        if token == "(":
            tree = self.choice()
            self.need(")")
            return (tree[0], "()", tree)
        if token[:1].isdigit():
            return ("f" if re.search(r"[.e]", token) else "i", "literal", token)
        return self.call(token) if self.tokens[:1] == ["("] else self.name(token)

    def call(self, name):
        self.need("(")
        part = self.choice()
        self.need(")")
        if name not in FUNCTIONS:
            self.fail(f"'{self.text}': {name} is no function, wanted one of {' '.join(FUNCTIONS)}")
        if name != "float":
            part = self.as_float(part)
        if part[0] != ("i" if name == "float" else "f"):
            self.fail(f"'{self.text}': {name} of {TYPES[part[0]]}")
        return ("f", name, part)

    def name(self, name):
        if name in self.known:
            return (self.known[name], "line", name)
        field = self.card.by_name.get(name)
        if field is None or field.kind not in ("operand", "count", "size", "int", "float"):
            self.fail(f"'{self.text}': '{name}' is no field that has a value, and no line before gives it")
        if field.kind != "operand":
            if name not in self.numbers:
                self.numbers.append(name)
            return ("f" if field.kind == "float" else "i", "number", name)
        row = None
        if self.take("["):
            row = self.tokens.pop(0) if self.tokens else ""
            self.need("]")
        if field.type not in ("f32", "i32"):
            self.fail(f"'{name}' is {field.type}, wanted f32 or i32")
        if (name, row) not in self.values:
            self.values.append((name, row))
        return ("f" if field.type == "f32" else "i", "value", name, row)

    def as_float(self, tree):
        """A literal is what stands beside it."""
        if tree[1] == "literal":
            return ("f", "literal", tree[2])
        return ("f", tree[1], self.as_float(tree[2])) if tree[1] in ("minus", "()") and tree[2][1] == "literal" else tree

    def alike(self, a, b, op):
        if "f" in (a[0], b[0]):
            a, b = self.as_float(a), self.as_float(b)
        if a[0] != b[0] or a[0] == "b":
            self.fail(f"'{self.text}': {op} between {TYPES[a[0]]} and {TYPES[b[0]]}")
        return a, b


def write(tree, functions, f32):
    """The tree as text.  functions: how a dialect calls each; f32: what follows its constants."""
    kind, head, *parts = tree
    if head == "literal":
        return parts[0] + ("" if kind == "i" else f32 if re.search(r"[.e]", parts[0]) else ".0" + f32)
    if head in ("line", "number", "value"):
        return f"v_{parts[0]}"
    done = [write(p, functions, f32) for p in parts]
    if head == "()":
        return done[0] if parts[0][1] == "?" else f"({done[0]})"
    if head == "minus":
        return f"-{done[0]}"
    if head == "?":
        return f"({done[0]} ? {done[1]} : {done[2]})"
    return functions.get(head, head + "({})").format(*done) if len(done) == 1 else f"{done[0]} {head} {done[1]}"
