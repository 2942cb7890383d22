"""A trained model applied to a graph, and predictions as a Parquet table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from polyformer.datasets import load_source
from polyformer.errors import InvalidParameter
from polyformer.files import read_json, reporting_io_errors, write_whole
from polyformer.graph import Graph
from polyformer.models import NodeModel, Workload
from polyformer.progress import Share, Stages
from polyformer.tasks import Objective

__all__ = ["open_run_graph", "predict_scores", "write_predictions"]


def open_run_graph(
    run: Path, data: str | None = None, root: str | None = None, loading: Stages | None = None
) -> tuple[Graph, np.ndarray | None]:
    """The graph that a run was trained on, or another one, with the user's node ids if it has some."""
    if data is None:
        config = read_json(run / "config.json", "a run directory")
        if "data" not in config:
            raise InvalidParameter(
                f"'{run}' is a saved classifier that does not know its data. Pass the PATH of a graph."
            )
        data, root = config["data"], root or config["data_root"]
    task = load_source(data, root, progress=loading)
    return task.graph, task.ids


def predict_scores(
    model: NodeModel,
    objective: Objective,
    graph: Graph,
    nodes: np.ndarray | None = None,
    progress: Share | None = None,
) -> np.ndarray:
    """Probabilities (n, C), or values (n, 1) of a regression, of all nodes or of ``nodes``."""
    wanted = np.arange(graph.num_nodes) if nodes is None else nodes
    model.bind(graph, Workload(nodes, len(wanted)), progress)
    model.eval()
    device = next(model.parameters()).device
    with torch.no_grad():
        return objective.scores(model(torch.from_numpy(wanted).to(device)))


def write_predictions(
    path: Path, scores: np.ndarray, ids: np.ndarray, objective: Objective, class_names: Sequence[str] | None = None
) -> None:
    """Write one row a node: ``node``, ``prediction`` and, for classes, ``probability_<class>`` for each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, pa.Array] = {"node": pa.array(ids)}
    if objective.name == "regression":
        columns["prediction"] = pa.array(scores[:, 0])
    else:
        best = scores.argmax(axis=1)
        names = [str(i) for i in range(scores.shape[1])] if class_names is None else list(class_names)
        columns["prediction"] = pa.array(best if class_names is None else np.array(names)[best])
        columns |= {f"probability_{name}": pa.array(scores[:, i]) for i, name in enumerate(names)}
    with reporting_io_errors("predictions", path), write_whole(path) as file:
        pq.write_table(pa.table(columns), file)
