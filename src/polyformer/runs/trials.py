"""Settings that choose themselves: a run that was asked for without settings tries a few, and goes on with the best.

The first trial has the defaults, the next ones the model's alternatives; the best by its validation score is then
tried with known labels as input. Labels stay only where they gain more than a standard error, because a model that
reads labels needs them wherever it is applied. All trials have the seed of the run and a bound that is counted in
nodes, not in seconds, so the choice can be repeated. The training of the best trial goes on in the run: nothing is
trained twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.devices import choose_device
from polyformer.errors import OutOfResources, TrainingDiverged, TrainingInterrupted
from polyformer.evaluation import paired_gain
from polyformer.files import finite
from polyformer.metrics import METRICS
from polyformer.models import MODELS
from polyformer.objectives import label_units
from polyformer.reporter import EpochRecord, Reporter
from polyformer.runs.default_settings import NEUTRAL_SETTINGS, alternatives_for
from polyformer.runs.known_labels import StoredLabels
from polyformer.runs.request import RunRequest
from polyformer.runs.saved_model import ModelCard
from polyformer.settings import in_words
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.training.loop import Trainer, derive_seed
from polyformer.training.workload import label_masks_of, workload_of

__all__ = ["Choice", "HeadStart", "HeardEpoch", "Trial", "choosing_settings", "tries_settings"]

HeardEpoch = tuple[EpochRecord, int, float]
"""What a reporter hears of an epoch: its record, the best epoch so far and its score."""

_ROWS_PER_TRIAL, _LEAST_EPOCHS = 150_000, 15
"""A trial sees its training and validation nodes so often that they add up to the first number; graphs on which that is
fewer epochs than the second have no trials: their defaults are for many labels, and minutes would pass."""

_LARGEST_GRAPH = 5_000_000
"""Edges and feature values together: on larger graphs a trial, which propagates all of them, takes long."""

_FEWEST_VALIDATION_NODES = 20
"""Fewer do not tell settings apart."""

_SHOWN_LABELS = 0.5
"""The share of training labels that a step hides, in the trial with known labels as input."""


@dataclass(frozen=True)
class Trial:
    """What one attempt came to.

    Attributes:
        settings: what differs from the defaults of this run.
        val: the best validation score; None where training failed.
        interval: for the trial with known labels, 95 % of its gain over the best trial before it.
    """

    settings: dict[str, Any]
    val: float | None
    epochs: int
    seconds: float
    kept: bool = False
    interval: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """The settings, for people."""
        return in_words(self.settings) or "the defaults"

    def to_json(self) -> dict[str, Any]:
        """For ``config.json``."""
        return asdict(self) | {"interval": None if self.interval is None else list(self.interval)}


@dataclass(frozen=True)
class HeadStart:
    """The training that a trial has done already.

    Attributes:
        checkpoint: the file of its last epoch, which is gone when the choice is over.
        heard: its epochs; none if it failed.
    """

    checkpoint: Path
    heard: list[HeardEpoch]


@dataclass(frozen=True)
class Choice:
    """The settings that are kept, all trials, and the training of the best one."""

    settings: dict[str, Any]
    trials: list[Trial]
    kept: HeadStart


def tries_settings(request: RunRequest, task: Task, split: Split) -> bool:
    """Whether a run tries settings: it was asked for without any, and trials tell something and take seconds."""
    asked = dict(request.settings or {})
    if asked.get("label_input") == 0:  # declines known labels, and says nothing else
        del asked["label_input"]
    if asked.keys() - NEUTRAL_SETTINGS or any((request.preset, request.tokens, request.start_from)) or split.fit:
        return False
    features = task.graph.features
    assert features is not None
    values = features.nnz if hasattr(features, "nnz") else int(np.prod(features.shape))
    is_small = task.graph.num_edges + values <= _LARGEST_GRAPH and _epochs_of(split) >= _LEAST_EPOCHS
    tells = len(split.val) >= _FEWEST_VALIDATION_NODES
    return tells and is_small and len(alternatives_for(MODELS[request.model], len(split.train))) > 0


def _epochs_of(split: Split) -> int:
    return _ROWS_PER_TRIAL // max(1, len(split.train) + len(split.val))


@contextmanager
def choosing_settings(request: RunRequest, task: Task, split: Split, reporter: Reporter) -> Iterator[Choice]:
    """Try settings on a prepared task; the files of the trials are there until the context ends."""
    with tempfile.TemporaryDirectory() as folder:
        trials = _Trials(request, task, split, reporter, Path(folder))
        yield trials.choose()


class _Learning(Reporter):
    """Keeps the epochs of a trial, and passes on how far all trials are and whether to stop.

    Args:
        begin: the share of all trials that is done before this one; ``end`` is that after it.
        epochs: how many epochs there may be.
    """

    def __init__(self, reporter: Reporter, begin: float, end: float, epochs: int) -> None:
        self.heard: list[HeardEpoch] = []
        self._reporter, self._epochs = reporter.part(begin, end), epochs

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        self.heard.append((record, best_epoch, best_score))
        self._reporter.share("trying settings", min(1.0, record.epoch / self._epochs))
        if self._reporter.should_stop():
            raise TrainingInterrupted("Stopped while settings were tried, before the first epoch. Nothing was written.")


@dataclass(frozen=True)
class _Attempt:
    """A trial with what it leaves: its training so far, and its outputs for the validation nodes."""

    trial: Trial
    start: HeadStart
    scores: np.ndarray = field(repr=False)


class _Trials:
    """Trials on one task and split."""

    def __init__(self, request: RunRequest, task: Task, split: Split, reporter: Reporter, folder: Path) -> None:
        self.request, self.task, self.split, self.reporter, self.folder = request, task, split, reporter, folder
        self.defaults = request.resolve_settings(len(split.train))
        self.metric = METRICS[task.metric]
        self.bound = min(_epochs_of(split), self.defaults["epochs"])
        self.changes = ({}, *alternatives_for(MODELS[request.model], len(split.train)))
        self.tries_labels = (request.settings or {}).get("label_input") != 0
        self.tried = 0

    def choose(self) -> Choice:
        """Try the defaults, the alternatives, and the best of these with known labels as input."""
        self.reporter.say(
            f"no settings were asked for, so a few are tried, at most {self.bound} epochs each; the best on validation "
            f"goes on"
        )
        best, *others = attempts = [self._try(dict(changes)) for changes in self.changes]
        for attempt in others:
            best = attempt if self._is_better(attempt, best) else best
        if self.tries_labels:
            attempts.append(labelled := self._try_labels(best))
            best = labelled if labelled.trial.kept else best
        trials = [replace(attempt.trial, kept=attempt is best) for attempt in attempts]
        self.reporter.say(f"kept: {best.trial.name}{self._caution(best)}")
        return Choice(self._all_settings(best.trial.settings), trials, best.start)

    def _is_better(self, one: _Attempt, other: _Attempt) -> bool:
        if one.trial.val is None or other.trial.val is None:
            return one.trial.val is not None
        return self.metric.gain(one.trial.val, other.trial.val) > 0

    def _try_labels(self, best: _Attempt) -> _Attempt:
        """The best settings with known labels as input, kept if they gain more than about a standard error."""
        attempt = self._try({**best.trial.settings, "label_input": _SHOWN_LABELS})
        if attempt.trial.val is None or best.trial.val is None:
            return replace(attempt, trial=replace(attempt.trial, kept=attempt.trial.val is not None))
        labels = self.task.labels[self.split.val]
        interval = paired_gain(self.task.metric, attempt.scores, best.scores, labels)
        gain = self.metric.gain(attempt.trial.val, best.trial.val)
        kept = interval is not None and gain > (interval[1] - interval[0]) / 4  # 95 % are four standard errors
        return replace(attempt, trial=replace(attempt.trial, interval=interval, kept=kept))

    def _caution(self, best: _Attempt) -> str:
        if "label_input" not in best.trial.settings:
            return ""
        return (
            " (the model reads the known labels of other nodes, in every graph that it is applied to; "
            "--set label_input=0 trains one that does not)"
        )

    def _all_settings(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        asked = {**(self.request.settings or {}), **changes}
        return replace(self.request, settings=asked).resolve_settings(len(self.split.train))

    def _try(self, changes: dict[str, Any]) -> _Attempt:
        """Train with these changes of the defaults, as the run itself would, up to the bound of a trial."""
        count = len(self.changes) + self.tries_labels
        learning = _Learning(self.reporter, self.tried / count, (self.tried + 1) / count, self.bound)
        checkpoint = self.folder / f"{self.tried}.safetensors"
        self.tried += 1
        trial = Trial(changes, None, 0, 0.0)
        try:
            trainer = self._train(self._all_settings(changes), learning, checkpoint)
        except (TrainingDiverged, OutOfResources) as error:
            self.reporter.say(f"  {trial.name}: {error}")
            return _Attempt(trial, HeadStart(checkpoint, []), np.empty(0))
        stopping = trainer.stopping
        scores = trainer.scores(torch.from_numpy(self.split.val))
        assert scores is not None, "the only worker has them"
        trial = replace(trial, val=finite(stopping.best_score), epochs=trainer.epoch, seconds=round(trainer.seconds, 2))
        self.reporter.say(
            f"  {trial.name}: validation {stopping.best_score:.4f} after {trial.epochs} epochs, {trial.seconds:.1f} s"
        )
        return _Attempt(trial, HeadStart(checkpoint, learning.heard), scores)

    def _train(self, settings: dict[str, Any], learning: Reporter, checkpoint: Path) -> Trainer:
        request, task, split = self.request, self.task, self.split
        card = ModelCard.of(request.model, settings, task)
        if task.is_regression and card.training.targets == "standard":
            card = replace(card, units=label_units(task.labels[split.train]))
        training = card.training.resolve(len(split.train), task.graph.num_features)
        model = card.build(derive_seed(request.seed, 0)).to(choose_device(request.device))
        masks = label_masks_of(model, training, len(split.train), request.seed)
        labels = StoredLabels.of(task, split).known if card.label_channels else None
        workload = workload_of(split, training, request.memory, labels=labels, masks=masks)
        model.bind(task.graph, workload)
        trainer = Trainer(
            model,
            card.reader,
            card.metric,
            task.labels,
            split,
            replace(training, epochs=self.bound),
            seed=request.seed,
            checkpoint=checkpoint,
            reporter=learning,
        )
        trainer.run()
        return trainer
