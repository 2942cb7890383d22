"""What a race has come to, in one file beside its candidates' runs, so that it goes on after any interruption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from polyformer.errors import FileCorrupt
from polyformer.files import read_json, reporting_io_errors, write_json
from polyformer.files.run_schemas import RACE
from polyformer.runs.request import RunRequest

__all__ = ["CANDIDATE_RUNS", "RaceState", "Standing", "is_race"]

_FILE = "auto.json"
CANDIDATE_RUNS = "candidates"
"""The folder of the candidates' run directories."""

Status = Literal["waiting", "training", "finished", "dropped", "failed"]


@dataclass
class Standing:
    """How one candidate stands.

    Attributes:
        status: ``training`` if it can go on, ``finished`` if its training ended by itself, ``dropped`` if others were
            better when it could go on, ``failed`` if an error ended it, ``waiting`` if it has not started.
        val: its best validation score so far; None before its first epoch.
        seconds: time that the candidate has taken, preparation included.
        error: the sentence of the error that ended it.
    """

    status: Status = "waiting"
    val: float | None = None
    epochs: int = 0
    seconds: float = 0.0
    error: str | None = None


@dataclass
class RaceState:
    """All that a race needs to go on.

    Attributes:
        request: what the user asked for, with the model ``auto``.
        budget: seconds for the whole race.
        spent: seconds that are gone.
        round: number of rounds that are over.
        turns: candidates that have had their turn in the round under way.
        contenders: candidates that are still in the race, in the order of the table.
        winner: the candidate whose run becomes the run, once it is known.
        leaderboard: how all candidates ended, once the winner is known.
    """

    request: RunRequest
    budget: float
    standings: dict[str, Standing]
    spent: float = 0.0
    round: int = 0
    turns: list[str] = field(default_factory=list)
    contenders: list[str] = field(default_factory=list)
    winner: str | None = None
    leaderboard: dict[str, Any] | None = None

    @classmethod
    def begin(cls, request: RunRequest, names: Iterable[str], budget: float) -> RaceState:
        """A race in which nobody has started."""
        standings = {name: Standing() for name in names}
        return cls(request, budget, standings, contenders=list(standings))

    def trainable(self) -> list[str]:
        """Candidates that can go on and have not had their turn in this round."""
        able = [name for name in self.contenders if self.standings[name].status in ("waiting", "training")]
        return [name for name in able if name not in self.turns]

    def scores(self) -> dict[str, float | None]:
        """The best validation score of every candidate so far; None for one that failed."""
        return {name: None if one.status == "failed" else one.val for name, one in self.standings.items()}

    def save(self, folder: Path) -> None:
        """Write the file, whole."""
        with reporting_io_errors("the state of the search", folder):
            write_json(folder / _FILE, {"format": 1, **asdict(self)}, RACE)

    @classmethod
    def load(cls, folder: Path) -> RaceState:
        """Read what :meth:`save` wrote."""
        path = folder / _FILE
        content: dict[str, Any] = dict(read_json(path, RACE))
        content.pop("format", None)
        try:
            standings = {name: Standing(**one) for name, one in content["standings"].items()}
            return cls(**content | {"request": RunRequest(**content["request"]), "standings": standings})
        except TypeError:
            raise FileCorrupt(f"'{path}' has other fields than this version writes. Start a new run.") from None


def is_race(folder: Path) -> bool:
    """Whether a directory was started with the model ``auto``."""
    return (folder / _FILE).exists()
