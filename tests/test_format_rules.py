"""docs/format.md, the attacks and the code: every rule of the page has hostile files that break it,
and they are refused with the error, and at the stage, that the page states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import attacks.gguf
import attacks.tokens
import pytest
from attacks import RULES, Variant
from attacks.parts import annex, constmap, constmap2, legacy, sidecar

from lookup_tools import errors, open_cache, verify_cache
from lookup_tools._native import _CLASSES, check, ffi, lib, strerror
from lookup_tools.errors import LookupToolsError
from lookup_tools.formats import annex as annex_format
from lookup_tools.formats import sidecar as sidecar_format
from lookup_tools.formats import sniff
from lookup_tools.tokenizers import gguf_metadata
from lookup_tools.tokenizers.gguf_metadata import read_metadata
from lookup_tools.tokens import layout, load_tokens, read_token_info

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
    path = folder / variant.name
    path.write_bytes(variant.data)
    beside = folder / "cache.meta.json"
    beside.unlink(missing_ok=True)
    if variant.sidecar is not None:
        beside.write_bytes(variant.sidecar)
    return path


def cache_stages(path: Path) -> Iterator[str]:
    yield "open"
    with open_cache(path) as cache:
        yield "verify"
        verify_cache(cache)


def token_stages(path: Path) -> Iterator[str]:
    yield "open"
    read_token_info(path)
    yield "read"
    load_tokens(path)


def gguf_stages(path: Path) -> Iterator[str]:
    yield "open"
    read_metadata(path)


STAGES = {"cache": cache_stages, "tokens": token_stages, "gguf": gguf_stages}


def refusal(path: Path, door: str = "cache") -> tuple[str, Exception | None]:
    """At what stage a file was refused (or nowhere), and with what."""
    stage = "open"
    try:
        for stage in STAGES[door](path):  # noqa: B007 (the last one reached is the answer)
            pass
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
        stage, error = refusal(path, attack.door if isinstance(attack, Variant) else "cache")
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


def test_the_page_names_the_versions_that_the_code_knows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = next(rows for rows in tables(text) if rows[0][:2] == ["what", "version"])
    said = {row[0]: row[2] for row in table[1:]}
    magics = [sniff.CONSTMAP_MAGIC, sniff.CONSTMAP2_MAGIC]
    assert said["constmap, constmap2"] == ", ".join(f"`{magic.decode()}`" for magic in magics)
    assert said["annex"] == f"`{annex_format.MAGIC.decode()}`"
    assert said["sidecar"] == f"`{sidecar_format._FORMAT}`"
    assert said["token file"] == f"`{layout.MAGIC.decode()}`, then u32 {layout.VERSION}"
    known = " or ".join(map(str, gguf_metadata.VERSIONS))
    assert said["GGUF"] == f"`{gguf_metadata.MAGIC.decode()}`, then u32 {known}"
    for row in table[1:]:  # what is refused is refused by a rule of this page
        assert set(re.findall(r"\(`(.+?)`\)", row[3])) <= set(SPEC)


GOOD = {
    "legacy": Variant(legacy()),
    "legacy with sidecar": Variant(legacy(), sidecar(legacy())),
    "constmap": Variant(constmap()),
    "constmap without annex": Variant(constmap(annex_bytes=b"")),
    "constmap2": Variant(constmap2()),
    "constmap2 with annex": Variant(constmap2(annex_bytes=annex())),
    "tokens": attacks.tokens.tokens(attacks.tokens.file()),
    "GGUF": attacks.gguf.gguf(attacks.gguf.file()),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_good_files_that_attacks_start_from_are_good(name: str, tmp_path: Path) -> None:
    assert refusal(place(tmp_path, GOOD[name]), GOOD[name].door) == ("nowhere", None)


def test_more_entries_than_a_span_can_reach_are_refused() -> None:
    # Such a file has 8 TiB; only its header is looked at before the refusal.
    n = (1 << 40) + 1
    head = b"ggngcmap" + n.to_bytes(8, "little") + (64).to_bytes(8, "little") + bytes(64)
    view, data = ffi.new("lookup_static *"), ffi.from_buffer(head)
    status = lib.lookup_static_open(view, data, 24 + 8 * n + 64)
    assert status == lib.LOOKUP_E_LIMIT
    with pytest.raises(errors.BuildError):
        check(status)
