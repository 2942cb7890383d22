"""Predict the nodes of a small graph with an exported model: numpy, scipy and onnxruntime alone, no torch.

    polyformer export runs/my-run --out model.onnx
    python examples/serve_without_torch.py model.onnx my_graph/ --nodes 0 5 7

``my_graph/`` is a graph directory as ``polyformer import`` writes it. Everything else that is needed stands in
``model.onnx.json``; its ``steps`` say in words what the functions below compute. Copy what you need.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
import scipy.sparse as sp


def read_graph(folder: Path) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    """Adjacency matrix (N, N), features (N, d) and ids (N,) of a graph directory."""
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    weights = np.load(folder / "weights.npy") if (folder / "weights.npy").exists() else np.ones(len(indices))
    num_nodes = len(indptr) - 1
    adjacency = sp.csr_matrix((weights.astype(np.float64), indices, indptr), shape=(num_nodes, num_nodes))
    if (folder / "features.npz").exists():
        features = sp.load_npz(folder / "features.npz").toarray()
    else:
        features = np.load(folder / "features.npy")
    ids = np.load(folder / "ids.npy") if (folder / "ids.npy").exists() else np.arange(num_nodes)
    return adjacency, features, ids


def scale(features: np.ndarray, scaling: dict | None) -> np.ndarray:
    """Features as the model reads them, float32."""
    scaled = features.astype(np.float32)
    for part in scaling["parts"] if scaling else ():
        columns = slice(part["start"], part["stop"])
        values = features[:, columns].astype(np.float64)
        if part["spread"] is not None:
            values = np.arcsinh((values - part["centre"]) / part["spread"]) - part["mean"]
        scaled[:, columns] = values / part["deviation"]
    return scaled


def operator(adjacency: sp.csr_matrix, self_loops: bool) -> sp.csr_matrix:
    """P = D^-1/2 A D^-1/2, of A + I with self-loops; the row of a node without an edge stays zero."""
    if self_loops:
        adjacency = adjacency + sp.identity(adjacency.shape[0], format="csr")
    degrees = np.asarray(adjacency.sum(axis=1)).ravel()
    scaling = sp.diags(1 / np.sqrt(np.where(degrees > 0, degrees, 1)))
    return (scaling @ adjacency @ scaling).tocsr()


def tokens(adjacency: sp.csr_matrix, features: np.ndarray, recipe: dict) -> np.ndarray:
    """Tokens of all nodes, (N, K+1, d) float32."""
    about = recipe["features"]
    if about["from_structure"] or about["laplacian_encoding"]:
        raise SystemExit("This example does not make features from the structure. Follow 'steps' in the JSON.")
    if features.shape[1] != about["count"]:
        raise SystemExit(f"The model reads {about['count']} features per node. This graph has {features.shape[1]}.")
    signal = scale(features, about["scaling"]).astype(np.float64)
    propagate = operator(adjacency, recipe["tokens"]["self_loops"])
    chebyshev = [signal, -(propagate @ signal)]
    for _ in range(2, recipe["tokens"]["order"] + 1):
        chebyshev.append(-2 * (propagate @ chebyshev[-1]) - chebyshev[-2])
    stacked = np.stack(chebyshev[: recipe["tokens"]["order"] + 1], axis=1)  # (N, K+1, d)
    return (np.array(recipe["tokens"]["mixing"]) @ stacked).astype(np.float32)


def predicted_classes(probabilities: np.ndarray, recipe: dict) -> list[str]:
    """The name of the predicted class of each node."""
    if recipe["threshold"] is None:
        best = probabilities.argmax(axis=1)
    else:
        best = (probabilities[:, 1] > recipe["threshold"]).astype(int)
    return [recipe["classes"][number] for number in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the exported model, .onnx; its .json stands beside it")
    parser.add_argument("graph", type=Path, help="a graph directory")
    parser.add_argument("--nodes", type=int, nargs="+", help="numbers of the nodes; all nodes by default")
    arguments = parser.parse_args()

    recipe = json.loads(arguments.model.with_name(arguments.model.name + ".json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(str(arguments.model), providers=["CPUExecutionProvider"])
    adjacency, features, ids = read_graph(arguments.graph)
    nodes = np.arange(len(ids)) if arguments.nodes is None else np.array(arguments.nodes)
    rows = tokens(adjacency, features, recipe)[nodes]
    (answers,) = session.run([recipe["output"]["name"]], {recipe["input"]["name"]: rows})
    if recipe["classes"] is None:
        print("node,prediction")
        for node, (value,) in zip(nodes, answers, strict=True):
            print(f"{ids[node]},{value:.9g}")
        return
    print("node,prediction," + ",".join(f"probability_{name}" for name in recipe["classes"]))
    for node, name, row in zip(nodes, predicted_classes(answers, recipe), answers, strict=True):
        print(f"{ids[node]},{name}," + ",".join(f"{value:.9g}" for value in row))


if __name__ == "__main__":
    main()
