"""Who runs a module: Python itself, a recorder that writes its operations down, or a transform of functions.

A native function takes the address of its arrays. Tensors of ``torch.compile``, ``torch.export``, ``torch.jit.trace``
and ``torch.func`` have none, so that under all of them the torch path is taken.
"""

from __future__ import annotations

import torch

__all__ = ["has_addresses", "is_recorded"]

_tracing_state = torch._C._get_tracing_state
_transforms_active = torch._C._are_functorch_transforms_active
_dispatch_modes = torch._C._len_torch_dispatch_stack


def is_recorded() -> bool:
    """Whether operations are written down, to run later on batches of other sizes.

    So it is under ``torch.compile``, ``torch.export``, ``torch.onnx.export`` and ``torch.jit.trace``. A branch on the
    size of the batch must not be taken then: the record would hold the branch of the example alone.
    """
    return torch.compiler.is_compiling() or _tracing_state() is not None


def has_addresses() -> bool:
    """Whether tensors are plain memory here, and not the stand-ins of a recorder, a transform or a mode."""
    # The compiler comes first: it knows the answer, and then reads no further.
    if torch.compiler.is_compiling():
        return False
    return _tracing_state() is None and not _transforms_active() and not _dispatch_modes()
