"""Outputs are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lookup_tools.errors import LookupToolsError, ParameterError
from lookup_tools.system.atomic import atomic_output, check_overwrite
from lookup_tools.system.signals import terminate_cleanly


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def write(path: Path, data: bytes, *, force: bool = False) -> None:
    with atomic_output(path, force=force) as file:
        file.write(data)


def test_the_file_appears_only_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with atomic_output(path) as file:
        file.write(b"x" * 3_000_000)
        assert not path.exists()
        (temporary,) = names(tmp_path)
        assert temporary.startswith(f".out.{os.getpid()}.")
        assert temporary.endswith(".tmp")
    assert path.stat().st_size == 3_000_000
    assert names(tmp_path) == ["out"]


def test_an_existing_file_is_kept_without_force(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(ParameterError, match="out exists: choose another name or pass --force"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    write(path, b"new", force=True)
    assert path.read_bytes() == b"new"


def test_a_file_that_appears_meanwhile_is_kept_without_force(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def race() -> None:
        with atomic_output(path) as file:
            file.write(b"ours")
            path.write_bytes(b"theirs")

    with pytest.raises(LookupToolsError, match="exists"):
        race()
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EXDEV])
def test_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As on FAT and some network file systems."""

    def refuse(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "out"
    write(path, b"new")
    assert path.read_bytes() == b"new"

    def race() -> None:
        with atomic_output(tmp_path / "other") as file:
            file.write(b"ours")
            (tmp_path / "other").write_bytes(b"theirs")

    with pytest.raises(ParameterError, match="other exists"):
        race()
    assert (tmp_path / "other").read_bytes() == b"theirs"
    assert names(tmp_path) == ["other", "out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_any_exception_leaves_the_old_file_and_no_temporary(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def fail() -> None:
        with atomic_output(path, force=True) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out"]


def test_new_files_obey_the_umask_and_replaced_ones_keep_their_mode(tmp_path: Path) -> None:
    path = tmp_path / "out"
    previous = os.umask(0o027)
    try:
        write(path, b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        write(path, b"2", force=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(previous)


def test_a_symbolic_link_keeps_pointing_where_it_does(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "real"
    link = tmp_path / "link"
    link.symlink_to(target)
    write(link, b"data")
    assert link.is_symlink()
    assert target.read_bytes() == b"data"


def test_a_mapped_file_survives_its_replacement(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write(path, b"new", force=True)
        assert reader.read() == b"old"


def test_long_names_fit_the_directory(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 120)
    write(path, b"data")
    assert path.read_bytes() == b"data"


@pytest.mark.parametrize("size", [10, 5_000_000])
def test_row_09_a_full_device_is_an_error_naming_it(size: int) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write(Path("/dev/full"), b"x" * size)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == "/dev/full"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a tmpfs needs privileges")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_row_09_a_full_disk_leaves_no_partial_file(tmp_path: Path) -> None:
    with small_disk(tmp_path) as folder:
        path = folder / "out"
        with pytest.raises(OSError, match="No space left") as caught:
            write(path, b"x" * 3_000_000)
        assert caught.value.filename == str(path)
        assert names(folder) == []


def test_an_error_of_another_file_keeps_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, atomic_output(tmp_path / "out"):
        (tmp_path / "absent").read_bytes()
    assert caught.value.filename == str(tmp_path / "absent")


def test_missing_folders_and_folders_are_os_errors_naming_the_output(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "out"
    with pytest.raises(FileNotFoundError) as caught:
        write(path, b"")
    assert caught.value.filename == str(path)
    with pytest.raises(IsADirectoryError):
        write(tmp_path, b"")


def test_devices_and_pipes_are_written_to_directly(tmp_path: Path) -> None:
    write(Path("/dev/null"), b"gone")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"through")
    reader.join(10)
    assert received == [b"through"]
    assert names(tmp_path) == ["pipe"]


def test_check_overwrite_lets_devices_and_new_names_pass(tmp_path: Path) -> None:
    check_overwrite(tmp_path / "new", force=False)
    check_overwrite("/dev/null", force=False)


def test_terminate_cleanly_restores_the_handlers() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def work() -> None:
        with terminate_cleanly():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)

    with pytest.raises(SystemExit) as caught:
        work()
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_terminate_cleanly_does_nothing_in_other_threads() -> None:
    done: list[bool] = []

    def work() -> None:
        with terminate_cleanly():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


WRITER = """
import sys, time
from lookup_tools.system.atomic import atomic_output
from lookup_tools.system.signals import terminate_cleanly
with terminate_cleanly(), atomic_output(sys.argv[1], force=True) as file:
    file.write(b"x" * 2_000_000)
    print("ready", flush=True)
    time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_writer_leaves_the_old_file(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(10) != 0
    assert path.read_bytes() == b"old"
    if number != signal.SIGKILL:
        assert names(tmp_path) == ["out"]
    write(path, b"new", force=True)
    assert path.read_bytes() == b"new"
