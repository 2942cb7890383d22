"""Every command as a user types it: output, exit codes, one sentence per error."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from polyformer import __version__
from polyformer.cli import main
from polyformer.datasets import load_dataset
from polyformer.graph import Graph
from polyformer.presets import list_presets
from polyformer.runs import preparation as training
from polyformer.runs.run import Run
from polyformer.splits import Split
from polyformer.tasks import Task
from tests.edits import plain_result
from tests.warm import WarmProcess

BOARD = "minefield:width=20,height=15"
SETTINGS = ("order=3", "hidden_channels=16", "heads=4", "num_layers=1", "epochs=3")
FAST = ["--no-report", *(f"--set={pair}" for pair in SETTINGS)]


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit_:
        main([str(argument) for argument in arguments])
    return int(exit_.value.code or 0)


@pytest.fixture
def trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run("train", BOARD, "--out", tmp_path / "run", *FAST) == 0
    capsys.readouterr()
    return tmp_path / "run"


def test_train_tells_score_place_and_what_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", BOARD, "--out", tmp_path / "run", *FAST) == 0
    out = capsys.readouterr().out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert f"roc_auc: test {result['test']:.4f}" in out
    assert f"run directory: {tmp_path / 'run'}" in out
    assert "by protocol 'random'" in out
    assert "polyformer predict" in out
    assert "epoch 3/3 loss" in out


def test_json_is_all_there_is_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", BOARD, "--out", tmp_path / "run", "--json", *FAST) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == plain_result(tmp_path / "run" / "result.json")
    assert "epoch" in captured.err


def test_runs_get_a_new_place_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run("train", BOARD, *FAST) == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(names) == 2
    assert all(name.startswith("minefield-width-20-height-15-polyformer-2") for name in names)


def test_runs_of_the_same_second_get_places_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *_: "now")
    load = training.load_task

    def load_while_another_trains(*arguments: Any) -> Any:
        monkeypatch.setattr(training, "load_task", load)
        assert run("train", BOARD, *FAST) == 0
        return load(*arguments)

    monkeypatch.setattr(training, "load_task", load_while_another_trains)
    assert run("train", BOARD, *FAST) == 0
    runs = sorted((tmp_path / "runs").iterdir())
    assert [path.name.partition("-now")[2] for path in runs] == ["", "-2"]
    assert all((path / "result.json").exists() for path in runs)


def test_a_refused_run_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert run("train", BOARD, "--set", "heads=7") == 2
    assert list(tmp_path.rglob("*")) == [tmp_path / "runs"]


def test_a_run_names_its_data_root_so_that_it_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("train", BOARD, "--data-root", "root", "--out", "run", *FAST) == 0
    assert json.loads(Path("run/config.json").read_text())["data_root"] == str(tmp_path / "root")


@pytest.mark.slow
def test_options_and_presets_reach_the_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data_root: Path
) -> None:
    options = ["--preset", "paper", "--basis", "monomial", "--set", "epochs=1", "--set", "token_route=stored"]
    out = tmp_path / "run"
    assert run("train", "chameleon_filtered", "--split", 3, "--seed", 5, "--out", out, *options) == 0
    config = json.loads((out / "config.json").read_text())
    assert (config["split"], config["seed"], config["preset"]) == (3, 5, "paper")
    chosen = config["settings"]
    assert (chosen["order"], chosen["self_loops"], chosen["batch_size"], chosen["epochs"]) == (6, True, "full", 1)
    assert (chosen["attention_lr"], chosen["lr"], chosen["ffn_channels"]) == (5e-5, 0.01, 32)
    assert json.loads((out / "result.json").read_text())["token_route"] == "stored"


def test_predict_writes_ids_classes_and_probabilities(trained: Path, tmp_path: Path) -> None:
    assert run("predict", trained, "--out", tmp_path / "p.parquet") == 0
    table = pq.read_table(tmp_path / "p.parquet").to_pydict()
    assert list(table) == ["node", "prediction", "probability_safe", "probability_mine"]
    assert table["node"] == list(range(300))
    for name, safe, mine in zip(table["prediction"], table["probability_safe"], table["probability_mine"], strict=True):
        assert name == ("mine" if mine > safe else "safe")
        assert safe + mine == pytest.approx(1)


def test_predict_on_another_graph_with_its_own_ids(trained: Path, tmp_path: Path) -> None:
    board = load_dataset("minefield:width=6,height=5,seed=2")
    ids = np.array([f"cell-{i}" for i in range(30)])
    Task("board", board.graph, board.labels, board.splits, ids=ids).save(tmp_path / "other")
    assert run("predict", trained, tmp_path / "other", "--out", tmp_path / "p.parquet") == 0
    assert pq.read_table(tmp_path / "p.parquet")["node"].to_pylist() == ids.tolist()
    board.graph.save(tmp_path / "bare")
    assert run("predict", trained, tmp_path / "bare", "--out", tmp_path / "q.parquet") == 0
    assert pq.read_table(tmp_path / "q.parquet").num_rows == 30


def test_regression_on_ones_own_graph(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 90, (2, 200)), random.standard_normal((90, 3)))
    nodes = np.arange(90)
    Task("real", graph, random.standard_normal(90), [Split(nodes[:50], nodes[50:70], nodes[70:])]).save(tmp_path / "g")
    assert run("train", tmp_path / "g", "--out", tmp_path / "run", *FAST) == 0
    assert run("predict", tmp_path / "run", "--out", tmp_path / "p.parquet") == 0
    assert pq.read_table(tmp_path / "p.parquet").column_names == ["node", "prediction"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["datasets"], ["minefield", "citeseer", "ogbn-papers100M", "111,059,956", "roc_auc", "built in"]),
        (["models"], ["polyformer"]),
        (["models", "polyformer"], ["attention_dropout", "batch_size", "patience"]),
        (["bases"], ["bernstein", "optimal", "jacobi", "T_k(λ - 1)"]),
        (["--version"], [f"polyformer {__version__}\n"]),
    ],
)
def test_lists(arguments: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 0
    out = capsys.readouterr().out
    assert all(text in out for text in expected)


def test_datasets_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("datasets", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["minefield"]["nodes"] == 10_000
    assert [rows[name]["metric"] for name in ("minefield", "2Dgrid", "generated-images")] == ["roc_auc", "r2", "r2"]
    assert (rows["web-google"]["metric"], rows["web-google"]["classes"]) == (None, None)


def test_help_names_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--help") == 0
    assert set(list_presets()) <= set(re.findall(r"\w+", capsys.readouterr().out))


@pytest.mark.parametrize("verb", ["train", "predict", "tokens", "import", "datasets", "models", "bases"])
def test_help_teaches(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(verb, "--help") == 0
    out = capsys.readouterr().out
    assert "Usage: polyformer" in out
    assert "Examples:" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "minefeld"], 2, "Unknown data set 'minefeld'. Did you mean 'minefield'?"),
        (["train", "no/such/graph"], 2, "There is no graph at 'no/such/graph'."),
        (["train", BOARD, "--basis", "chebishev"], 2, "Unknown basis 'chebishev'. Did you mean 'chebyshev'?"),
        (["train", BOARD, "--set", "heads=7"], 2, "'heads' must divide hidden_channels=64. Got 7. Try 8."),
        (["train", BOARD, "--set", "heads"], 2, "'--set' must read key=value. Got 'heads'."),
        (["train", BOARD, "--set", "hedas=2"], 2, "Unknown setting 'hedas'. Did you mean 'heads'?"),
        (["train", BOARD, "--set", "epochs=inf"], 2, "'epochs' must be a whole number. Got inf."),
        (["train", BOARD, "--set", "hidden_channels=nan"], 2, "'hidden_channels' must be a whole number. Got nan."),
        (["train", BOARD, "--seed", "-1"], 2, "'seed' must be a whole number, 0 or more. Got -1."),
        (["train", BOARD, "--preset", "paper"], 2, "has no settings for 'minefield'"),
        (["train", "pokec", "--preset", "paper", "--basis", "chebyshev"], 2, "There are: monomial."),
        (["train", "citeseer", "--preset", "papre"], 2, "Unknown preset 'papre'. Did you mean 'paper'?"),
        (["train", "--orde", "3"], 2, "No such option: --orde"),
        (["train", "--order", "x"], 2, "Invalid value for '--order'"),
        (["train", BOARD, "--tokens", "nowhere"], 2, "There is no token directory '"),
        (["train", BOARD, "--memory", "much"], 2, "A size must read like 8GiB or 500MB. Got 'much'."),
        (["train", "--resume"], 2, "'--resume' must come with --out RUN"),
        (["train", "--resume", "--out", "nowhere"], 2, "There is no run directory 'nowhere'."),
        (["predict", "nowhere", "--out", "p.parquet"], 2, "There is no directory 'nowhere'."),
        (["predict", "nowhere"], 2, "Missing option '--out'"),
        (["tokens", BOARD, "--engine", "disc", "--out", "t"], 2, "Unknown engine 'disc'."),
        (["tokens", BOARD, "--memory", "lots", "--out", "t"], 2, "A size must read like 8GiB or 500MB."),
        (
            ["tokens", BOARD, "--memory", "1KiB", "--out", "t"],
            1,
            "more than the 0 bytes that may be used. Take --engine disk",
        ),
        (["tokens", BOARD, "--nodes", "some", "--out", "t"], 2, "'--nodes' must be all, labelled or a file"),
        (["tokens", BOARD, "--order", "-2", "--out", "t"], 2, "'order' must be a whole number, 0 or more. Got -2."),
        (["tokens", BOARD, "--order", "100000", "--out", "t"], 2, "'order' must be at most 1,000. Got 100,000."),
        (["models", "polyforme"], 2, "Unknown model 'polyforme'. Did you mean 'polyformer'?"),
        (["trian"], 2, "No such command 'trian'"),
    ],
)
def test_errors_are_one_sentence(
    arguments: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("polyformer: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


def test_run_directory_exists_and_resume_must_agree(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", BOARD, "--out", trained) == 2
    assert "already exists. Choose another --out, or continue it with --resume." in capsys.readouterr().err
    assert run("train", "--resume", "--out", trained, "--seed", 3) == 2
    assert "was started with seed=0. Got 3." in capsys.readouterr().err
    assert run("train", "--resume", "--out", trained, "--order", 3) == 0
    assert "roc_auc: test" in capsys.readouterr().out


def test_damaged_model_and_unfinished_run(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = trained / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-10])
    assert run("predict", trained, "--out", tmp_path / "p.parquet") == 2
    assert "cannot be read" in capsys.readouterr().err
    model.unlink()
    assert run("predict", trained, "--out", tmp_path / "p.parquet") == 2
    assert "holds no trained model yet" in capsys.readouterr().err
    assert not (tmp_path / "p.parquet").exists()


def test_unwritable_places(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run("predict", trained, "--out", tmp_path / "file" / "p.parquet") == 1
    assert "Could not write predictions" in capsys.readouterr().err
    assert run("predict", trained, "--out", tmp_path) == 2
    assert run("train", BOARD, "--out", tmp_path / "file" / "run", *FAST) == 1
    assert "Could not write" in capsys.readouterr().err


def test_a_run_goes_on_without_the_preset_file_it_was_started_with(tmp_path: Path) -> None:
    preset, out = tmp_path / "mine.csv", tmp_path / "run"
    preset.write_text("model,dataset,hidden_channels,epochs\nmlp,minefield,8,2\n")
    board = "minefield:width=15,height=12"
    assert run("train", board, "--model", "mlp", "--preset", preset, "--out", out, "--no-report") == 0
    for file in (out / "result.json", preset):
        file.unlink()
    assert run("train", "--resume", "--out", out, "--no-report") == 0
    assert json.loads((out / "config.json").read_text())["settings"]["hidden_channels"] == 8


@pytest.mark.slow
def test_ctrl_c_saves_and_resume_finishes(tmp_path: Path) -> None:
    """Tokens are on disk, so a thread is reading when the signal arrives."""
    out = tmp_path / "run"
    settings = ["--set=order=3", "--set=hidden_channels=16", "--set=epochs=100000", "--set=patience=100000"]
    settings.append("--set=token_route=streamed")
    trained = Run(out)
    with WarmProcess("train", BOARD, "--out", out, *settings) as process:
        process.wait_until(lambda: len(trained.metrics) >= 2)
        process.signal(signal.SIGINT)
        assert process.wait() == 130
        assert "Stopping after this step or epoch; press Ctrl-C again to stop at once (" in process.output
        assert process.errors.startswith("polyformer: Training was stopped after epoch")
        assert f"continue with polyformer train --resume --out {out}" in process.errors
        assert process.errors.count("\n") == 1
    done = len(trained.metrics)
    assert (out / "checkpoint" / "state.safetensors").exists()
    assert (out / "model.safetensors").exists()
    with WarmProcess("train", "--resume", "--out", out) as process:
        process.wait_until(lambda: len(trained.metrics) > done)
        process.signal(signal.SIGTERM)
        process.wait()
    epochs = [record["epoch"] for record in trained.metrics]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > done


@pytest.mark.parametrize(("policy", "spins"), [(None, "1000"), ("ACTIVE", None)])
def test_idle_threads_sleep_soon_unless_the_user_says_otherwise(
    policy: str | None, spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # restored in the end
        monkeypatch.delenv(name)
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    assert run("--version") == 0
    assert os.environ.get("GOMP_SPINCOUNT") == spins


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    from polyformer.errors import UnknownName

    with pytest.raises(UnknownName):
        main(["--debug", "train", "minefeld"])


def test_quick_to_start() -> None:
    """Neither torch nor another heavy library is loaded for help or by `import polyformer`."""
    heavy = ("torch", "scipy", "sklearn", "pyarrow", "numpy")
    code = f"import sys, polyformer, polyformer.cli; print([name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


@pytest.mark.parametrize("verb", ["datasets", "models", "bases"])
def test_lists_load_no_torch(verb: str) -> None:
    """These verbs answer in a moment, because heavy libraries are imported where they are used."""
    heavy = ("torch", "sklearn", "pyarrow", "pandas")
    code = (
        f"import sys; from polyformer.cli import main\ntry: main(['{verb}'])\nexcept SystemExit as end: code = end.code"
    )
    code += f"\nprint(code, [name for name in {heavy} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code, verb], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "0 []"
