"""Studies that are stopped or lose a worker: nothing that was found is lost, and it is said."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from optuna.trial import TrialState

from polyformer.errors import InvalidParameter, OutputBusy, WorkerLost
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.tuning.journal import Search, open_study
from polyformer.tuning.study import tune
from polyformer.tuning.trial_run import work
from polyformer.tuning.trials import ended_trials, held, next_trial, running_trials, take_back
from tests.listener import Listener
from tests.warm import WarmProcess

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_workers")]

BOARD = "minefield:width=15,height=12"
SPACE = {"dropout": [0.0, 0.5], "lr": [0.001, 0.01]}


def request(**settings: int) -> RunRequest:
    return RunRequest(BOARD, "mlp", settings={"hidden_channels": 8, **settings})


def test_an_interrupted_trial_is_tried_again(tmp_path: Path) -> None:
    journal, asked = tmp_path / "s.journal", count()
    search = Search(request(epochs=100_000, patience=100_000), SPACE, journal, 3)
    work(search, 0, lambda: next(asked) > 5)
    (failed, waiting) = open_study(journal).get_trials()
    assert (failed.state.name, waiting.state.name) == ("FAIL", "WAITING")
    assert waiting.system_attrs["fixed_params"] == failed.params


def test_trials_of_a_search_that_was_killed_are_tried_again(tmp_path: Path) -> None:
    journal, asked = tmp_path / "s.journal", request(epochs=2)
    tune(asked, SPACE, journal, trials=1, workers=1)
    study = open_study(journal)
    study.enqueue_trial({"dropout": 0.5, "lr": 0.01})
    begun = study.ask()  # and killed before it chose anything
    assert tune(asked, SPACE, journal, trials=2, workers=1).trials == 2
    assert running_trials(study) == []
    assert study.get_trials()[begun.number].state.name == "FAIL"
    assert ended_trials(study)[-1].params == {"dropout": 0.5, "lr": 0.01}


def process_group_ends(leader: int, seconds: float = 30.0) -> None:
    """Wait until all processes have ended that a killed process had started."""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            os.killpg(leader, 0)
            time.sleep(0.05)
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
    raise AssertionError("a worker outlived the search")


def test_workers_of_a_search_that_was_killed_end_too(tmp_path: Path) -> None:
    journal = tmp_path / "s.journal"
    options = ["--model", "mlp", "--set=epochs=1000000", "--set=patience=1000000", "--workers=1"]
    with WarmProcess("tune", BOARD, "--study", journal, *options, own_session=True) as process:
        process.wait_until(lambda: journal.exists() and bool(running_trials(open_study(journal))))
        with pytest.raises(OutputBusy, match=r"Another process is working on the study '.*s\.journal'\. Wait for it"):
            tune(request(), SPACE, journal, trials=1)
        process.signal(signal.SIGKILL)
        process.wait()
        process_group_ends(process.pid)
    with held(journal):
        assert len(running_trials(open_study(journal))) == 1


def test_a_trial_that_ray_ends_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> float:
        raise KeyboardInterrupt

    journal = tmp_path / "s.journal"
    open_study(journal).enqueue_trial({"dropout": 0.5, "lr": 0.01})
    monkeypatch.setattr("polyformer.tuning.trial_run.trial_score", interrupt)
    with pytest.raises(KeyboardInterrupt):
        work(Search(request(), SPACE, journal, 3), 0, lambda: False)
    failed, waiting = open_study(journal).get_trials()
    assert (failed.state.name, waiting.state.name) == ("FAIL", "WAITING")
    assert waiting.system_attrs["fixed_params"] == {"dropout": 0.5, "lr": 0.01}


def test_several_workers_do_as_many_trials_as_were_asked_for(tmp_path: Path) -> None:
    assert tune(request(epochs=2), SPACE, tmp_path / "s.journal", trials=3, workers=2).trials == 3


def test_trials_under_way_count_until_they_fail(tmp_path: Path) -> None:
    journal = tmp_path / "s.journal"
    study = open_study(journal)
    first, second = (next_trial(study, journal, 2, worker) for worker in range(2))
    assert first is not None
    assert second is not None
    assert next_trial(study, journal, 2, 2) is None
    take_back(study, journal, 1)
    assert [trial.number for trial in running_trials(study)] == [first.number]
    third = next_trial(study, journal, 2, 2)
    assert third is not None
    study.tell(third, state=TrialState.PRUNED)
    assert next_trial(study, journal, 2, 2) is None


def test_a_lost_worker_is_reported_and_its_trials_are_kept(tmp_path: Path) -> None:
    seen: list[str] = []

    def kill(sentence: str) -> None:
        seen.append(sentence)
        for process in multiprocessing.active_children():
            process.kill()

    journal = tmp_path / "s.journal"
    with pytest.raises(WorkerLost, match=r"1 of 1 workers ended early, by signal 9; perhaps memory ran out\. What has"):
        tune(request(epochs=2), SPACE, journal, trials=1000, workers=1, reporter=Listener(on_say=kill))
    done = len(seen)
    assert done >= 1
    assert tune(request(epochs=2), SPACE, journal, trials=done, workers=1).trials == done


def test_settings_that_do_not_go_together_end_their_trial_only(tmp_path: Path) -> None:
    journal = tmp_path / "s.journal"
    fixed = {"hidden_channels": 12, "order": 2, "epochs": 2}
    for heads in (8, 3):
        open_study(journal).enqueue_trial({"heads": heads})
    search = Search(RunRequest(BOARD, settings=fixed), {"heads": [3, 8]}, journal, 2)
    work(search, 0, lambda: False)
    first, second = open_study(journal).get_trials()
    assert (first.state.name, second.state.name) == ("PRUNED", "COMPLETE")
    assert first.user_attrs["reason"] == "'heads' must divide hidden_channels=12. Got 8. Try 6."


def test_the_defaults_come_first_and_once(tmp_path: Path) -> None:
    journal, asked = tmp_path / "s.journal", request(epochs=2)
    defaults = {name: asked.resolve_settings()[name] for name in SPACE}
    space = {name: [*choices, defaults[name]] for name, choices in SPACE.items()}
    for trials in (1, 2):
        tune(asked, space, journal, trials=trials, workers=1)
    first, second = open_study(journal).get_trials()
    assert first.params == defaults
    assert "fixed_params" in first.system_attrs
    assert "fixed_params" not in second.system_attrs


def test_a_score_is_the_mean_over_the_splits(tmp_path: Path) -> None:
    asked, settings = request(epochs=2), {"dropout": 0.0, "lr": 0.01}
    alone = [
        execute_run(replace(asked, split=split, settings=(asked.settings or {}) | settings), tmp_path / str(split))
        for split in (1, 2)
    ]
    space = {name: [value] for name, value in settings.items()}
    best = tune(replace(asked, split=1), space, tmp_path / "s.journal", trials=1, splits=2, workers=1)
    assert best.score == pytest.approx((alone[0]["val"] + alone[1]["val"]) / 2, abs=1e-12)
    assert alone[0]["val"] != alone[1]["val"]


def test_a_loss_is_searched_for_its_minimum(tmp_path: Path) -> None:
    asked = replace(request(epochs=2), settings={"hidden_channels": 8, "epochs": 2, "metric": "log_loss"})
    told: list[str] = []
    options = {"trials": 3, "workers": 1, "larger_is_better": False}
    best = tune(asked, SPACE, tmp_path / "s.journal", reporter=Listener(on_say=told.append), **options)
    scores = [float(score) for sentence in told for score in re.findall(r"trial \d+: ([\d.]+)", sentence)]
    assert round(best.score, 4) == min(scores)
    assert f", best {best.score:.4f};" in told[-1]


def test_a_study_goes_on_with_its_own_number_of_splits_only(tmp_path: Path) -> None:
    journal = tmp_path / "s.journal"
    tune(request(epochs=2), SPACE, journal, trials=1, workers=1)
    with pytest.raises(InvalidParameter, match=r"was started with splits=1\. Got 2\. Take another --study\."):
        tune(request(epochs=2), SPACE, journal, trials=2, splits=2, workers=1)
