"""The door to the C core: every status has its exception, and wrong buffers stay outside."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import lookup_tools
from lookup_tools import _native
from lookup_tools._native import check, ffi, i32, lib, owned, strerror, u8, u64
from lookup_tools.drafting.params import CACHE_PARAMS
from lookup_tools.drafting.source import cache_param_values, cache_params
from lookup_tools.errors import LookupToolsError, ParameterError
from lookup_tools.system.workers import run_halves

STATUSES: dict[int, str] = ffi.typeof("lookup_status").elements
FAILURES = sorted((number, name) for number, name in STATUSES.items() if number)


def test_every_status_has_its_own_sentence() -> None:
    sentences = {strerror(number) for number in STATUSES}
    assert len(sentences) == len(STATUSES)
    assert all(sentences)


@pytest.mark.parametrize(("number", "name"), FAILURES)
def test_every_failure_has_a_class(number: int, name: str) -> None:
    expected = _native._CLASSES[name]
    assert issubclass(expected, (LookupToolsError, MemoryError, OSError))
    with pytest.raises(expected, match=re.escape(f"somewhere: {strerror(number)}")):
        check(number, "somewhere")


def test_no_class_without_a_status() -> None:
    assert set(_native._CLASSES) == {name for _, name in FAILURES}


def test_ok_and_unknown_statuses() -> None:
    check(0, "nothing")
    assert strerror(-12345)
    with pytest.raises(LookupToolsError):
        check(-12345)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(4, np.float64),
        np.zeros(4, np.int64),
        np.zeros(4, np.uint32),
        np.zeros(8, np.int32)[::2],
        np.zeros((4, 4), np.int32).T[1:],
        np.zeros(4, ">i4"),
    ],
    ids=["float64", "int64", "uint32", "strided", "transposed", "big-endian"],
)
def test_an_array_of_another_shape_is_refused(array: np.ndarray) -> None:
    with pytest.raises(TypeError, match="expected C-contiguous int32"):
        i32(array)


def test_pointers_see_the_array_itself() -> None:
    array = np.arange(5, dtype=np.int32)
    pointer = i32(array)
    array[2] = 77
    assert list(pointer) == [0, 1, 77, 3, 4]
    assert len(u8(np.empty(0, np.uint8))) == 0
    assert u64(np.array([2**64 - 1], np.uint64))[0] == 2**64 - 1


def test_owned_objects_are_freed_once() -> None:
    freed = []

    def free(pointer: object) -> None:
        freed.append(pointer)
        lib.lookup_table_free(pointer)

    table = owned("lookup_table", free, lib.lookup_table_new)
    ffi.release(table)
    ffi.release(table)
    assert len(freed) == 1


def test_owned_passes_failures_on() -> None:
    with pytest.raises(ParameterError, match="a source"):
        owned(
            "lookup_source", lib.lookup_source_free, lambda out: lib.LOOKUP_E_ARGUMENT, "a source"
        )


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(
    ("results", "expected"), [((0, 0), 0), ((-1, 0), -1), ((0, -2), -2), ((-3, -4), -3)]
)
def test_run_halves_gives_the_first_failure(
    threads: int, results: tuple[int, int], expected: int
) -> None:
    pool = ThreadPoolExecutor(threads) if threads else None
    try:
        assert run_halves(lambda half: results[half], pool) == expected
    finally:
        if pool:
            pool.shutdown()


def test_freeing_nothing_is_harmless() -> None:
    lib.lookup_table_free(ffi.NULL)
    lib.lookup_source_free(ffi.NULL)


def test_closed_views_find_nothing() -> None:
    view = ffi.new("lookup_static *")
    out = ffi.new("uint64_t[2]", [7, 7])
    assert lib.lookup_static_followers(view, 1, 2, out, out + 1) == 0
    assert out[1] == 0
    empty = ffi.new("lookup_map *")
    values, found = ffi.new("uint64_t[1]", [9]), ffi.new("uint8_t[1]", [9])
    assert lib.lookup_map_get_many(empty, [5], 1, values, found) == 0
    assert (values[0], found[0]) == (0, 0)


def test_default_thresholds_are_the_documented_ones() -> None:
    expected = {"static_samples": 2, "static_percent": 50}
    rows = {
        "context_samples": (2, 2, 1, 1),
        "context_percent": (66, 50, 50, 50),
        "dynamic_samples": (4, 3, 2, 2),
        "dynamic_percent": (75, 66, 66, 66),
    }
    for name, values in rows.items():
        expected |= {f"{name}_{k + 1}": value for k, value in enumerate(values)}
    assert cache_param_values({}) == expected


@pytest.mark.parametrize("name", CACHE_PARAMS)
def test_row_22_parameters_at_their_bounds(name: str) -> None:
    """Inside comes back as given, outside is an error."""
    *_, least, largest = CACHE_PARAMS[name]
    for value in (least, least + 1, largest - 1, largest):
        assert cache_param_values({name: value})[name] == value
    for value in (least - 1, largest + 1, -(2**40), 2**40):
        with pytest.raises(
            ParameterError, match=f"{name}: found {value}, expected {least} to {largest}"
        ):
            cache_params({name: value})


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(ParameterError, match="found parameter 'context_sample_1'"):
        cache_params({"context_sample_1": 2})


def test_the_public_names_are_all_there() -> None:
    for name in lookup_tools.__all__:
        assert getattr(lookup_tools, name) is not None
    assert set(lookup_tools.__all__) <= set(dir(lookup_tools))
    with pytest.raises(AttributeError, match="no_such_name"):
        lookup_tools.no_such_name  # noqa: B018


def test_the_core_says_nothing_of_the_machine() -> None:
    """The extension is abi3: one file for all Pythons."""
    from lookup_tools import _core

    assert ".abi3." in Path(_core.__file__).name
