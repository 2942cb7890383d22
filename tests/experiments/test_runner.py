"""Runs in processes of their own: records, resuming, budgets, failures."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from polyformer.errors import FileCorrupt, OutputBusy
from polyformer.experiments import runner
from polyformer.experiments.costs import Costs, estimate_seconds
from polyformer.experiments.plan import Plan, load_plan, select
from polyformer.experiments.records import Records
from polyformer.experiments.runner import run_jobs
from polyformer.experiments.summary import summarise
from polyformer.runs.execution import execute_run
from polyformer.runs.run import Run
from polyformer.training.checkpoint import Checkpoint
from tests.cli.test_cli import run
from tests.listener import Listener
from tests.warm import WarmProcess

pytestmark = pytest.mark.slow

PLAN = """
note = "made for a test"
datasets = ["minefield"]
runs = 2
splits = 10
[sources]
minefield = "minefield:width=15,height=12"
[settings]
epochs = 2
hidden_channels = 8
[models.mlp]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(PLAN)
    return path


def test_reproduce_makes_records_and_a_table(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results"
    assert run("reproduce", plan, "--results", results, "--workers", 1) == 0
    captured = capsys.readouterr()
    assert "0 of 2 runs have records" in captured.err
    assert "[2/2] mlp on minefield, split 1, seed 1: roc_auc" in captured.err
    assert "| mlp | minefield | roc_auc |" in captured.out
    file = results / "small.jsonl"
    record, _ = sorted(map(json.loads, file.read_text().splitlines()), key=lambda record: str(record["name"]))
    assert (record["model"], record["dataset"], record["config"]["split"]) == ("mlp", "minefield", 0)
    assert record["config"]["settings"]["hidden_channels"] == 8
    assert record["config"]["data"] == "minefield:width=15,height=12"
    assert {"test", "val", "seconds", "peak_memory_bytes", "versions"} <= set(record["result"])
    assert "data_root" not in record["config"]
    assert [path for path in (results / ".unfinished").rglob("*") if path.is_file()] == []

    assert run("reproduce", plan, "--results", results, "--json") == 0
    captured = capsys.readouterr()
    assert "2 of 2 runs have records" in captured.err
    [row] = json.loads(captured.out)[str(plan)]
    assert row["runs"] == 2
    assert run("reproduce", plan, "--results", results, "--show", "--csv", "--runs", 1) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"{plan},mlp,,minefield,roc_auc,")
    file.write_text("{}\n")
    assert run("reproduce", plan, "--results", results, "--show") == 2
    assert "holds a line that is not the record of a run. Remove the line to make its run again." in (
        capsys.readouterr().err
    )


def test_a_series_that_fails_is_tried_once(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text(PLAN.replace("runs = 2", 'runs = 2\nprotocol = "odd"'))
    assert run("reproduce", plan, "--results", tmp_path / "results", "--workers", 1) == 1
    captured = capsys.readouterr()
    assert captured.err.count("failed, and its other runs with it: mlp on minefield, split 0") == 1
    assert "has no split protocol 'odd'" in captured.err
    assert "| mlp | minefield |  | – | – | 0 |" in captured.out


def test_the_budget_stops_and_the_checkpoint_goes_on(tmp_path: Path) -> None:
    text = PLAN.replace("epochs = 2", "epochs = 100000\npatience = 100000").replace("runs = 2", "runs = 1")
    [job] = Plan.parse("long", text).series()[0].jobs()
    records, began = Records(tmp_path), threading.Event()
    metrics = records.run_directory(job) / "metrics.jsonl"

    def has_begun() -> bool:
        if metrics.exists() and metrics.read_text().count("\n") > 2:
            began.set()
        return began.is_set()

    outcome = run_jobs([job], records, reporter=Listener(stop=has_begun))
    assert (outcome.stopped, outcome.records, outcome.failures) == (True, [], [])
    first = metrics.read_text().splitlines()
    later = run_jobs([job], records, reporter=Listener(stop=lambda: len(metrics.read_text().splitlines()) > len(first)))
    assert later.stopped
    lines = metrics.read_text().splitlines()
    assert lines[: len(first)] == first  # with their times, which no second training would repeat
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, len(lines) + 1))
    checkpoint = Checkpoint.load(records.run_directory(job) / "checkpoint" / "state.safetensors")
    assert checkpoint.resumed_after == [len(first)]
    assert run_jobs([job], records, budget=0.0).stopped


def start_reproducing(plan: Path, results: Path) -> WarmProcess:
    """The process of a runner, after one of its runs has begun."""
    process = WarmProcess("reproduce", plan, "--results", results, "--workers", 1)
    process.wait_until(lambda: bool(list(results.rglob("metrics.jsonl"))))
    return process


def test_ctrl_c_ends_the_runner_and_its_processes(plan: Path, tmp_path: Path) -> None:
    plan.write_text(PLAN.replace("epochs = 2", "epochs = 100000\npatience = 100000"))
    results = tmp_path / "results"
    with start_reproducing(plan, results) as process:
        process.signal(signal.SIGINT)
        assert process.wait() == 130
        assert "the same command goes on from here" in process.errors
        assert "| mlp | minefield |" in process.output
    [run] = results.rglob("config.json")
    with Run(run.parent).locked():  # nobody trains there any more
        assert (run.parent / "checkpoint" / "state.safetensors").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no terminals that close")
def test_a_closed_terminal_ends_the_processes_too(plan: Path, tmp_path: Path) -> None:
    plan.write_text(PLAN.replace("epochs = 2", "epochs = 100000\npatience = 100000"))
    results = tmp_path / "results"
    with start_reproducing(plan, results) as process:
        process.signal(signal.SIGHUP)
        process.wait()
    [run] = results.rglob("config.json")
    with Run(run.parent).locked():
        pass


def test_processes_that_do_not_end_are_waited_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    [job] = Plan.parse("small", PLAN).series()[0].jobs(1)
    workers = runner._Workers(Records(tmp_path), 4, None)
    try:
        for _ in range(workers.count):
            process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
            workers.running.append(runner._Running(job, process, tmp_path / "log", 0.0))
        for entry in workers.running:
            assert entry.process.stdout is not None
            entry.process.stdout.readline()  # from now on it hears nothing
        monkeypatch.setattr(runner, "_PATIENCE_SECONDS", 2.0)
        began = time.monotonic()
        workers.stop()
        assert 2.0 <= time.monotonic() - began < 2.0 * workers.count  # one after the other they would take that
    finally:
        workers.kill()


def test_a_run_that_another_process_is_at_is_left_to_it(tmp_path: Path) -> None:
    """A killed runner leaves its processes behind: the next runner skips the runs of these processes and says so."""
    series = Plan.parse("small", PLAN).series()[0]
    records, (job, other) = Records(tmp_path), series.jobs(2)
    execute_run(job.request, records.run_directory(job))
    (records.run_directory(job) / "result.json").unlink()
    with Run(records.run_directory(job)).locked():
        outcome = run_jobs([job, other], records)
    assert [done for done, _ in outcome.records] == [other]
    assert (outcome.busy, outcome.failures) == ([job], [])
    assert len(run_jobs([job, other], records).records) == 2


def test_two_runners_do_not_share_a_folder(tmp_path: Path) -> None:
    records = Records(tmp_path)
    with records.locked(), pytest.raises(OutputBusy, match="Another process"), Records(tmp_path).locked():
        pass


def test_damaged_record(tmp_path: Path) -> None:
    job = Plan.parse("small", PLAN).series()[0].jobs()[0]
    records = Records(tmp_path)
    for content in ("{\n", "[]", '{"result": {}}'):
        (tmp_path / "small.jsonl").write_text(content)
        with pytest.raises(FileCorrupt):
            run_jobs([job], records)
    (tmp_path / "small.jsonl").unlink()
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / f"{job.key}.json").write_text("{")
    with pytest.raises(FileCorrupt, match="Remove it to run that again"):
        run_jobs([job], records)


def test_costs_learn_from_finished_runs() -> None:
    [small] = select(load_plan("table5-polyformer-paper").series(), ["chameleon_filtered"], bases=["chebyshev"])
    [large] = select(load_plan("table5-polyformer-paper").series(), ["pubmed"], bases=["monomial"])
    costs = Costs()
    first, other = small.jobs()[0], large.jobs()[0]
    assert costs.seconds(first) < costs.seconds(other)
    costs.measure(first, {"result": {"seconds": 10 * estimate_seconds(first), "preparation_seconds": 0.0}})
    assert costs.seconds(small.jobs()[3]) == pytest.approx(10 * estimate_seconds(first) + 5.0)
    assert costs.seconds(other) > 9 * estimate_seconds(other)


def test_costs_know_what_is_quadratic() -> None:
    plans = [*load_plan("table5-baselines").series(), *load_plan("table5-specformer").series()]
    seconds = {entry.model: estimate_seconds(entry.jobs()[0]) for entry in select(plans, ["minesweeper"])}
    assert min(seconds["transformer"], seconds["specformer"]) > max(seconds["gcn"], seconds["nagphormer"])


def test_events_count_down(tmp_path: Path) -> None:
    said: list[str] = []
    listener = Listener(on_say=said.append)
    run_jobs(Plan.parse("small", PLAN).series()[0].jobs(), Records(tmp_path), workers=2, reporter=listener)
    assert [sentence.split()[0] for sentence in said] == ["0", "[1/2]", "[2/2]"]
    left = [float(re.findall(r"about (\d+) s left", sentence)[0]) for sentence in said]
    assert left[0] > left[-1] == 0


def test_a_filter_is_fitted_on_an_image(tmp_path: Path, data_root: Path) -> None:
    [series] = select(load_plan("synthetic-polyattn-mixed").series(), ["mixed-low-pass"], bases=["chebyshev"])
    short = series.changed({"epochs": 12, "lr": 0.02})
    outcome = run_jobs(short.jobs(1), Records(tmp_path), data_root=data_root)
    assert outcome.failures == []
    table2, table7 = (summarise([short], outcome.records, table) for table in ("synthetic", "selfattn"))
    assert [row.metric for row in table2] == ["r2", "squared_error"]
    assert [row.metric for row in table7] == ["squared_error"]
    result = outcome.records[0][1]["result"]
    assert result["test"] == pytest.approx(result["val"]) == table2[0].mean
    assert result["squared_error"] == table7[0].mean > 0
