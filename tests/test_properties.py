"""Laws that hold for whatever hypothesis thinks of: graphs, changes, splits, settings, JSON and chunks of files."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st

from polyformer.errors import FileCorrupt, PolyformerError
from polyformer.files import read_json, read_npz, reseal_file, seal_file, write_json, write_npz
from polyformer.files.schema import Schema, TableOf
from polyformer.graph import Graph
from polyformer.models.polyformer import PolyFormerSettings
from polyformer.settings import split_settings
from polyformer.splits import balanced_split, uniform_split
from polyformer.training.settings import TrainingSettings
from polyformer.updates.graph_directory import update_graph
from polyformer.updates.task_changes import TaskChange

few = settings(max_examples=40, deadline=None, derandomize=True, database=None)
nodes = st.integers(1, 12)
edges = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40)
changes = st.lists(
    st.tuples(
        st.sampled_from(["edge", "no edge", "node", "no node", "feature"]), st.integers(0, 20), st.integers(0, 20)
    ),
    max_size=10,
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@few
@given(edges, nodes)
def test_graphs_are_symmetric_without_loops_and_survive_saving(pairs: list[tuple[int, int]], count: int) -> None:
    size = max([count, *(max(pair) + 1 for pair in pairs)])
    graph = Graph(np.array(pairs, np.int64).reshape(-1, 2).T, np.ones((size, 1)), size)
    adjacency = graph.adjacency()
    assert (adjacency != adjacency.T).nnz == 0
    assert adjacency.diagonal().sum() == 0
    assert graph.num_edges == len({tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1]})
    with tempfile.TemporaryDirectory() as place:
        graph.save(Path(place) / "graph")
        assert Graph.load(Path(place) / "graph", verify=True).fingerprint == graph.fingerprint


@few
@given(edges, changes)
def test_any_sequence_of_changes_gives_the_graph_of_what_is_left(
    pairs: list[tuple[int, int]], steps: list[tuple[str, int, int]]
) -> None:
    """Against a set of pairs and a list of values, which a step changes too; in memory and in a directory."""
    left = {(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}
    values, gone = [1.0] * 12, set[int]()
    graph = Graph(np.array(pairs, np.int64).reshape(-1, 2).T, np.ones((12, 1)), 12)
    with tempfile.TemporaryDirectory() as place:
        graph.save(Path(place) / "graph")
        for number, (kind, first, second) in enumerate(steps):
            one, other = sorted((first % len(values), second % len(values)))
            change: dict[str, Any] = {}
            if {one, other} & gone or one == other:
                continue
            if kind == "edge":
                change, left = {"add_edges": [[one, other]]}, left | {(one, other)}
            elif kind == "no edge" and (one, other) in left:
                change, left = {"remove_edges": [[other, one]]}, left - {(one, other)}
            elif kind == "node":
                change, left = {"add_edges": [[one, len(values)]], "add_features": [[2.0]]}, left | {(one, len(values))}
                values.append(2.0)
            elif kind == "no node":
                change, left = {"remove_nodes": [one]}, {pair for pair in left if one not in pair}
                gone.add(one)
            elif kind == "feature":
                change, values[one] = {"set_features": {one: [float(second)]}}, float(second)
            if change:
                new_ids = [graph.num_nodes] if "add_features" in change else []
                arrays = {name: np.array(part) if isinstance(part, list) else part for name, part in change.items()}
                whole = TaskChange(**arrays, new_ids=new_ids, first_new=graph.num_nodes)
                graph = graph.updated(**change)
                update_graph(Path(place) / "graph", lambda _, whole=whole, number=number: (whole, str(number)))
        stored = Graph.load(Path(place) / "graph", verify=True)
    expected = Graph(np.array(sorted(left), np.int64).reshape(-1, 2).T, np.ones((len(values), 1)), len(values))
    for changed in (graph, stored):
        assert (changed.adjacency() != expected.adjacency()).nnz == 0
        assert set(changed.removed.tolist()) == gone
        kept = [i for i in range(len(values)) if i not in gone]
        assert np.asarray(changed.features)[kept, 0].tolist() == [values[i] for i in kept]


@few
@given(st.lists(st.integers(-1, 3), min_size=8, max_size=200), st.integers(0, 2**32))
def test_splits_are_disjoint_and_of_labelled_nodes(labels: list[int], seed: int) -> None:
    for draw in (uniform_split, balanced_split):
        try:
            split = draw(np.array(labels), seed)
        except PolyformerError:
            continue
        parts = np.concatenate([split.train, split.val, split.test])
        assert len(np.unique(parts)) == len(parts)
        assert (np.array(labels)[parts] >= 0).all()


@few
@given(st.dictionaries(st.sampled_from(["order", "heads", "lr", "epochs", "dropout", "num_layers", "scale"]), values))
def test_settings_are_taken_or_refused_with_a_sentence(given_settings: dict[str, Any]) -> None:
    try:
        parts = split_settings([PolyFormerSettings, TrainingSettings], given_settings)
    except PolyformerError as error:
        parts = [str(error), ""]
    assert len(parts) == 2


@few
@given(st.dictionaries(st.text(), values, max_size=5), st.integers(0, 10**6))
def test_json_comes_back_and_a_changed_byte_is_noticed(content: dict[str, Any], where: int) -> None:
    schema = Schema("a thing", TableOf(), checksum=True)
    content.pop("checksum", None)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.json"
        write_json(path, content, schema)
        assert read_json(path, schema) == json.loads(json.dumps(content))
        data = bytearray(path.read_bytes())
        data[where % len(data)] ^= 1
        path.write_bytes(data)
        with contextlib.suppress(FileCorrupt):
            assert read_json(path, schema) == json.loads(json.dumps(content)) or b'"checksum"' not in data


@few
@given(
    st.binary(max_size=5000), st.lists(st.tuples(st.integers(0, 6000), st.binary(min_size=1, max_size=300)), max_size=4)
)
def test_a_file_that_is_resealed_has_the_seal_of_the_whole(content: bytes, writes: list[tuple[int, bytes]]) -> None:
    from polyformer.files import seals

    before, seals.CHUNK_BYTES = seals.CHUNK_BYTES, 512
    try:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "x"
            path.write_bytes(content)
            seal = seal_file(path)
            with path.open("r+b") as file:
                for begin, data in writes:
                    file.seek(begin)
                    file.write(data)
            changed = [(begin, begin + len(data)) for begin, data in writes]
            assert reseal_file(path, seal, changed) == seal_file(path)
    finally:
        seals.CHUNK_BYTES = before


@few
@given(st.lists(st.floats(width=32), max_size=50))
def test_arrays_come_back_from_npz(numbers: list[float]) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.npz"
        write_npz(path, {"x": np.array(numbers, np.float32)})
        np.testing.assert_array_equal(read_npz(path, ["x"])["x"], np.array(numbers, np.float32))
