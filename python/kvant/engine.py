"""Models, engines and sequences: GGUF files in, tokens, log-probabilities and embeddings out.

    engine = kvant.Engine("model.gguf", k="tbq4_0", v="tbq3_0", n_ctx=4096)
    print(engine.generate("Once upon a time", 40).text)

Threads: an engine, its sequences included, belongs to one thread at a time; a model may be shared."""
import ctypes
import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from . import _abi
from ._c import Floats, KvantError, array, call, check, floats, ints, lib

Logits = Literal["none", "last", "all"]
LOGITS: dict[str, int] = {"none": _abi.KVANT_LOGITS_NONE, "last": _abi.KVANT_LOGITS_LAST, "all": _abi.KVANT_LOGITS_ALL}


def log_softmax(logits: Any) -> Floats:
    """Log-probabilities of logits f32[..., n]."""
    x = array(logits, np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    out: Floats = (x - np.log(np.exp(x).sum(axis=-1, keepdims=True))).astype(np.float32)
    return out


class Model:
    """A GGUF file: its shapes and its tokenizer; weights are read by engines.  overrides: texts "KEY=TYPE:VALUE"."""

    def __init__(self, path: str, chat_template: str | None = None, overrides: list[str] | None = None) -> None:
        params = _abi.kvant_model_params()
        lib.kvant_model_params_init(ctypes.byref(params), ctypes.sizeof(params))
        params.path = path.encode()
        params.chat_template = chat_template.encode() if chat_template else None
        texts = [t.encode() for t in overrides or []]
        kept = (ctypes.c_char_p * max(len(texts), 1))(*texts)
        params.overrides, params.n_overrides = ctypes.cast(kept, type(params.overrides)), len(texts)
        self._m = ctypes.c_void_p()
        call("kvant_model_open", ctypes.byref(params), ctypes.byref(self._m))
        self._engines, self._gone = 0, False
        self.path, self.n_vocab, self.n_embd = path, int(self.info.n_vocab), int(self.info.n_embd)
        self.arch = str(self.info.arch.decode())

    @property
    def info(self) -> Any:
        """kvant_model_info: what the file says."""
        info = lib.kvant_model_get_info(self._m).contents
        info._owner = self  # its memory is the model's
        return info

    def tokenize(self, text: str | bytes, bos: bool = True, special: bool = True) -> list[int]:
        """Ids of a text; bos: where the file asks for one; special: control tokens in the text are parsed."""
        data = text.encode() if isinstance(text, str) else text
        flags = (_abi.KVANT_TOK_BOS if bos else 0) | (_abi.KVANT_TOK_SPECIAL if special else 0)
        n, ids = ctypes.c_int(), np.empty(len(data) + 8, np.int32)
        call("kvant_tokenize", self._m, data, len(data), flags, ints(ids), len(ids), ctypes.byref(n))
        return [int(i) for i in ids[:n.value]]

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """Bytes of one token; special: control tokens give their text, else nothing."""
        size = lib.kvant_token_bytes(self._m, token, int(special), None, 0)
        if size < 0:
            raise KvantError(size, f"token {token} found, 0 to {self.n_vocab - 1} wanted")
        text = ctypes.create_string_buffer(size + 1)
        lib.kvant_token_bytes(self._m, token, int(special), text, size)
        return text.raw[:size]

    def detokenize(self, tokens: list[int]) -> str:
        """Text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(t) for t in tokens).decode(errors="replace")

    def is_end(self, token: int) -> bool:
        """Whether this token ends a generation."""
        return bool(lib.kvant_token_is_eog(self._m, token))

    def chat(self, messages: list[dict[str, str]]) -> str:
        """The prompt of messages, [{"role": ..., "content": ...}], through the model's template, an answer begun."""
        kept = (_abi.kvant_chat_msg * len(messages))()
        for c, m in zip(kept, messages):
            c.role, c.content = m["role"].encode(), m["content"].encode()
        text = ctypes.c_char_p()
        call("kvant_chat_format", self._m, kept, len(messages), _abi.KVANT_CHAT_OPEN, ctypes.byref(text))
        out = (text.value or b"").decode(errors="replace")
        lib.kvant_text_free(text)
        return out

    def _close(self) -> None:
        if self._gone and not self._engines and self._m:
            lib.kvant_model_close(self._m)
            self._m = ctypes.c_void_p()

    def __del__(self) -> None:
        if getattr(self, "_m", None):
            self._gone = True  # in a cycle it may go before its engines
            self._close()


@dataclasses.dataclass(frozen=True)
class Completion:
    """tokens that were generated, the end token included; text of them; logprobs: of each, by the model's own distribution;
    finish: "stop" (an end token) or "length"."""

    tokens: list[int]
    text: str
    logprobs: list[float]
    finish: str


class Engine:
    """A model on a device with its paged cache; all memory is taken here.  model: a path or a Model.  k, v: cache formats;
    layers: formats of single layers, "0-1=f16,6=turbo3".  n_ctx: most tokens of a sequence (0: the model's); max_seqs: sequences
    that may live at once.  exact_tail: tokens that stay in f16 (None: 64).  logits_rows: most rows of logits of one step."""

    def __init__(self, model: str | Model, device: str = "cpu", threads: int = 0, n_ctx: int = 0, max_seqs: int = 1, k: str = "f16",
                 v: str | None = None, layers: str | None = None, exact_tail: int | None = None, encoder: str = "best",
                 exact: bool = False, logits_rows: int = 64) -> None:
        self.model = model if isinstance(model, Model) else Model(model)
        p = _abi.kvant_engine_params()
        lib.kvant_engine_params_init(ctypes.byref(p), ctypes.sizeof(p))
        p.device, p.threads, p.n_ctx, p.max_seqs = device.encode(), threads, n_ctx, max_seqs
        p.type_k, p.type_v, p.type_layers = k.encode(), (v or k).encode(), layers.encode() if layers else None
        p.kv_tail = -1 if exact_tail is None else exact_tail
        p.encoder = {"upstream": _abi.KVANT_ENCODER_UPSTREAM, "best": _abi.KVANT_ENCODER_BEST}[encoder]
        p.compute = _abi.KVANT_COMPUTE_F32 if exact else _abi.KVANT_COMPUTE_AUTO
        p.logits_rows = max(logits_rows, max_seqs)
        self._e = ctypes.c_void_p()
        call("kvant_engine_create", self.model._m, ctypes.byref(p), ctypes.byref(self._e))
        self.model._engines += 1
        params = lib.kvant_engine_get_params(self._e).contents
        self.n_ctx, self.max_seqs, self.logits_rows = int(params.n_ctx), int(params.max_seqs), int(params.logits_rows)

    def describe(self) -> str:
        """"CPU (AMD EPYC, 2 threads, avx2)"."""
        text = ctypes.create_string_buffer(256)
        lib.kvant_engine_describe(self._e, text, len(text))
        return text.value.decode(errors="replace")

    def sequence(self) -> "Sequence":
        """A new, empty sequence."""
        at = ctypes.c_int()
        call("kvant_seq_new", self._e, ctypes.byref(at))
        return Sequence(self, at.value)

    def generate(self, prompt: str | list[int], max_tokens: int = 128, temperature: float = 0.0, seed: int = 0, **sampling: Any) -> Completion:
        """Tokens after a prompt, a text or ids; temperature 0: the likeliest ones.  sampling: fields of kvant_sampler_params
        (top_k, top_p, min_p, repeat_penalty, ...).  Ends with an end token, which is kept, or with max_tokens."""
        ids = self.model.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
        tokens, logprobs, finish = [], [], "length"
        with self.sequence() as sequence:
            for token, logprob in sequence.stream(ids, max_tokens, temperature=temperature, seed=seed, **sampling):
                tokens.append(token)
                logprobs.append(logprob)
                if self.model.is_end(token):
                    finish = "stop"
        return Completion(tokens, self.model.detokenize(tokens), logprobs, finish)

    def logprobs(self, prompt: str | list[int]) -> Floats:
        """Log-probabilities of the token after each of the prompt's, f32[n, n_vocab]."""
        ids = self.model.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
        with self.sequence() as sequence:
            return log_softmax(sequence.append(ids, logits="all"))

    def embed(self, text: str | list[int], pooling: Literal["mean", "last"] = "mean", normalize: bool = True) -> Floats:
        """f32[n_embd]: the mean of the hidden states after the output norm, or the last token's; length 1 unless normalize is off."""
        ids = self.model.tokenize(text) if isinstance(text, str) else list(text)
        out = np.empty(self.model.n_embd, np.float32)
        with self.sequence() as sequence:
            sequence._step(ids, _abi.KVANT_LOGITS_HIDDEN)
            mean, last = (floats(out), None) if pooling == "mean" else (None, floats(out))
            check(lib.kvant_seq_hidden(self._e, sequence._at, mean, last), _abi.kvant_diag())
        size = float(np.linalg.norm(out))
        return out / np.float32(size) if normalize and size > 0 else out

    def __del__(self) -> None:
        if getattr(self, "_e", None):
            lib.kvant_engine_free(self._e)
            self._e = ctypes.c_void_p()
            self.model._engines -= 1
            self.model._close()


class Sequence:
    """A timeline of tokens in an engine; a context manager, which frees its pages at the end."""

    def __init__(self, engine: Engine, at: int) -> None:
        self.engine, self._at = engine, at

    def __len__(self) -> int:
        return max(int(lib.kvant_seq_length(self.engine._e, self._at)), 0)

    def __enter__(self) -> "Sequence":
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    @property
    def nbytes(self) -> int:
        """Bytes of its pages, exact tail and state."""
        return int(lib.kvant_seq_cache_bytes(self.engine._e, self._at))

    def free(self) -> None:
        """Gives its pages back; nothing more can be appended."""
        if self._at >= 0:
            lib.kvant_seq_free(self.engine._e, self._at)
            self._at = -1

    def fork(self) -> "Sequence":
        """A second sequence that goes on where this one is; full pages are shared."""
        at = ctypes.c_int()
        call("kvant_seq_fork", self.engine._e, self._at, ctypes.byref(at))
        return Sequence(self.engine, at.value)

    def __del__(self) -> None:
        if getattr(getattr(self, "engine", None), "_e", None):  # in a cycle the engine may go first, with its pages
            self.free()

    def _step(self, tokens: list[int], logits: int, prompt: bool = True) -> None:
        ids = np.asarray(tokens, np.int32)
        item = _abi.kvant_item()
        item.seq, item.tokens, item.n, item.prompt, item.logits = self._at, ints(ids), len(ids), int(prompt), logits
        call("kvant_step", self.engine._e, ctypes.byref(item), 1)

    def _rows(self, n: int) -> Floats:
        rows = [lib.kvant_step_logits(self.engine._e, 0, i) for i in range(n)]
        return np.stack([np.ctypeslib.as_array(r, (self.engine.model.n_vocab,)) for r in rows]).astype(np.float32)

    def append(self, tokens: list[int], logits: Logits = "last") -> Floats:
        """Tokens of a prompt (a piece that more follow ends on a multiple of 64 tokens), or one generated token after it.
        Logits of the last token, f32[n_vocab], or of all, f32[n, n_vocab]; "none": an empty array."""
        if logits == "all":
            piece = max(self.engine.logits_rows // _abi.KVANT_PAGE, 1) * _abi.KVANT_PAGE if self.engine.logits_rows >= _abi.KVANT_PAGE else 0
            if not piece and len(tokens) > self.engine.logits_rows:
                raise ValueError(f"logits of {len(tokens)} tokens wanted, the engine has logits_rows {self.engine.logits_rows}")
            parts = [tokens[i:i + (piece or len(tokens))] for i in range(0, len(tokens), piece or len(tokens))]
            out = []
            for part in parts:
                self._step(part, LOGITS[logits])
                out.append(self._rows(len(part)))
            return np.concatenate(out)
        self._step(tokens, LOGITS[logits])
        row: Floats = self._rows(1)[0] if logits == "last" else np.empty(0, np.float32)
        return row

    def step(self, token: int) -> Floats:
        """A generated token -> logits of the next, f32[n_vocab]."""
        self._step([token], _abi.KVANT_LOGITS_LAST, prompt=False)
        row: Floats = self._rows(1)[0]
        return row

    def stream(self, prompt: list[int], max_tokens: int, temperature: float = 0.0, seed: int = 0, **sampling: Any) -> Iterator[tuple[int, float]]:
        """(token, log-probability) of each generated token; ends after an end token or max_tokens."""
        sampler = _Sampler(self.engine.model, temperature, seed, sampling)
        logits = self.append(prompt) if max_tokens > 0 else np.empty(0, np.float32)
        for i in range(max_tokens):
            token = sampler.pick(logits)
            yield token, float(log_softmax(logits)[token])
            if self.engine.model.is_end(token) or i + 1 == max_tokens:
                return
            logits = self.step(token)


class _Sampler:
    def __init__(self, model: Model, temperature: float, seed: int, fields: dict[str, Any]) -> None:
        p = _abi.kvant_sampler_params()
        lib.kvant_sampler_params_init(ctypes.byref(p), ctypes.sizeof(p))
        p.temp, p.seed = temperature, seed
        known = {f[0] for f in p._fields_ if f[0] != "size"}
        for name, value in fields.items():
            if name not in known:
                raise TypeError(f"sampling: {name} found, one of {sorted(known)} wanted")
            setattr(p, name, value)
        self._s = ctypes.c_void_p()
        call("kvant_sampler_create", ctypes.byref(p), model.n_vocab, ctypes.byref(self._s))

    def pick(self, logits: Floats) -> int:
        token = ctypes.c_int32()
        call("kvant_sampler_pick", self._s, floats(logits), ctypes.byref(token))
        lib.kvant_sampler_accept(self._s, token.value)
        return token.value

    def __del__(self) -> None:
        if getattr(self, "_s", None):
            lib.kvant_sampler_free(self._s)
