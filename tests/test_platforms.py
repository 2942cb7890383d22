"""What other platforms lack is taken away in a fresh process, in which the core of the tests must pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from polyformer import machine, system

ROOT = Path(__file__).parents[1]
CORE = ["tests/stores/test_directory.py", "tests/stores/test_rows.py", "tests/stores/test_ahead.py", "tests/inputs"]
CORE += ["tests/files/test_seals.py", "tests/test_old_versions.py", "tests/smoke/test_every_verb.py"]
CORE += ["tests/propagation/test_disk.py"]


@pytest.mark.slow
def test_the_core_passes_without_posix() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.without_posix", "-p", "no:cacheprovider"]
    full_disk = "tests/stores/test_directory.py::test_full_disk_leaves_what_is_done"  # by a function that is gone
    done = subprocess.run(
        [*command, "-m", "not ray", "--deselect", full_disk, *CORE], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_every_test_can_be_collected_without_posix() -> None:
    """The matrix runs on Windows too, where an import at the head of one helper would end all tests."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.without_modules", "tests"]
    done = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.delattr(os, name, raising=False)


def test_bytes_are_read_at_a_position_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    for missing in ((), ("preadv",), ("preadv", "pread")):
        without(monkeypatch, *missing)
        with path.open("rb") as file:
            room = memoryview(bytearray(4))
            assert system.read_at(file.fileno(), room, 3) == 4
            assert bytes(room) == b"3456"
            assert system.read_at(file.fileno(), room, 8) == 2
            assert system.read_at(file.fileno(), room, 10) == 0


def test_an_empty_directory_is_replaced_where_renaming_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def refusing(source: Path, target: Path) -> None:
        if target.exists():
            raise FileExistsError(17, "File exists")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refusing)
    (tmp_path / "new").mkdir()
    (tmp_path / "place").mkdir()
    system.rename_directory(tmp_path / "new", tmp_path / "place")
    assert not (tmp_path / "new").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "place" / "file").touch()
    with pytest.raises(FileExistsError):
        system.rename_directory(tmp_path / "other", tmp_path / "place")


def test_directories_that_cannot_be_opened_are_not_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()

    def refusing(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refusing)
    system.sync(tmp_path)
    with pytest.raises(PermissionError):
        system.sync(tmp_path / "file")


def test_a_child_is_interrupted() -> None:
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # also where this process ignores it
    program = f"import time, signal; {heard}; print('there', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, **system.CHILD_OPTIONS)
    assert child.stdout is not None
    child.stdout.readline()
    system.interrupt(child)
    assert child.wait(20) == -signal.SIGINT
    system.interrupt(child)  # it has ended: nothing happens
    child.stdout.close()


def test_memory_is_known_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(path: Path, *_: object) -> str:
        raise FileNotFoundError(path)

    known = machine.available_memory()
    monkeypatch.setattr(Path, "read_text", no_file)
    assert 0 < machine.available_memory() != 8 << 30, "half of what the machine has"
    assert machine.resident_bytes() == machine.peak_memory() > 1 << 20
    monkeypatch.setitem(sys.modules, "resource", None)
    assert machine.peak_memory() == machine.resident_bytes() == 512 << 20
    assert known > 0
