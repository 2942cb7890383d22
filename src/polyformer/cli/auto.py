"""``polyformer train --model auto``: what is shown while models race, and the leaderboard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyformer.cli.display import Display
from polyformer.cli.interrupt import graceful_interrupt
from polyformer.durations import format_seconds, parse_seconds
from polyformer.errors import InvalidParameter
from polyformer.reporter import Reporter

if TYPE_CHECKING:
    from polyformer.runs.auto.state import Standing
    from polyformer.runs.request import RunRequest

__all__ = ["check_auto_options", "leaderboard_lines", "stored_race_request", "train_auto"]


def check_auto_options(model: str, budget: str | None, **options: Any) -> None:
    """Refuse a budget without a race, and options of ``train`` that one model has and a race of several has not."""
    from polyformer.runs.auto.candidates import AUTO

    if model != AUTO and budget is not None:
        raise InvalidParameter(f"'--budget' must come with --model {AUTO}. Got --model {model}.")
    for name, value in options.items() if model == AUTO else ():
        if value:
            raise InvalidParameter(f"'--{name}' must be left out with --model {AUTO}. Got {value}.")


def stored_race_request(out: Path, asked: Mapping[str, Any], settings: Mapping[str, Any]) -> RunRequest:
    """The request of the race that is to go on; what its result depends on must not differ from it."""
    from polyformer.runs.auto.state import RaceState

    request = RaceState.load(out).request
    before = {**asdict(request), **(request.settings or {})}
    for name, value in {**asked, **settings}.items():
        if before.get(name) != value:
            raise InvalidParameter(
                f"The run '{out}' was started with {name}={before.get(name, 'nothing')}. Got {value}. Leave it out or "
                f"start a new run."
            )
    return request


class _Said(Reporter):
    """Prints sentences, and hears Ctrl-C."""

    def __init__(self, display: Display, should_stop: Any) -> None:
        self._display, self._should_stop = display, should_stop

    def say(self, sentence: str) -> None:
        self._display.say(sentence)

    def should_stop(self) -> bool:
        return bool(self._should_stop())


def train_auto(
    display: Display, request: RunRequest, out: Path | None, budget: str | None, resume: bool
) -> tuple[Path, dict[str, Any]]:
    """Run the race and show it; returns the run directory and the result of the run that is kept."""
    from polyformer.runs.auto.search import DEFAULT_BUDGET, execute_auto
    from polyformer.runs.places import run_directory

    seconds = None if budget is None else parse_seconds(budget)
    if not resume:
        display.say(f"trying several models within about {format_seconds(seconds or DEFAULT_BUDGET)}")

    def watch(name: str, standing: Standing) -> None:
        score = "no score" if standing.val is None else f"validation {standing.val:.4f}"
        words = standing.error or ("its training has ended" if standing.status == "finished" else "can go on")
        display.say(f"  {name:<22} {score} after {standing.epochs} epochs, {standing.seconds:.1f} s; {words}")

    with (
        run_directory(out, request.data, request.model) as place,
        graceful_interrupt(display.say, lambda: "the last checkpoint of each model stays") as should_stop,
    ):
        reporter = _Said(display, should_stop)
        result = execute_auto(request, place, budget=seconds, resume=resume, reporter=reporter, watch=watch)
    for line in leaderboard_lines(result["auto"], result["metric"]):
        display.say(line)
    return place, result


def leaderboard_lines(board: Mapping[str, Any], metric: str) -> Iterator[str]:
    """The leaderboard, line by line."""
    yield ""
    yield f"{'model':<22} validation {metric:<12} 95 % over nodes     epochs   seconds"
    for row in board["leaderboard"]:
        score = "–" if row["val"] is None else f"{row['val']:.4f}"
        interval = "" if row["interval"] is None else "{:.4f} to {:.4f}".format(*row["interval"])
        end = {"best": "kept as the run", "dropped": "dropped", "failed": "failed", "waiting": "not tried"}
        words = end.get(row["status"], "")
        line = f"{row['name']:<22} {score:<23} {interval:<19} {row['epochs']:>6} {row['seconds']:>9.1f}  {words}"
        yield line.rstrip()
    yield board["graph"]
    yield ""
