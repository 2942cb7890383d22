"""Find the column for a role: the column that the user names, else one with a common name."""

from __future__ import annotations

from collections.abc import Sequence

from polyformer.errors import InvalidData

__all__ = ["EDGE_ROLES", "NODE_ROLES", "match_column", "require_column"]

EDGE_ROLES: dict[str, tuple[str, ...]] = {
    "source": ("source", "src", "from", "u", "head", "start", "source_id", "src_id", "from_id", "node1", "node_1"),
    "target": ("target", "dst", "to", "v", "tail", "end", "target_id", "dst_id", "to_id", "node2", "node_2", "dest"),
    "weight": ("weight", "w", "weights", "edge_weight"),
}
NODE_ROLES: dict[str, tuple[str, ...]] = {
    "id": ("id", "node", "node_id", "nodeid", "ids"),
    "label": ("label", "class", "y", "target", "labels"),
    "split": ("split", "set", "fold"),
}


def match_column(role: str, known: Sequence[str], columns: Sequence[str], given: str | None, table: str) -> str | None:
    """The column for ``role``: ``given`` if it is not None (no column for ``""``), else the one with a known name.

    Example:
        >>> match_column("source", EDGE_ROLES["source"], ["From", "To"], None, "edges.csv")
        'From'
        >>> match_column("label", NODE_ROLES["label"], ["label", "y"], None, "n")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        polyformer.errors.InvalidData: Both 'label' and 'y' of 'n' could be the label. Say which: ...
    """
    if given is not None:
        if given and given not in columns:
            raise InvalidData(f"'{table}' has no column '{given}' for the {role}. Its columns are: {_listed(columns)}.")
        return given or None
    matching_columns = [column for column in columns if column.strip().lower() in known]
    if len(matching_columns) > 1:
        raise InvalidData(
            f"Both '{matching_columns[0]}' and '{matching_columns[1]}' of '{table}' could be the {role}. Say which: "
            f"polyformer import --{role}-column."
        )
    return matching_columns[0] if matching_columns else None


def require_column(role: str, known: Sequence[str], columns: Sequence[str], given: str | None, table: str) -> str:
    """As :func:`match_column`, for a role that some column must have."""
    column = match_column(role, known, columns, given, table)
    if column is None:
        raise InvalidData(
            f"'{table}' has no column that looks like the {role}. Its columns are: {_listed(columns)}. "
            f"Name it: polyformer import --{role}-column."
        )
    return column


def _listed(columns: Sequence[str]) -> str:
    shown = ", ".join(columns[:20])
    return shown if len(columns) <= 20 else f"{shown} and {len(columns) - 20} more"
