"""Fresh parameters for a module that exists: after ``to_empty``, or to train it once more."""

from __future__ import annotations

from torch import nn

__all__ = ["reset_children"]


def reset_children(module: nn.Module) -> None:
    """Let every part of a module draw its parameters anew, in the order in which the constructor drew them."""
    for child in module.children():
        reset = getattr(child, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            reset_children(child)
