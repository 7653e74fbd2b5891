"""gguf_edit: a copy of a GGUF file with more keys and more f32 tensors: fixtures of what the small models do not have."""
import struct

U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGN = 32


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def key(name, kind, value):
    value = text(value) if kind == STRING else struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)
    return text(name) + struct.pack("<I", kind) + value


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value[0] if len(value) == 1 else value

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            of, n = self.take("IQ")
            for _ in range(n):
                self.skip(of)
        else:
            self.at += SIZES[kind]


def padded(data):
    return data + b"\0" * (-len(data) % ALIGN)


def tensors_of(r, n):
    """{name: shape} of the n tensors that r stands before."""
    shapes = {}
    for _ in range(n):
        name = r.text().decode()
        shapes[name] = [r.take("Q") for _ in range(r.take("I"))]
        r.take("IQ")
    return shapes


def head_of(path):
    """A reader before the first tensor, and version, keys as they stand, their number, tensors."""
    with open(path, "rb") as f:
        r = Reader(f.read())
    _, version, n_tensors, n_keys = r.take("IIQQ")
    first = r.at
    for _ in range(n_keys):
        r.text()
        r.skip(r.take("I"))
    return r, version, r.data[first:r.at], n_keys, n_tensors


def lengths(path):
    """{name: shape} of a file's tensors."""
    r, _, _, _, n = head_of(path)
    return tensors_of(r, n)


def strings(path, wanted):
    """The texts of a key that is an array of them."""
    with open(path, "rb") as f:
        r = Reader(f.read())
    for _ in range(r.take("IIQQ")[3]):
        name, kind = r.text().decode(), r.take("I")
        if name == wanted:
            return [r.text().decode() for _ in range(r.take("IQ")[1])]
        r.skip(kind)
    raise KeyError(wanted)


def keys_of(path, prefix):
    """The keys whose names begin so, as key() would give them."""
    with open(path, "rb") as f:
        r = Reader(f.read())
    out = []
    for _ in range(r.take("IIQQ")[3]):
        begin, name = r.at, r.text().decode()
        r.skip(r.take("I"))
        if name.startswith(prefix):
            out.append(r.data[begin:r.at])
    return out


def architecture(path):
    with open(path, "rb") as f:
        r = Reader(f.read())
    for _ in range(r.take("IIQQ")[3]):
        name, kind = r.text(), r.take("I")
        if name == b"general.architecture":
            return r.text().decode()
        r.skip(kind)
    return ""


def edit(source, target, keys=(), tensors=()):
    """keys: of key(); tensors: (name, shape with the fastest index first, values)."""
    r, version, ours, n_keys, n_tensors = head_of(source)
    infos_at = r.at
    tensors_of(r, n_tensors)
    infos, data = r.data[infos_at:r.at], padded(r.data[r.at + (-r.at % ALIGN):])
    put(target, version, (ours, n_keys), keys, (infos, n_tensors, data), tensors)


def write(target, keys, tensors):
    """A file of nothing else."""
    put(target, 3, (b"", 0), keys, (b"", 0, b""), tensors)


def put(target, version, ours, keys, theirs, tensors):
    infos, n_tensors, data = theirs
    for name, shape, values in tensors:
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += padded(struct.pack(f"<{len(values)}f", *values))
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors + len(tensors), ours[1] + len(keys)) + ours[0] + b"".join(keys)
    with open(target, "wb") as f:
        f.write(padded(head + infos) + data)


def fill(source, target, name, value):
    """A copy whose f32 tensor `name` has this value everywhere."""
    r, _, _, _, n_tensors = head_of(source)
    spots = {}
    for _ in range(n_tensors):
        tensor = r.text().decode()
        count = 1
        for _ in range(r.take("I")):
            count *= r.take("Q")
        kind, offset = r.take("IQ")
        spots[tensor] = kind, offset, count
    kind, offset, count = spots[name]
    assert kind == 0, f"{name}: type {kind}, wanted f32"
    at = r.at + (-r.at % ALIGN) + offset
    with open(target, "wb") as f:
        f.write(r.data[:at] + struct.pack("<f", value) * count + r.data[at + 4 * count:])
