"""Fuzzes one Python target with atheris:  python tests/fuzz/run.py TARGET [libFuzzer options]"""

from __future__ import annotations

import sys
import tempfile
import warnings
from importlib import import_module
from pathlib import Path

TARGETS = ("gguf", "files")


def main() -> None:
    import atheris

    # This script's own folder would hide the gguf package behind the target of that name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    name = sys.argv.pop(1)
    if name not in TARGETS:
        sys.exit(f"found target {name!r}, expected one of {', '.join(TARGETS)}")
    with atheris.instrument_imports(include=["lookup_tools"], enable_loader_override=False):
        check = import_module(f"fuzz.{name}").check
    warnings.simplefilter("error")
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="lookup-fuzz-", dir=memory) as folder:
        atheris.Setup(sys.argv, lambda data: check(data, Path(folder)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
