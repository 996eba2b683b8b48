"""What starting up may load. Seconds belong to machines; modules are what takes them, so those are
what is budgeted (scripts/dist_check.py measures the seconds)."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest
from helpers import COMMANDS

import lookup_tools

# Never loaded by importing lookup_tools or any of its modules: they are heavy, or optional.
OPTIONAL = ("torch", "transformers", "llama_cpp", "datasets", "matplotlib", "pandas", "pyarrow")
# Not loaded before there is work to do.
HEAVY = (
    *OPTIONAL,
    "lookup_tools._core",
    "numpy",
    "tokenizers",
    "jinja2",
    "tqdm",
    "zstandard",
    "huggingface_hub",
    "asyncio",
    "multiprocessing",
    "email",
    "http",
    "ssl",
    "urllib.request",
    "importlib.metadata",
)
# Modules that --help may load beyond those of an empty Python: click has about 60, we have 7.
HELP_MODULES = 110


def loaded(statement: str) -> set[str]:
    """The modules that a statement loads in a fresh process, which prints nothing else."""
    code = f"""
import contextlib, io, json, sys
before = set(sys.modules)
with contextlib.redirect_stdout(io.StringIO()):
    {statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_next_to_nothing() -> None:
    names = loaded("import lookup_tools")
    foreign = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert foreign == {"lookup_tools"}
    assert [name for name in names if name.startswith("lookup_tools.")] == []
    assert len(names) <= 20, sorted(names)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_click_and_options_only(command: str) -> None:
    names = loaded(
        f"from lookup_tools.cli.{command} import main; main(['--help'], standalone_mode=False)"
    )
    assert "click" in names
    assert [name for name in HEAVY if name in names] == []
    assert len(names) <= HELP_MODULES, f"{len(names)} modules: {sorted(names)}"


def test_no_module_needs_what_is_optional() -> None:
    """Every module can be imported with the declared dependencies alone."""
    found = pkgutil.walk_packages(lookup_tools.__path__, "lookup_tools.")
    names = [each.name for each in found]
    assert len(names) > 60
    imports = "import " + ", ".join(names)
    assert [name for name in OPTIONAL if name in loaded(imports)] == []
