"""Attacks on the sidecar of a legacy file."""

from __future__ import annotations

from collections.abc import Iterator

from attacks.parts import META, legacy, sidecar
from attacks.rules import Variant, breaks

DATA = legacy()


@breaks("sidecar-json")
def not_json() -> Iterator[Variant]:
    yield Variant(DATA, b"")
    yield Variant(DATA, b"\xff{}")
    yield Variant(DATA, sidecar(DATA)[:-1])
    yield Variant(DATA, b"[" * 100_000)


@breaks("sidecar-format")
def other_format() -> Iterator[Variant]:
    yield Variant(DATA, sidecar(DATA, format="lookup-tools sidecar 2"))


@breaks("sidecar-files")
def no_files() -> Iterator[Variant]:
    yield Variant(DATA, sidecar(DATA, files=[]))
    yield Variant(DATA, sidecar(DATA, files=[{"size": 1}]))
    for size in (float("inf"), 192.7, "192", -1):
        yield Variant(DATA, sidecar(DATA, size=size))


@breaks("sidecar-meta")
def wrong_meta() -> Iterator[Variant]:
    for meta in ([], "text", 1, False):
        yield Variant(DATA, sidecar(DATA, meta=meta))
    wrong = {"n_ngrams": "6", "kind": None, "options": [], "corpora": [1], "tool": "\ud800"}
    for field, value in wrong.items():
        yield Variant(DATA, sidecar(DATA, meta=META | {field: value}))


@breaks("sidecar-n-pairs")
def other_number_of_pairs() -> Iterator[Variant]:
    for n in (0, META["n_pairs"] + 1, 10**15):
        yield Variant(DATA, sidecar(DATA, meta=META | {"n_pairs": n}))


@breaks("sidecar-size")
def cut_between_records() -> Iterator[Variant]:
    yield Variant(DATA[:-28], sidecar(DATA))
    yield Variant(DATA, sidecar(DATA, size=len(DATA) + 8))


@breaks("sidecar-hash")
def changed() -> Iterator[Variant]:
    changed = DATA[:-4] + b"\2\0\0\0"
    yield Variant(changed, sidecar(DATA))


@breaks("sidecar-vocabulary")
def large_ids() -> Iterator[Variant]:
    yield Variant(DATA, sidecar(DATA, meta=META | {"vocab_size": 9}))
