"""scripted: a model file that says one text.  Each token is followed by one other: the row of the output for the second is the
embedding of the first, and the one layer adds nothing."""
import itertools
import random
import struct

from gguf_edit import ARRAY, BOOL, F32, STRING, U32, key, strings, text, write

WIDTH, END, START = 256, "<|im_end|>", "<|im_start|>"
TEMPLATE = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>{% endif %}")


def alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def array(name, kind, values):
    put = text if kind == STRING else lambda v: struct.pack("<i", v)
    return text(name) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(put(v) for v in values)


def pieces_of(said, size, taken):
    """Of `size` bytes or more: no two are equal, and none is among those taken."""
    data, out = said.encode(), []
    while data:
        n = size
        while n < len(data) and (data[:n] in out + taken or n < 2):
            n += 1
        if data[:n] in out + taken or len(data[:n]) < 2:
            data = out.pop() + data
            n = len(data)
        out.append(data[:n])
        data = data[n:]
    return out


def make(path, said, size=4, template=TEMPLATE, words_of=None):
    """said: the text behind START and behind a newline; or {marker: text}, so that the template chooses by the marker it ends with.
    words_of: a model whose tokens and merges it has too, so that prompts of English have a quarter of the tokens."""
    texts = said if isinstance(said, dict) else {START: said}
    letters, rng = alphabet(), random.Random(3)
    plain = strings(words_of, "tokenizer.ggml.tokens") if words_of else [letters[b] for b in range(256)]
    merges = strings(words_of, "tokenizer.ggml.merges") if words_of else [letters[1] + " " + letters[2]]
    end = len(plain)
    pieces, flat, first = {}, [], end + 1 + len(texts)
    for marker, t in texts.items():
        pieces[marker] = pieces_of(t, size, flat)
        flat += pieces[marker]
    words = plain + [END, *texts] + ["".join(letters[b] for b in p) for p in flat] + ([] if words_of else [letters[1] + letters[2]])
    chain = {} if isinstance(said, dict) else {ord("\n"): first}
    for i, marker in enumerate(texts):
        n = len(pieces[marker])
        chain |= {end + 1 + i: first, **{first + k: first + k + 1 for k in range(n - 1)}, first + n - 1: end}
        first += n
    rows = [[1.0 if b == "1" else -1.0 for b in f"{rng.getrandbits(WIDTH):0{WIDTH}b}"] for _ in words]
    output = [[0.0] * WIDTH for _ in words]
    for a, b in chain.items():
        output[b] = [x + y * 30 / WIDTH for x, y in zip(output[b], rows[a])]
    ones, n = [1.0] * WIDTH, len(words)
    layer = [(f"blk.0.attn_{x}.weight", (WIDTH, WIDTH), [0.0] * WIDTH * WIDTH) for x in ("q", "k", "v", "output")]
    layer += [(f"blk.0.ffn_{x}.weight", s, [0.0] * WIDTH * 32) for x, s in (("gate", (WIDTH, 32)), ("up", (WIDTH, 32)), ("down", (32, WIDTH)))]
    layer += [(f"blk.0.{x}_norm.weight", (WIDTH,), ones) for x in ("attn", "ffn")]
    numbers = {"block_count": 1, "context_length": 4096, "embedding_length": WIDTH, "feed_forward_length": 32, "attention.head_count": 4}
    keys = [key("general.architecture", STRING, "llama"), *(key("llama." + k, U32, v) for k, v in numbers.items()),
            key("llama.attention.layer_norm_rms_epsilon", F32, 1e-6), key("tokenizer.ggml.model", STRING, "gpt2"),
            key("tokenizer.ggml.pre", STRING, "qwen2"), array("tokenizer.ggml.tokens", STRING, words),
            array("tokenizer.ggml.token_type", 5, [1] * end + [3] * (1 + len(texts)) + [1] * (n - end - 1 - len(texts))),
            array("tokenizer.ggml.merges", STRING, merges), key("tokenizer.ggml.eos_token_id", U32, end), key("tokenizer.ggml.add_bos_token", BOOL, False),
            key("tokenizer.chat_template", STRING, template)]
    write(path, keys, [("token_embd.weight", (WIDTH, n), list(itertools.chain(*rows))), ("output.weight", (WIDTH, n), list(itertools.chain(*output))),
                       ("output_norm.weight", (WIDTH,), ones), *layer])
