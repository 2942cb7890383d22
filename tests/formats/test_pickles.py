"""A pickle may hold arrays; it may not run anything."""

from __future__ import annotations

import collections
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from polyformer.errors import FileCorrupt
from polyformer.formats.pickles import load_object_array, load_pickle


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, *command: Any) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return self.command


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_matrices_and_containers_pass(tmp_path: Path, protocol: int) -> None:
    value = {
        "array": np.arange(6.0).reshape(2, 3),
        "scalar": np.float64(2.5),
        "lists": collections.defaultdict(list, {0: [1, 2], 1: [0]}),
        "matrix": sp.csr_matrix(np.eye(3)),
    }
    (tmp_path / "file").write_bytes(pickle.dumps(value, protocol))
    loaded = load_pickle(tmp_path / "file")
    np.testing.assert_array_equal(loaded["array"], value["array"])
    assert loaded["scalar"] == 2.5
    assert loaded["lists"] == value["lists"]
    assert (loaded["matrix"] != value["matrix"]).nnz == 0


@pytest.mark.parametrize(
    ("bomb", "name"),
    [
        (Bomb(os.system, ("touch BOMB",)), "system"),
        (Bomb(subprocess.check_output, (["touch", "BOMB"],)), "check_output"),
        (Bomb(eval, ("open('BOMB', 'w')",)), "builtins.eval|__builtin__.eval"),
        (Bomb(getattr, (np.ndarray, "tofile")), "getattr"),
        (Bomb(np.load, ("BOMB",)), "numpy"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_bomb_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bomb: Bomb, name: str, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(pickle.dumps({"x": [bomb]}, protocol))
    with pytest.raises(FileCorrupt, match=f"asks to load '.*({name}).*', which no data file needs, so it was not read"):
        load_pickle(tmp_path / "file")
    assert not (tmp_path / "BOMB").exists()


def test_an_inflating_codec_is_refused(tmp_path: Path) -> None:
    import _codecs

    (tmp_path / "file").write_bytes(pickle.dumps(Bomb(_codecs.encode, ("x", "rot13")), 2))
    with pytest.raises(FileCorrupt, match="asks for the codec 'rot13'"):
        load_pickle(tmp_path / "file")


def test_damage_is_one_sentence(tmp_path: Path) -> None:
    whole = pickle.dumps(np.arange(1000), 2)
    for content in (whole[:100], b"", b"not a pickle"):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(FileCorrupt, match=r"cannot be read \(.*\)\. Get it again\."):
            load_pickle(tmp_path / "file")


def test_object_arrays(tmp_path: Path) -> None:
    splits = np.array([{"train": np.arange(3)}, {"train": np.arange(2)}], dtype=object)
    np.save(tmp_path / "splits.npy", splits, allow_pickle=True)
    loaded = load_object_array(tmp_path / "splits.npy")
    np.testing.assert_array_equal(loaded[1]["train"], [0, 1])
    np.save(tmp_path / "bomb.npy", np.array([Bomb(os.system, ("true",)), None], dtype=object), allow_pickle=True)
    with pytest.raises(FileCorrupt, match="asks to load"):
        load_object_array(tmp_path / "bomb.npy")
    np.save(tmp_path / "numbers.npy", np.arange(3))
    with pytest.raises(FileCorrupt, match="one dictionary per split"):
        load_object_array(tmp_path / "numbers.npy")
    (tmp_path / "text.npy").write_text("text")
    with pytest.raises(FileCorrupt, match=r"text\.npy' cannot be read"):
        load_object_array(tmp_path / "text.npy")


def _program(*parts: bytes) -> bytes:
    return b"\x80\x02" + b"".join(parts) + b"."


def _word(text: str) -> bytes:
    return b"X" + len(text).to_bytes(4, "little") + text.encode()


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


_EMPTY = _global("numpy.core.multiarray", "_reconstruct") + _global("numpy", "ndarray") + b"K\x00\x85" + b"U\x01b\x87R"
_OBJECT = _global("numpy", "dtype") + b"U\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"
_BYTES = b"U\x10" + b"A" * 16
HOSTILE = {
    "ndarray called over a buffer": _program(_global("numpy", "ndarray"), b"K\x02\x85", b"U\x01O", _BYTES, b"\x87R"),
    "objects over bytes": _program(_EMPTY, b"(K\x01K\x02\x85", _OBJECT, b"\x89", _BYTES, b"tb"),
    "objects over a text": _program(_EMPTY, b"(K\x01K\x02\x85", _OBJECT, b"\x89", _word("A" * 16), b"tb"),
    "fewer bytes than the shape": _program(
        _EMPTY, b"(K\x01J\x00\x00\x00\x10\x85", _global("numpy", "dtype"), b"U\x02f8K\x00K\x01\x87R\x89", _BYTES, b"tb"
    ),
    "a record type": _program(
        _EMPTY, b"(K\x01K\x02\x85", _global("numpy", "dtype"), b"U\x05i4,O8K\x00K\x01\x87R\x89", _BYTES, b"tb"
    ),
    "a scalar of objects": _program(_global("numpy.core.multiarray", "scalar"), _OBJECT, b"U\x08" + b"A" * 8, b"\x86R"),
    "a state for a function": _program(_global("_codecs", "encode"), b"}U\x0c__defaults__)sb"),
    "a state for a type": _program(_global("numpy", "dtype"), b"}U\x0c__setstate__Nsb"),
    "a function as a value": _program(_global("_codecs", "encode")),
    "a place in the memo that takes 64 GiB": _program(b"Nr\xff\xff\xff\xff", b"\x85R"),
    "an extension": _program(b"\x82\x01"),
    "a text of 4 GiB": _program(b"X\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pickle_cannot_reach_memory_or_change_the_reader(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(HOSTILE[name])
    with pytest.raises(FileCorrupt):
        load_pickle(tmp_path / "file")
    np.save(tmp_path / "good.npy", np.array([{"train": np.arange(2)}], dtype=object), allow_pickle=True)
    assert load_object_array(tmp_path / "good.npy")[0]["train"].tolist() == [0, 1]


def test_values_that_hold_themselves_or_double_again_and_again(tmp_path: Path) -> None:
    itself: list[Any] = []
    itself.append(itself)
    doubled: Any = [1]
    for _ in range(60):
        doubled = [doubled, doubled]
    for value in (itself, doubled):
        (tmp_path / "file").write_bytes(pickle.dumps(value, 2))
        assert isinstance(load_pickle(tmp_path / "file"), list)
