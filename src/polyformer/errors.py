"""Every exception that polyformer raises on purpose.

All derive from :class:`PolyformerError`, so one ``except`` catches them. Errors about what the caller passed
are also :class:`ValueError`. The message of each is one sentence that names what is wrong, the value and the
next step; the command line prints it as it stands.
"""

from __future__ import annotations

from polyformer.interrupts import EXIT_CODE

__all__ = [
    "AlreadyApplied",
    "DataNotFound",
    "DownloadFailed",
    "FileCorrupt",
    "Interrupted",
    "InvalidData",
    "InvalidParameter",
    "KernelRefused",
    "MissingDependency",
    "OutOfResources",
    "OutputBusy",
    "OutputExists",
    "PolyformerError",
    "PresetNotFound",
    "TrainingDiverged",
    "TrainingInterrupted",
    "UnknownName",
    "WorkerLost",
    "WriteFailed",
]


_LONGEST_SENTENCE = 2000


class PolyformerError(Exception):
    """Base of all errors raised on purpose. ``exit_code`` is what the command line returns for it."""

    exit_code = 1

    def __str__(self) -> str:
        """The sentence; the middle of a long one is left out, as it repeats a cell or a name of a file."""
        text = super().__str__()
        half = _LONGEST_SENTENCE // 2
        return text if len(text) <= _LONGEST_SENTENCE else f"{text[:half]} … {text[-half:]}"


class InvalidParameter(PolyformerError, ValueError):
    """A parameter breaks its rule, e.g. heads that do not divide the channels."""

    exit_code = 2


class InvalidData(PolyformerError, ValueError):
    """A graph, features, labels or a split that cannot be used as given."""

    exit_code = 2


class AlreadyApplied(InvalidData):
    """A change that the journal of the graph has already.

    Args:
        source: what the change came from.
        time: when it was applied.
        version: the version of the graph that it made.
    """

    def __init__(self, source: str, time: str, version: int) -> None:
        super().__init__(
            f"'{source}' was applied already, on {time} as version {version}: the same change is not applied twice. If "
            f"it is meant, use --again."
        )
        self.time, self.version = time, version


class UnknownName(InvalidParameter):
    """A name that is in no table: a basis, data set, model, setting."""


class PresetNotFound(InvalidParameter):
    """No preset of that name exists for the data set and basis."""


class OutputExists(InvalidParameter):
    """The output would overwrite an existing file or directory."""


class OutputBusy(PolyformerError):
    """Another process is writing to the same place."""


class DataNotFound(PolyformerError, FileNotFoundError):
    """A file or directory that should be read does not exist."""

    exit_code = 2


class FileCorrupt(PolyformerError):
    """A file that polyformer wrote or downloaded is truncated, changed or of another format."""

    exit_code = 2


class MissingDependency(PolyformerError, ImportError):
    """An optional package is needed and not installed."""

    exit_code = 2


class KernelRefused(PolyformerError):
    """The native kernel got an argument that it cannot take, e.g. an array that is too short: a fault of polyformer."""


class DownloadFailed(PolyformerError):
    """A file could not be downloaded, or its content is not the expected one."""


class OutOfResources(PolyformerError):
    """The work would need more memory or disk than there is, or take hours."""


class WriteFailed(OutOfResources):
    """A file could not be written: no space, no permission."""


class TrainingDiverged(PolyformerError):
    """The loss became infinite or not a number; the model of the best epoch so far is in the run directory."""


class Interrupted(PolyformerError):
    """The user stopped the work; the same command continues from what is done."""

    exit_code = EXIT_CODE


class TrainingInterrupted(Interrupted):
    """The user stopped training; the run directory holds what is done."""


class WorkerLost(PolyformerError):
    """One of the processes that train together has ended; the run directory holds the last checkpoint."""
