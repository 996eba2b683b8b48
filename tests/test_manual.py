"""Man pages and shell completions: scripts/manual.py makes them, the build installs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import manual
import pytest
from helpers import COMMANDS

FILES = dict(manual.files("1.2.3"))
PROGRAMS = Path(sys.executable).parent


def test_every_command_has_all_of_them() -> None:
    assert len(FILES) == len(COMMANDS) * (1 + len(manual.COMPLETIONS))
    for command in COMMANDS:
        assert f"share/man/man1/lookup-{command}.1" in FILES


def page(command: str) -> str:
    return FILES[f"share/man/man1/lookup-{command}.1"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_has_every_option(command: str) -> None:
    text = page(command).replace("\\-", "-").replace("\\fR", "").replace("\\fB", "\n")
    for param in COMMANDS[command].params:
        if isinstance(param, click.Option):
            for name in (*param.opts, *param.secondary_opts):
                assert re.search(rf"^{re.escape(name)}\b", text, re.MULTILINE), name
    assert 'lookup-tools 1.2.3" ' in page(command)
    requests = {line.split(" ")[0] for line in page(command).splitlines() if line[:1] in {".", "'"}}
    assert requests <= {".TH", ".SH", ".TP", ".PP", ".nf", ".fi"}


def test_roff_takes_text_literally() -> None:
    assert manual.roff("a\\n -x\n'y' `~^`") == "a\\en \\-x \\(aqy\\(aq \\(ga\\(ti\\(ha\\(ga"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_pages_render_without_a_warning(command: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-P-c", "-rLL=100n"],
        input=page(command),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    said = re.sub(".\b", "", done.stdout)  # bold is a letter twice
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES"):
        assert f"\n{heading}\n" in said
    example = (COMMANDS[command].epilog or "").removeprefix("Example: ")
    assert example in said


def completions(shell: str, command: str) -> str:
    return FILES[manual.COMPLETIONS[shell].format(name=f"lookup-{command}")]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.skipif(
    not (PROGRAMS / "lookup-create").exists(), reason="the commands are not installed beside Python"
)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["lookup-create", "--for"], ["--format", "--force"]),
        (["lookup-create", "--kind", ""], ["static", "dynamic", "context"]),
        (["lookup-stats", "--tune-"], ["--tune-text"]),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], expected: list[str]) -> None:
    (tmp_path / "completion").write_text(completions("bash", words[0].removeprefix("lookup-")))
    function = f"_{words[0].replace('-', '_')}_completion"
    script = (
        f"source completion; COMP_WORDS=({' '.join(word or repr('') for word in words)}); "
        f'COMP_CWORD={len(words) - 1}; {function} {words[0]}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (expected, "")


@pytest.mark.parametrize("shell", manual.COMPLETIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_completions_are_what_the_command_itself_gives(shell: str, command: str) -> None:
    """The way that works without installed files: _LOOKUP_CREATE_COMPLETE=bash_source."""
    done = subprocess.run(
        [sys.executable, "-c", ENTRY.format(command=command)],
        env={**os.environ, f"_LOOKUP_{command.upper()}_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == completions(shell, command).strip()


ENTRY = (
    "import sys; sys.argv[0] = 'lookup-{command}'; "
    "from lookup_tools.cli.{command} import main; main()"
)


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "-n")])
def test_completions_are_programs_of_their_shell(tmp_path: Path, shell: str, check: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    for command in COMMANDS:
        (tmp_path / "script").write_text(completions(shell, command))
        subprocess.run([shell, check, tmp_path / "script"], check=True)
