#!/usr/bin/env python3
"""gen_python: the public headers as ctypes: structs, constants and the types of functions, in one module.

    tools/gen_python.py INCLUDE GENERATED OUT.py        INCLUDE: include/; GENERATED: generated/include of a build folder

python/kvant_build.py runs it when the wheel is made; kvant/_c.py loads the libraries with it.  Attributes of structs have types for
mypy: numbers are int or float, everything else Any."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from abi import public_headers, version      # noqa: E402
from c_headers import Function, read_api      # noqa: E402

PLAIN = {"char": "c_char", "unsigned char": "c_ubyte", "int": "c_int", "unsigned": "c_uint", "float": "c_float", "double": "c_double",
         "size_t": "c_size_t", "uint8_t": "c_uint8", "uint16_t": "c_uint16", "int8_t": "c_int8", "int32_t": "c_int32",
         "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64"}


class Writer:
    def __init__(self, api):
        self.api, self.done, self.lines = api, set(), []

    def kind(self, text):
        """The ctypes expression of a C type."""
        text = re.sub(r"\b(const|struct)\b", "", text).strip()
        stars, base = text.count("*"), text.replace("*", "").strip()
        if "(" in text:
            return "c_void_p"
        if base.startswith("enum "):
            base = "int"
        if base in self.api.types:
            return self.call(self.api.types[base])
        if stars and (base in ("void", "") or stars > 1 or base not in PLAIN and self.api.structs.get(base) is None):
            return "c_void_p" if stars == 1 or base == "void" else f"POINTER({self.kind(base + ' *')})"
        if stars and base == "char":
            return "c_char_p"
        if stars:
            return f"POINTER({self.kind(base)})"
        return "None" if base == "void" else PLAIN.get(base, base)

    def call(self, f):
        return f"CFUNCTYPE({', '.join([self.kind(f.result)] + [self.kind(k) for k, _ in f.parameters])})"

    def field(self, f):
        kind = self.call(f.call) if isinstance(f.call, Function) else self.kind(f.type)
        for dim in reversed(f.dims):
            kind = f"({kind} * ({dim}))"
        return kind

    def hint(self, f):
        kind = self.field(f)
        if re.fullmatch(r"c_(float|double)", kind):
            return "float"
        return "int" if re.fullmatch(r"c_(u?int\w*|size_t|ubyte)", kind) else "Any"

    def needs(self, fields):
        for f in fields:
            for name in re.findall(r"kvant_\w+", str(f.type) + (self.call(f.call) if f.call else "")):
                if self.api.structs.get(name) is not None:
                    yield name

    def struct(self, name):
        if name in self.done:
            return
        self.done.add(name)
        fields = self.api.structs[name]
        for other in self.needs(fields):
            self.struct(other)
        out = ["", "", f"class {name}(Structure):"] + [f"    {f.name}: {self.hint(f)}" for f in fields]
        out += ["    _fields_ = ["] + [f"        (\"{f.name}\", {self.field(f)})," for f in fields] + ["    ]"]
        self.lines += out


def text_of(api, headers, number):
    w = Writer(api)
    w.lines = ['"""Made by tools/gen_python.py of the public headers; do not edit."""',
               f"from ctypes import CFUNCTYPE, POINTER, Structure, {', '.join(sorted(set(PLAIN.values())) + ['c_char_p', 'c_void_p'])}",
               "from typing import Any", "", f"VERSION = {number}"]
    for values in api.enums.values():
        w.lines += [f"{name} = {value}" for name, value in values.items()]
    for name in api.structs:
        if api.structs[name] is not None:
            w.struct(name)
    w.lines += ["", "", "#: name -> (result, parameters)", "FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {"]
    for name, f in api.functions.items():
        w.lines.append(f'    "{name}": ({w.kind(f.result)}, [{", ".join(w.kind(k) for k, _ in f.parameters)}]),')
    return "\n".join(w.lines + ["}", ""])


def main():
    include, generated, out = sys.argv[1:4]
    headers = public_headers(include)
    major, minor = (int(n) for n in version(include).split(" ")[1].split("."))
    made = text_of(read_api([include, generated], headers), headers, major * 100 + minor)
    with open(out, "w", encoding="utf-8") as f:
        f.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
