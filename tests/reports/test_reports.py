"""Reports without a browser: what they find, bad input, names that would break a page, other models."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from polyformer.datasets import load_dataset
from polyformer.errors import DataNotFound, MissingDependency, OutOfResources
from polyformer.estimators import PolyFormerClassifier
from polyformer.filters import frequency_grid
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.reports import document, sections, write_report
from polyformer.reports import outcome as found
from polyformer.reports.comparison import _names
from polyformer.reports.document import _template
from polyformer.reports.explorer import explorer_data
from polyformer.reports.findings import gather
from polyformer.reports.node_map import grid_width, plane, sample_nodes
from polyformer.reports.sections import SECTIONS
from polyformer.reports.spectrum import signal_spectrum, sketch_columns
from polyformer.runs.execution import execute_run
from polyformer.runs.repeating import repeat_command
from polyformer.runs.request import RunRequest
from polyformer.splits import Split
from polyformer.tasks import Task
from tests import recipes
from tests.cli.test_cli import BOARD, FAST, run
from tests.documentation import blocks, page
from tests.edits import plain_json

SMALL = {"order": 3, "hidden_channels": 16, "heads": 4, "epochs": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    execute_run(RunRequest(BOARD, settings=SMALL), path)
    return path


def test_spectrum_finds_the_energy_where_it_is() -> None:
    graph = load_dataset("minefield:width=9,height=8").graph
    matrix = Operator(graph).to_scipy(np.float64).toarray()
    values, vectors = np.linalg.eigh(np.eye(72) - matrix)
    lam = np.linspace(0, 2, 201)
    for i in (0, 30, 71):
        density = signal_spectrum(Operator(graph), vectors[:, [i]], lam)
        assert abs(lam[density.argmax()] - values[i]) < 0.05
        assert np.trapezoid(density, lam) == pytest.approx(1)
    assert sketch_columns(np.ones((5, 40), np.float32)).shape == (5, 16)
    assert np.array_equal(sketch_columns(np.eye(4, dtype=np.float32)), np.eye(4))


def test_grids_are_known_by_their_edges() -> None:
    board = load_dataset("minefield:width=7,height=5").graph
    assert grid_width(board) == 7
    ring = Graph(np.stack([np.arange(9), (np.arange(9) + 1) % 9]))
    assert grid_width(ring) is None
    edges = np.stack(board.adjacency().nonzero())
    assert grid_width(Graph(edges[:, 3:], num_nodes=35)) == 7  # the other direction of those edges is still there
    assert grid_width(Graph(np.concatenate([edges, [[0], [34]]], axis=1))) is None


def test_maps_of_degenerate_rows_and_samples() -> None:
    assert plane(np.ones((4, 3))).shape == (4, 2)
    assert plane(np.arange(5.0)[:, None]).shape == (5, 2)
    assert sample_nodes(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert len(np.unique(sample_nodes(100, 9))) == 9


def test_the_file_is_small_and_tells_how_to_repeat(trained: Path, tmp_path: Path) -> None:
    size = write_report(gather(trained), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert size == (tmp_path / "r.html").stat().st_size < 8_000_000
    assert "polyformer train minefield:width=20,height=15 --model polyformer --split 0 --seed 0" in page
    assert "--set order=3" in page
    assert "residual connection and LayerNorm are left out" in page
    result = json.loads((trained / "result.json").read_text())
    assert f"{result['test']:.4f}" in page


def test_every_chart_in_the_data_has_its_place_on_the_page(trained: Path, tmp_path: Path) -> None:
    write_report(gather(trained), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    [figures] = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page)
    assert {"learning", "roc", "importance", "clusters"} <= set(json.loads(figures))
    assert set(re.findall(r'id="chart-([\w-]+)"', page)) == set(json.loads(figures))


@pytest.mark.parametrize("model", ["polyattn", "cascade", "unifilter", "gprgnn", "dsf-bern-r", "mlp"])
def test_other_models(model: str, tmp_path: Path) -> None:
    execute_run(RunRequest(BOARD, model=model, settings={"epochs": 2}), tmp_path / "run")
    findings = gather(tmp_path / "run")
    write_report(findings, tmp_path / "r.html")
    assert findings.outcome is not None
    assert (findings.outcome.filters is not None) == (model in ("polyattn", "cascade", "dsf-bern-r"))
    assert (findings.outcome.unified is not None) == (model in ("unifilter", "gprgnn"))
    assert ("This model has no spectral filter." in (tmp_path / "r.html").read_text()) == (model == "mlp")


def test_the_optimal_basis_and_several_layers(tmp_path: Path) -> None:
    settings = {**SMALL, "basis": "optimal", "num_layers": 2}
    execute_run(RunRequest(BOARD, settings=settings), tmp_path / "run")
    write_report(gather(tmp_path / "run", clusters=3), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "Later layers have coefficients but no spectrum" in page
    assert "the one with the largest norm, is shown" in page


def test_every_stage_of_a_cascade_is_in_the_explorer(tmp_path: Path) -> None:
    settings = {"epochs": 2, "num_layers": 3, "hidden_channels": 8, "heads": 2}
    execute_run(RunRequest(BOARD, model="cascade", settings=settings), tmp_path / "run")
    findings = gather(tmp_path / "run")
    assert findings.outcome is not None
    filters = findings.outcome.filters
    assert filters is not None
    assert filters.later is not None
    assert filters.later.shape == (len(filters.coefficients), 2, 2, 3)
    data = explorer_data(findings.outcome)["filters"]
    assert [layer["input"] for layer in data["later"]] == ["the output of stage 1", "the output of stage 2"]
    packed = np.frombuffer(base64.b64decode(data["later"][1]["coefficients"]), "<i2") * data["later"][1]["step"]
    assert np.allclose(packed, filters.later[:, 1].ravel(), atol=data["later"][1]["step"])
    write_report(findings, tmp_path / "r.html")
    assert "The model is a cascade of 3 stages." in (tmp_path / "r.html").read_text()


def _own_graph(folder: Path, regression: bool = False, tested: bool = True) -> None:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 60, (2, 150)), random.standard_normal((60, 5)).astype(np.float32), 60)
    labels: Any = random.standard_normal(60) if regression else random.integers(0, 3, 60)
    ids = np.array([f"</script><script>alert({i})</script>" for i in range(60)])
    nodes = random.permutation(60)
    names = None if regression else ("<script>alert(1)</script>", "b & c", "c")
    split = Split(nodes[:30], nodes[30:45], nodes[45:]) if tested else Split(nodes[:30], nodes[30:], nodes[:0])
    Task("<b>mine</b>", graph, labels, [split], "given", "", names, ids).save(folder)


@pytest.mark.parametrize("regression", [False, True])
def test_names_are_escaped(tmp_path: Path, regression: bool) -> None:
    _own_graph(tmp_path / "graph", regression)
    execute_run(RunRequest(str(tmp_path / "graph"), settings=SMALL), tmp_path / "run")
    write_report(gather(tmp_path / "run"), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<script>alert" not in page
    assert "<b>mine" not in page
    assert page.count("</script>") == 4
    assert ("classes served" in page) != regression
    assert ("real values to predict" in page) == regression


def test_without_test_nodes_others_are_judged_and_that_is_said(tmp_path: Path) -> None:
    _own_graph(tmp_path / "graph", regression=True, tested=False)
    execute_run(RunRequest(str(tmp_path / "graph"), settings=SMALL), tmp_path / "run")
    findings = gather(tmp_path / "run")
    write_report(findings, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "On 30 validation nodes: there are no test nodes." in page
    assert "real values to predict" in page
    assert findings.run.result is not None
    assert findings.run.result["test_interval"] is None


@pytest.mark.filterwarnings("error:.*(NaN|Degrees of freedom|[Pp]ositive|invalid value)")
@pytest.mark.parametrize("metric", ["roc_auc", "r2"])
def test_scores_that_are_not_numbers_are_left_out(tmp_path: Path, metric: str) -> None:
    """One class, or one value, among the test nodes: there is no ROC-AUC and no R²."""
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 60, (2, 150)), random.standard_normal((60, 5)).astype(np.float32), 60)
    labels = np.where(np.arange(60) < 50, np.arange(60) % 2, 1)
    split = Split(np.arange(40), np.arange(40, 50), np.arange(50, 60))
    values = labels if metric == "roc_auc" else labels.astype(np.float64)
    Task("mine", graph, values, [split], "given", metric).save(tmp_path / "graph")
    path = tmp_path / "run"
    result = execute_run(RunRequest(str(tmp_path / "graph"), settings=SMALL), path)
    assert (result["test"], "squared_error" in result) == (None, False)
    assert "NaN" not in (path / "result.json").read_text()
    findings = gather(path)
    write_report(findings, tmp_path / "r.html")
    assert findings.run.result is not None
    assert findings.run.result["test_interval"] is None
    page = (tmp_path / "r.html").read_text()
    assert page.count('<div class="score">') == 1, "that of the validation"
    assert 'id="chart-roc"' not in page
    assert 'id="chart-learning"' in page
    assert ">nan<" not in page.lower()
    assert run("compare", path, path, "--out", tmp_path / "c.html") == 0


def test_larger_graphs_are_sampled_and_say_so(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "WHOLE_NODES", 100)
    monkeypatch.setattr(found, "_MAP_NODES", 80)
    findings = gather(trained)
    assert findings.outcome is not None
    assert len(findings.outcome.shown) == 80
    assert len(findings.outcome.nodes) < 300
    write_report(findings, tmp_path / "r.html")
    assert "show 80 of 300 nodes, drawn at random" in (tmp_path / "r.html").read_text()


def test_a_run_that_is_not_finished_or_of_another_version(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    for name in ("result.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    config = plain_json(tmp_path / "run" / "config.json")
    config["versions"]["polyformer"] = "0.0.1"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    findings = gather(tmp_path / "run")
    assert findings.outcome is None
    write_report(findings, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "The run is not finished" in page
    assert "no trained model yet" in page
    assert "made by polyformer 0.0.1" in page
    with pytest.raises(DataNotFound, match="no run directory"):
        gather(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", {"model": None}, "config.json' is damaged: it has no 'model'"),
        ("config.json", {"settings": [1]}, "config.json' is damaged: it holds no JSON object"),
        ("config.json", {"task": {}}, "config.json' is damaged: it has no 'name'"),
        ("result.json", [1], "result.json' is damaged: it holds no JSON object"),
        ("result.json", {"epochs": None}, "result.json' is damaged: it has no 'epochs'"),
        ("metrics.jsonl", {"epoch": 1}, "metrics.jsonl' is damaged: it has no 'loss'"),
        ("metrics.jsonl", 7, "metrics.jsonl' is damaged: it holds no JSON object"),
    ],
)
def test_damaged_records(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: Any, message: str
) -> None:
    """Keys of ``content`` replace keys of the file, None removes a key; a list or number replaces the whole file."""
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / name
    if isinstance(content, dict) and name != "metrics.jsonl":
        gone = [key for key, value in content.items() if value is None]
        content = {key: value for key, value in (json.loads(path.read_text()) | content).items() if key not in gone}
    path.write_text(json.dumps(content))
    assert run("report", tmp_path / "run", "--out", tmp_path / "r.html") == 2
    assert message in capsys.readouterr().err


def test_train_ends_with_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [option for option in FAST if option != "--no-report"]
    assert run("train", BOARD, "--out", tmp_path / "run", *options) == 0
    assert f"report: {tmp_path / 'run' / 'report.html'}" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").stat().st_size < 8_000_000
    assert run("report", tmp_path / "run", "--out", tmp_path / "r.html", "--json") == 0
    assert json.loads(capsys.readouterr().out)["out"] == str(tmp_path / "r.html")
    assert run("report", tmp_path / "run", "--out", tmp_path) == 2


def test_a_report_that_cannot_be_written_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> int:
        raise OutOfResources("No space left.")

    monkeypatch.setattr("polyformer.reports.write_report", refuse)
    options = [option for option in FAST if option != "--no-report"]
    assert run("train", BOARD, "--out", tmp_path / "run", *options) == 0
    assert "report: not written. No space left." in capsys.readouterr().out


def test_runs_side_by_side(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute_run(RunRequest(BOARD, model="unifilter", settings={"epochs": 2}), tmp_path / "uni<i>")
    assert run("compare", trained, tmp_path / "uni<i>", "--out", tmp_path / "c.html") == 0
    page = (tmp_path / "c.html").read_text()
    assert "uni&lt;i&gt;" in page
    assert "uni<i>" not in page
    for name in (trained, tmp_path / "uni<i>"):
        assert f"{json.loads((name / 'result.json').read_text())['test']:.4f}" in page
    assert "The same for all nodes." in page
    assert "Filters against each other" in page
    assert "Score, time and memory" in page
    capsys.readouterr()
    assert run("compare", trained, "--out", tmp_path / "c.html") == 2
    assert "twice or more" in capsys.readouterr().err


def test_figures_in_python(trained: Path) -> None:
    clf = PolyFormerClassifier.load(trained)
    graph = load_dataset(BOARD).graph
    lines = clf.plot_filters([3, 7], graph=graph).data
    assert [line.name for line in lines] == ["node 3", "node 7"]
    expected = clf.filter_response([3, 7], frequency_grid(), graph=graph).mean(axis=1)
    assert np.allclose([line.y for line in lines], expected)
    assert len(clf.plot_filters(clusters=3, graph=graph).data) == 6  # a line and a band each
    assert len(clf.plot_orders(clusters=3, graph=graph).data) == 3


def test_without_the_extra(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "plotly" else find(name, *rest)
    )
    with pytest.raises(MissingDependency):
        write_report(gather(trained), tmp_path / "r.html")
    assert run("report", trained) == 2
    assert "pip install 'polyformer[report]'" in capsys.readouterr().err
    options = [option for option in FAST if option != "--no-report"]
    assert run("train", BOARD, "--out", tmp_path / "run", *options) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "report" in line]
    assert line.startswith("report: not written. Reports need plotly and jinja2.")
    assert line.endswith("pip install 'polyformer[report]'")
    assert not (tmp_path / "run" / "report.html").exists()


def test_files_that_a_run_was_started_with_may_be_gone(tmp_path: Path) -> None:
    preset, tokens, path = tmp_path / "mine.csv", tmp_path / "tokens", tmp_path / "run"
    preset.write_text("dataset,basis,order,hidden_channels,epochs\nminefield,chebyshev,2,8,2\n")
    board = "minefield:width=15,height=12"
    assert run("tokens", board, "--order", 2, "--out", tokens) == 0
    assert run("train", board, "--preset", preset, "--tokens", tokens, "--out", path, "--no-report") == 0
    preset.unlink()
    shutil.rmtree(tokens)
    findings = gather(path)
    assert findings.outcome is not None
    assert "--set hidden_channels=8" in repeat_command(findings.run)


def test_compared_runs_have_the_shortest_names_that_tell_them_apart(tmp_path: Path) -> None:
    def names(*paths: str) -> list[str]:
        return _names([Mock(run=Mock(path=tmp_path / path)) for path in paths])

    assert names("a/gcn", "a/mlp") == ["gcn", "mlp"]
    assert names("a/run", "b/run", "b/other") == ["a/run", "b/run", "b/other"]
    assert names("a/run", "a/run") == ["1: run", "2: run"]


EXAMPLE = "classes"
"""The section that the page on extending tells a newcomer to add."""


@pytest.fixture
def _with_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the steps of the page: a function among the others, its line in the table, its template."""
    steps = page(recipes.PAGE, "Add a section of the report")
    assert f'`"{EXAMPLE}": _{EXAMPLE},`' in steps
    assert f"templates/section_{EXAMPLE}.html`" in steps
    function, template = blocks(recipes.PAGE, "Add a section of the report")
    names = dict(vars(sections))
    exec(function, names)
    monkeypatch.setitem(SECTIONS, EXAMPLE, names[f"_{EXAMPLE}"])
    monkeypatch.setattr(
        document, "_template", lambda name: template if name == f"section_{EXAMPLE}.html" else _template(name)
    )


@pytest.mark.usefixtures("_with_the_recipe")
@pytest.mark.parametrize("name", [*SECTIONS, EXAMPLE])
def test_a_section_shows_all_that_it_computes(name: str, trained: Path, tmp_path: Path) -> None:
    run = trained
    if name == "labels":  # only runs of models that are shown labels have this section
        run = tmp_path / "run"
        execute_run(RunRequest(BOARD, settings={**SMALL, "label_input": 0.5}), run)
    section = SECTIONS[name](gather(run))
    assert section is not None
    templates = [f"section_{name}.html", f"section_{name}_after.html"]
    text = "".join(document._template(template) or "" for template in templates)
    assert [key for key in section.content if f"content.{key}" not in text] == []


@pytest.mark.usefixtures("_with_the_recipe")
def test_the_section_of_the_page_is_in_the_report(trained: Path, tmp_path: Path) -> None:
    document.write_report(gather(trained), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    labels = load_dataset(BOARD).labels
    assert "How common the classes are</h2>" in text
    assert f"<li>mine: {int((labels == 1).sum())} nodes</li>" in text
