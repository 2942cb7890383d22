"""Readers of directories that have changed, of tables of changes, and of directories whose hashes fit all the same.

Hashes find accidents, not attacks: whoever writes a hostile directory writes fitting hashes too. The readers called
"resealed" damage a directory and then write its hashes anew, so that what stands behind the hashes is tried as well.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load

import polyformer as pf
from polyformer.errors import PolyformerError
from polyformer.files import array_digest, seal_file, write_tensors
from polyformer.graph import Graph
from polyformer.runs.auto.state import RaceState
from polyformer.runs.drift import drift_of_run, keep_baseline
from polyformer.runs.run import Run
from polyformer.stores import change_log
from polyformer.tasks import Task
from polyformer.tokens import write_tokens
from polyformer.updates import token_rows
from polyformer.updates.change_tables import read_changes, read_new_nodes
from polyformer.updates.graph_directory import update_graph
from polyformer.updates.task_changes import change_task
from polyformer.updates.tokens import update_tokens
from polyformer.verification import verify_directory
from tests.edits import adopt, rewrite_json
from tests.updates.killed import change

__all__ = [
    "make_changed",
    "make_drift",
    "make_new_nodes",
    "make_race",
    "read_change_tables",
    "read_changed_graph",
    "read_changed_tokens",
    "read_drift",
    "read_new",
    "read_race",
    "reseal_data",
    "reseal_layers",
    "reseal_run",
    "use_graph",
    "use_run",
    "use_tokens",
    "write_change_tables",
]

_HEAD = change_log._HEAD
_TOKEN_SHAPE = (3, 3)  # orders and columns of what make_changed writes


# ---- hashes written anew ----


def reseal_data(place: str) -> Callable[[Path], None]:
    """Write the hashes of a graph or token directory anew, where its manifest can still be read."""

    def reseal(folder: Path) -> None:
        manifest = folder / place / "manifest.json"
        if not manifest.is_file():
            return
        try:
            content = json.loads(manifest.read_bytes())
            names = content["files"]
            assert isinstance(names, dict)
        except (OSError, ValueError, KeyError, TypeError, AssertionError, RecursionError):
            return
        files = {name: folder / place / name for name in names if "/" not in name and "\0" not in name}
        sealed = {name: seal_file(path) for name, path in files.items() if len(name) < 200 and path.is_file()}
        rewrite_json(manifest, {key: value for key, value in content.items() if key != "checksum"}, files=sealed)

    return reseal


def reseal_layers(folder: Path) -> None:
    """Write the hashes of the first record of a log of tokens anew, where its header still stands."""
    reseal_data("tokens")(folder)
    for path in (folder / "tokens").glob("changes*.log"):
        data = bytearray(path.read_bytes() if path.is_file() else b"")
        if len(data) < _HEAD.size:
            continue
        magic, size, _ = _HEAD.unpack_from(data)
        text = bytes(data[_HEAD.size : _HEAD.size + min(size, 1 << 16)])
        begin = change_log._aligned(_HEAD.size + len(text), change_log._ALIGN)
        try:
            header = json.loads(text)
            payload = data[begin : begin + sum(change_log._sizes(header, begin, _TOKEN_SHAPE, np.dtype(np.float32)))]
            changed = text.replace(str(header["payload_hash"]).encode(), str(zlib.crc32(payload)).encode())
            if len(changed) == len(text):
                text = changed
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        data[: _HEAD.size + len(text)] = _HEAD.pack(magic, len(text), zlib.crc32(text)) + text
        path.write_bytes(data)


def reseal_run(folder: Path) -> None:
    """Write the hashes of a run anew: of its JSON files, and of tensors that can still be read."""
    place = folder / "run"
    for path in (place / "config.json", place / "result.json"):
        if path.is_file():
            try:
                content = json.loads(path.read_bytes())
            except (ValueError, RecursionError):
                continue
            if isinstance(content, dict):
                rewrite_json(path, {key: value for key, value in content.items() if key != "checksum"})
    for path in (place / "model.safetensors", place / "checkpoint" / "state.safetensors"):
        if path.is_file():
            _reseal_tensors(path)
    with contextlib.suppress(
        PolyformerError, OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError
    ):
        adopt(place)


def _reseal_tensors(path: Path) -> None:
    data = path.read_bytes()
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about = json.loads(json.loads(header["__metadata__"]["polyformer"])["about"])
        write_tensors(path, load(data), about)
    except (ValueError, KeyError, TypeError, RecursionError, SafetensorError):
        return


# ---- what is done with what was read ----


def use_graph(folder: Path) -> None:
    """Open a graph and give it to the kernels."""
    task = Task.load(folder / "graph")
    tokens = pf.compute_tokens(task.graph, order=2)
    for split in task.splits:
        _ = task.labels[split.train], task.labels[split.test], tokens[split.val]


def use_tokens(folder: Path) -> None:
    stored = pf.open_tokens(folder / "tokens")
    _ = stored[:], stored[np.arange(0, len(stored), 3)], stored.recurrence


def use_run(folder: Path) -> None:
    """Open a run and let its model predict."""
    run = Run.open(folder / "run")
    _ = run.result, run.metrics, run.facts
    card, model = run.load()
    random = np.random.default_rng(0)
    graph = pf.Graph(random.integers(0, 12, (2, 30)), random.normal(size=(12, card.in_channels)), 12)
    if card.in_channels < 1000:
        from polyformer.runs.prediction import predict_scores

        predict_scores(model, card.reader, graph)


# ---- graphs that change ----


def make_changed(folder: Path) -> None:
    """A graph directory with two changes, and tokens with a log of them."""
    random = np.random.default_rng(0)
    Graph(random.integers(0, 60, (2, 90)), random.standard_normal((60, 3)), 60).save(folder / "graph")
    write_tokens(Graph.load(folder / "graph"), folder / "tokens", order=2)
    before = token_rows._MOST_SHARE
    token_rows._MOST_SHARE = 1
    try:
        _WHOLE_VERSIONS.add(_version(folder))
        for _ in range(2):
            update_graph(folder / "graph", change)
            update_tokens(folder / "tokens", Graph.load(folder / "graph"))
            _WHOLE_VERSIONS.add(_version(folder))
        update_graph(folder / "graph", change)
    finally:
        token_rows._MOST_SHARE = before


def read_changed_graph(folder: Path) -> str:
    """Open a changed graph, and bring its tokens to it."""
    graph = Graph.load(folder / "graph")
    update_tokens(folder / "tokens", graph)
    digest = array_digest(pf.open_tokens(folder / "tokens")[:].numpy().round(4))
    return f"{graph.version} {graph.fingerprint} {digest}"


def _version(folder: Path) -> str:
    stored = pf.open_tokens(folder / "tokens")
    return f"{stored.manifest['graph']} {array_digest(stored[:].numpy())}"


_WHOLE_VERSIONS: set[str] = set()
"""What tokens were after each update: a log that loses its end gives the version before, as after a kill."""


def read_changed_tokens(folder: Path) -> str:
    verify_directory(folder / "tokens")
    version = _version(folder)
    return "a whole version" if version in _WHOLE_VERSIONS else version


def write_change_tables(folder: Path) -> None:
    _named_graph(folder)
    (folder / "changes").mkdir()
    (folder / "changes" / "nodes.csv").write_text(
        "action,id,label,age,colour\nadd,gus,yes,70,red\nadd,hal,,80,blue\nchange,bob,yes,25,red\nremove,fay,,,\n"
    )
    (folder / "changes" / "edges.csv").write_text("action,source,target\nadd,gus,ann\nadd,gus,hal\nremove,ann,bob\n")


def read_change_tables(folder: Path) -> None:
    task = Task.load(folder / "graph")
    change_task(task, read_changes(folder / "changes", task)[0])


def _named_graph(folder: Path) -> None:
    from polyformer.importing import import_graph

    place = folder.parent / f"{folder.name}-tables"
    place.mkdir()
    (place / "nodes.csv").write_text(
        "id,label,age,colour\nann,yes,10,red\nbob,no,20,blue\ncat,yes,30,red\ndan,no,40,blue\neve,yes,,red\n"
        "fay,no,60,blue\n"
    )
    (place / "edges.csv").write_text("source,target\nann,bob\nbob,cat\ncat,dan\ndan,eve\neve,fay\n")
    import_graph(place, folder / "graph")
    shutil.rmtree(place)


def make_new_nodes(folder: Path) -> None:
    _named_graph(folder)
    (folder / "nodes.csv").write_text("id,age,colour\ngus,70,red\nhal,80,blue\n")
    (folder / "edges.csv").write_text("source,target\ngus,ann\nhal,gus\n")


def read_new(folder: Path) -> None:
    read_new_nodes(folder / "nodes.csv", folder / "edges.csv", Task.load(folder / "graph"))


def make_drift(folder: Path) -> None:
    """A run and the baseline of its predictions."""
    from tests.crash.work import train_small

    train_small(folder)
    keep_baseline(folder / "run", folder / "graph")


def read_drift(folder: Path) -> Any:
    return drift_of_run(folder / "run", folder / "graph").to_json()


def make_race(folder: Path) -> None:
    from polyformer.runs.request import RunRequest

    RaceState.begin(RunRequest(data="x"), ["mlp", "gcn"], 20.0).save(folder)


def read_race(folder: Path) -> None:
    RaceState.load(folder)
