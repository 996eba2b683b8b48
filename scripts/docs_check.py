"""Are the documents true? Generated parts are current, links resolve, commands and options named in
them exist, their examples run (`docs_examples.py`), and the site builds without warnings.

    python scripts/docs_check.py            check everything; problems on stderr, exit 1
    python scripts/docs_check.py --write    write the generated parts of docs/commands.md first
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import docs_reference
from docs_examples import check_examples
from docs_reference import NAMES, ROOT, check_reference, command
from docs_site import check_site

# Options of other programs that the documents mention.
FOREIGN = {
    "--lookup-save": "integrations/llama.cpp",
    "--lookup-save-minutes": "integrations/llama.cpp",
    "--lookup-no-learn": "integrations/llama.cpp",
    "--lookup-n-max": "integrations/llama.cpp",
    "--lookup-chain": "integrations/llama.cpp",
    "--lookup-verify-cost": "integrations/llama.cpp",
    "--lookup-ignore-vocabulary": "integrations/llama.cpp",
    "--build": "cmake",
    "--target": "cmake",
    "--no-deps": "pip",
    "--now": "systemctl",
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
    "--prompt-characters": "scripts/bench_engine.py",
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
    "--port": "llama-server",
    "--spec-draft-n-max": "llama-server",
    "--temp": "llama-lookup",
    "--ngram": "bmoe",
    "--tool": "valgrind",
}


def pages() -> list[Path]:
    """Every document that people read."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


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
    """Commands, options and make targets that the documents mention exist."""
    options = known_options() | set(FOREIGN)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for option in sorted(set(re.findall(r"(?<![\w<!-])--[a-z][a-z0-9-]*\b", text))):
            if option not in options:
                yield f"{shown(page)}: no command has {option}"
        for name in sorted(set(re.findall(r"(?<![\w.-])lookup-([a-z]+)\b", text))):
            if name not in (*NAMES, "tools"):
                yield f"{shown(page)}: there is no command lookup-{name}"
        for name in re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.MULTILINE):
            if name not in targets:
                yield f"{shown(page)}: there is no target for make {name}"


CHECKS = {
    "reference": check_reference,
    "links": check_links,
    "names": check_names,
    "examples": lambda: check_examples(pages()),
    "site": check_site,
}


@click.command()
@click.option("--write", is_flag=True, help="Write the generated parts of docs/commands.md.")
def main(write: bool) -> None:
    """Check the documents against the program."""
    if write:
        docs_reference.write()
    problems = [problem for check in CHECKS.values() for problem in check()]
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise SystemExit(1)
    click.echo(f"{len(pages())} pages: {', '.join(CHECKS)} are fine")


if __name__ == "__main__":
    main()
