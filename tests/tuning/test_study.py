"""Studies that are stopped or lose a worker: nothing that was found is lost, and it is said."""

from __future__ import annotations

import multiprocessing
from itertools import count
from pathlib import Path

import pytest

from polyformer.errors import WorkerLost
from polyformer.training.run import RunRequest
from polyformer.tuning import study as studies
from polyformer.tuning.study import Finished, tune

BOARD = "minefield:width=15,height=12"
SPACE = {"dropout": [0.0, 0.5], "lr": [0.001, 0.01]}


def request(**settings: int) -> RunRequest:
    return RunRequest(BOARD, "mlp", settings={"hidden_channels": 8, **settings})


def test_an_interrupted_trial_is_tried_again(tmp_path: Path) -> None:
    journal, asked = tmp_path / "s.journal", count()
    search = studies._Search(request(epochs=100_000, patience=100_000), SPACE, journal, 3)
    studies._work(search, 0, lambda: next(asked) > 5)
    (failed, waiting) = studies._open(journal).get_trials()
    assert (failed.state.name, waiting.state.name) == ("FAIL", "WAITING")
    assert waiting.system_attrs["fixed_params"] == failed.params


def test_a_lost_worker_is_reported_and_its_trials_are_kept(tmp_path: Path) -> None:
    seen: list[Finished] = []

    def kill(finished: Finished) -> None:
        seen.append(finished)
        for process in multiprocessing.active_children():
            process.kill()

    journal = tmp_path / "s.journal"
    with pytest.raises(WorkerLost, match=r"1 of 1 workers ended early, by signal 9; perhaps memory ran out\. What has"):
        tune(request(epochs=2), SPACE, journal, trials=1000, workers=1, observe=kill)
    done = len(seen)
    assert done >= 1
    assert tune(request(epochs=2), SPACE, journal, trials=done, workers=1).trials == done


def test_settings_that_do_not_go_together_end_their_trial_only(tmp_path: Path) -> None:
    journal = tmp_path / "s.journal"
    fixed = {"hidden_channels": 12, "order": 2, "epochs": 2}
    for heads in (8, 3):
        studies._open(journal).enqueue_trial({"heads": heads})
    search = studies._Search(RunRequest(BOARD, settings=fixed), {"heads": [3, 8]}, journal, 2)
    studies._work(search, 0, lambda: False)
    first, second = studies._open(journal).get_trials()
    assert (first.state.name, second.state.name) == ("PRUNED", "COMPLETE")
    assert first.user_attrs["reason"] == "'heads' must divide hidden_channels=12. Got 8. Try 6."
