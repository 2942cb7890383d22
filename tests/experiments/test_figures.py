"""The paper's figures from tiny runs, and the models that they are drawn from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.experiments import EXPERIMENTS
from polyformer.experiments.figures import FIGURES, draw_figure, write_figure
from polyformer.experiments.plan import Job, Plan, open_experiment
from polyformer.experiments.records import Records
from polyformer.experiments.runner import run_jobs
from polyformer.reports.findings import learned_filters
from tests.cli.test_cli import run

pytestmark = pytest.mark.slow

PLAN = """
note = "made for a test"
datasets = ["minefield"]
runs = 1
splits = 10
keep_model = true
[sources]
minefield = "minefield:width=15,height=12"
[stand_ins]
minefield = "questions"
[settings]
epochs = 2
hidden_channels = 8
order = 3
[models.unifilter]
[models.polyattn]
[bases.chebyshev]
"""


def test_every_figure_has_an_experiment() -> None:
    assert list(FIGURES) == [name for name in EXPERIMENTS if name.startswith("fig")]


def test_learned_filters_on_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("POLYFORMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    results, out = tmp_path / "results", tmp_path / "figures"
    asked = ["fig2", "--datasets", "low-and-high-pass", "--set", "epochs=1", "--results", results, "--out", out]
    assert run("reproduce", *asked, "--workers", 1) == 0
    captured = capsys.readouterr()
    assert f"figure: {out / 'fig2.svg'}" in captured.err
    assert "runs on generated-images" in captured.out
    svg, numbers = (out / "fig2.svg").read_text(), json.loads((out / "fig2.json").read_text())
    assert "generated-images stand in for 2Dgrid" in svg
    assert "changed: epochs=1" in svg
    [panel] = numbers["panels"]
    [record] = Records(results).of_plan("fig2").read().values()
    assert panel["test"] == record["result"]["test"]
    assert sum(kind["nodes"] for kind in panel["clusters"]) == 9_216
    [model] = (results / ".models" / "fig2").iterdir()
    assert not (model / "checkpoint").exists()
    learned = learned_filters(model, 2, by_shape=True)
    assert learned.filters is not None
    first = learned.filters.cluster == 0
    np.testing.assert_allclose(
        panel["clusters"][0]["mean"], learned.filters.responses[first].mean(axis=(0, 1)), atol=1e-4
    )
    dark = learned.task.graph.features[learned.nodes, 0] < 0.5
    assert panel["clusters"][0]["dark_share"] == pytest.approx(dark[first].mean())

    (out / "fig2.svg").unlink()
    assert run("reproduce", *asked, "--show", "--json") == 0
    assert json.loads(capsys.readouterr().out)["fig2"][0]["runs"] == 1
    assert (out / "fig2.svg").read_text() == svg
    shutil.rmtree(results / ".models")
    assert run("reproduce", *asked, "--show") == 0
    assert "fig2 is not drawn: none of its runs is here with its model" in capsys.readouterr().err


def test_filters_of_all_nodes_beside_clusters(tmp_path: Path) -> None:
    series, records = Plan.parse("small", PLAN).series(), Records(tmp_path)
    jobs = [job for entry in series for job in entry.jobs()]
    outcome = run_jobs(jobs, records, workers=2)
    assert outcome.failures == []
    figure = draw_figure("fig3", series, outcome.records, records)
    assert figure is not None
    assert figure.svg.count("minefield stands in for questions") == 2  # above both panels
    assert "Minefield stands in for questions." in figure.svg
    unified, wise = figure.numbers["panels"]
    assert (unified["model"], len(unified["filters"])) == ("unifilter", 1)
    assert (wise["model"], len(wise["clusters"]), len(wise["clusters"][0]["mean"])) == ("polyattn", 5, 65)
    assert sum(kind["nodes"] for kind in wise["clusters"]) == 180
    assert write_figure(figure, tmp_path / "new" / "folder", "fig3").read_text() == figure.svg

    missing = records.model(jobs[0])
    assert missing is not None
    shutil.rmtree(missing)
    assert [records.is_finished(job) for job in jobs] == [False, True]
    again = run_jobs(jobs, records)
    assert len(again.records) == 2
    assert all(records.is_finished(job) for job in jobs)


def _cost(series: Any, test: float | None, seconds: float, limit: int = 10) -> dict[str, Any]:
    result = {"metric": "roc_auc", "test": test, "epochs": 9, "seconds": 1e6, "preparation_seconds": 1e6}
    result |= {"cpu_seconds": seconds, "preparation_cpu_seconds": 2 * seconds}
    result |= {"peak_memory_bytes": 1 << 29, "parameters": 99}
    return {"result": result, "config": {"task": {"name": series.dataset}, "settings": {"epochs": limit}}}


def test_costs_are_means_over_runs(tmp_path: Path) -> None:
    _, series = open_experiment("fig4")
    former = [(Job(series[0], i), _cost(series[0], score, 10.0 * (i + 1))) for i, score in enumerate((0.9, 0.8))]
    other = [
        (Job(series[1], 0), _cost(series[1], 0.5, 90.0, limit=9)),
        (Job(series[2], 0), _cost(series[2], None, 1.0)),
    ]
    figure = draw_figure("fig4", series, [*other, *former], Records(tmp_path))
    assert figure is not None
    first, second = figure.numbers["panels"]
    assert (first["model"], first["runs"]) == ("polyformer", 2)
    assert (first["cpu_seconds"], first["preparation_cpu_seconds"]) == (15.0, 30.0)
    assert "1,000,000" not in figure.svg
    assert first["test"] == pytest.approx(0.85)
    assert (second["model"], second["runs"]) == ("transformer", 1)
    assert (first["cut_off"], second["cut_off"]) == (False, True)
    assert figure.svg.count(">transformer *<") == 2
    assert "Ended by the limit of epochs" in figure.svg
    assert "minesweeper stands in for roman-empire" in figure.svg
    assert draw_figure("fig4", series, [], Records(tmp_path)) is None


def test_runs_from_scratch_take_nothing_from_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = PLAN.replace("keep_model", "from_scratch").replace("order = 3\n", "").replace("[bases.chebyshev]", "")
    text = text.replace("[models.unifilter]\n[models.polyattn]", "[models.nagphormer]")
    records = Records(tmp_path / "results")
    assert run_jobs(Plan.parse("scratch", text).series()[0].jobs(), records).failures == []
    assert list(tmp_path.rglob("*.npz")) == []
    kept = Plan.parse("kept", text.replace("from_scratch = true", "")).series()[0].jobs()
    assert run_jobs(kept, records).failures == []
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 1  # the eigenvectors, which the first run did not keep
