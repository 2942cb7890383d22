"""Laws of known labels as input, over every model that reads them: no label that is hidden reaches an output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.label_input import KnownLabels, LabelMask, LabelMasks
from polyformer.models import MODELS, NodeModel, Workload
from polyformer.objectives import Multiclass
from polyformer.runs.known_labels import StoredLabels
from polyformer.settings import build_settings
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.training.loop import Trainer
from polyformer.training.settings import TrainingSettings
from polyformer.training.workload import check_label_input, label_masks_of, workload_of
from tests.contracts.test_models import ALL_MODELS, GRAPH, LABELS, TOKEN_MODELS, settings_of

READERS = [name for name in ALL_MODELS if ALL_MODELS[name].reads_labels]
BLIND = [name for name in ALL_MODELS if not ALL_MODELS[name].reads_labels]
SPLIT = Split(np.arange(0, 20), np.arange(20, 30), np.arange(30, 40))
SETTINGS = TrainingSettings(epochs=2, batch_size=8, lr=0.01, label_input=0.5, label_masks=3, class_weights="balanced")
NODES = torch.arange(40)
KINDS = {"dense": GRAPH, "sparse": GRAPH.with_features(sp.csr_matrix(GRAPH.features))}


def build(name: str) -> NodeModel:
    """A small model of three classes whose labels it reads beside nine features."""
    torch.manual_seed(0)
    kind = MODELS[name]
    model = kind(12, 3, build_settings(kind.settings_type, settings_of(name)))
    model.label_channels = 3
    return model


def known_labels(labels: np.ndarray) -> KnownLabels:
    return KnownLabels.of(40, SPLIT.train, labels[SPLIT.train], 3)


def masks_of(model: NodeModel) -> LabelMasks:
    masks = label_masks_of(model, SETTINGS, 20, seed=0)
    assert masks is not None
    return masks


def bound(name: str, labels: np.ndarray, graph: Graph = GRAPH) -> NodeModel:
    model = build(name)
    drawn = masks_of(model).drawn
    model.bind(graph, Workload(None, 40, labels=known_labels(labels), label_masks=drawn))
    return model


def trained(name: str, labels: np.ndarray) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The parameters after two epochs, which no validation score selected, and the outputs of all nodes."""
    model, split = build(name), SPLIT
    task = Task("made", GRAPH, labels, [split])
    settings = SETTINGS.resolve(20, 9)
    known = StoredLabels.of(task, split).known
    model.bind(GRAPH, replace(workload_of(split, settings, labels=known, masks=masks_of(model)), nodes=np.arange(40)))
    trainer = Trainer(model, Multiclass(), "accuracy", labels, split, settings)
    for _ in range(settings.epochs):
        trainer._run_epoch()
    with torch.no_grad():
        return {key: value.clone() for key, value in model.state_dict().items()}, model.eval()(NODES)


@pytest.mark.parametrize("name", READERS)
def test_labels_that_are_not_for_training_change_nothing(name: str) -> None:
    """Neither a parameter nor an output knows the label of a validation or a test node."""
    other = LABELS.copy()
    other[20:] = (other[20:] + 1) % 3
    (parameters, outputs), (same, same_outputs) = trained(name, LABELS), trained(name, other)
    assert torch.equal(outputs, same_outputs)
    for key, value in parameters.items():
        assert torch.equal(value, same[key]), key


@pytest.mark.parametrize("features", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_a_hidden_label_changes_no_output_of_its_step(name: str, features: str) -> None:
    """With every hidden label replaced by another, the outputs of the step are the same bits; shown ones do count."""
    model = build(name)
    mask = masks_of(model).of_step(epoch=2, step=0)
    others = []
    for changed in (mask.hidden, ~mask.hidden):
        other = LABELS.copy()
        other[SPLIT.train[changed]] = (other[SPLIT.train[changed]] + 1) % 3
        others.append(other)
    hidden = torch.from_numpy(SPLIT.train[mask.hidden])
    outputs, parameters = [], trained(name, LABELS)[0]  # some filters begin as the identity
    for labels in (LABELS, *others):
        model = bound(name, labels, KINDS[features]).eval()
        model.load_state_dict(parameters)
        with torch.no_grad(), model.hiding(mask):
            outputs.append(model(hidden))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2], atol=1e-6), "labels that are shown must reach the model"


@pytest.mark.parametrize("name", READERS)
def test_a_step_learns_from_hidden_nodes_alone(name: str) -> None:
    """Every node that a step learns from is hidden in it, a mask hides half, and after the step all labels are back."""
    model = build(name)
    settings = SETTINGS.resolve(20, 9)
    work = replace(workload_of(SPLIT, settings, labels=known_labels(LABELS), masks=masks_of(model)), nodes=None)
    model.bind(GRAPH, work)
    trainer = Trainer(model, Multiclass(), "accuracy", LABELS, SPLIT, settings)
    shown: list[LabelMask | None] = []
    show, accumulate = model.show_labels, trainer._accumulate

    def watched_show(mask: LabelMask | None) -> None:
        shown.append(mask)
        show(mask)

    def watched_accumulate(nodes: torch.Tensor, loss: Any) -> float:
        mask = shown[-1]
        assert mask is not None
        assert mask.hidden.sum() == 10
        assert mask.hidden[np.searchsorted(SPLIT.train, nodes.numpy())].all()
        return accumulate(nodes, loss)

    model.show_labels, trainer._accumulate = watched_show, watched_accumulate  # type: ignore[method-assign]
    trainer._train_pass(np.random.default_rng(0))
    assert len(shown) == 6  # three steps, each of which hides and shows
    assert shown[-1] is None
    fresh = bound(name, LABELS)
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model.eval()(NODES), fresh.eval()(NODES))


@pytest.mark.parametrize("name", READERS)
def test_a_model_asks_for_the_labels_that_it_reads(name: str) -> None:
    with pytest.raises(InvalidParameter, match="reads known labels"):
        build(name).bind(GRAPH, Workload(None, 40))


@pytest.mark.parametrize("name", BLIND)
def test_a_model_that_sees_no_neighbours_refuses_labels(name: str) -> None:
    with pytest.raises(InvalidParameter, match="tell it nothing"):
        check_label_input(build(name), name, SPLIT)


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_routes_agree(name: str) -> None:
    """Tokens in memory and projected features give the same outputs, under a mask and without one."""
    outputs = []
    mask = masks_of(build(name)).drawn[1]
    hidden = torch.from_numpy(SPLIT.train[mask.hidden])
    for route in ("stored", "projected"):
        torch.manual_seed(0)
        kind = MODELS[name]
        model = kind(12, 3, build_settings(kind.settings_type, settings_of(name, token_route=route)))
        model.label_channels = 3
        drawn = masks_of(model).drawn
        model.bind(GRAPH, Workload(None, 40, labels=known_labels(LABELS), label_masks=drawn))
        model.eval()
        with torch.no_grad():
            whole = model(NODES)
            with model.hiding(mask):
                outputs.append(torch.cat([whole, model(hidden)]))
    assert torch.allclose(*outputs, atol=1e-5)


NOISE_NODES, NOISE_SHOWN = 300, 100
NOISE = TrainingSettings(epochs=12, batch_size="full", lr=0.02, label_input=0.5, label_masks=4)


def noise_score(name: str, leak: bool = False) -> float:
    """Trained on labels that are coin tosses, how often the model is right on 200 hidden nodes that it never learned.

    Args:
        leak: plant the fault that labels are never hidden.
    """
    random = np.random.default_rng(5)
    graph = Graph(random.integers(0, NOISE_NODES, (2, 900)), random.standard_normal((NOISE_NODES, 4)), NOISE_NODES)
    labels = random.integers(0, 2, NOISE_NODES)
    split = Split(np.arange(NOISE_SHOWN), np.arange(100, 110), np.arange(110, NOISE_NODES))
    kind = MODELS[name]
    torch.manual_seed(1)
    model = kind(6, 2, build_settings(kind.settings_type, settings_of(name)))
    model.label_channels = 2
    if leak:
        model.show_labels = lambda mask: None  # type: ignore[method-assign]
    settings = NOISE.resolve(NOISE_SHOWN, 4)
    masks = label_masks_of(model, settings, NOISE_SHOWN, seed=0)
    known = KnownLabels.of(NOISE_NODES, split.train, labels[split.train], 2)
    model.bind(graph, workload_of(split, settings, labels=known, masks=masks))
    trainer = Trainer(model, Multiclass(), "accuracy", labels, split, settings)
    for _ in range(settings.epochs):
        trainer._run_epoch()
    every = KnownLabels.of(NOISE_NODES, np.arange(NOISE_NODES), labels, 2)
    mask = LabelMask(np.arange(NOISE_NODES) >= NOISE_SHOWN, 0)
    model.bind(graph, Workload(None, NOISE_NODES, labels=every, label_masks=(mask,)))
    hidden = torch.arange(NOISE_SHOWN, NOISE_NODES)
    with torch.no_grad(), model.eval().hiding(mask):
        return float((model(hidden).argmax(dim=1).numpy() == labels[NOISE_SHOWN:]).mean())


@pytest.mark.parametrize("name", READERS)
def test_noise_is_guessed(name: str) -> None:
    """Labels that are coin tosses are right on half of the hidden nodes: 0.5 and no more than four deviations above."""
    assert noise_score(name) <= 0.5 + 4 * 0.5 / np.sqrt(NOISE_NODES - NOISE_SHOWN)


@pytest.mark.parametrize("name", ["polyformer", "gcn-tuned"])
def test_the_law_of_noise_can_fail(name: str) -> None:
    """A model whose labels are never hidden learns to copy them, which the law above would notice."""
    assert noise_score(name, leak=True) > 0.8
