"""An exported model gives the run's answers, without polyformer and, with ONNX, without torch."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyformer as pf
from polyformer.bases import BASES, FixedBasis
from polyformer.calibration import Calibration
from polyformer.cli.export import export as export_command
from polyformer.errors import InvalidParameter, MissingDependency, PolyformerError
from polyformer.files import read_json
from polyformer.files.run_schemas import EXPORT
from polyformer.models import MODELS, NodeModel
from polyformer.runs import exporting
from polyformer.runs.exporting import export_model
from polyformer.runs.exporting.program import Scorer
from polyformer.runs.exporting.recipe import export_recipe
from polyformer.runs.prediction import predict_scores
from polyformer.runs.saved_model import ModelCard
from tests.cli.test_cli import BOARD
from tests.cli.test_cli import run as type_command
from tests.contracts.test_models import GRAPH, settings_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve_without_torch.py"
FIXED = [name for name in BASES if issubclass(BASES[name], FixedBasis)]
EXPORTABLE = [name for name in MODELS if MODELS[name].reads_tokens]
OBJECTIVES = {"binary": 2, "multiclass": 3, "regression": 0}

pytestmark = pytest.mark.xdist_group("recording")  # importing torch's exporter takes seconds, in each process


def card_of(name: str, objective: str = "multiclass", **changes: Any) -> ModelCard:
    """A model of 9 features with a temperature and units, so that a file that forgets one is noticed."""
    settings = settings_of(name, **{"positional_channels": 0} | changes)
    card = ModelCard(name, settings, 9, OBJECTIVES[objective], objective, "accuracy")
    if objective == "regression":
        return replace(card, units=(50.0, 7.0))
    return replace(card, calibration=Calibration(temperature=1.7))


def model_of(card: ModelCard) -> NodeModel:
    return card.build(seed=3).eval()


@pytest.fixture(scope="module")
def example() -> Any:
    """The example as a module."""
    pytest.importorskip("onnxruntime")
    spec = importlib.util.spec_from_file_location("serve_without_torch", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(path: Path, tokens: np.ndarray) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"tokens": tokens})[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTABLE)
def test_every_token_model_in_every_fixed_basis(name: str, tmp_path: Path, example: Any) -> None:
    """The network does not depend on the basis: one file, and a recipe for each basis with and without self-loops."""
    export_model(card_of(name), model_of(card_of(name)), tmp_path / "model.onnx")
    for basis in FIXED:
        for self_loops in (False, True):
            card = card_of(name, basis=basis, self_loops=self_loops)
            model = model_of(card)
            recipe = export_recipe(card, model.on_tokens(name), "model.onnx", [])
            tokens = example.tokens(GRAPH.adjacency(), np.asarray(GRAPH.features), recipe)
            expected = predict_scores(model, card.reader, GRAPH)
            np.testing.assert_allclose(answers(tmp_path / "model.onnx", tokens), expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTABLE)
def test_every_token_model_as_a_program_of_torch(name: str, tmp_path: Path) -> None:
    card = card_of(name)
    model = model_of(card)
    export_model(card, model, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    function = model.on_tokens(name)
    for rows in (1, 50):
        tokens = torch.randn(rows, function.order + 1, 9, generator=torch.Generator().manual_seed(rows))
        with torch.no_grad():
            expected = card.reader.scores(function.outputs(tokens))
        np.testing.assert_allclose(program(tokens).detach().numpy(), expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("ending", [".onnx", ".pt2"])
def test_every_objective_and_any_number_of_nodes(objective: str, ending: str, tmp_path: Path) -> None:
    card = card_of("polyattn", objective)
    model, path = model_of(card), tmp_path / f"model{ending}"
    assert export_model(card, model, path).largest_difference < 1e-6
    scorer = Scorer(card, model, model.on_tokens("polyattn"))
    for rows in (1, 2, 300):
        tokens = scorer.example(rows)
        if ending == ".pt2":
            found = torch.export.load(path).module()(tokens).detach().numpy()
        else:
            found = answers(path, tokens.numpy())
        with torch.no_grad():
            expected = card.reader.scores(model.on_tokens("polyattn").outputs(tokens))
        assert found.shape == (rows, max(1, OBJECTIVES[objective]))
        np.testing.assert_allclose(found, expected, atol=1e-5 * (7 if objective == "regression" else 1), rtol=0)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in EXPORTABLE])
def test_other_models_are_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"The model '{name}' is no function of the tokens of a node"):
        MODELS[name].on_tokens(object.__new__(MODELS[name]), name)


@pytest.mark.parametrize("name", EXPORTABLE)
def test_a_basis_that_depends_on_the_features_is_refused(name: str, tmp_path: Path) -> None:
    card = card_of(name, basis="optimal")
    with pytest.raises(InvalidParameter, match="Export a run with a fixed basis"):
        export_model(card, model_of(card), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_help_names_the_models_that_can_be_exported() -> None:
    text = " ".join((export_command.__doc__ or "").split())
    named = text.split("can be exported: ")[1].split(". ")[0].split(", ")
    assert sorted(named) == sorted(EXPORTABLE)


def test_eigenvectors_beside_the_features_widen_the_tokens() -> None:
    card = card_of("nagphormer", positional_channels=4)
    function = model_of(card).on_tokens("nagphormer")
    recipe = export_recipe(card, function, "model.onnx", [])
    assert recipe["input"]["shape"] == ["nodes", function.order + 1, 13]
    assert recipe["features"]["laplacian_encoding"] == 4
    assert function.outputs(torch.zeros(2, function.order + 1, 13)).shape == (2, 3)


def test_a_file_that_answers_otherwise_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = card_of("unifilter")
    monkeypatch.setitem(
        exporting.FORMATS, ".pt2", lambda scorer, recipe: (b"", lambda rows: scorer(rows).numpy() + 0.01)
    )
    with pytest.raises(PolyformerError, match=r"differ from ours by 0\.01"):
        export_model(card, model_of(card), tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


def test_without_the_packages_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependency, match=r"pip install 'polyformer\[export\]'"):
        export_model(card_of("unifilter"), model_of(card_of("unifilter")), tmp_path / "model.onnx")


def test_what_the_command_line_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = pf.train(BOARD, "mlp", tmp_path / "run", epochs=1)
    assert type_command("export", plain.path, "--out", tmp_path / "model.onnx") == 2
    assert "The model 'mlp' is no function of the tokens" in capsys.readouterr().err
    assert type_command("export", plain.path, "--out", tmp_path / "model.bin") == 2
    assert "'out' must end in .onnx or .pt2" in capsys.readouterr().err
    assert type_command("export", tmp_path, "--out", tmp_path / "model.onnx") == 2


def write_tables(folder: Path) -> None:
    """A graph of one's own: numbers with heavy tails, categories, names, a node without an edge."""
    random = np.random.default_rng(0)
    folder.mkdir()
    people = range(60)
    edges = {(int(a), int(b)) for a, b in random.integers(0, 59, (150, 2))}
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"p{a},p{b}\n" for a, b in edges))
    rows = "".join(
        f"p{i},{np.exp(random.normal() * 3):.4f},{'rgb'[i % 3]},{'yes' if i % 4 else 'no'}\n" for i in people
    )
    (folder / "nodes.csv").write_text("id,income,colour,label\n" + rows)


NO_TORCH = """
import runpy, sys
sys.modules["torch"] = sys.modules["polyformer"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
def test_serving_in_a_process_that_cannot_import_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path / "tables")
    assert type_command("import", "tables", "graph") == 0
    run = pf.train("graph", out="run", basis="bernstein", order=4, self_loops=True, hidden_channels=16, epochs=5)
    capsys.readouterr()
    assert type_command("export", "run", "--out", "model.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out)["recipe"] == "model.onnx.json"

    command = [sys.executable, "-c", NO_TORCH, str(EXAMPLE), "model.onnx", "graph"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = list(csv.DictReader(io.StringIO(printed)))
    task, expected = run.task(), run.predict()
    assert task.class_names is not None
    assert task.ids is not None
    assert [row["node"] for row in rows] == task.ids.tolist()
    served = np.array([[float(row[f"probability_{name}"]) for name in task.class_names] for row in rows])
    np.testing.assert_allclose(served, expected, atol=1e-5, rtol=0)
    assert type_command("predict", "run", "--out", "predictions.csv") == 0
    with Path("predictions.csv").open() as file:
        assert [row["prediction"] for row in rows] == [row["prediction"] for row in csv.DictReader(file)]
    refused = subprocess.run([*command[:3], __file__], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in refused.stderr, "the process can import torch"

    recipe = read_json(Path("model.onnx.json"), EXPORT)
    card = run.load()[0]
    assert recipe["features"]["scaling"] == card.to_json()["scaling"] | {
        "parts": recipe["features"]["scaling"]["parts"]
    }
    assert [part["deviation"] for part in recipe["features"]["scaling"]["parts"]] != []
    assert recipe["features"]["columns"][1]["categories"] == ["b", "g", "r"]
    assert recipe["classes"] == list(task.class_names)
    check_metadata(recipe)


def check_metadata(recipe: dict[str, Any]) -> None:
    """The file's own metadata say what the JSON says, and neither tells paths of this machine."""
    onnx = pytest.importorskip("onnx")
    metadata = {entry.key: entry.value for entry in onnx.load("model.onnx").metadata_props}
    assert {
        key: value if key in ("file", "model", "polyformer") else json.loads(value) for key, value in metadata.items()
    } == (recipe)
    assert type_command("export", "run", "--out", "model.pt2") == 0
    extra = {"polyformer.json": ""}
    torch.export.load("model.pt2", extra_files=extra)
    assert json.loads(extra["polyformer.json"]) == recipe | {"file": "model.pt2"}
    for path in (Path("model.onnx"), Path("model.pt2")):
        assert str(EXAMPLE.parents[1]).encode() not in path.read_bytes()


def test_a_recipe_holds_every_part_of_the_card_that_outputs_depend_on() -> None:
    """A new field of the card is either part of the recipe, or of the exported network, or named here as neither."""
    inside = {"model", "settings", "in_channels", "num_classes", "objective", "units", "calibration"}
    beside = {"class_names", "columns", "scaling"}
    refused = {"label_channels"}  # a model that reads known labels is not exported
    assert {field.name for field in fields(ModelCard)} - inside - beside - refused == {"metric"}
