"""Training and predicting from tokens on disk: the same numbers as in memory, repeatable, resumable, checked."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from polyformer.bases import BASES
from polyformer.datasets import load_dataset
from polyformer.errors import FileCorrupt, InvalidParameter, OutOfResources, TrainingInterrupted
from polyformer.filters import filter_coefficients
from polyformer.inputs import streamed_tokens
from polyformer.inputs.token_inputs import StoredInput
from polyformer.models import Workload
from polyformer.models.parts import token_binding
from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings
from polyformer.propagation import disk
from polyformer.runs.execution import execute_run
from polyformer.runs.prediction import predict_blocks
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.stores.ahead import window_order
from polyformer.tokens import write_tokens
from tests.edits import rewrite_json
from tests.listener import Listener

BOARD = "minefield:width=20,height=15"
FAST = {"order": 3, "hidden_channels": 16, "heads": 4, "num_layers": 1, "epochs": 4, "batch_size": 40}
TASK = load_dataset(BOARD)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine rows a chunk and 36 a window, so that 150 training nodes are several windows; 25 KB for the disk engine."""
    monkeypatch.setattr(streamed_tokens, "CHUNK_BYTES", 1024)
    monkeypatch.setattr(streamed_tokens, "WINDOW_BYTES", (4096, 4096))
    monkeypatch.setattr(disk, "_CHUNK_BYTES", (64, 1 << 26))


def request(**changes) -> RunRequest:
    settings = {**FAST, **changes.pop("settings", {})}
    return RunRequest(**{"data": BOARD, "device": "cpu", "settings": settings, **changes})


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in Run(run).metrics]


def visit_as_streamed(monkeypatch: pytest.MonkeyPatch, chunk: int, window: int) -> None:
    """Visit tokens in memory in the order in which tokens on disk are visited."""

    def shuffle(self: StoredInput, nodes: torch.Tensor, random: np.random.Generator) -> Iterator[torch.Tensor]:
        by_row = torch.from_numpy(np.argsort(nodes.numpy()))
        return (by_row[part] for part in window_order(len(nodes), chunk, window, random))

    monkeypatch.setattr(StoredInput, "shuffle", shuffle)


def readers() -> list[str]:
    """Threads that read ahead, without the threads of a cluster that other tests keep."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("polyformer-read")]


@pytest.mark.parametrize(
    "settings",
    [*({"basis": basis} for basis in BASES), {"shuffle": "batches"}, {"batch_size": "full"}],
    ids=lambda settings: "-".join(settings.values()),
)
def test_streamed_training_equals_training_in_memory(
    tmp_path: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamed = execute_run(request(settings={**settings, "token_route": "streamed"}), tmp_path / "streamed")
    assert streamed["token_route"] == "streamed"
    assert (streamed["chunk_rows"], streamed["window_rows"]) == (9, 36)
    visit_as_streamed(monkeypatch, 9, 36)
    stored = execute_run(request(settings={**settings, "token_route": "stored"}), tmp_path / "stored")
    assert stored["token_route"] == "stored"
    assert np.allclose(losses(tmp_path / "streamed"), losses(tmp_path / "stored"), rtol=1e-4)
    assert streamed["val"] == pytest.approx(stored["val"], abs=1e-3)
    assert streamed["test"] == pytest.approx(stored["test"], abs=1e-3)
    assert not readers()


def test_tokens_go_to_disk_when_they_do_not_fit(tmp_path: Path) -> None:
    """300 nodes × 4 tokens × 7 features take 33,600 bytes."""
    said: list[str] = []
    small = execute_run(request(memory=30_000), tmp_path / "small", reporter=Listener(on_say=said.append))
    assert f"tokens of 300 nodes, 32.8 KiB, are computed into {tmp_path / 'small' / 'tokens'}: 29.3 KiB" in said[-1]
    assert small["token_route"] == "streamed"
    assert (tmp_path / "small" / "tokens" / "manifest.json").exists()
    assert json.loads((tmp_path / "small" / "config.json").read_text())["memory"] == 30_000
    large = execute_run(request(), tmp_path / "large")
    assert large["token_route"] == "stored"
    assert not (tmp_path / "large" / "tokens").exists()
    assert json.loads((tmp_path / "large" / "config.json").read_text())["memory"] > 1 << 20


def test_tokens_that_fit_but_cannot_be_computed_in_memory_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = execute_run(request(memory=40_000, settings={"token_route": "stored"}), tmp_path / "run")
    assert result["token_route"] == "stored"
    assert (tmp_path / "run" / "tokens").exists()
    execute_run(request(settings={"token_route": "stored"}), tmp_path / "plain")
    assert np.allclose(losses(tmp_path / "run"), losses(tmp_path / "plain"), rtol=1e-5)


def test_repeats_and_resumes_without_computing_tokens_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = request(settings={"token_route": "streamed"})
    whole = execute_run(streamed, tmp_path / "whole")
    execute_run(streamed, tmp_path / "again")
    assert losses(tmp_path / "again") == losses(tmp_path / "whole")
    asked = iter([False, True])
    with pytest.raises(TrainingInterrupted, match=r"after epoch 2\. Nothing is lost"):
        execute_run(streamed, tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))

    def unexpected(*_: object) -> None:
        raise AssertionError("tokens are computed again")

    monkeypatch.setattr(token_binding, "write_tokens", unexpected)
    resumed = execute_run(streamed, tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert [resumed[key] for key in ("val", "test")] == [whole[key] for key in ("val", "test")]


def test_stopped_in_the_middle_of_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C stops at once: no thread stays, and the run goes on from its last checkpoint."""
    streamed = request(settings={"token_route": "streamed"})
    execute_run(streamed, tmp_path / "whole")
    from polyformer.training import loop

    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    step, steps = loop.Trainer._step, iter(range(100))

    def stop_at_six(self: loop.Trainer, rows: torch.Tensor) -> float:
        if next(steps) == 6:
            raise KeyboardInterrupt
        return step(self, rows)

    monkeypatch.setattr(loop.Trainer, "_step", stop_at_six)
    with pytest.raises(KeyboardInterrupt):
        execute_run(streamed, tmp_path / "run")
    assert not readers()
    assert len(losses(tmp_path / "run")) == 1
    execute_run(streamed, tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.parametrize("nodes", ["all", "labelled in reverse"])
def test_a_given_directory_and_its_view(tmp_path: Path, nodes: str) -> None:
    """The directory gives basis, order and self-loops unless the request names others."""
    chosen = None if nodes == "all" else np.arange(TASK.graph.num_nodes)[::-1].copy()
    write_tokens(TASK.graph, tmp_path / "tokens", "bernstein", 5, self_loops=True, nodes=chosen)
    view = {name: value for name, value in FAST.items() if name != "order"}
    tokens = str(tmp_path / "tokens")
    run = RunRequest(data=BOARD, device="cpu", settings={**view, "token_route": "streamed"}, tokens=tokens)
    settings = run.resolve_settings()
    assert (settings["basis"], settings["order"], settings["self_loops"]) == ("bernstein", 5, True)
    assert execute_run(run, tmp_path / "run")["token_route"] == "streamed"
    assert not (tmp_path / "run" / "tokens").exists()
    other = request(tokens=tokens, settings={"basis": "monomial"})
    settings = other.resolve_settings()
    assert (settings["basis"], settings["order"], settings["self_loops"]) == ("monomial", 3, True)
    assert execute_run(other, tmp_path / "other")["token_route"] == "stored"
    plain = execute_run(request(settings={"basis": "monomial", "self_loops": True}), tmp_path / "plain")
    assert plain["token_route"] == "stored"
    assert np.allclose(losses(tmp_path / "other"), losses(tmp_path / "plain"), rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("another graph", FileCorrupt, r"were made from another graph.*Make them again"),
        ("self-loops", InvalidParameter, r"has self-loops, but the model wants none\. Use --self-loops"),
        ("order", InvalidParameter, "'order' must be at most 3"),
        ("optimal", InvalidParameter, "made from chebyshev tokens, but .* stores optimal tokens"),
        ("rows", InvalidParameter, r"There are no tokens of node \d+ and 200 others in '.*tokens'"),
        ("truncated", FileCorrupt, "it was cut off, changed or swapped"),
        ("missing", FileNotFoundError, "There is no token directory"),
    ],
)
def test_directories_that_do_not_fit_are_refused(tmp_path: Path, change: str, error: type, message: str) -> None:
    graph = load_dataset(BOARD + ",seed=5").graph if change == "another graph" else TASK.graph
    basis = "optimal" if change == "optimal" else "chebyshev"
    nodes = np.arange(99) if change == "rows" else None
    write_tokens(graph, tmp_path / "tokens", basis, 3, self_loops=change == "self-loops", nodes=nodes)
    if change == "truncated":
        path = tmp_path / "tokens" / "tokens.npy"
        path.write_bytes(path.read_bytes()[:-100])
    elif change == "missing":
        shutil.rmtree(tmp_path / "tokens")
    settings = {"basis": "chebyshev", "order": 4 if change == "order" else 3, "self_loops": False}
    for route in ("auto", "streamed"):
        with pytest.raises(error, match=message):
            execute_run(
                request(tokens=str(tmp_path / "tokens"), settings={**settings, "token_route": route}), tmp_path / route
            )


def test_own_tokens_of_a_graph_that_has_changed(tmp_path: Path) -> None:
    run = request(settings={"token_route": "streamed"})
    asked = iter([True])
    with pytest.raises(TrainingInterrupted):
        execute_run(run, tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))
    rewrite_json(tmp_path / "run" / "tokens" / "manifest.json", graph="another")
    with pytest.raises(FileCorrupt, match="were made from another graph"):
        execute_run(run, tmp_path / "run", resume=True)


def model_on(graph_nodes: np.ndarray | None, **workload) -> PolyFormerModel:
    torch.manual_seed(0)
    settings = PolyFormerSettings(basis="jacobi", order=4, hidden_channels=16, heads=4, token_route="auto")
    model = PolyFormerModel(7, 1, settings).eval()
    if workload:
        model.bind(TASK.graph, Workload(graph_nodes, TASK.graph.num_nodes, **workload))
    return model


def test_predictions_and_filters_are_those_of_tokens_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tokens(TASK.graph, tmp_path / "tokens", "chebyshev", 6)
    monkeypatch.setattr("polyformer.models.walk.ROWS_PER_BLOCK", 70)
    nodes = np.random.default_rng(0).permutation(300)[:200]

    def scores(chosen: np.ndarray | None, **options) -> np.ndarray:
        blocks = list(predict_blocks(model_on(None), TASK.objective, TASK.graph, Workload(chosen, **options)))
        assert len(blocks[0][0]) == 70
        assert np.array_equal(
            np.concatenate([part for part, _ in blocks]), np.arange(300) if chosen is None else chosen
        )
        return np.concatenate([values for _, values in blocks])

    for chosen in (None, nodes):
        expected = scores(chosen)
        assert np.allclose(scores(chosen, memory=30_000, tokens=tmp_path / "tokens"), expected, atol=1e-5)
        assert np.allclose(scores(chosen, memory=30_000, scratch=tmp_path), expected, atol=1e-5)
        assert [path.name for path in tmp_path.iterdir()] == ["tokens"]
    in_memory = model_on(None, memory=1 << 30)
    streamed = model_on(None, memory=30_000, tokens=tmp_path / "tokens")
    assert (in_memory.route, streamed.route) == ("stored", "streamed")
    alpha = filter_coefficients(streamed, nodes)
    assert np.allclose(alpha, filter_coefficients(in_memory, nodes), atol=1e-5)


def test_prediction_in_turns_where_neither_memory_nor_disk_holds_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = np.concatenate([values for _, values in predict_blocks(model_on(None), TASK.objective, TASK.graph)])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 20_000))  # type: ignore[attr-defined]
    told: list[float] = []
    blocks = list(
        predict_blocks(
            model_on(None),
            TASK.objective,
            TASK.graph,
            Workload(memory=30_000, scratch=tmp_path),
            Listener(on_share=told.append),
        )
    )
    assert [len(part) for part, _ in blocks] == [64, 64, 64, 64, 44]
    assert told[-1] == 1.0
    assert np.allclose(np.concatenate([values for _, values in blocks]), expected, atol=1e-5)


def test_a_disk_that_cannot_hold_the_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 10_000))  # type: ignore[attr-defined]
    with pytest.raises(OutOfResources, match=r"These tokens need 65\.6 KiB of disk at .* Got 9\.8 KiB\. Free some"):
        execute_run(request(memory=30_000), tmp_path / "run")
    assert not (tmp_path / "run" / "tokens").exists()


def test_without_a_place_on_disk_too_large_tokens_are_refused() -> None:
    with pytest.raises(OutOfResources, match=r"more than the 4\.9 KiB of memory that can be used\. Lower the order"):
        PolyFormerModel(7, 1, PolyFormerSettings(token_route="stored")).bind(
            TASK.graph, Workload(None, 300, memory=5_000)
        )
    with pytest.raises(InvalidParameter, match="'token_route' must not be streamed"):
        PolyFormerModel(7, 1, PolyFormerSettings(token_route="streamed")).bind(TASK.graph, Workload(None, 300))


def test_nested_and_unannounced_reading(tmp_path: Path) -> None:
    """Rows that are asked for in the middle of an announced pass, or in another order, are read as well."""
    write_tokens(TASK.graph, tmp_path / "tokens", "jacobi", 4)
    streamed = model_on(None, memory=30_000, tokens=tmp_path / "tokens")
    exact = model_on(None, memory=1 << 30)
    nodes = torch.arange(300)
    passed = streamed.ahead(nodes, iter(nodes.split(50)))
    assert torch.equal(next(passed), nodes[:50])
    with torch.no_grad():
        assert torch.allclose(streamed(nodes), exact(nodes), atol=1e-5)
    assert torch.allclose(streamed.embed(nodes[[9, 2]]), exact.embed(nodes[[9, 2]]), atol=1e-5)
    assert torch.allclose(streamed.embed(nodes[:50]), exact.embed(nodes[:50]), atol=1e-5)
    assert streamed.filter_coefficients(nodes[:0]).shape == (0, 4, 5)
    passed.close()
    assert streamed.filter_coefficients(nodes[:0]).shape == (0, 4, 5)
    assert not readers()
