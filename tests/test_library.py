"""liblookup as a stranger uses it: installed, found by pkg-config and CMake, linked by C and C++;
its calls on files, against what Python makes of the same files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from gguf import GGUFReader
from helpers import golden_tokens, run

from lookup_tools import Tokenizer, open_cache, open_tokenizer
from lookup_tools._native import check, ffi, lib

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def tool(name: str) -> str:
    """A program beside the interpreter or in the path; without it the test is skipped."""
    found = shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def succeed(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(
        [str(part) for part in command], text=True, capture_output=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def configure(source: Path, build: Path, *definitions: str) -> None:
    generator = ("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}")
    succeed(tool("cmake"), "-S", source, "-B", build, *generator, *definitions)
    succeed(tool("cmake"), "--build", build)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """liblookup, built without Python and installed."""
    tool("cc")
    folder = tmp_path_factory.mktemp("library")
    # Were Python asked for, this would not be found.
    no_python = ("-DLOOKUP_PYTHON=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON")
    configure(ROOT, folder / "build", *no_python, f"-DCMAKE_INSTALL_PREFIX={folder / 'prefix'}")
    succeed(tool("cmake"), "--install", folder / "build")
    return folder / "prefix"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    golden_tokens("wiki.train1mb")[:60000].astype("<u2").tofile(folder / "text.u16")
    run("create", "--tokens", folder / "text.u16", "-o", folder / "text.lcs", "--quiet")
    return folder / "text.lcs"


@pytest.fixture(scope="module")
def text(cache: Path) -> str:
    return " ".join(map(str, golden_tokens("wiki.train1mb")[50000:56000]))


def library(prefix: Path) -> Path:
    return next(prefix.rglob("liblookup.so"))


def exported(path: Path) -> set[str]:
    lines = succeed(tool("nm"), "-D", "--defined-only", path).splitlines()
    return {line.split()[-1] for line in lines}


def declared(*headers: str) -> set[str]:
    text = "".join((ROOT / "csrc" / name).read_text(encoding="utf-8") for name in headers)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return set(re.findall(r"\b(lookup_\w+)\(", text))


def test_it_exports_what_its_headers_declare_and_nothing_else(prefix: Path) -> None:
    assert exported(library(prefix)) == declared("lookup.cdef.h", "lookup_build.cdef.h")


def test_every_global_of_the_static_library_has_the_prefix(prefix: Path) -> None:
    names = succeed(tool("nm"), "-g", "--defined-only", next(prefix.rglob("liblookup.a")))
    found = {line.split()[-1] for line in names.splitlines() if len(line.split()) == 3}
    assert {name for name in found if not name.startswith("lookup_")} == set()
    assert declared("lookup.cdef.h") <= found


def test_it_is_small_without_the_tokenizer(tmp_path: Path) -> None:
    """An engine has a tokenizer of its own."""
    configure(ROOT, tmp_path / "build", "-DLOOKUP_PYTHON=OFF", "-DLOOKUP_TOKENIZER=OFF")
    built = next((tmp_path / "build").glob("liblookup.so.*.*.*"))
    exported = succeed(tool("nm"), "-D", "--defined-only", built)
    assert "lookup_drafter_new" in exported
    assert "lookup_tokenize" not in exported
    succeed(tool("strip"), "-o", tmp_path / "stripped.so", built)
    assert (tmp_path / "stripped.so").stat().st_size < 200_000


def test_the_version_stands_in_header_package_and_soname(prefix: Path) -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stated = re.findall(r'^version = "(.*)"', pyproject, re.MULTILINE)[0]
    major, minor, patch = (
        getattr(lib, f"LOOKUP_VERSION_{part}") for part in ("MAJOR", "MINOR", "PATCH")
    )
    assert f"{major}.{minor}.{patch}" == stated
    assert lib.lookup_version() == major * 10000 + minor * 100 + patch
    found = succeed(tool("readelf"), "-d", library(prefix))
    assert f"Library soname: [liblookup.so.{major}.{minor}]" in found
    assert f"Version: {stated}\n" in next(prefix.rglob("lookup.pc")).read_text()


def embed(program: Path, cache: Path, text: str, *more: Path) -> str:
    return succeed(program, cache, *more, input=text)


LINE = r"6000 tokens, (\d+) drafted, (\d+) accepted\n"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_pkg_config_builds_the_example_in_c(
    prefix: Path, cache: Path, text: str, tmp_path: Path, compiler: str
) -> None:
    folder = next(prefix.rglob("pkgconfig"))
    environment = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
    flags = succeed(tool("pkg-config"), "--cflags", "--libs", "lookup", env=environment).split()
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    rpath = f"-Wl,-rpath,{library(prefix).parent}"
    source = ROOT / "examples" / "embed.c"
    succeed(tool(compiler), *strict, source, *flags, rpath, "-o", tmp_path / "embed")
    found = re.fullmatch(LINE, embed(tmp_path / "embed", cache, text))
    assert found
    assert 0 < int(found[2]) < int(found[1])


def test_cmake_builds_the_examples_in_c_and_cpp(
    prefix: Path, cache: Path, text: str, tmp_path: Path
) -> None:
    tool("c++")
    configure(ROOT / "examples", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    shared, static = (
        embed(tmp_path / "build" / name, cache, text) for name in ("embed", "embed_static")
    )
    assert re.fullmatch(LINE, shared)
    assert static == shared
    learned = tmp_path / "learned.lcd"
    said = embed(tmp_path / "build" / "embed_cpp", cache, text, learned)
    assert re.fullmatch(r"\d+ accepted in two sequences\n", said)
    run("inspect", learned, "--verify")
    with open_cache(learned) as table:
        assert table.orders == (1, 2, 3, 4)
        assert table.meta is not None
        assert table.meta.kind == "dynamic"


def test_the_example_tells_a_missing_file_in_one_line(
    prefix: Path, cache: Path, tmp_path: Path
) -> None:
    configure(ROOT / "examples", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    program = tmp_path / "build" / "embed"
    done = subprocess.run(
        [program, tmp_path / "none"], input="", text=True, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path / 'none'}: No such file or directory\n"


def test_without_files_it_does_no_input_and_output(tmp_path: Path) -> None:
    tool("cc")
    configure(ROOT, tmp_path / "build", "-DLOOKUP_PYTHON=OFF", "-DLOOKUP_FILES=OFF")
    without = exported(tmp_path / "build" / "liblookup.so")
    calls = {n for n in declared("lookup.cdef.h") if n.startswith("lookup_file_")}
    calls |= {"lookup_table_save", "lookup_adaptive_save", "lookup_adaptive_load"}
    assert without == declared("lookup.cdef.h", "lookup_build.cdef.h") - calls
    used = succeed(tool("nm"), "-D", "--undefined-only", tmp_path / "build" / "liblookup.so")
    system = {"open", "fopen", "read", "write", "mmap", "printf", "puts", "exit", "abort"}
    found = {line.split()[-1].partition("@")[0] for line in used.splitlines()}
    assert found & system == set()


# ---- files, called from here


class RefusedError(Exception):
    """What liblookup said."""


class File:
    """A lookup_file."""

    def __init__(self, path: Path) -> None:
        self.error = ffi.new("lookup_error *")
        out = ffi.new("lookup_file **")
        status = lib.lookup_file_open(os.fsencode(path), out, self.error)
        if status:
            raise RefusedError(ffi.string(self.error.text).decode())
        self.handle = ffi.gc(out[0], lib.lookup_file_close)
        self.info = ffi.new("lookup_file_info *")
        check(lib.lookup_file_get_info(self.handle, self.info))

    def static(self) -> Any:
        out = ffi.new("lookup_static **")
        check(lib.lookup_file_static(self.handle, out, self.error))
        return out[0]

    def table(self) -> Any:
        out = ffi.new("lookup_table **")
        status = lib.lookup_file_table(self.handle, out, self.error)
        check(status, ffi.string(self.error.text).decode())
        return ffi.gc(out[0], lib.lookup_table_free)


@pytest.fixture(scope="module", params=["constmap", "constmap2", "legacy"])
def each(request: pytest.FixtureRequest, cache: Path) -> Path:
    if request.param == "constmap":
        return cache
    path = cache.with_suffix(f".{request.param}")
    run("merge", cache, "-o", path, "--format", request.param, "--quiet")
    return path


def table_bytes(table: Any, path: Path) -> bytes:
    error = ffi.new("lookup_error *")
    status = lib.lookup_table_save(table, os.fsencode(path), 0, 0, ffi.NULL, error)
    check(status, ffi.string(error.text).decode())
    return path.read_bytes()


def test_a_file_says_what_python_reads_in_it(each: Path) -> None:
    info = File(each).info
    with open_cache(each) as known:
        assert known.meta is not None
        assert ("legacy", "constmap", "constmap2")[info.format] == known.format
        assert (info.bytes, info.has_meta) == (known.file_bytes, 1)
        assert (info.n_ngrams, info.n_pairs) == (known.meta.n_ngrams, known.meta.n_pairs)
        assert ffi.string(info.kind).decode() == known.meta.kind


def followers(view: Any, ngram: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    offset, n = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    check(lib.lookup_static_followers(view, int(ngram[0]), int(ngram[1]), offset, n))
    raw = bytes(ffi.buffer(view.entries + 8 * offset[0], 8 * n[0]))
    pairs: list[tuple[int, int]] = [
        (int(token), int(count)) for token, count in np.frombuffer(raw, "<i4").reshape(-1, 2)
    ]
    return pairs


def test_every_format_is_the_same_static_cache(each: Path, cache: Path) -> None:
    file = File(each)
    view = file.static()
    with open_cache(cache) as known:
        block = next(known.blocks(2))
        for ngram in block.ngrams[::97]:
            assert followers(view, ngram) == known.followers(ngram.tolist()).tolist()
        assert followers(view, np.array([1, 2**31 - 1])) == []


def test_every_format_with_keys_is_the_same_table(each: Path, cache: Path, tmp_path: Path) -> None:
    run("merge", cache, "-o", tmp_path / "expected", "--format", "legacy", "--quiet")
    file = File(each)
    if file.info.format == lib.LOOKUP_FORMAT_CONSTMAP:
        pytest.skip("keys of a constmap are walked: see below")
    saved = table_bytes(file.table(), tmp_path / "saved")
    assert saved == (tmp_path / "expected").read_bytes()


def test_the_keys_of_a_connected_constmap_are_walked(tmp_path: Path) -> None:
    stream = np.tile(np.arange(1, 40, dtype="<u2"), 30)
    stream = np.concatenate([stream, np.random.default_rng(1).integers(1, 40, 4000)]).astype("<u2")
    stream.tofile(tmp_path / "t.u16")
    run("create", "--tokens", tmp_path / "t.u16", "-o", tmp_path / "t.lcs", "--no-annex", "--quiet")
    run("create", "--tokens", tmp_path / "t.u16", "-o", tmp_path / "t.lc", "--format", "legacy",
        "--quiet")  # fmt: skip
    file = File(tmp_path / "t.lcs")
    assert file.info.has_meta == 0
    assert table_bytes(file.table(), tmp_path / "saved") == (tmp_path / "t.lc").read_bytes()


def test_a_saved_table_has_a_sidecar_that_fits(each: Path, tmp_path: Path) -> None:
    if each.suffix == ".lcs":
        pytest.skip("keys of a constmap are walked: see above")
    table = File(each).table()
    path, error = tmp_path / "saved.lcd", ffi.new("lookup_error *")
    name = 'a "name"\n\\ 漢'.encode()
    check(lib.lookup_table_save(table, os.fsencode(path), 0xAB12, 60000, name, error))
    with open_cache(path) as saved:
        assert saved.meta is not None
        assert saved.meta.tokenizer == name.decode()
        assert (saved.meta.kind, saved.meta.vocab_size) == ("dynamic", 60000)
        assert saved.meta.n_pairs == saved.n_pairs
    info = File(path).info
    assert (info.vocabulary, info.n_vocab) == (0xAB12, 60000)
    assert ffi.string(info.tokenizer) == name
    # A second save vouches for both, and the pair that a kill between them leaves opens.
    before = path.read_bytes()
    check(lib.lookup_table_update(table, ffi.new("int32_t[]", [5, 6, 7]), 3))
    check(lib.lookup_table_save(table, os.fsencode(path), 0xAB12, 60000, name, error))
    assert len(json.loads(path.with_name("saved.lcd.meta.json").read_text())["files"]) == 2
    assert {p.name for p in tmp_path.iterdir()} == {"saved.lcd", "saved.lcd.meta.json"}
    File(path)
    path.write_bytes(before)
    assert File(path).info.vocabulary == 0xAB12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found an empty file, expected a cache file"),
        (b"GGUF\x03\0\0\0", "found a GGUF model, expected a cache file"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "found a gzip file, expected a cache file"),
        (b"some words\n", "found a text file, expected a cache file"),
        (b"ggngcmap\0\0", "the file's size differs from what its header says"),
        (b"\1\0\0\0" * 7 + b"\1", "at byte 28: "),
    ],
)
def test_what_is_no_cache_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(RefusedError, match=re.escape(message)) as caught:
        File(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_its_sidecar_does_not_know_is_refused(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed"
    run("merge", cache, "-o", path, "--format", "legacy", "--quiet")
    data = bytearray(path.read_bytes())
    data[24] += 1  # a count
    path.write_bytes(data)
    with pytest.raises(RefusedError, match="found other contents than"):
        File(path)
    sidecar = tmp_path / "changed.meta.json"
    for broken in (b"", b"{", b"[]", b'{"files": 1}', sidecar.read_bytes()[:-3]):
        sidecar.write_bytes(broken)
        with pytest.raises(RefusedError, match="found no sidecar of ours"):
            File(path)
    sidecar.unlink()
    assert File(path).info.has_meta == 0


def vocabulary_verdict(file: File, fingerprint: int, n_vocab: int) -> tuple[int, str]:
    verdict = ffi.new("int32_t *")
    file.error.text[0] = b"\0"
    check(lib.lookup_file_check_vocabulary(file.handle, fingerprint, n_vocab, verdict, file.error))
    return verdict[0], ffi.string(file.error.text).decode()


def test_a_file_of_another_vocabulary_is_told(tmp_path: Path) -> None:
    table = ffi.new("lookup_table **")
    check(lib.lookup_table_new(table))
    handle = ffi.gc(table[0], lib.lookup_table_free)
    check(lib.lookup_table_update(handle, ffi.new("int32_t[]", [5, 6, 7, 5, 6, 9]), 6))
    path, error = tmp_path / "t.lcd", ffi.new("lookup_error *")
    check(lib.lookup_table_save(handle, os.fsencode(path), 77, 10, b"ours", error))
    file = File(path)
    assert vocabulary_verdict(file, 77, 10) == (lib.LOOKUP_VOCABULARY_SAME, "")
    for fingerprint, n_vocab in ((78, 10), (77, 11), (0, 11)):
        verdict, message = vocabulary_verdict(file, fingerprint, n_vocab)
        assert verdict == lib.LOOKUP_VOCABULARY_OTHER
        assert "found a cache made with the vocabulary of ours, expected this model's" in message
    assert vocabulary_verdict(file, 0, 10)[0] == lib.LOOKUP_VOCABULARY_UNKNOWN
    # Without metadata, an id outside the vocabulary is enough.
    path.with_name("t.lcd.meta.json").unlink()
    bare = File(path)
    assert vocabulary_verdict(bare, 77, 10)[0] == lib.LOOKUP_VOCABULARY_UNKNOWN
    assert vocabulary_verdict(bare, 77, 9)[0] == lib.LOOKUP_VOCABULARY_OTHER


def test_saving_where_nothing_can_be_written_leaves_nothing(each: Path, tmp_path: Path) -> None:
    if each.suffix == ".lcs":
        pytest.skip("keys of a constmap are walked: see above")
    table, error = File(each).table(), ffi.new("lookup_error *")
    path = tmp_path / "none" / "t.lcd"
    status = lib.lookup_table_save(table, os.fsencode(path), 0, 0, ffi.NULL, error)
    assert status == lib.LOOKUP_E_FILE
    assert ffi.string(error.text).decode().endswith("No such file or directory")
    assert list(tmp_path.iterdir()) == []


# ---- vocabularies


def text_fingerprint(tokens: list[bytes], unused: set[int]) -> str:
    """The rule of lookup.cdef.h, with another XXH64."""
    digest = xxhash.xxh64()
    for i, token in enumerate(tokens):
        digest.update(len(token).to_bytes(4, "little") + token + bytes([i in unused]))
    return digest.hexdigest()


def test_a_text_fingerprint_is_what_the_header_says(gguf: Path) -> None:
    fields = GGUFReader(gguf).fields
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    texts = [bytes(tokens.parts[i]) for i in tokens.data]
    unused = {i for i, kind in enumerate(kinds.contents()) if kind == 5}
    assert open_tokenizer(gguf).text_fingerprint == text_fingerprint(texts, unused)


def test_an_engine_computes_the_same_one_by_one(tokenizer: Tokenizer) -> None:
    """As llama_vocab_get_text and llama_vocab_get_attr give them."""
    vocabulary = tokenizer._vocabulary
    state = ffi.new("lookup_vocabulary *")
    for token, kind in zip(vocabulary.tokens, vocabulary.kinds.tolist(), strict=True):
        raw = token.encode("utf-8", "surrogateescape")
        told = {5: lib.LOOKUP_TOKEN_UNUSED, 6: lib.LOOKUP_TOKEN_BYTE}.get(kind, 0)
        check(lib.lookup_vocabulary_add(state, raw, len(raw), told))
    assert f"{lib.lookup_vocabulary_fingerprint(state):016x}" == tokenizer.text_fingerprint
    assert state.n_tokens == tokenizer.vocab_size


def test_built_files_name_their_texts(model: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the house of the old man " * 20)
    made = [tmp_path / name for name in ("a.lcs", "b.lcd", "c.lcs")]
    source = ("-m", model, "-f", tmp_path / "text", "--quiet", "-o")
    run("create", *source, made[0], "--save-tokens", tmp_path / "t")
    run("create", *source, made[1], "--kind", "dynamic")
    run("create", "--tokens", tmp_path / "t", "--quiet", "-o", made[2])
    run("merge", *made[:2], "--format", "legacy", "--quiet", "-o", tmp_path / "merged")
    for path in (*made, tmp_path / "merged"):
        info = File(path).info
        assert f"{info.vocabulary:016x}" == tokenizer.text_fingerprint, path
        assert info.n_vocab == tokenizer.vocab_size
        assert ffi.string(info.fingerprint).decode() == tokenizer.fingerprint
        assert ffi.string(info.tokenizer).decode() == tokenizer.name


def test_python_refuses_what_an_engine_saved_for_another_vocabulary(
    model: Path, other_model: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Such a file has a text fingerprint only."""
    table = ffi.new("lookup_table **")
    check(lib.lookup_table_new(table))
    handle = ffi.gc(table[0], lib.lookup_table_free)
    check(lib.lookup_table_update(handle, ffi.new("int32_t[]", [5, 6, 7, 5, 6, 9]), 6))
    path, error = tmp_path / "t.lcd", ffi.new("lookup_error *")
    saved = int(tokenizer.text_fingerprint, 16), tokenizer.vocab_size, tokenizer.name.encode()
    check(lib.lookup_table_save(handle, os.fsencode(path), *saved, error))
    run("inspect", path, "-m", model)
    refused = run("inspect", path, "-m", other_model, code=1)
    assert "found a cache made with" in refused.stderr
    (tmp_path / "text").write_text("the house of the old man " * 20)
    for vocabulary, name, code in ((model, "ours", 0), (other_model, "theirs", 1)):
        run("create", "-m", vocabulary, "-f", tmp_path / "text", "--kind", "dynamic", "--quiet",
            "-o", tmp_path / name)  # fmt: skip
        merged = tmp_path / f"{name} and saved"
        run("merge", tmp_path / name, path, "-o", merged, "--quiet", code=code)
    with open_cache(tmp_path / "ours and saved") as both:
        assert both.meta is not None
        assert both.meta.fingerprint == tokenizer.fingerprint
        assert both.meta.text_fingerprint == tokenizer.text_fingerprint
