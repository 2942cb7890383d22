"""The JSON beside an exported model: how the tokens are made that the model reads, and how its answers are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from polyformer.models.token_function import TokenFunction
from polyformer.runs.saved_model import ModelCard
from polyformer.structure_features import are_structural
from polyformer.version import __version__

__all__ = ["INPUT", "export_recipe", "output_name"]

INPUT = "tokens"


def output_name(card: ModelCard) -> str:
    """``probabilities`` (n, C) of classes, or ``values`` (n, 1) of a regression."""
    return "values" if card.objective == "regression" else "probabilities"


def export_recipe(card: ModelCard, function: TokenFunction, file: str, preprocessing: Sequence[str]) -> dict[str, Any]:
    """All that a program needs besides the model's file. A program can read every field without polyformer.

    Args:
        file: name of the model's file.
        preprocessing: sentences on what was done to the features before training.
    """
    num_outputs = 1 if card.objective == "regression" else card.num_classes
    return {
        "format": 1,
        "polyformer": __version__,
        "file": file,
        "model": card.model,
        "steps": _steps(card, function),
        "input": {"name": INPUT, "dtype": "float32", "shape": ["nodes", function.order + 1, function.width]},
        "output": {"name": output_name(card), "dtype": "float32", "shape": ["nodes", num_outputs]},
        "classes": _classes(card),
        "threshold": card.threshold,
        "features": {
            "count": function.num_features,
            "columns": None if card.columns is None else [asdict(column) for column in card.columns],
            "from_structure": are_structural(card.columns),
            "scaling": None if card.scaling is None else card.scaling.to_json(),
            "laplacian_encoding": function.encoding_channels,
            "preprocessing": list(preprocessing),
        },
        "tokens": {
            "order": function.order,
            "self_loops": function.self_loops,
            "basis": function.basis.spec,
            "mixing": function.basis.mixing(function.order).tolist(),
        },
    }


def _classes(card: ModelCard) -> list[str] | None:
    """Names of the classes, or their numbers if they have no names; None for a regression."""
    if card.objective == "regression":
        return None
    return card.class_names or [str(number) for number in range(card.num_classes)]


def _steps(card: ModelCard, function: TokenFunction) -> list[str]:
    """The way from a graph to predictions, a sentence a step."""
    steps = [
        "Make the graph undirected: take every edge in both directions, merge repeated edges keeping the largest "
        "weight, drop edges from a node to itself. A is its adjacency matrix; an edge without a weight counts 1."
    ]
    if are_structural(card.columns):
        steps.append("Make X (N, d), the features of 'features.columns', from the degrees around each node.")
    else:
        steps.append("Take X (N, d), the features of the nodes, in the order of 'features.columns'.")
    if card.scaling is not None and card.scaling.parts:
        steps.append(
            "Scale the columns start..stop-1 of each of 'features.scaling.parts': "
            "x becomes (asinh((x - centre) / spread) - mean) / deviation, or x / deviation where spread is null. "
            "All other columns stay as they are. Round to float32."
        )
    if function.encoding_channels:
        steps.append(
            f"Put {function.encoding_channels} more columns beside X: eigenvectors of I - D^-1/2 A D^-1/2 of the "
            f"smallest eigenvalues but the first, ascending, each with its entry of largest size positive."
        )
    loops = "A + I" if function.self_loops else "A"
    steps += [
        f"With D the diagonal matrix of the row sums of {loops}, let P = D^-1/2 ({loops}) D^-1/2; the row of a node "
        f"without an edge is {'that of I' if function.self_loops else 'zero'}.",
        f"Chebyshev tokens, for k = 0..{function.order}: T_0 = X, T_1 = -P X, T_k = -2 P T_(k-1) - T_(k-2).",
        f"Tokens of the basis '{function.basis.spec}': token_k = sum over j of mixing[k][j] T_j.",
        f"Give rows of any nodes as '{INPUT}' (n, {function.order + 1}, {function.width}) float32 to the model; it "
        f"answers '{output_name(card)}'.",
    ]
    if card.threshold is not None:
        steps.append("Predict the second class where its probability is greater than 'threshold', else the first.")
    elif card.objective != "regression":
        steps.append("Predict the most probable class.")
    return steps
