"""The only door to the C core: status codes become exceptions, arrays become checked pointers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_tools._core import ffi, lib
from lookup_tools.errors import (
    BuildError,
    ChecksumError,
    FormatError,
    LookupToolsError,
    ParameterError,
    TruncatedError,
)

__all__ = [
    "check",
    "ffi",
    "i32",
    "i64",
    "lib",
    "owned",
    "strerror",
    "u8",
    "u32",
    "u64",
]

Array = npt.NDArray[Any]

_CLASSES: dict[str, type[Exception]] = {
    "LOOKUP_E_ARGUMENT": ParameterError,
    "LOOKUP_E_MEMORY": MemoryError,
    "LOOKUP_E_TRUNCATED": TruncatedError,
    "LOOKUP_E_MAGIC": FormatError,
    "LOOKUP_E_GEOMETRY": FormatError,
    "LOOKUP_E_CHECKSUM": ChecksumError,
    "LOOKUP_E_SPAN": FormatError,
    "LOOKUP_E_ORDER": FormatError,
    "LOOKUP_E_COUNT": FormatError,
    "LOOKUP_E_TOKEN": FormatError,
    "LOOKUP_E_TILING": FormatError,
    "LOOKUP_E_CONSTRUCTION": BuildError,
    "LOOKUP_E_DUPLICATE": FormatError,
    "LOOKUP_E_LIMIT": BuildError,
    "LOOKUP_E_KEYS": FormatError,
    "LOOKUP_E_NGRAM": FormatError,
    "LOOKUP_E_FILE": OSError,
}


def strerror(status: int) -> str:
    """The C core's sentence for a status."""
    return str(ffi.string(lib.lookup_strerror(status)).decode())


def check(status: int, context: str = "") -> None:
    """Raise what a status stands for; `context` says whose fault it is. A format error
    with a context ends with what to do about the file."""
    if status == 0:
        return
    name = ffi.typeof("lookup_status").elements.get(status, "")
    kind = _CLASSES.get(name, LookupToolsError)
    sentence = strerror(status)
    if context and issubclass(kind, FormatError):
        sentence += "; rebuild the file or copy it again"
    raise kind(f"{context}: {sentence}" if context else sentence)


def _pointer(array: Array, dtype: npt.DTypeLike, ctype: str) -> Any:
    # cffi would reinterpret the bytes of a wrong type without a word.
    if array.dtype != np.dtype(dtype) or not array.flags.c_contiguous:
        raise TypeError(f"found {array.dtype} array, expected C-contiguous {np.dtype(dtype)}")
    return ffi.from_buffer(ctype, array)


def i32(array: Array) -> Any:
    """An int32 array as `int32_t *`, alive as long as the result."""
    return _pointer(array, np.int32, "int32_t[]")


def i64(array: Array) -> Any:
    """An int64 array as `int64_t *`."""
    return _pointer(array, np.int64, "int64_t[]")


def u8(array: Array) -> Any:
    """A uint8 array as `uint8_t *`."""
    return _pointer(array, np.uint8, "uint8_t[]")


def u32(array: Array) -> Any:
    """A uint32 array as `uint32_t *`."""
    return _pointer(array, np.uint32, "uint32_t[]")


def u64(array: Array) -> Any:
    """A uint64 array as `uint64_t *`."""
    return _pointer(array, np.uint64, "uint64_t[]")


def owned(
    ctype: str, free: Callable[[Any], None], create: Callable[[Any], int], context: str = ""
) -> Any:
    """An object made by `create(out_pointer)` that `free` releases when Python drops it."""
    out = ffi.new(f"{ctype} **")
    check(create(out), context)
    return ffi.gc(out[0], free)
