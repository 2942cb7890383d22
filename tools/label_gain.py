"""What known labels as input bring: every run that is shown labels beside the same run that is shown none.

    python -m tools.label_gain

Two runs belong together if they differ in ``label_input`` and ``label_masks`` alone. Validation chooses between them,
by the mean over the splits that have both; a gain is the mean of the paired differences of test scores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.experiments.records import Records

RESULTS = Path(__file__).parents[1] / "results"
LABEL_SETTINGS = ("label_input", "label_masks")
MODELS = ("cascade", "polyformer", "gcn", "gcn-tuned")
DATASETS = ("minesweeper", "tolokers", "squirrel_filtered", "chameleon_filtered")
HEADER = (
    "| model | data set | splits | validation without | validation with | validation chooses | test without "
    "| test with | gain |"
)


@dataclass(frozen=True)
class Pair:
    """Two runs on one split: their scores without labels and with labels, in percent."""

    split: int
    hidden: float
    val: tuple[float, float]
    test: tuple[float, float]


@dataclass(frozen=True)
class Gain:
    """The pairs of a model on a data set."""

    model: str
    dataset: str
    pairs: tuple[Pair, ...]

    @property
    def val(self) -> np.ndarray:
        """Mean validation scores without labels and with labels."""
        return np.mean([pair.val for pair in self.pairs], axis=0)

    @property
    def test(self) -> np.ndarray:
        """Mean test scores without labels and with labels."""
        return np.mean([pair.test for pair in self.pairs], axis=0)

    @property
    def chooses_labels(self) -> bool:
        """Whether validation is better with labels."""
        return bool(self.val[1] > self.val[0])

    def row(self) -> str:
        """The row of the table."""
        choice = "labels" if self.chooses_labels else "none"
        val, test, name = self.val, self.test, self.dataset.removesuffix("_filtered")
        return (
            f"| {self.model} | {name} | {len(self.pairs)} | {val[0]:.2f} | {val[1]:.2f} | {choice} "
            f"| {test[0]:.2f} | {test[1]:.2f} | {test[1] - test[0]:+.2f} |"
        )


def all_records(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The records of all plans."""
    records = Records(folder)
    return [record for plan in records.plans() for record in records.of_plan(plan).read().values()]


def gains(records: Iterable[dict[str, Any]]) -> list[Gain]:
    """The gain of every model and data set that has pairs."""
    by_place: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        config = record["config"]
        place = (record["model"], record["dataset"], str(config["split"]), str(config["seed"]), str(config["protocol"]))
        by_place[place].append(record)
    pairs: dict[tuple[str, str], dict[int, Pair]] = defaultdict(dict)
    for (model, dataset, *_), here in by_place.items():
        for shown in here:
            hidden = shown["config"]["settings"].get("label_input", 0)
            other = _without_labels(shown, here) if hidden else None
            if other is not None:
                split = int(shown["config"]["split"])
                val, test = ((100 * other["result"][key], 100 * shown["result"][key]) for key in ("val", "test"))
                pairs[model, dataset][split] = Pair(split, hidden, val, test)
    return [
        Gain(model, dataset, tuple(pairs[model, dataset].values()))
        for dataset in DATASETS
        for model in MODELS
        if (model, dataset) in pairs
    ]


def _without_labels(shown: Mapping[str, Any], records: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The record of the same run without labels; settings that only one of two versions knows do not count."""
    wanted = shown["config"]["settings"]
    for record in records:
        settings = record["config"]["settings"]
        common = (settings.keys() & wanted.keys()) - {*LABEL_SETTINGS}
        if not settings.get("label_input", 0) and all(settings[name] == wanted[name] for name in common):
            return record
    return None


def gain_table(table: Iterable[Gain]) -> str:
    """The gains as a table for the page, in percent."""
    return "\n".join([HEADER, "|---" * HEADER.count(" | ") + "|---|", *(gain.row() for gain in table)])


def main() -> None:
    """Print the table of the records that there are."""
    print(gain_table(gains(all_records())))


if __name__ == "__main__":
    main()
