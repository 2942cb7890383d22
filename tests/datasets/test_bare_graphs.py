"""Graphs without labels: there, saved and opened again, with nothing to train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyformer.datasets import load_dataset
from polyformer.tasks import Task


@pytest.mark.usefixtures("cache")
def test_web_google(real_root: Path, tmp_path: Path) -> None:
    task = load_dataset("web-google", real_root)
    assert (task.num_classes, len(task.splits), task.graph.features) == (0, 0, None)
    assert task.labels.max() == -1
    assert task.ids is not None
    assert np.all(np.diff(task.ids) > 0)
    task.save(tmp_path / "saved")
    again = Task.load(tmp_path / "saved")
    assert again.graph.num_edges == task.graph.num_edges
    assert (len(again.splits), again.protocol) == (0, "none")


@pytest.mark.usefixtures("cache")
def test_wordnet_says_that_it_has_no_address(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no public address\. Put 'raw/wordnet\.npz' in"):
        load_dataset("wordnet", tmp_path)
