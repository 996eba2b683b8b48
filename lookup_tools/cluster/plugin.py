"""What is set up on each worker before its first task; imported only where `distributed` is."""

from __future__ import annotations

from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

from lookup_tools.cluster.tasks import install_tokenizer


class Vocabulary(WorkerPlugin):  # type: ignore[misc]
    """Brings a vocabulary to every worker once, those that join later too."""

    idempotent = True

    def __init__(self, fingerprint: str, packed: bytes) -> None:
        self.name = f"lookup-vocabulary-{fingerprint}"
        self._fingerprint, self._packed = fingerprint, packed

    def setup(self, worker: Any) -> None:
        install_tokenizer(self._fingerprint, self._packed)
