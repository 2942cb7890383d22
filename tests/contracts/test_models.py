"""Laws that every model of the table obeys, PolyFormer and each baseline."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.errors import InvalidData, InvalidParameter, TrainingInterrupted
from polyformer.graph import Graph
from polyformer.models import MODELS, NodeModel, SpectralFilter, Workload
from polyformer.models.parts.token_model import TokenModel
from polyformer.objectives import Multiclass
from polyformer.runs.execution import execute_run
from polyformer.runs.prediction import predict_scores
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.settings import build_settings, split_settings
from polyformer.splits import Split
from polyformer.tokens import write_tokens
from polyformer.training.loop import Trainer
from polyformer.training.settings import TrainingSettings
from tests import recipes
from tests.listener import Listener

SMALL = {"order": 4, "hidden_channels": 16, "heads": 4, "num_centroids": 8, "walk_steps": 5, "num_layers": 2}
SMALL |= {"local_epochs": 1}
EXACT = {"positional_channels": 0, "neighbours": 100}  # nothing drawn, no eigenvectors with signs
ALL_MODELS = recipes.MODEL.added_to(MODELS)
"""The table, and the model that the page on baselines tells a newcomer to add to it."""

SPECTRAL = [name for name in ALL_MODELS if issubclass(ALL_MODELS[name], SpectralFilter)]
TOKEN_MODELS = [name for name in ALL_MODELS if issubclass(ALL_MODELS[name], TokenModel)]


def small_graph() -> Graph:
    """40 nodes, the last three isolated, 9 features."""
    random = np.random.default_rng(0)
    return Graph(random.integers(0, 37, (2, 70)), random.standard_normal((40, 9)), 40)


GRAPH = small_graph()
LABELS = np.random.default_rng(1).integers(0, 3, 40)
NODES = torch.arange(40)


def settings_of(name: str, **changes: Any) -> dict[str, Any]:
    """Small values without dropout for those settings that the model has."""
    fields = {field.name for field in dataclasses.fields(MODELS[name].settings_type)}
    no_dropout = {field: 0.0 for field in fields if field.endswith("dropout")}
    wanted = {**no_dropout, **SMALL, **changes}
    return {key: value for key, value in wanted.items() if key in fields}


def build(name: str, graph: Graph | None = GRAPH, **changes: Any) -> NodeModel:
    torch.manual_seed(0)
    kind = MODELS[name]
    model = kind(9, 3, build_settings(kind.settings_type, settings_of(name, **changes)))
    if graph is not None:
        model.bind(graph, Workload(None, graph.num_nodes))
    return model


def sum_of_squares(outputs: torch.Tensor, rows: slice) -> torch.Tensor:
    return outputs.square().sum()


@pytest.mark.parametrize("name", ALL_MODELS)
def test_is_described(name: str) -> None:
    kind = MODELS[name]
    summary, *rest = (inspect.getdoc(kind) or "").split("\n\n")
    assert "\n" not in summary
    assert len(summary) <= 100
    assert "search space is" in " ".join(" ".join(rest).split()), "whose it is, must be said"


@pytest.mark.parametrize("name", ALL_MODELS)
def test_defaults_and_search_space_are_settings(name: str) -> None:
    kind = MODELS[name]
    pair = [kind.settings_type, TrainingSettings]
    split_settings(pair, kind.training_defaults)
    assert {"lr", "weight_decay", "dropout", "hidden_channels"} <= set(kind.search_space)
    for key, choices in [*kind.search_space.items(), *kind.large_search_space.items()]:
        assert len(set(choices)) == len(choices) > 1
        for choice in choices:
            if key != "heads":  # must divide a width, which is searched too
                split_settings(pair, {key: choice})


@pytest.mark.parametrize("name", ALL_MODELS)
def test_overfits_a_tiny_graph(name: str) -> None:
    model = build(name)
    labels = torch.from_numpy(LABELS)
    optimizer = torch.optim.Adam(model.parameter_groups(), lr=0.02)
    objective = Multiclass()
    best = 0.0
    for step in range(400):
        model.train()
        optimizer.zero_grad()
        model.accumulate(NODES, lambda outputs, rows: objective.loss(outputs, labels[rows]) / len(NODES))
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad():
                best = max(best, float((model.eval()(NODES).argmax(dim=1) == labels).float().mean()))
            if best >= 0.95:
                return
    raise AssertionError(f"{name} reached {best:.3f} only")


@pytest.mark.parametrize("name", ALL_MODELS)
def test_a_model_without_memory_is_filled_and_works(name: str) -> None:
    """What PyTorch's wrappers do: made on ``meta``, memory from ``to_empty``, then ``reset_parameters``."""
    expected = build(name)
    with torch.device("meta"):
        model = build(name, graph=None)
    assert any(parameter.is_meta for parameter in model.parameters())
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(7)
    torch.manual_seed(0)
    model.reset_parameters()
    model.bind(GRAPH, Workload(None, GRAPH.num_nodes))
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(NODES), expected.eval()(NODES))
    model.train().accumulate(NODES, sum_of_squares)
    assert any(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", ALL_MODELS)
def test_parameters_are_drawn_anew_for_a_bound_model(name: str) -> None:
    model, expected = build(name), build(name)
    torch.manual_seed(1)
    model.reset_parameters()
    with torch.no_grad():
        assert not torch.equal(model.eval()(NODES), expected.eval()(NODES))
        torch.manual_seed(0)
        model.reset_parameters()
        assert torch.equal(model(NODES), expected(NODES))


@pytest.mark.parametrize("name", ALL_MODELS)
def test_test_labels_change_nothing(name: str) -> None:
    """Neither the parameters nor the scores of training see the label of a test node."""
    split = Split(np.arange(0, 20), np.arange(20, 30), np.arange(30, 40))
    other = LABELS.copy()
    other[30:] = (other[30:] + 1) % 3
    results = []
    for labels in (LABELS, other):
        model = build(name)
        settings = TrainingSettings(epochs=3, batch_size=8, lr=0.01, class_weights="balanced").resolve(20, 9)
        trainer = Trainer(model, Multiclass(), "accuracy", labels, split, settings)
        trainer.run()
        results.append((trainer.stopping.best_score, model.state_dict()))
    assert results[0][0] == results[1][0]
    for key, value in results[0][1].items():
        assert torch.equal(value, results[1][1][key])


@pytest.mark.parametrize("name", ALL_MODELS)
def test_permuting_nodes_permutes_outputs(name: str) -> None:
    order = np.random.default_rng(2).permutation(40)
    permuted = Graph(GRAPH.adjacency()[order][:, order], np.asarray(GRAPH.features)[order], 40)
    with torch.no_grad():
        outputs = build(name, **EXACT).eval()(NODES)
        assert torch.allclose(build(name, permuted, **EXACT).eval()(NODES), outputs[order], atol=2e-4)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_gradient_reaches_every_parameter(name: str) -> None:
    model = build(name).train()
    for _ in range(2):  # a model that is trained in two stages reaches others in the second
        model.accumulate(NODES, sum_of_squares)
    groups = [parameter for group in model.parameter_groups() for parameter in group["params"]]
    assert {id(parameter) for parameter in groups} == {id(parameter) for parameter in model.parameters()}
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.any(), key


@pytest.mark.parametrize("graph", ["no edges", "weighted", "two nodes"])
@pytest.mark.parametrize("name", ALL_MODELS)
def test_graphs_at_the_edge(name: str, graph: str) -> None:
    random = np.random.default_rng(3)
    made = {
        "no edges": Graph(np.empty((2, 0), np.int64), random.standard_normal((6, 9))),
        "weighted": Graph([[0, 1, 2], [1, 2, 3]], random.standard_normal((6, 9)), 6, [0.5, 2.0, 1.0]),
        "two nodes": Graph([[0], [1]], random.standard_normal((2, 9))),
    }[graph]
    model = build(name, made).train()
    model.accumulate(torch.arange(made.num_nodes), sum_of_squares)
    for parameter in model.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()
    with torch.no_grad():
        assert torch.isfinite(model.eval()(torch.arange(made.num_nodes))).all()


@pytest.mark.parametrize("name", ALL_MODELS)
def test_outputs_do_not_depend_on_the_batch(name: str) -> None:
    model = build(name)
    model.train()
    model.accumulate(NODES, sum_of_squares)  # fills what is learned without gradients
    model.eval()
    with torch.no_grad():
        whole = model(NODES)
        for size in (1, 7):
            assert torch.allclose(torch.cat([model(part) for part in NODES.split(size)]), whole, atol=1e-5)
        bound_to_some = build(name)
        bound_to_some.load_state_dict(model.state_dict())
        some = np.array([3, 11, 39])
        bound_to_some.bind(GRAPH, Workload(some, 3))
        assert torch.allclose(bound_to_some.eval()(torch.from_numpy(some)), whole[some], atol=1e-5)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_runs_repeat_resume_save_and_load(name: str, tmp_path: Path) -> None:
    """An interrupted run ends as a whole one does, and the stored model scores what the run says."""
    settings = {**settings_of(name), "epochs": 3, "batch_size": "full"}
    request = RunRequest("minefield:width=9,height=8", name, device="cpu", seed=4, settings=settings)
    whole = execute_run(request, tmp_path / "whole")
    asked = iter([True])
    with pytest.raises(TrainingInterrupted):
        execute_run(request, tmp_path / "run", reporter=Listener(stop=lambda: next(asked)))
    resumed = execute_run(request, tmp_path / "run", resume=True)
    losses = [[record["loss"] for record in Run(tmp_path / run).metrics] for run in ("whole", "run")]
    assert losses[0] == losses[1]
    assert (resumed["val"], resumed["test"]) == (whole["val"], whole["test"])
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"] == name
    scores = []
    for run in ("whole", "run"):
        card, model = Run(tmp_path / run).load()
        scores.append(predict_scores(model, card.reader, _board()))
    assert np.array_equal(*scores)


@pytest.mark.parametrize("route", ["stored", "streamed"])
@pytest.mark.parametrize("name", [name for name in TOKEN_MODELS if name != "nagphormer"])
def test_kept_norms_are_weights_of_the_first_layer(name: str, route: str, tmp_path: Path) -> None:
    settings = {"basis": "optimal", "token_route": route}
    models = [build(name, None, **settings, keep_norms=keeps).eval() for keeps in (True, False)]
    for i, model in enumerate(models):
        assert isinstance(model, TokenModel)
        model.bind(GRAPH, Workload(None, 40, scratch=tmp_path / f"tokens{i}"))
    kept, plain = models
    norms = np.linalg.norm(GRAPH.features, axis=0)
    with torch.no_grad():
        plain.input.weight *= torch.from_numpy(norms).float()
        assert torch.allclose(kept(NODES), plain(NODES), atol=1e-5)
        assert torch.allclose(kept.embed(NODES), plain.embed(NODES), atol=1e-5)
    lam = np.linspace(0, 2, 5)
    assert np.allclose(kept.token_response(lam, 3), norms[3] * plain.token_response(lam, 3))
    kept.accumulate(NODES, sum_of_squares)
    plain.accumulate(NODES, sum_of_squares)
    ours, theirs = kept.input.weight.grad, plain.input.weight.grad
    assert ours is not None
    assert theirs is not None
    assert torch.allclose(ours, theirs * torch.from_numpy(norms).float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_models_on_tokens_stream_them(name: str, tmp_path: Path) -> None:
    """Tokens on disk give what tokens in memory give: in training, in predictions and in filters."""
    kept = build(name, token_route="stored").eval()
    workload = Workload(None, 40, scratch=tmp_path / "tokens")
    streamed = build(name, None, token_route="streamed").eval()
    streamed.bind(GRAPH, workload)
    assert (kept.describe()["token_route"], streamed.describe()["token_route"]) == ("stored", "streamed")
    assert streamed.by_rows
    assert streamed.nodes_at_once(GRAPH, workload) == 40
    with torch.no_grad():
        assert torch.allclose(streamed(NODES), kept(NODES), atol=1e-5)
    for model in (kept, streamed):
        model.accumulate(NODES, sum_of_squares)
    for one, other in zip(kept.parameters(), streamed.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad, atol=1e-4 * float(one.grad.abs().max()) + 1e-5)
    if isinstance(kept, SpectralFilter):
        assert isinstance(streamed, SpectralFilter)
        lam = np.linspace(0, 2, 5)
        assert np.allclose(streamed.frequency_response(lam), kept.frequency_response(lam), atol=1e-4)


def test_token_directories_serve_models_that_propagate_the_features_alone(tmp_path: Path) -> None:
    write_tokens(GRAPH, tmp_path / "tokens", "monomial", 4, self_loops=True)
    workload = Workload(None, 40, tokens=tmp_path / "tokens")
    plain = build("nagphormer", **EXACT).eval()
    with torch.no_grad():
        expected = plain(NODES)
        plain.bind(GRAPH, workload)
        assert torch.allclose(plain(NODES), expected, atol=1e-5)
    with pytest.raises(InvalidParameter, match="propagates more than the features"):
        build("nagphormer", None).bind(GRAPH, workload)


def _board() -> Graph:
    from polyformer.datasets import load_dataset

    return load_dataset("minefield:width=9,height=8").graph


@pytest.mark.parametrize("name", ALL_MODELS)
def test_the_graph_is_no_part_of_the_state(name: str) -> None:
    model = build(name, None)
    before = {key: value.shape for key, value in model.state_dict().items()}
    model.bind(GRAPH, Workload(None, 40))
    assert {key: value.shape for key, value in model.state_dict().items()} == before


DROPOUTS = [
    (name, field.name)
    for name in ALL_MODELS
    for field in dataclasses.fields(ALL_MODELS[name].settings_type)
    if field.name.endswith("dropout")
]


@pytest.mark.parametrize(("name", "field"), DROPOUTS)
def test_every_dropout_acts_in_training_alone(name: str, field: str) -> None:
    def outputs(training: bool, **settings: Any) -> torch.Tensor:
        model = build(name, **{"local_epochs": 0, **settings}).train(training)
        torch.manual_seed(1)
        with torch.no_grad():
            return model(NODES)

    plain, dropping = ({field: 0.0}, {field: 0.9})
    assert torch.equal(outputs(False, **plain), outputs(False, **dropping))
    assert not torch.equal(outputs(True, **plain), outputs(True, **dropping))


NEVER_NEGATIVE = ("lr", "weight_decay", "heads", "orthogonality", "edge_weight")


@pytest.mark.parametrize("name", ALL_MODELS)
def test_settings_that_would_train_uphill_are_refused(name: str) -> None:
    kind = MODELS[name]
    for field in dataclasses.fields(kind.settings_type):
        if field.name.endswith(NEVER_NEGATIVE):
            with pytest.raises(InvalidParameter, match=f"'{field.name}' must be .* Got -1"):
                kind(9, 3, build_settings(kind.settings_type, {field.name: -1}))


@pytest.mark.parametrize("name", ALL_MODELS)
def test_what_cannot_be(name: str) -> None:
    with pytest.raises(InvalidParameter, match="no graph yet"):
        build(name, None)(NODES)
    with pytest.raises(InvalidData, match="reads 9 features per node"):
        build(name, GRAPH.with_features(np.ones((40, 2))))


@pytest.mark.parametrize("name", SPECTRAL)
def test_frequency_responses_are_rows_of_gains(name: str) -> None:
    model = build(name).eval()
    assert isinstance(model, SpectralFilter)
    lam = np.linspace(0, 2, 21)
    response = model.frequency_response(lam)
    assert response.ndim == 2
    assert response.shape[1] == 21
    assert np.isfinite(response).all()
    if len(response) >= 40:  # one for each node, or for each of its heads
        some, by_node = torch.tensor([5, 0]), response.reshape(40, -1, 21)
        # Products of few rows and of many sum in another order.
        assert np.allclose(model.frequency_response(lam, some), by_node[some].reshape(-1, 21), atol=1e-6)
