#!/usr/bin/env python3
"""spirv_khr.py IN.spv OUT.inc: matrices of VK_NV_cooperative_matrix as those of VK_KHR_cooperative_matrix.

Distributions' glslc (2023) knows only the former in GLSL, newer drivers of other makers only the latter; in SPIR-V they differ in
numbers, in the layout (a constant instead of a truth value) and in the use of a matrix, which the newer types have in
them: sums are f32, a left operand has its columns as a constant, a right one as a specialisation constant.  OUT is a list of
words in braces, as `glslc -mfmt=c` writes it.  Standard library only."""
import struct
import sys

CAPABILITY, EXTENSION, TYPE_INT, TYPE_FLOAT, TRUE, FALSE, CONSTANT, SPEC_CONSTANT = 17, 10, 21, 22, 41, 42, 43, 50
NV = {"capability": 5357, "type": 5358, "load": 5359, "store": 5360, "product": 5361, "length": 5362}
KHR = {"capability": 6022, "type": 4456, "load": 4457, "store": 4458, "product": 4459, "length": 4460}
LEFT, RIGHT, SUMS = 0, 1, 2


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    words = struct.unpack(f"<{len(data) // 4}I", data)
    code, i = [], 5
    while i < len(words):
        n = words[i] >> 16
        code.append((words[i] & 0xffff, list(words[i + 1:i + n])))
        i += n
    return list(words[:5]), code


def text(s):
    b = s.encode() + b"\0"
    b += b"\0" * (-len(b) % 4)
    return list(struct.unpack(f"<{len(b) // 4}I", b))


class Module:
    def __init__(self, head, code):
        self.head, self.code, self.out = head, code, []
        self.by_op = {op: [a for o, a in code if o == op] for op in (TYPE_INT, TYPE_FLOAT, TRUE, FALSE, SPEC_CONSTANT)}
        self.uint = next(a[0] for a in self.by_op[TYPE_INT] if a[1:] == [32, 0])
        self.floats = {a[0] for a in self.by_op[TYPE_FLOAT] if a[1] == 32}
        self.chosen = {a[1] for a in self.by_op[SPEC_CONSTANT]}
        self.true = {a[1] for a in self.by_op[TRUE]}
        self.numbers = {}

    def number(self, n):
        """Its constant; the three are made before the first matrix type, behind which no use of them can be."""
        return self.numbers[n]

    def make_numbers(self):
        for n in (LEFT, RIGHT, SUMS):
            self.numbers[n] = self.head[3]
            self.out.append((CONSTANT, [self.uint, self.head[3], n]))
            self.head[3] += 1

    def matrix_type(self, a):
        if not self.numbers:
            self.make_numbers()
        result, part, scope, rows, columns = a
        use = SUMS if part in self.floats else RIGHT if columns in self.chosen else LEFT
        self.out.append((KHR["type"], [result, part, scope, rows, rows if use == RIGHT else columns, self.number(use)]))

    def layout(self, turned):
        return self.number(1 if turned in self.true else 0)        # columns, rows follow each other

    def instruction(self, op, a):
        if op == CAPABILITY and a == [NV["capability"]]:
            self.out.append((op, [KHR["capability"]]))
        elif op == EXTENSION and a == text("SPV_NV_cooperative_matrix"):
            self.out.append((op, text("SPV_KHR_cooperative_matrix")))
        elif op == NV["type"]:
            self.matrix_type(a)
        elif op in (NV["load"], NV["store"]):          # two ids, the stride, whether columns, then how memory is touched
            new = KHR["load"] if op == NV["load"] else KHR["store"]
            at = 3 if op == NV["load"] else 2
            self.out.append((new, a[:at] + [self.layout(a[at + 1]), a[at]] + a[at + 2:]))
        elif op == NV["product"]:
            self.out.append((KHR["product"], a))
        elif op == NV["length"]:
            self.out.append((KHR["length"], a))
        else:
            self.out.append((op, a))

    def translate(self):
        for op, a in self.code:
            self.instruction(op, a)
        words = list(self.head)
        for op, a in self.out:
            words += [(len(a) + 1) << 16 | op] + a
        return words


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: spirv_khr.py IN.spv OUT.inc")
    words = Module(*read(sys.argv[1])).translate()
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write("{" + ",".join(f"0x{w:08x}" for w in words) + "}\n")


main()
