"""Features on a common scale: the laws of the scaling, and that every reader of a run reads it alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import polyformer as pf
from polyformer.columns import Column
from polyformer.errors import FileCorrupt, InvalidData
from polyformer.feature_scaling import FeatureScaling, ScaledFeatures
from polyformer.importing import open_source
from polyformer.propagation.disk import DiskEngine
from polyformer.tokens import write_tokens
from tests.cli.test_cli import FAST, run
from tests.edits import adopt, plain_json
from tests.listener import Listener

COUNT = 400


def raw_features(seed: int = 0) -> np.ndarray:
    """A year, a heavy tail, a flag, one value, and a count that is mostly zero."""
    random = np.random.default_rng(seed)
    columns = [
        random.normal(2000, 5, COUNT),
        random.lognormal(5, 3, COUNT),
        random.integers(0, 2, COUNT),
        np.full(COUNT, 7.0),
        random.poisson(0.2, COUNT),
    ]
    return np.column_stack(columns).astype(np.float32)


def raw_graph(features: np.ndarray | None = None) -> pf.Graph:
    random = np.random.default_rng(1)
    return pf.Graph(random.integers(0, COUNT, (2, 4 * COUNT)), raw_features() if features is None else features)


def test_columns_share_a_scale_and_keep_their_order() -> None:
    raw = raw_features()
    scaled = FeatureScaling.fit(raw).apply(raw)
    assert np.abs(scaled).max() < 10
    np.testing.assert_allclose(scaled[:, :2].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled[:, :2].std(axis=0), 1, rtol=1e-5)
    for column in (0, 1, 4):
        assert np.all(np.diff(scaled[np.argsort(raw[:, column], kind="stable"), column]) >= 0)
    np.testing.assert_array_equal(scaled[:, 2], raw[:, 2])
    assert not scaled[:, 3].any()
    np.testing.assert_array_equal(scaled[raw[:, 4] < 2, 4].round(6), raw[raw[:, 4] < 2, 4])


@pytest.mark.parametrize("unit", [1e-12, 1e-3, 1e6, 1e12])
def test_units_do_not_matter(unit: float) -> None:
    raw = np.abs(raw_features()[:, :2]).astype(np.float64)
    scaled = [FeatureScaling.fit(part).apply(part) for part in (raw, raw * unit)]
    np.testing.assert_allclose(*scaled, atol=1e-5)


def test_vectors_and_columns_on_one_scale_keep_their_directions() -> None:
    embedding = np.random.default_rng(0).normal(0, 300, (COUNT, 20)).astype(np.float32)
    one_number = FeatureScaling.fit(embedding)
    assert [(part.start, part.stop, part.spread) for part in one_number.parts] == [(0, 20, None)]
    np.testing.assert_allclose(one_number.apply(embedding), embedding / one_number.parts[0].deviation, rtol=1e-6)
    few = embedding[:, :3]
    assert len(FeatureScaling.fit(few).parts) == 3
    assert len(FeatureScaling.fit(few, (Column("vector", 3, kind="vector"),)).parts) == 1


def test_sparse_features_stay_as_they_are() -> None:
    wide = sp.random(COUNT, 5000, 0.01, format="csr", dtype=np.float32)
    graph = raw_graph(wide)
    assert FeatureScaling.fit(wide).parts == ()
    assert graph.scaled(FeatureScaling.fit(wide)).features is graph.features


def test_a_mapped_graph_is_scaled_as_one_in_memory(tmp_path: Path) -> None:
    graph = raw_graph()
    scaling = FeatureScaling.fit(graph.features)
    graph.save(tmp_path / "graph")
    mapped = pf.Graph.load(tmp_path / "graph")
    assert FeatureScaling.fit(mapped.features) == scaling
    scaled = mapped.scaled(scaling)
    assert isinstance(scaled.features, ScaledFeatures)
    assert isinstance(scaled.features.raw, np.memmap)
    assert scaled.fingerprint == graph.scaled(scaling).fingerprint == f"{graph.fingerprint}+{scaling.digest}"
    whole = pf.compute_tokens(graph.with_features(np.asarray(scaled.features)), order=3)
    for name, engine in (("memory", "memory"), ("held", DiskEngine()), ("bare", DiskEngine(7 << 20))):
        write_tokens(scaled, tmp_path / name, order=3, engine=engine)
        np.testing.assert_allclose(pf.open_tokens(tmp_path / name)[:], whole, atol=1e-6)
    scaled.save(tmp_path / "scaled")
    np.testing.assert_array_equal(pf.Graph.load(tmp_path / "scaled", verify=True).features, scaled.features)


def test_tokens_of_scaled_features_go_on_where_they_were_stopped(tmp_path: Path) -> None:
    graph = raw_graph(np.random.default_rng(0).lognormal(2, 2, (COUNT, 80)))
    scaled = graph.scaled(FeatureScaling.fit(graph.features))

    def stop(share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tokens(scaled, tmp_path / "tokens", order=2, reporter=Listener(on_share=stop))
    assert (tmp_path / ".tokens.partial").exists()
    write_tokens(scaled, tmp_path / "tokens", order=2)
    whole = pf.compute_tokens(scaled, order=2)
    np.testing.assert_allclose(pf.open_tokens(tmp_path / "tokens")[:], whole, rtol=1e-5, atol=1e-6)


def test_a_scaling_comes_back_from_json() -> None:
    scaling = FeatureScaling.fit(raw_features())
    written = json.loads(json.dumps(scaling.to_json()))
    assert written == scaling.to_json()
    assert FeatureScaling.from_json(written) == scaling
    assert FeatureScaling.from_json(None) is None
    with pytest.raises(InvalidData, match="that of 5 dense features per node"):
        raw_graph(raw_features()[:, :2]).scaled(scaling)


def test_damaged_files_are_refused_with_their_column(tmp_path: Path) -> None:
    features = raw_features()
    features[3, 1] = 1e30
    with pytest.raises(InvalidData, match=r"at most 1e\+19 in size. Got 1e\+30 in the feature column views"):
        FeatureScaling.fit(features, tuple(Column(name) for name in ("year", "views", "flag", "one", "count")))


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [(1e26, np.float32, "1.0000"), (1e300, np.float64, "1e+300"), (2**64 - 1, np.uint64, "18446744073709551615")],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_numbers_that_models_cannot_compute_with(value: float, dtype: type, said: str, sparse: bool) -> None:
    features = np.ones((3, 2), dtype)
    features[2, 1] = value
    with pytest.raises(InvalidData) as error:
        pf.Graph([[0], [1]], sp.csr_matrix(features) if sparse else features)
    assert f"at most 1e+19 in size. Got {said}" in str(error.value)
    assert "at row 2, column 1" in str(error.value)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A graph directory of one's own, whose second column decides the class."""
    graph = raw_graph()
    labels = (graph.features[:, 1] > np.median(graph.features[:, 1])).astype(np.int64)
    np.savez(tmp_path / "own.npz", edges=graph.adjacency().nonzero(), node_features=graph.features, node_labels=labels)
    with np.load(tmp_path / "own.npz") as held:
        arrays = dict(held) | {"edges": held["edges"].T}
    np.savez(tmp_path / "own.npz", **arrays)
    open_source(tmp_path / "own.npz").save(tmp_path / "own")
    return tmp_path / "own"


def predicted(place: Path, *arguments: object) -> np.ndarray:
    """The probability of the first class, node by node."""
    out = place.parent / "p.csv"
    assert run("predict", *arguments, "--out", out) == 0
    return np.loadtxt(out, delimiter=",", skiprows=1, usecols=2)


def test_a_run_keeps_its_scaling_for_all_who_read_it(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = tmp_path / "run"
    assert run("train", own, "--out", trained, *FAST) == 0
    sentence = "scaled 4 numeric columns; left 1 column of zeros and ones"
    assert sentence in capsys.readouterr().out
    config = json.loads((trained / "config.json").read_text())
    assert config["task"]["preprocessing"] == [sentence]
    assert config["settings"]["scale_features"] == "auto"
    assert len(config["card"]["scaling"]["parts"]) == 4
    (trained / "result.json").unlink()
    assert run("train", "--resume", "--no-report", "--out", trained) == 0
    same = predicted(own, trained)
    assert run("tokens", own, "--order", 3, "--out", tmp_path / "tokens") == 0
    loaded = pf.PolyFormerClassifier.load(trained).predict_proba(open_source(own).graph)[:, 0]
    for others in (predicted(own, trained, own), predicted(own, trained, "--tokens", tmp_path / "tokens"), loaded):
        np.testing.assert_allclose(others, same, atol=1e-6)


def test_tokens_of_another_scaling_are_refused(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, other = tmp_path / "raw", tmp_path / "other"
    assert run("tokens", own, "--order", 3, "--scale-features", "none", "--out", raw) == 0
    assert "scaling" not in json.loads((raw / "manifest.json").read_text())
    capsys.readouterr()
    assert run("train", own, "--tokens", raw, "--out", tmp_path / "run", *FAST) == 2
    assert (
        "from unscaled features, but the model reads scaled ones. Make tokens anew with: polyformer tokens PATH "
        in (capsys.readouterr().err)
    )
    assert run("train", own, "--tokens", raw, "--out", tmp_path / "run", *FAST, "--set", "scale_features=none") == 0
    graph = pf.Graph.load(own)
    open_source(own)
    graph.with_features(np.asarray(graph.features) * 2).save(other)
    assert run("train", own, "--out", tmp_path / "scaled", *FAST) == 0
    assert run("tokens", other, "--order", 3, "--out", tmp_path / "alone") == 0
    assert run("tokens", other, "--order", 3, "--like", tmp_path / "scaled", "--out", tmp_path / "like") == 0
    capsys.readouterr()
    options = ["predict", tmp_path / "scaled", other, "--out", tmp_path / "p.csv", "--tokens"]
    assert run(*options, tmp_path / "alone") == 2
    assert "from otherwise scaled features" in capsys.readouterr().err
    assert run(*options, tmp_path / "like") == 0


def test_runs_of_earlier_versions_mean_no_scaling(own: Path, tmp_path: Path) -> None:
    trained = tmp_path / "run"
    assert run("train", own, "--out", trained, *FAST, "--set", "scale_features=none") == 0
    same = predicted(own, trained)
    config = plain_json(trained / "config.json")
    for part, key in ((config["settings"], "scale_features"), (config["card"]["settings"], "scale_features")):
        del part[key]
    del config["card"]["scaling"], config["task"]["preprocessing"]
    (trained / "config.json").write_text(json.dumps(config))
    adopt(trained)
    np.testing.assert_array_equal(predicted(own, trained), same)
    (trained / "result.json").unlink()
    assert run("train", "--resume", "--no-report", "--out", trained) == 0
    np.testing.assert_array_equal(predicted(own, trained), same)


def test_data_sets_by_name_stay_as_they_were_published(tmp_path: Path) -> None:
    board = "minefield:width=20,height=15"
    assert run("train", board, "--out", tmp_path / "run", *FAST) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["card"]["scaling"], config["task"]["preprocessing"]) == (None, [])
    graph = pf.load_dataset(board).graph
    clf = pf.PolyFormerClassifier(order=2, hidden_channels=8, epochs=1)
    assert clf.fit(graph, pf.load_dataset(board).labels, train=np.arange(200)).preprocessing_ == []


def test_the_estimator_scales_graphs_from_python(tmp_path: Path) -> None:
    graph = raw_graph()
    labels = (graph.features[:, 1] > np.median(graph.features[:, 1])).astype(np.int64)
    clf = pf.PolyFormerClassifier(order=2, hidden_channels=16, epochs=30, lr=0.01).fit(graph, labels, np.arange(300))
    assert (clf.predict(graph)[300:] == labels[300:]).mean() > 0.9
    assert clf.preprocessing_ == ["scaled 4 numeric columns; left 1 column of zeros and ones"]
    clf.save(tmp_path / "clf")
    again = pf.PolyFormerClassifier.load(tmp_path / "clf")
    np.testing.assert_array_equal(again.predict_proba(graph), clf.predict_proba(graph))
    np.testing.assert_array_equal(again.filter_response([0, 1], [0.5], graph=graph), clf.filter_response([0, 1], [0.5]))


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 4), (0, 1 << 40)])
def test_a_stored_scaling_of_columns_that_are_not_there(start: int, stop: int) -> None:
    part = {"start": start, "stop": stop, "centre": 0.0, "spread": 1.0, "mean": 0.0, "deviation": 1.0}
    with pytest.raises(FileCorrupt, match=r"names columns outside 0\.\.2"):
        FeatureScaling.from_json({"num_columns": 3, "parts": [part]})
