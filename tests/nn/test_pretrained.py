"""A bare module from the files of a run, of this version and of those that are kept."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import polyformer as pf
from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter
from tests.cli.test_cli import BOARD
from tests.edits import adopt

KEPT = sorted((Path(__file__).parents[1] / "old_versions").glob("version_*"))
SMALL = {"order": 3, "hidden_channels": 16, "num_layers": 2, "heads": 2, "ffn_channels": 8, "decay": 1.4, "epochs": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pf.Run:
    return pf.train(BOARD, out=tmp_path_factory.mktemp("runs") / "run", basis="jacobi", **SMALL)


def test_the_module_of_a_run_answers_as_the_run(run: pf.Run) -> None:
    module = pf.PolyFormer.from_pretrained(run.path)
    assert not module.training
    tokens = pf.compute_tokens(run.task().graph, basis="jacobi", order=3)
    with torch.no_grad():
        probabilities = run.load()[0].reader.scores(module(tokens))
    np.testing.assert_allclose(probabilities, run.predict(), atol=1e-6)


def test_the_module_of_a_classifier_that_was_saved(tmp_path: Path) -> None:
    task = pf.load_dataset(BOARD)
    clf = pf.PolyFormerClassifier(basis="monomial", **SMALL).fit(task.graph, np.arange(300) % 3)
    clf.save(tmp_path / "saved")
    module = pf.PolyFormer.from_pretrained(str(tmp_path / "saved"))
    with torch.no_grad():
        logits = module(pf.compute_tokens(task.graph, basis="monomial", order=3)).double()
    np.testing.assert_allclose((logits / clf.temperature_).softmax(1), clf.predict_proba(task.graph), atol=1e-6)


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_names_in_files_are_stable(kept: Path) -> None:
    """Files of an earlier version are read, and give the answers that were kept with them."""
    graph = pf.Graph.load(kept / "graph")
    expected = np.loadtxt(kept / "probabilities.csv", delimiter=",")
    for name in ("run", "classifier"):
        module = pf.PolyFormer.from_pretrained(kept / name)
        tokens = pf.compute_tokens(pf.Run.open_model(kept / name).card.prepare(graph), order=2)
        with torch.no_grad():
            probabilities = module(tokens).double().softmax(dim=1)
        if name == "classifier":
            np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        else:
            with (kept / "predictions.csv").open() as file:
                rows = [[float(row[f"probability_{part}"]) for part in "abc"] for row in csv.DictReader(file)]
            np.testing.assert_allclose(probabilities, rows, atol=1e-5)


def test_some_version_is_kept() -> None:
    assert [path.name for path in KEPT][:1] == ["version_0_1"]


def test_other_directories_are_refused(run: pf.Run, tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match="There is no directory"):
        pf.PolyFormer.from_pretrained(tmp_path / "nowhere")
    plain = pf.train(BOARD, "unifilter", tmp_path / "plain", order=3, epochs=1)
    with pytest.raises(InvalidParameter, match="holds a model 'unifilter', not a polyformer"):
        pf.PolyFormer.from_pretrained(plain.path)
    unfinished, mixed = tmp_path / "unfinished", tmp_path / "mixed"
    for folder in (unfinished, mixed):
        folder.mkdir()
        (folder / "config.json").write_bytes((run.path / "config.json").read_bytes())
    with pytest.raises(DataNotFound, match="holds no trained model yet"):
        pf.PolyFormer.from_pretrained(unfinished)
    (mixed / "model.safetensors").write_bytes((KEPT[0] / "run" / "model.safetensors").read_bytes())
    with pytest.raises(FileCorrupt, match="They come from different runs"):
        pf.PolyFormer.from_pretrained(mixed)
    (mixed / "model.safetensors").write_bytes((plain.path / "model.safetensors").read_bytes())
    with pytest.raises(FileCorrupt, match="come from different runs"):
        pf.PolyFormer.from_pretrained(mixed)
    adopt(mixed)
    with pytest.raises(FileCorrupt, match="holds no network of a polyformer"):
        pf.PolyFormer.from_pretrained(mixed)
