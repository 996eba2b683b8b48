"""Builds the documentation site: `make site`. Opens from a folder; the search needs a web server,
as `python -m http.server --directory build/site` is one.

Documents stand where a repository browser shows them, in docs/ and beside the README. The site has
them in one folder, so copies are laid out in build/pages first, their links between the two places
rewritten. The first page is docs/index.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"

# What a page may load by itself, a style sheet or a picture, comes from the site.
LOADS = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(https?:[^\"' >]+)")

# Code, in which nothing is a link, or the target of a link.
CODE_OR_LINK = re.compile(r"```.*?```|`[^`\n]*`|\]\(([^)\s]+)\)", re.DOTALL)


def sources() -> dict[Path, str]:
    """Every page with its name on the site."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    # A README.md would be a folder's first page.
    return {page: page.name for page in pages} | {ROOT / "README.md": "overview.md"}


def relinked(text: str, page: Path, names: dict[Path, str]) -> str:
    """The page's text with links to other pages as they are on the site."""

    def target(found: re.Match[str]) -> str:
        name, mark, anchor = (found[1] or "").partition("#")
        there = names.get((page.parent / name).resolve()) if name else None
        return f"]({there}{mark}{anchor})" if there else found[0]

    return CODE_OR_LINK.sub(target, text)


def lay_out() -> None:
    """Fills build/pages."""
    names = sources()
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    for page, name in names.items():
        text = relinked(page.read_text(encoding="utf-8"), page, names)
        (PAGES / name).write_text(text, encoding="utf-8")


def build() -> subprocess.CompletedProcess[str]:
    """Builds build/site; exit code 1 if there is anything to warn of."""
    lay_out()
    # Material for MkDocs says at every start that it ends in May 2027; mkdocs.yml keeps to what its
    # successor reads as well.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # --quiet would undo --strict
    return subprocess.run(
        command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False
    )


def check_site() -> Iterator[str]:
    """What is wrong with the site: warnings of its build, and pages that load from elsewhere."""
    done = build()
    if done.returncode:
        yield f"site: {done.stdout}{done.stderr}"
    for page in sorted(SITE.glob("**/*.html")):
        for address in LOADS.findall(page.read_text(encoding="utf-8")):
            yield f"site: {page.name} loads {address}"


def main() -> None:
    problems = list(check_site())
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"{SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
