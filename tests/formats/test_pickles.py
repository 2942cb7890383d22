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
    with pytest.raises(FileCorrupt, match=r"is not a \.npy file"):
        load_object_array(tmp_path / "text.npy")
