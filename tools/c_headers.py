"""c_headers: the public headers as Python values.  Reads C declarations after the preprocessor, in the plain style of include/kvant:
structs, enums, function types, functions; no bit fields, no nested structs.  A declaration that it does not know is an error.

    api = read_api(["include", "build/release/generated/include"], ["kvant/kvant.h", "kvant/qjl.h"])
    api.functions["kvant_row_decode"].result, .parameters       C texts: "void", [("const kvant_format *", "f"), ...]
    api.structs["kvant_diag"]                                    [Field(type="char", name="text", dims=["256"])], or None: opaque
    api.enums["kvant_error"]                                     {"KVANT_OK": "0", ...}; api.types: typedef name -> C text"""
import collections
import os
import re
import subprocess

Field = collections.namedtuple("Field", "type name dims call")          # call: None, or Function of a pointer to one
Function = collections.namedtuple("Function", "result parameters header")
CALL = re.compile(r"^(?P<result>.+?)\(\s*\*\s*(?P<name>\w*)\s*\)\s*\((?P<parameters>.*)\)$", re.S)


class Api:
    def __init__(self):
        self.functions, self.structs, self.enums, self.types, self.headers = {}, {}, {}, {}, {}


def preprocessed(folders, headers):
    """[(header, text)]: the declarations of our headers alone, without those of the system."""
    source = "".join(f'#include "{h}"\n' for h in headers)
    command = [os.environ.get("CC", "cc"), "-E", "-std=c11", "-xc", "-"] + ["-I" + f for f in folders]
    made = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    kept, header = [], None
    for line in made.splitlines():
        marker = re.match(r'# \d+ "(.*)"', line)
        if marker:
            found = re.search(r"(kvant/[\w.]+|include/qjl\.h)$", marker.group(1))
            header = found.group(1) if found else None
        elif header and line.strip() and not line.startswith("#"):
            kept.append((header, line))
    return kept


def statements(lines):
    """(header, text) of each declaration; bodies of inline functions end one without a semicolon."""
    depth, text, header = 0, "", None
    for header, line in lines:
        for c in line + "\n":
            text += c
            depth += (c == "{") - (c == "}")
            inline = c == "}" and depth == 0 and re.match(r"\s*static inline", text)
            if depth == 0 and (c == ";" or inline):
                yield header, re.sub(r"\s+", " ", text).strip().rstrip(";").strip()
                text = ""
    if text.strip():
        raise ValueError(f"{header}: declaration without an end: {text.strip()[:80]}")


def split_top(text, separator=","):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == separator and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in parts + [text[start:]] if p.strip()]


def declarator(text):
    """"const float *x[4]" -> (type, name, dims)."""
    m = re.match(r"^(?P<type>.*?[\s*])(?P<name>\w+)(?P<dims>(\s*\[[^\]]*\])*)$", text.strip())
    if not m:
        raise ValueError(f"no declaration: {text}")
    return m.group("type").strip(), m.group("name"), [d.strip() for d in re.findall(r"\[([^\]]*)\]", m.group("dims"))]


def parameters_of(text, header):
    found = []
    for p in split_top(text):
        call = CALL.match(p)
        if call:
            found.append((f"{call.group('result').strip()} (*)({call.group('parameters')})", call.group("name")))
        elif p != "void":
            words = re.findall(r"\w+", p)
            named = not p.endswith("*") and len([w for w in words if w not in ("const", "struct", "enum", "unsigned")]) > 1
            kind, name, dims = declarator(p) if named else (p, "", [])
            found.append((kind + (" *" if dims else ""), name))
    return found


def fields_of(body, header):
    fields = []
    for text in split_top(body, ";"):
        call = CALL.match(text)
        if call and not re.match(r"^\w+ \w+\[", text):
            made = Function(call.group("result").strip(), parameters_of(call.group("parameters"), header), header)
            fields.append(Field(None, call.group("name"), [], made))
            continue
        parts = split_top(text)
        kind, name, dims = declarator(parts[0])
        base = kind.rstrip("* ").strip()
        fields.append(Field(kind, name, dims, None))
        for part in parts[1:]:
            stars = part.count("*")
            name = re.search(r"\w+", part).group()
            fields.append(Field(base + (" " + "*" * stars if stars else ""), name, re.findall(r"\[([^\]]*)\]", part), None))
    return fields


def constants_of(body):
    values, last = {}, "-1"
    for part in split_top(body):
        name, _, value = part.partition("=")
        last = value.strip() or f"({last})+1"
        values[name.strip()] = last
    return values


def take(api, header, text):
    m = re.match(r"^(typedef )?struct (\w+) ?\{(.*)\} ?(\w*)$", text)
    if m:
        api.structs[m.group(2)] = fields_of(m.group(3), header)
        api.headers[m.group(2)] = header
        return
    m = re.match(r"^(typedef )?enum ?(\w*) ?\{(.*)\}$", text)
    if m:
        api.enums[m.group(2) or "#" + str(len(api.enums))] = constants_of(m.group(3))
        return
    m = re.match(r"^typedef struct (\w+) (\w+)$", text)
    if m:
        api.structs.setdefault(m.group(1), None)
        return
    m = CALL.match(text.removeprefix("typedef ")) if text.startswith("typedef ") else None
    if m:
        api.types[m.group("name")] = Function(m.group("result").strip(), parameters_of(m.group("parameters"), header), header)
        return
    m = re.match(r"^([^()]*?[\s*])(\w+)\((.*)\)$", text)
    if m and not text.startswith("typedef"):
        api.functions[m.group(2)] = Function(m.group(1).strip(), parameters_of(m.group(3), header), header)
        return
    raise ValueError(f"{header}: unknown declaration: {text[:100]}")


def read_api(folders, headers):
    api = Api()
    for header, text in statements(preprocessed(folders, headers)):
        text = re.sub(r'^extern "C" ?\{?', "", text).strip()
        if text and not text.startswith("static inline"):
            take(api, header, text)
    return api
