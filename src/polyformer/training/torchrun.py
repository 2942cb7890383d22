"""The processes that ``torchrun`` starts, joined into a group that trains one model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from polyformer.devices import choose_device
from polyformer.errors import InvalidParameter
from polyformer.training.distributed import ALONE, PATIENCE, ProcessGroup, Workers

__all__ = ["backend", "environment_workers"]


def backend(device: str = "auto") -> str:
    """Between GPUs nccl, between CPUs gloo, which always carries what is said besides the gradients."""
    return "cpu:gloo,cuda:nccl" if choose_device(device).type == "cuda" else "gloo"


@contextlib.contextmanager
def environment_workers(device: str = "auto") -> Iterator[Workers]:
    """The processes that ``torchrun``, or whoever sets the same variables, has started; else this one alone.

    Args:
        device: what the run computes on; each worker takes a GPU of its own, unless that is the CPU.
    """
    try:
        alone = int(os.environ.get("WORLD_SIZE", "1")) < 2
        meeting = None if alone else next(iter(rendezvous("env://", timeout=PATIENCE)))
    except (ValueError, KeyError) as error:
        raise InvalidParameter(
            f"The variables WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT do not describe workers ({error}). "
            f"Start them with torchrun, or unset WORLD_SIZE."
        ) from None
    if meeting is None:
        yield ALONE
        return
    store, rank, count = meeting
    if choose_device(device).type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank % torch.cuda.device_count())))
    dist.init_process_group(backend(device), store=store, rank=rank, world_size=count, timeout=PATIENCE)
    group = ProcessGroup(store)
    try:
        with group.watched():
            yield group
    finally:
        dist.destroy_process_group()
