"""Whole files in the wrong directory: each has a hash that fits, and belongs to another graph or another run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import polyformer as pf
from polyformer.errors import FileCorrupt
from polyformer.runs.run import Run
from polyformer.verification import verify_directory
from tests.cli.test_cli import run
from tests.edits import rewrite_json
from tests.fuzz.readers import small_task

SETTINGS = {"order": 2, "hidden_channels": 8, "heads": 2, "num_layers": 1, "epochs": 3}
FILES_OF_A_RUN = (
    "config.json",
    "result.json",
    "metrics.jsonl",
    "model.safetensors",
    "labels.safetensors",
    "checkpoint/state.safetensors",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that differ in the seed alone, so that every tensor of one fits the other."""
    place = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        small_task(seed).save(place / f"graph{seed}")
        pf.train(place / "graph0", out=place / f"run{seed}", seed=seed, label_input=0.5, **SETTINGS)
    return place


@pytest.mark.parametrize("name", FILES_OF_A_RUN)
def test_a_file_of_another_run_is_noticed(runs: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(runs / "run0", tmp_path / "run")
    verify_directory(tmp_path / "run")
    shutil.copyfile(runs / "run1" / name, tmp_path / "run" / name)
    with pytest.raises(FileCorrupt, match="come from different runs"):
        verify_directory(tmp_path / "run")


def test_a_model_of_another_run_predicts_nothing(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "run0", tmp_path / "run")
    shutil.copyfile(runs / "run1" / "model.safetensors", tmp_path / "run" / "model.safetensors")
    assert run("predict", tmp_path / "run", "--out", tmp_path / "p.csv") == 2
    assert "come from different runs" in capsys.readouterr().err
    assert not (tmp_path / "p.csv").exists()
    with pytest.raises(FileCorrupt, match="come from different runs"):
        pf.PolyFormer.from_pretrained(tmp_path / "run")


def test_training_does_not_go_on_from_the_checkpoint_of_another_run(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "run0", tmp_path / "run")
    for name in ("result.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    state = Path("checkpoint", "state.safetensors")
    shutil.copyfile(runs / "run1" / state, tmp_path / "run" / state)
    assert run("train", "--resume", "--out", tmp_path / "run", "--no-report") == 2
    assert "come from different runs" in capsys.readouterr().err


def test_more_epochs_and_another_place_make_no_other_run(runs: Path, tmp_path: Path) -> None:
    """What may change from machine to machine, or when training is stopped early, is not part of what a run is."""
    shutil.copytree(runs / "run0", tmp_path / "run")
    config = Run.open(tmp_path / "run").config
    for settings in (config["settings"], config["card"]["settings"]):
        settings["epochs"] = 2
    rewrite_json(tmp_path / "run" / "config.json", config, data_root="elsewhere", memory=1 << 30)
    verify_directory(tmp_path / "run")


@pytest.mark.parametrize("name", ["labels.npy", "ids.npy", "features.npy", "indices.npy", "splits.npz", "weights.npy"])
def test_a_file_of_another_graph_is_noticed(runs: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(runs / "graph0", tmp_path / "graph")
    if (runs / "graph0" / name).read_bytes() == (runs / "graph1" / name).read_bytes():
        pytest.skip("both graphs have the same")
    shutil.copyfile(runs / "graph1" / name, tmp_path / "graph" / name)
    with pytest.raises(FileCorrupt):
        pf.load_dataset(str(tmp_path / "graph"))


def test_lines_of_epochs_that_are_gone_twice_or_in_another_order_are_noticed(runs: Path, tmp_path: Path) -> None:
    """Each line has a hash of its own, which fits wherever the line is."""
    shutil.copytree(runs / "run0", tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    first, second, third = path.read_text().splitlines(keepends=True)
    for lines in ((first, third), (first, third, second), (first, second, second, third), (second, third)):
        path.write_text("".join(lines))
        with pytest.raises(FileCorrupt, match="Lines are missing, repeated or in another order"):
            Run.open(tmp_path / "run").metrics  # noqa: B018
    path.write_text(first + second)
    with pytest.raises(FileCorrupt, match="tells of 2 epochs, and the run had 3"):
        verify_directory(tmp_path / "run")
