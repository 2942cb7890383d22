"""The object that hears how far long work is and that can stop it; it is silent by default.

Every function that takes long has one argument ``reporter: Reporter = SILENT``. The command line passes a reporter that
draws bars and listens for Ctrl-C; a user of the library passes none, or a subclass that overrides what it is to hear.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SILENT", "EpochRecord", "Reporter", "Tee"]


@dataclass(frozen=True)
class EpochRecord:
    """One line of ``metrics.jsonl``; ``seconds`` is the time of this epoch."""

    epoch: int
    loss: float
    val: float
    seconds: float


class Reporter:
    """Hears everything and says nothing. Subclasses override what they want to hear.

    Example:
        >>> class Percent(Reporter):
        ...     def share(self, work: str, done: float) -> None:
        ...         print(f"{work}: {done:.0%}")
        >>> Percent().part(0.5, 1.0).share("tokens", 0.5)
        tokens: 75%
    """

    def say(self, sentence: str) -> None:
        """Hear one sentence for people: what was taken as what, what will be kept on disk, what takes long."""

    def stage(self, work: str, done: int, total: int | None = None) -> None:
        """Hear how much of a piece of work is done, in bytes or rows, and how much there is, if that is known."""

    def share(self, work: str, done: float) -> None:
        """Hear which share of a piece of work is done, in [0, 1]."""

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        """Hear of an epoch that ended, and of the best epoch so far."""

    def should_stop(self) -> bool:
        """Tell whether the work shall stop at the next point from which it can go on later."""
        return False

    def part(self, start: float, stop: float, work: str | None = None) -> Reporter:
        """Give a reporter for one step of some work, whose shares from 0 to 1 count as ``start`` to ``stop``.

        Args:
            work: what the whole is called; the step's own name by default.
        """
        return _Part(self, start, stop, work)

    def quiet(self) -> Reporter:
        """Give a reporter that hears everything but sentences: for work whose sentences were said before."""
        return _Quiet(self)


class Tee(Reporter):
    """Tells several reporters, one after the other; the work stops if one of them wants it to.

    Example:
        >>> class Words(Reporter):
        ...     def say(self, sentence: str) -> None:
        ...         print(sentence)
        >>> Tee(Words(), Reporter(), Words()).say("twice")
        twice
        twice
    """

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters

    def say(self, sentence: str) -> None:
        for reporter in self._reporters:
            reporter.say(sentence)

    def stage(self, work: str, done: int, total: int | None = None) -> None:
        for reporter in self._reporters:
            reporter.stage(work, done, total)

    def share(self, work: str, done: float) -> None:
        for reporter in self._reporters:
            reporter.share(work, done)

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        for reporter in self._reporters:
            reporter.epoch(record, best_epoch, best_score)

    def should_stop(self) -> bool:
        return any(reporter.should_stop() for reporter in self._reporters)


class _Part(Tee):
    def __init__(self, whole: Reporter, start: float, stop: float, work: str | None) -> None:
        super().__init__(whole)
        self._start, self._stop, self._work = start, stop, work

    def share(self, work: str, done: float) -> None:
        super().share(self._work or work, self._start + (self._stop - self._start) * done)


class _Quiet(Tee):
    def say(self, sentence: str) -> None:
        pass


SILENT = Reporter()
"""The reporter of work that nobody listens to."""
