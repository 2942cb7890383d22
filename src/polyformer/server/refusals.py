"""What a client gets for a request that cannot be answered: a status and one sentence, never a traceback."""

from __future__ import annotations

from polyformer.errors import (
    AlreadyApplied,
    InvalidData,
    InvalidParameter,
    OutOfResources,
    OutputBusy,
    PolyformerError,
    UnknownName,
)

__all__ = ["FAULT", "Refusal", "refusal_of"]


class Refusal(Exception):
    """A request that is refused.

    Args:
        status: of the answer.
        sentence: what is wrong, the value and the next step.
        headers: of the answer.
    """

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


FAULT = Refusal(500, "The server failed to answer this request. Its own output says why.")


def refusal_of(error: PolyformerError) -> Refusal:
    """What a client is told of an error of ours; sentences that name files of the server stay there."""
    if isinstance(error, UnknownName):
        return Refusal(404, str(error))
    if isinstance(error, AlreadyApplied):
        applied = f"This change was applied already, on {error.time} as version {error.version}."
        return Refusal(409, f'{applied} If it is meant a second time, send "again": true.')
    if isinstance(error, InvalidParameter | InvalidData):
        return Refusal(400, str(error))
    if isinstance(error, OutputBusy):
        return Refusal(409, "Another program is changing the graph. Try again in a moment.", {"Retry-After": "1"})
    if isinstance(error, OutOfResources):
        return Refusal(503, "The server has not enough memory or disk for this request.", {"Retry-After": "60"})
    return FAULT
