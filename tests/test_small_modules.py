"""Registries, settings, files and the machine: the small parts that the others stand on."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pytest

from polyformer.arrays import writable
from polyformer.errors import (
    DataNotFound,
    FileCorrupt,
    InvalidParameter,
    OutOfResources,
    OutputBusy,
    OutputExists,
    PolyformerError,
    UnknownName,
)
from polyformer.files import (
    array_digest,
    locked,
    locks,
    new_directory,
    read_json,
    reporting_io_errors,
    sync_directory,
    write_json,
    write_whole,
)
from polyformer.files.schema import Schema, TableOf
from polyformer.machine import available_memory, format_bytes, parse_bytes, peak_memory
from polyformer.registry import Registry, format_spec, parse_spec
from polyformer.settings import build_settings, setting, split_settings
from polyformer.system import try_lock

THING = Schema("a thing", TableOf())


def test_registry_imports_entries_when_asked() -> None:
    table: Registry[Any] = Registry("thing", {"path": "pathlib:Path"})
    assert table["path"] is Path
    assert "path" in table
    assert len(table) == 1


@pytest.mark.parametrize("spec", ["plain", "name:a=1,b=0.5", "name:flag=true,text=abc"])
def test_specs_round_trip(spec: str) -> None:
    assert format_spec(*parse_spec(spec)) == spec


@dataclass(frozen=True)
class Knobs:
    """For the test."""

    width: int = setting(4, "how wide")
    rate: float | None = setting(None, "how fast")
    size: int | Literal["full"] = setting("full", "how many")
    loud: bool = setting(False, "how loud")


def test_settings_are_checked_against_their_types() -> None:
    assert build_settings(Knobs, {"width": 3.0, "rate": 1, "size": 8}) == Knobs(3, 1.0, 8, False)
    assert build_settings(Knobs, {"size": "full", "rate": None, "loud": True}) == Knobs(4, None, "full", True)
    wrong = (
        {"width": 2.5},
        {"width": True},
        {"width": math.inf},
        {"rate": "x"},
        {"rate": math.inf},
        {"size": math.nan},
        {"loud": 1},
    )
    for values in (*wrong, {"size": "half"}):
        with pytest.raises(InvalidParameter, match=f"'{next(iter(values))}' must be"):
            build_settings(Knobs, values)
    with pytest.raises(UnknownName, match="Did you mean 'width'"):
        split_settings([Knobs], {"widht": 3})


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": 1}, THING)
    with contextlib.suppress(RuntimeError), write_whole(tmp_path / "a.json") as file:
        file.write(b"half")
        raise RuntimeError
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")}, THING)
    assert read_json(tmp_path / "a.json", THING) == {"x": 1}
    with contextlib.suppress(RuntimeError), new_directory(tmp_path / "d") as folder:
        (folder / "x").write_text("half")
        raise RuntimeError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json"]
    with pytest.raises(OutputExists, match="already exists"), new_directory(tmp_path):
        pass


def test_what_appears_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut may come at any moment: content is flushed before the rename, and the rename on request."""
    calls: list[str] = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)

        def recorded(*arguments: Any, name: str = name, original: Any = original) -> Any:
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(os, name, recorded)
    write_json(tmp_path / "a.json", {"x": 1}, THING)
    assert calls == ["fsync", "replace"]
    sync_directory(tmp_path)
    assert calls == ["fsync", "replace", "fsync"]


def test_a_directory_that_another_process_has_made_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(OutputExists, match="already exists"), new_directory(tmp_path / "d"):
        write_json(tmp_path / "d" / "theirs", {}, THING)
    assert [path.name for path in tmp_path.rglob("*")] == ["d", "theirs"]


def test_unreadable_json(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match=r"is not a thing: it has no b\.json"):
        read_json(tmp_path / "b.json", THING)
    (tmp_path / "b.json").write_text("{oops")
    with pytest.raises(FileCorrupt, match="cannot be read as JSON"):
        read_json(tmp_path / "b.json", THING)


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "No space left"), (errno.EROFS, "Could not write")])
def test_full_and_read_only_disks_give_a_sentence(number: int, words: str) -> None:
    with pytest.raises(OutOfResources, match=words), reporting_io_errors("tokens", Path("x")):
        raise OSError(number, "reason")


def test_digest_depends_on_dtype_shape_and_content() -> None:
    base = np.arange(6, dtype=np.float32)
    others = [base.reshape(2, 3), base.astype(np.float64), base[::-1]]
    assert len({array_digest(array) for array in [base, *others]}) == 4
    assert array_digest(base) == array_digest(base.copy(), chunk_bytes=5)


def test_a_mapped_array_can_be_written_without_changing_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    for array in (mapped, mapped[1:]):
        ours = writable(array)
        assert np.array_equal(ours, array)
        ours[0] = 7.0
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.arange(6.0).reshape(2, 3))


def test_sizes() -> None:
    assert parse_bytes(format_bytes(1 << 33)) == 1 << 33
    with pytest.raises(InvalidParameter):
        parse_bytes("8 apples")
    assert available_memory() > 1 << 20
    assert peak_memory() > 1 << 20


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="other systems do not tell")
def test_the_peak_of_memory_is_that_of_this_process() -> None:
    ballast = np.ones(50 << 20)  # 400 MiB
    code = "from polyformer.machine import peak_memory; print(peak_memory())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(child.stdout) < ballast.nbytes < peak_memory()


def test_errors_carry_exit_codes_and_builtins() -> None:
    assert issubclass(InvalidParameter, ValueError)
    assert issubclass(DataNotFound, FileNotFoundError)
    assert (InvalidParameter.exit_code, PolyformerError.exit_code) == (2, 1)


def test_a_held_file_is_refused_and_one_that_cannot_be_locked_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some shared file systems have no locks; work continues without."""
    with (tmp_path / "lock").open("wb") as mine, (tmp_path / "lock").open("wb") as other:
        assert try_lock(mine)
        assert not try_lock(other)

        def unsupported(*_: object) -> None:
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr("fcntl.flock", unsupported)
        assert try_lock(other)


def test_a_passing_lock_leaves_no_file_and_is_never_held_twice(tmp_path: Path) -> None:
    path, busy = tmp_path / "lock", OutputBusy("busy")
    with locked(path, busy, passing=True):
        with pytest.raises(OutputBusy), locked(path, busy, passing=True):
            pass
        assert path.exists()
    assert not path.exists()


def test_a_lock_whose_file_was_removed_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def removing(file: IO[bytes]) -> bool:
        (tmp_path / "lock").unlink()
        return try_lock(file)

    monkeypatch.setattr(locks, "try_lock", removing)
    with pytest.raises(OutputBusy), locked(tmp_path / "lock", OutputBusy("busy"), passing=True):
        pytest.fail("another process may hold a file of that name")
