"""Searching and predicting on a Ray cluster: the same study, the same predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from polyformer.errors import OutputBusy
from polyformer.models import Workload
from polyformer.models.walk import ROWS_PER_BLOCK
from polyformer.runs.run import Run
from polyformer.runs.sharded_prediction import ClusterOptions, predict_shards
from tests.cli.test_cli import run
from tests.cli.test_tune import BOARD, SMALL

pytestmark = pytest.mark.ray


def test_a_study_goes_on_here_and_there(ray_cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--engine", "ray", "--address", ray_cluster.address, "--workers", 2]
    common = ["tune", BOARD, "--study", tmp_path / "s.journal", *SMALL]
    assert run(*common, "--trials", 1) == 0
    capsys.readouterr()
    assert run(*common, "--trials", 4, *place, "--json") == 0
    captured = capsys.readouterr()
    best = json.loads(captured.out)
    assert (best["trials"], best["stopped"]) == (4, False)
    assert "trial 1: " in captured.err
    assert [path.name for path in tmp_path.iterdir() if "stop" in path.name] == []
    assert run(*common, "--trials", 4, *place, "--set", "num_layers=2") == 2
    assert "was started with settings=" in capsys.readouterr().err


def test_a_stopped_study_tries_its_trials_again(
    ray_cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--study", tmp_path / "s.journal", "--budget", "5s", *SMALL[:2], "--set", "epochs=100000"]
    options += ["--set", "patience=100000", "--engine", "ray", "--address", ray_cluster.address, "--workers", 2]
    assert run("tune", BOARD, *options) == 1
    assert "has come to its end yet. Let it run longer." in capsys.readouterr().err
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(tmp_path / "s.journal")))
    states = [trial.state.name for trial in optuna.load_study(study_name="polyformer", storage=storage).trials]
    assert states.count("WAITING") == 2


def test_errors_of_trials_come_back(ray_cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fault that only a worker can notice ends the search with the worker's sentence."""
    options = ["--study", tmp_path / "s.journal", *SMALL, "--set", "device_batch=3", "--trials", 1]
    assert run("tune", BOARD, *options, "--engine", "ray", "--address", ray_cluster.address) == 2
    assert "Unknown setting 'device_batch'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a board of two blocks of nodes."""
    folder = tmp_path_factory.mktemp("predict")
    board = "minefield:width=300,height=250"
    settings = ["--set", "epochs=1", "--set", "hidden_channels=8", "--set", "token_route=stored", "--no-report"]
    assert run("train", board, "--order", 2, "--basis", "bernstein", "--out", folder / "run", *settings) == 0
    assert run("tokens", board, "--order", 3, "--engine", "disk", "--out", folder / "tokens") == 0
    return folder


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("chosen", [True, False])
def test_predictions_are_those_of_one_process(
    ray_cluster: Any, trained: Path, tmp_path: Path, given: bool, chosen: bool
) -> None:
    nodes = np.random.default_rng(0).permutation(75_000)[:70_000]
    np.save(tmp_path / "nodes.npy", nodes)
    common = ["--tokens", trained / "tokens"] if given else []
    common += ["--nodes", tmp_path / "nodes.npy"] if chosen else []
    place = ["--engine", "ray", "--address", ray_cluster.address]
    for name, options in (("one", []), ("many", place)):
        assert run("predict", trained / "run", *common, *options, "--out", tmp_path / f"{name}.parquet") == 0
    one, many = (pq.ParquetFile(tmp_path / f"{name}.parquet") for name in ("one", "many"))
    assert many.metadata.num_row_groups == one.metadata.num_row_groups == 2
    assert many.metadata.row_group(0).num_rows == ROWS_PER_BLOCK
    assert many.schema_arrow == one.schema_arrow
    left, right = one.read(), many.read()
    assert left["node"] == right["node"]
    for name in left.column_names[2:]:
        assert np.allclose(left[name].to_numpy(), right[name].to_numpy(), atol=1e-6)
    assert np.mean(left["prediction"].to_numpy() == right["prediction"].to_numpy()) > 0.9999
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many.parquet", "nodes.npy", "one.parquet"]


def test_predictions_from_known_labels_are_those_of_one_process(ray_cluster: Any, tmp_path: Path) -> None:
    """Tasks are given the tokens of the labels beside those of the features."""
    small = ["--set", "epochs=1", "--set", "order=2", "--set", "hidden_channels=8", "--set", "label_input=0.5"]
    assert run("train", "minefield:width=20,height=15", "--out", tmp_path / "run", "--no-report", *small) == 0
    place = ["--engine", "ray", "--address", ray_cluster.address]
    for name, options in (("one", []), ("many", place)):
        assert run("predict", tmp_path / "run", *options, "--out", tmp_path / f"{name}.parquet") == 0
    one, many = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("one", "many"))
    for name in one.column_names[2:]:
        assert np.allclose(one[name].to_numpy(), many[name].to_numpy(), atol=1e-6)


def test_unfinished_predictions_go_on_or_are_begun_anew(ray_cluster: Any, trained: Path, tmp_path: Path) -> None:
    opened = Run(trained / "run")
    model, task = opened.model(), opened.task()
    folder, place = tmp_path / ".p.parquet.partial", ClusterOptions()
    arguments = (opened, model, task.graph, tmp_path / "p.parquet", Workload(tokens=trained / "tokens"))

    def interrupted() -> None:
        with predict_shards(*arguments, place) as blocks:
            next(blocks)
            with pytest.raises(OutputBusy, match="Another process is writing"), predict_shards(*arguments, place):
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    parts = sorted(folder.glob("part-*"))
    assert len(parts) == 2
    np.save(parts[0], np.load(parts[0]) + 100)  # to be recognised
    parts[1].unlink()
    with predict_shards(*arguments, place) as blocks:
        scores = [part for _, part in blocks]
    assert [float(part.min()) > 50 for part in scores] == [True, False]
    assert not folder.exists()
    folder.mkdir()
    (folder / "about.json").write_text('{"model": "another"}')
    np.save(folder / "part-00000000.npy", np.zeros((3, 2)))
    with predict_shards(*arguments, place) as blocks:
        assert [len(part) for _, part in blocks] == [ROWS_PER_BLOCK, 75_000 - ROWS_PER_BLOCK]


def test_models_on_the_whole_graph_are_refused(
    ray_cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "epochs=1", "--set", "hidden_channels=4", "--no-report"]
    assert run("train", BOARD, "--model", "gcn", "--out", tmp_path / "run", *settings) == 0
    assert run("predict", tmp_path / "run", "--engine", "ray", "--out", tmp_path / "p.parquet") == 2
    assert "is for models that see the graph through its tokens" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
