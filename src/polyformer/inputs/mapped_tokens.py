"""Tokens that stay on disk and are mapped into memory: for few rows at a time, in any order, many times."""

from __future__ import annotations

import torch
from torch import Tensor

from polyformer.inputs.token_inputs import RowInput
from polyformer.stores.directory import StoredTokens
from polyformer.stores.rows import RowIndex

__all__ = ["MappedInput"]


class MappedInput(RowInput):
    """Rows of a token directory, read through its memory map; the system keeps in memory what is asked for often.

    :class:`polyformer.inputs.streamed_tokens.StreamedInput` gives pages back at once, which suits a walk over all rows.

    Args:
        stored: an open token directory.
    """

    def __init__(self, stored: StoredTokens) -> None:
        self._stored = stored
        self._index = RowIndex(stored.nodes, len(stored), f"'{stored.directory}'")

    def rows(self, nodes: Tensor, like: Tensor) -> Tensor:
        rows = torch.from_numpy(self._index(nodes.cpu().numpy()))
        return self._stored[rows].to(like.device, like.dtype)
