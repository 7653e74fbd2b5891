"""kvant: compressed key/value caches, and an engine and server over them.

    kvant.formats        rows of any cache format: encode, decode, score (NumPy and DLPack arrays)
    kvant.ops            attention over pages, gated delta rule, causal convolution, on the CPU
    kvant.Engine         GGUF models: tokens, log-probabilities, embeddings
    kvant.serve          the HTTP server, as a process of its own
    kvant.transformers   a Cache for transformers whose layers hold compressed rows
"""
from . import formats, ops
from ._c import KvantError, library_version as version
from .engine import Completion, Engine, Model, Sequence
from .server import Server, serve

__version__ = version()
__all__ = ["Completion", "Engine", "KvantError", "Model", "Sequence", "Server", "formats", "ops", "serve", "version"]
