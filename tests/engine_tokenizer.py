"""The engine's own tokenizer: libllama of the installed llama-cpp-python, vocabulary only."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import pytest

_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


@functools.cache
def _library() -> Any:
    llama = pytest.importorskip("llama_cpp.llama_cpp", reason="make engines installs it")
    llama.llama_log_set(_SILENT, None)
    llama.llama_backend_init()
    return llama


class EngineTokenizer:
    """``encode(text)`` is what ``llama-tokenize --no-bos`` prints."""

    def __init__(self, path: Path) -> None:
        self._llama = llama = _library()
        options = llama.llama_model_default_params()
        options.vocab_only = True
        self._model = llama.llama_model_load_from_file(str(path).encode(), options)
        if not self._model:
            raise ValueError(f"libllama cannot open {path}")
        self._vocabulary = llama.llama_model_get_vocab(self._model)

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The ids of one text."""
        raw = text.encode()
        room = 8 * len(raw) + 64
        ids = (ctypes.c_int32 * room)()
        count = self._llama.llama_tokenize(
            self._vocabulary, raw, len(raw), ids, room, False, parse_special
        )
        assert count >= 0
        return list(ids[:count])

    def close(self) -> None:
        self._llama.llama_model_free(self._model)
