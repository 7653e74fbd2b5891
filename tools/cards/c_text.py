"""c_text.py: what the C decoders of cache formats and of weight types share."""


def plus(x, n):
    return x if n == 0 else f"{x} + {n}"


def stream_helpers(bits):
    """port_leN: the N bytes of eight codes of N bits, little-endian."""
    out = ""
    for n in sorted(bits):
        word = "uint32_t" if n <= 4 else "uint64_t"
        parts = " | ".join(f"({word})p[{i}] << {8 * i}" if i else "p[0]" for i in range(n))
        out += f"PORT_FN {word} port_le{n}(PORT_MEM const uint8_t *p)\n{{\n    return {parts};\n}}\n\n"
    return out
