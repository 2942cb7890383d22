"""What ``polyformer train`` says when a run has ended, and the report that follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyformer.cli.display import Display
from polyformer.errors import PolyformerError

__all__ = ["conclude", "write_small_report"]


def conclude(display: Display, result: dict[str, Any], out: Path) -> None:
    """Say how good the model is, where everything is, and what can be done next."""
    from polyformer.datasets import DATASETS, data_name
    from polyformer.models import MODELS

    scores = [
        f"{name} {result[key]:.4f}"
        for name, key in (("test", "test"), ("validation", "val"))
        if result[key] is not None
    ]
    when = f"epoch {result['best_epoch']} of {result['epochs']}, {result['seconds']:.1f} s"
    display.say(f"{result['metric']}: {', '.join(scores)} at {when}")
    for line in _judgement(result):
        display.say(line)
    display.say(f"run directory: {out} (the same in {out / 'result.json'})")
    display.say("next:")
    display.say(f"  polyformer predict {out} --out predictions.parquet   # every node's class and probabilities")
    if MODELS[result["model"]].tells_filters():
        display.say(f"  polyformer filters {out} --out filters.parquet   # the filters that it learned")
    display.say(f"  polyformer serve {out}   # answers over HTTP, and an explorer in the browser")
    if data_name(result["data"]) in DATASETS:
        display.say("  polyformer datasets   # what else there is to train on")
        display.say("  polyformer train PATH   # your own graph")


def _judgement(result: dict[str, Any]) -> Iterator[str]:
    """Lines that tell whether the score is any good; results that earlier versions wrote have none."""
    from polyformer.calibration import calibration_sentence

    if result.get("baseline") is not None:
        yield f"guessing: test {result['baseline']:.4f}"
    if result.get("test_interval") is not None:
        yield "95 % over resampled test nodes: {:.4f} to {:.4f}".format(*result["test_interval"])
    others = {name: score for name, score in result.get("scores", {}).items() if score is not None}
    others.pop(result["metric"], None)
    if others:
        yield "other scores: " + ", ".join(f"{name} {score:.4f}" for name, score in others.items())
    if result.get("threshold") is not None:
        yield (
            f"the classes are unequal: the second is predicted from a probability of {result['threshold']:.4f} on, "
            f"chosen on validation"
        )
    calibrated = calibration_sentence(result)
    if calibrated is not None:
        yield calibrated
    for warning in result.get("warnings", []):
        yield f"warning: {warning}"


def write_small_report(display: Display, result: dict[str, Any], out: Path, memory: int | None) -> None:
    """Write the report if it takes seconds; the run counts whether or not it succeeds."""
    from polyformer.cli.report import show_report
    from polyformer.reports import check_extra
    from polyformer.reports.outcome import is_small
    from polyformer.runs.run import Run

    facts = Run.open(out).facts
    try:
        check_extra()
        if is_small(facts.nodes, facts.edges) and result["preparation_seconds"] <= 60:
            show_report(display, out, out / "report.html", memory=memory)
        else:
            display.say(f"report: polyformer report {out}   # it takes a while here")
    except PolyformerError as error:
        display.say(f"report: not written. {error}")
