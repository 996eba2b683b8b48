"""docs/format.md, the attacks and the code: every rule of the page has hostile files that break it,
and they are refused with the error, and at the stage, that the page states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from attacks import RULES, Variant
from attacks.parts import annex, constmap, constmap2, legacy, sidecar

from lookup_tools import errors, open_cache, verify_cache
from lookup_tools._native import _CLASSES, check, ffi, lib, strerror
from lookup_tools.cache import ConstmapCache
from lookup_tools.errors import LookupToolsError

PAGE = Path(__file__).parents[1] / "docs" / "format.md"
STATUSES = {name: number for number, name in ffi.typeof("lookup_status").elements.items()}


class Rule(NamedTuple):
    """What the page says of a rule."""

    error: str
    refused_by: str


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> Iterator[list[list[str]]]:
    for found in re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = found[0].splitlines()
        yield [cells(head), *map(cells, rows)]


def read_page() -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for head, *rows in tables(PAGE.read_text(encoding="utf-8")):
        if "rule" not in head:
            continue
        for row in rows:
            named = dict(zip(head, row, strict=True))
            if not named["rule"]:
                continue
            name = named["rule"].strip("`")
            assert name not in rules, f"{name} stands twice in format.md"
            error = re.match(r"`(\w+)`", named["error"])
            assert error, f"{name}: no error in format.md"
            rules[name] = Rule(error[1], named["refused by"])
    return rules


SPEC = read_page()


def place(folder: Path, attack: bytes | Variant) -> Path:
    variant = attack if isinstance(attack, Variant) else Variant(attack)
    path = folder / "cache"
    path.write_bytes(variant.data)
    beside = folder / "cache.meta.json"
    beside.unlink(missing_ok=True)
    if variant.sidecar is not None:
        beside.write_bytes(variant.sidecar)
    return path


def refusal(path: Path) -> tuple[str, Exception | None]:
    """Where a file was refused (open, verify or nowhere), and with what."""
    stage = "open"
    try:
        with open_cache(path) as cache:
            stage = "verify"
            verify_cache(cache)
    except Exception as error:
        return stage, error
    return "nowhere", None


def names_of(error: Exception | None) -> set[str]:
    """The names a page may call an error by: its class and, by their sentences, C statuses."""
    if error is None:
        return set()
    statuses = {
        name for name, number in STATUSES.items() if number and strerror(number) in str(error)
    }
    return {type(error).__name__} | {n for n in statuses if _CLASSES[n] is type(error)}


def test_the_page_and_the_attacks_name_the_same_rules() -> None:
    assert set(SPEC) == set(RULES)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_an_attack_is_refused_as_the_page_says(rule: str, tmp_path: Path) -> None:
    n = 0
    for n, attack in enumerate(RULES[rule](), 1):
        path = place(tmp_path, attack)
        stage, error = refusal(path)
        said = f"{rule}, variant {n}: {stage}, {error!r}"
        assert isinstance(error, LookupToolsError), said
        assert SPEC[rule].error in names_of(error), said
        assert stage == SPEC[rule].refused_by, said
        assert str(path) in str(error), said
    assert n, f"{rule}: no variants"


def test_every_status_of_the_core_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"LOOKUP_E_[A-Z0-9]+", text)) == set(STATUSES) - {"LOOKUP_OK"}


def test_every_error_on_the_page_exists() -> None:
    named = {rule.error for rule in SPEC.values()}
    assert {name for name in named if not name.startswith("LOOKUP_E_")} <= set(dir(errors))


GOOD = {
    "legacy": Variant(legacy()),
    "legacy with sidecar": Variant(legacy(), sidecar(legacy())),
    "constmap": Variant(constmap()),
    "constmap without annex": Variant(constmap(annex_bytes=b"")),
    "constmap2": Variant(constmap2()),
    "constmap2 with annex": Variant(constmap2(annex_bytes=annex())),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_good_files_that_attacks_start_from_are_good(name: str, tmp_path: Path) -> None:
    assert refusal(place(tmp_path, GOOD[name])) == ("nowhere", None)


@pytest.mark.parametrize("name", GOOD)
def test_every_prefix_is_refused(name: str, tmp_path: Path) -> None:
    good = GOOD[name]
    accepted = []
    for size in range(len(good.data)):
        stage, error = refusal(place(tmp_path, Variant(good.data[:size], good.sidecar)))
        assert error is None or isinstance(error, LookupToolsError), (size, error)
        if error is None or stage != "open":
            accepted.append(size)
    # Pitfall 8: without a sidecar nothing tells a legacy file cut between two records from a
    # whole one.
    boundaries = [36, 64, 108, 136, 164] if name == "legacy" else []
    assert accepted == boundaries


def unproved_bytes(name: str, data: bytes) -> set[int]:
    """Bytes that format.md says no check covers."""
    if name == "legacy":
        return set(range(len(data)))
    free: set[int] = set()
    if data.startswith(b"ggngcm") and "without annex" not in name and name != "constmap2":
        text = data.index(b'{"kind"')
        free |= set(range(text, data.index(b"}", data.index(b'"options"')) + 30))
        end = data.rindex(b"ltannex1")
        free |= set(range(end, end + 8))  # without the tail's magic there is no annex
    else:
        free |= set(range(24, 32 + 8 * 9))  # entries that no checksum covers
    return free


def masks(at: int) -> tuple[int, ...]:
    """All kinds of changes in headers; behind them one a byte: the sign bit of ids, small steps."""
    return (0x01, 0x80, 0xFF) if at < 32 else (0x80,) if at % 2 else (0x01,)


@pytest.mark.parametrize("name", GOOD)
def test_every_single_byte_change_is_refused_or_answers_safely(name: str, tmp_path: Path) -> None:
    good = GOOD[name]
    accepted = set()
    for at in range(len(good.data)):
        for mask in masks(at):
            data = bytearray(good.data)
            data[at] ^= mask
            path = place(tmp_path, Variant(bytes(data), good.sidecar))
            _, error = refusal(path)
            assert error is None or isinstance(error, LookupToolsError), (at, mask, error)
            if error is None:
                accepted.add(at)
            use(path)
    if good.sidecar:
        assert not accepted
    assert accepted <= unproved_bytes(name, good.data)


def use(path: Path) -> None:
    """Read everything a file that opens will give; errors of ours are fine."""
    try:
        with open_cache(path) as cache:
            for t0 in range(6):
                for t1 in range(6):
                    cache.followers([t0, t1])
            if not isinstance(cache, ConstmapCache) or cache.has_keys:
                for order in cache.orders:
                    list(cache.blocks(order))
    except LookupToolsError:
        pass


def test_more_entries_than_a_span_can_reach_are_refused() -> None:
    # Such a file has 8 TiB; only its header is looked at before the refusal.
    n = (1 << 40) + 1
    head = b"ggngcmap" + n.to_bytes(8, "little") + (64).to_bytes(8, "little") + bytes(64)
    view, data = ffi.new("lookup_static *"), ffi.from_buffer(head)
    status = lib.lookup_static_open(view, data, 24 + 8 * n + 64)
    assert status == lib.LOOKUP_E_LIMIT
    with pytest.raises(errors.BuildError):
        check(status)
