"""More laws of known labels as input, and faults that are planted to see that each law can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.graph import Graph
from polyformer.inputs.label_tokens import LabelledInput
from polyformer.label_input import KnownLabels, LabelMask
from polyformer.models import MODELS, NodeModel, Workload
from polyformer.models.parts.full_graph import FullGraphModel
from polyformer.objectives import label_units
from polyformer.runs.known_labels import StoredLabels
from polyformer.settings import build_settings
from polyformer.splits import Split
from polyformer.tasks import Task
from tests.contracts import test_label_input as laws
from tests.contracts.test_label_input import KINDS, READERS, SPLIT, masks_of
from tests.contracts.test_models import GRAPH, LABELS, settings_of

VALUES = np.random.default_rng(2).standard_normal(40) * 7 + 100
TARGETS = {"classes": LABELS, "values": VALUES}


def bound(name: str, labels: np.ndarray, graph: Graph = GRAPH) -> NodeModel:
    """A model with the same parameters every time, which has left the start that some filters have as the identity."""
    classes = 3 if labels.dtype.kind == "i" else 0
    known = KnownLabels.of(40, SPLIT.train, labels[SPLIT.train], classes)
    torch.manual_seed(0)
    kind = MODELS[name]
    model = kind(9 + known.width, max(1, classes), build_settings(kind.settings_type, settings_of(name)))
    model.label_channels = known.width
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.bind(graph, Workload(None, 40, labels=known, label_masks=masks_of(model).drawn))
    return model


def other_labels(labels: np.ndarray, mask: LabelMask) -> np.ndarray:
    """The same labels but for those that the mask hides."""
    other, hidden = labels.copy(), SPLIT.train[mask.hidden]
    other[hidden] = (other[hidden] + 1) % 3 if labels.dtype.kind == "i" else 3 * other[hidden] + 1000
    return other


def step(model: NodeModel, mask: LabelMask) -> torch.Tensor:
    """The outputs of the nodes that a step learns from, with the same dropout every time."""
    torch.manual_seed(7)
    with torch.no_grad(), model.hiding(mask):
        return model(torch.from_numpy(SPLIT.train[mask.hidden]))


@pytest.mark.parametrize("features", KINDS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", READERS)
def test_a_hidden_label_is_in_no_statistic_of_a_training_step(name: str, target: str, features: str) -> None:
    """In training mode, outputs and what the model remembers of the step, such as batch statistics, are the same."""
    labels, results = TARGETS[target], []
    mask = masks_of(laws.build(name)).of_step(epoch=2, step=0)
    for shown in (labels, other_labels(labels, mask)):
        model = bound(name, shown, KINDS[features]).train()
        results.append((step(model, mask), {key: value.clone() for key, value in model.state_dict().items()}))
    (outputs, state), (same_outputs, same_state) = results
    assert torch.equal(outputs, same_outputs)
    for key, value in state.items():
        assert torch.equal(value, same_state[key]), key


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", READERS)
def test_nothing_is_left_of_an_earlier_mask(name: str, target: str) -> None:
    """A label that an earlier step was shown reaches no output of a later step that hides it."""
    labels, masks = TARGETS[target], masks_of(laws.build(name))
    steps = [masks.of_step(epoch, 0) for epoch in (1, 2, 3)]
    model = bound(name, labels).eval()
    expected = [step(model, mask) for mask in steps]
    for number, mask in enumerate(steps):
        other = bound(name, other_labels(labels, mask)).eval()
        outputs = [step(other, earlier) for earlier in steps[: number + 1]]
        assert torch.equal(outputs[number], expected[number])


def test_values_are_standardised_by_those_that_are_shown() -> None:
    """Under a mask the mean of all values would tell the sum of the hidden ones."""
    known = KnownLabels.of(4, np.arange(4), np.array([1.0, 3.0, 50.0, 70.0]), 0, units=(31.0, 30.0))
    mask = LabelMask(np.array([False, False, True, True]))
    assert known.matrix(mask).toarray().tolist() == [[-1, 1], [1, 1], [0, 0], [0, 0]]
    assert np.allclose(known.matrix().toarray()[:, 0] * 30 + 31, [1, 3, 50, 70])


# Faults. Each is planted where it could be made, and the law that is named must notice it.


def shows_one_hidden_label(patch: pytest.MonkeyPatch) -> None:
    """The row of one hidden node stays, so that it sees its own label, by a self-loop or without."""
    real = KnownLabels.shown_columns

    def shown_columns(self: KnownLabels, mask: LabelMask | None = None) -> np.ndarray:
        columns = real(self, mask).copy()
        if mask is not None:
            first = np.flatnonzero(mask.hidden)[0]
            columns[first] = self.columns[first]
        return columns

    patch.setattr(KnownLabels, "shown_columns", shown_columns)


def standardises_by_all_values(patch: pytest.MonkeyPatch) -> None:
    """Hidden values are zero, but those that are shown are standardised by all values."""

    def shown_columns(self: KnownLabels, mask: LabelMask | None = None) -> np.ndarray:
        assert self.values is not None
        columns = KnownLabels.of(40, self.nodes, self.values, 0, label_units(self.values)).columns
        return columns if mask is None else columns * ~mask.hidden[:, None]

    patch.setattr(KnownLabels, "shown_columns", shown_columns)


def updates_statistics_before_hiding(patch: pytest.MonkeyPatch) -> None:
    """A pass with all labels goes ahead of the step, and batch normalisation remembers it."""
    real = FullGraphModel.show_labels

    def show_labels(self: FullGraphModel, mask: LabelMask | None) -> None:
        if mask is not None and self.training:
            self.encode()
        real(self, mask)

    patch.setattr(FullGraphModel, "show_labels", show_labels)


def keeps_the_first_mask(patch: pytest.MonkeyPatch) -> None:
    """Columns are made once for a mask and then for no other."""
    real, made = KnownLabels.matrix, dict[int, Any]()

    def matrix(self: KnownLabels, mask: LabelMask | None = None) -> Any:
        if mask is None:
            return real(self)
        return made.setdefault(id(self), (self, real(self, mask)))[1]

    patch.setattr(KnownLabels, "matrix", matrix)


def shows_all_tokens(patch: pytest.MonkeyPatch) -> None:
    """Tokens of all labels serve every mask."""
    patch.setattr(LabelledInput, "show_labels", lambda self, mask: None)


def takes_labels_of_other_nodes(patch: pytest.MonkeyPatch) -> None:
    """Labels of validation and test nodes are shown as those of training nodes."""

    def of(task: Task, split: Split) -> StoredLabels:
        held_out = np.concatenate([split.val, split.test])
        return replace(stored(task, split), labels=task.labels[held_out])

    stored = StoredLabels.of
    patch.setattr(StoredLabels, "of", of)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = {
    "own label, full graph": (
        shows_one_hidden_label,
        lambda: laws.test_a_hidden_label_changes_no_output_of_its_step("gcn", "dense"),
    ),
    "own label, sparse features": (
        shows_one_hidden_label,
        lambda: test_a_hidden_label_is_in_no_statistic_of_a_training_step("gcn", "classes", "sparse"),
    ),
    "tokens of all labels": (
        shows_all_tokens,
        lambda: laws.test_a_hidden_label_changes_no_output_of_its_step("polyformer", "dense"),
    ),
    "tokens of another mask": (
        keeps_the_first_mask,
        lambda: test_nothing_is_left_of_an_earlier_mask("polyformer", "classes"),
    ),
    "batch statistics": (
        updates_statistics_before_hiding,
        lambda: test_a_hidden_label_is_in_no_statistic_of_a_training_step("cascade", "classes", "dense"),
    ),
    "scaling of values, full graph": (
        standardises_by_all_values,
        lambda: test_a_hidden_label_is_in_no_statistic_of_a_training_step("gcn", "values", "dense"),
    ),
    "scaling of values, tokens": (
        standardises_by_all_values,
        lambda: test_nothing_is_left_of_an_earlier_mask("polyformer", "values"),
    ),
    "labels of validation nodes": (
        takes_labels_of_other_nodes,
        lambda: laws.test_labels_that_are_not_for_training_change_nothing("polyformer"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, law = FAULTS[fault]
    law()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        law()
