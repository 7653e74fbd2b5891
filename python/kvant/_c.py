"""The C libraries: loading, errors, arrays.  Private; every call that can fail raises KvantError with the library's sentence."""
import ctypes
import os
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _abi

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "native")
Array = NDArray[Any]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class KvantError(Exception):
    """An error of the library: `code` is its number, `name` its KVANT_E* name."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.name = str(lib.kvant_error_name(code).decode())
        super().__init__(text or str(lib.kvant_error_text(code).decode()))


class Library:
    """Both shared libraries; an attribute is a C function with its types."""

    def __init__(self) -> None:
        names = sorted(n for n in os.listdir(os.path.join(HERE, "lib")) if n.startswith("libkvant") and "cuda" not in n)
        paths = {n.split(".so")[0]: os.path.join(HERE, "lib", n) for n in names}
        formats = ctypes.CDLL(paths["libkvant-formats"])
        engine = ctypes.CDLL(paths["libkvant"])
        for name, (result, parameters) in _abi.FUNCTIONS.items():
            function = getattr(formats if hasattr(formats, name) else engine, name)
            function.restype, function.argtypes = result, parameters
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"libkvant has no function {name}")


lib = Library()
if lib.kvant_version() // 100 != _abi.VERSION:
    raise ImportError(f"libkvant {lib.kvant_version()} found, bindings are of {_abi.VERSION}")


def library_version() -> str:
    """"0.1.0", of the library that is loaded."""
    return str(lib.kvant_version_text().decode().split(" ")[0])


def program() -> str:
    """Path of the program that this package brings."""
    return os.path.join(HERE, "bin", "kvant")


def check(code: int, diag: _abi.kvant_diag) -> int:
    """Raises for a negative code."""
    if code < 0:
        raise KvantError(code, bytes(diag.text).decode(errors="replace"))
    return code


def call(name: str, *arguments: Any) -> int:
    """A function whose last parameter is a kvant_diag."""
    diag = _abi.kvant_diag()
    return check(getattr(lib, name)(*arguments, ctypes.byref(diag)), diag)


def array(x: Any, dtype: DTypeLike) -> Array:
    """x as a contiguous array of dtype: NumPy arrays, DLPack tensors of the CPU (torch's too), sequences.  No copy where it fits."""
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__"):
        x = np.from_dlpack(x.detach() if hasattr(x, "detach") else x)
    out = np.ascontiguousarray(x, dtype=dtype)
    if out.dtype.kind in "iu" and out is not x and not np.array_equal(out, x):
        raise ValueError(f"values found that are no {out.dtype}")
    return out


def pointer(x: Array, kind: Any) -> Any:
    """The address of an array's first value."""
    return x.ctypes.data_as(ctypes.POINTER(kind))


def floats(x: Array) -> Any:
    return pointer(x, ctypes.c_float)


def octets(x: Array) -> Any:
    return pointer(x, ctypes.c_uint8)


def ints(x: Array) -> Any:
    return pointer(x, ctypes.c_int32)


def shown(x: Array, wanted: str) -> ValueError:
    """An error that says which shape came."""
    return ValueError(f"shape {x.shape} found, {wanted} wanted")
