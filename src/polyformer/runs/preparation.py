"""The start of a run: data is read, what cannot be trained is refused, and the run directory is made or opened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from polyformer.devices import choose_device
from polyformer.errors import FileCorrupt, InvalidParameter
from polyformer.machine import usable_memory
from polyformer.models import NodeModel
from polyformer.objectives import label_units
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.config import write_memory
from polyformer.runs.data import load_task
from polyformer.runs.directory import check_new, replace_checkpoint
from polyformer.runs.facts import DataFacts
from polyformer.runs.known_labels import StoredLabels
from polyformer.runs.metrics_file import metrics_writer
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.runs.saved_model import ModelCard
from polyformer.runs.starting import load_start, with_start_units
from polyformer.runs.trials import HeardEpoch, Trial, choosing_settings, tries_settings
from polyformer.settings import in_words
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.training.distributed import ALONE, Workers
from polyformer.training.loop import derive_seed
from polyformer.training.settings import TrainingSettings
from polyformer.training.steps import check_optimizer
from polyformer.training.workload import check_label_input, workload_of

__all__ = ["Material", "check_divisible", "prepare_run"]


@dataclass(frozen=True)
class Material:
    """What a run is about to train, and on what.

    Attributes:
        trials: how the settings were found, if the run tried several.
        heard: the epochs that the kept trial has trained, from whose end the run goes on.
    """

    card: ModelCard
    model: NodeModel
    task: Task
    split: Split
    labels: StoredLabels | None = None
    trials: tuple[Trial, ...] = ()
    heard: tuple[HeardEpoch, ...] = ()

    @property
    def training(self) -> TrainingSettings:
        """How it is trained, with a number for the batch size."""
        return self.card.training.resolve(len(self.split.train), self.task.graph.num_features)


def check_divisible(model: NodeModel, name: str, num_workers: int) -> None:
    """Refuse a model that several workers would not train faster, or not to the same result."""
    if num_workers > 1 and not model.divisible:
        raise InvalidParameter(model.indivisible_reason(name, num_workers))


def prepare_run(
    request: RunRequest,
    out: Path,
    *,
    resume: bool = False,
    reporter: Reporter = SILENT,
    workers: Workers = ALONE,
    num_workers: int = 1,
    tries: bool = False,
) -> tuple[Run, Material]:
    """Read the data, refuse what cannot be trained, and make the run directory or open it.

    Args:
        workers: the processes that all prepare this run.
        num_workers: how many will train.
        tries: a new run that was asked for without settings may try some; for one process.
    """
    # Settings that do not fit are refused before anything is written.
    material = workers.in_turn(lambda: _read(request, out, resume, reporter, num_workers))
    facts = DataFacts.of(material.task, material.split)
    tries = tries and not resume and tries_settings(request, material.task, material.split)
    if resume:
        workers.first(lambda: _take_up(request, out, material.card, facts))
    elif not tries:
        workers.first(lambda: _make(request, out, material, facts))
    _say_what_is_trained(request, material.card, facts, reporter)
    if tries:
        return _try_and_make(request, out, material, facts, reporter)
    return Run(out), material


def _say_what_is_trained(request: RunRequest, card: ModelCard, facts: DataFacts, reporter: Reporter) -> None:
    reporter.say(facts.sentence)
    reporter.say(
        f"split {request.split} by protocol '{facts.protocol}': {facts.train:,} train, {facts.val:,} val, "
        f"{facts.test:,} test; selected by {card.metric} on validation"
    )
    few = request.few_label_defaults(facts.train)
    if few:
        reporter.say(f"{facts.train:,} training nodes are few, so the defaults are {in_words(few)}")


def _make(request: RunRequest, out: Path, material: Material, facts: DataFacts) -> Run:
    fixed = replace(request, memory=usable_memory() if request.memory is None else request.memory)
    return Run.create(out, fixed, material.card, facts, material.labels, [trial.to_json() for trial in material.trials])


def _try_and_make(
    request: RunRequest, out: Path, material: Material, facts: DataFacts, reporter: Reporter
) -> tuple[Run, Material]:
    """Let the settings choose themselves; the run that is made has the training of the kept trial behind it."""
    check_new(out)
    with choosing_settings(request, material.task, material.split, reporter) as choice:
        card = replace(ModelCard.of(request.model, choice.settings, material.task), units=material.card.units)
        labels = StoredLabels.of(material.task, material.split) if card.label_channels else None
        model = card.build(derive_seed(request.seed, 0))
        kept = Material(
            card, model, material.task, material.split, labels, tuple(choice.trials), tuple(choice.kept.heard)
        )
        run = _make(request, out, kept, facts)
        if kept.heard:
            with metrics_writer(out) as metrics:
                for epoch in kept.heard:
                    metrics.epoch(*epoch)
            replace_checkpoint(out, choice.kept.checkpoint)
    return run, kept


def _read(request: RunRequest, out: Path, resume: bool, reporter: Reporter, num_workers: int) -> Material:
    """The data and the untrained model; settings that do not fit are refused."""
    started = Run.open(out).card if resume else None
    start = None if request.start_from is None else Path(request.start_from)
    if started is None and start is not None:
        started = Run.open(start).card  # features are read as that run read them
    task, split = load_task(request, started, reporter)
    card = ModelCard.of(request.model, request.resolve_settings(len(split.train)), task)
    if task.is_regression and card.training.targets == "standard":
        card = replace(card, units=label_units(task.labels[split.train]))
    if start is not None and started is not None:
        card = with_start_units(card, started)
    choose_device(request.device)
    labels = StoredLabels.of(task, split) if card.label_channels else None
    material = Material(card, card.build(derive_seed(request.seed, 0)), task, split, labels)
    check_label_input(material.model, request.model, split)
    if start is not None and not (resume and Run(out).checkpoint.exists()):
        load_start(material.model, start)
    check_divisible(material.model, request.model, num_workers)
    check_optimizer(material.model, material.training)
    if request.tokens is not None:
        tokens = workload_of(split, material.training, request.memory, Path(request.tokens))
        material.model.check_tokens(task.graph, tokens)
    return material


def _take_up(request: RunRequest, out: Path, card: ModelCard, facts: DataFacts) -> None:
    """Refuse to go on with a run on other data, and record the bound on memory.

    The place of the tokens decides the order in which an epoch visits them. So a continued run keeps its place of
    tokens, unless the user gives another bound on memory.
    """
    run = Run.open(out)
    if facts.differs(run.facts):
        raise FileCorrupt(f"The data '{request.data}' has changed since the run '{out}' was started. Start a new run.")
    if run.card.units != card.units:
        raise FileCorrupt(
            f"The run '{out}' was started by a version that learned labels in other units. Start a new run."
        )
    if request.memory is not None:
        write_memory(out, request.memory)
