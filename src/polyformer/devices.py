"""The device that a model computes on: which one, how much fits on it, and how tensors get there."""

from __future__ import annotations

import torch
from torch import Tensor

from polyformer.errors import InvalidParameter

__all__ = ["DEVICES", "choose_device", "fits", "has_float64", "multiplies_sparse", "rows_per_slice", "to_device"]

DEVICES = ("auto", "cpu", "cuda", "mps")

_CACHE_BYTES, _CACHE_ROWS = 1 << 26, 1024
"""What a slice of rows takes on the CPU: larger slices leave the cache, take memory and bring no speed."""
_DEVICE_BYTES, _DEVICE_ROWS = 1 << 30, 1 << 16
"""What a slice of rows takes at most on another device, where small slices leave most of it idle."""
_LEAST_ROWS = 128


def choose_device(device: str) -> torch.device:
    """The device of this name, with its number; ``auto`` is CUDA where there is one, else the CPU."""
    if device not in DEVICES:
        raise InvalidParameter(f"'device' must be {', '.join(DEVICES[:-1])} or {DEVICES[-1]}. Got '{device}'.")
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidParameter("'device' is cuda, but torch finds no CUDA device here. Use auto or cpu.")
    if device == "mps":
        if not torch.backends.mps.is_available():
            raise InvalidParameter("'device' is mps, but torch finds no GPU of Apple here. Use auto or cpu.")
        return torch.device("mps", 0)
    if device != "cpu" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes leave half of the device's free memory to the model; no where the device does not say."""
    return device.type == "cuda" and size <= torch.cuda.mem_get_info(device)[0] // 2


def has_float64(device: torch.device) -> bool:
    """Whether the device computes in float64: the GPUs of Apple do not."""
    return device.type != "mps"


def multiplies_sparse(device: torch.device) -> bool:
    """Whether torch multiplies sparse by dense matrices on the device."""
    return device.type == "cuda"


def rows_per_slice(device: torch.device, row_bytes: int | None = None) -> int:
    """How many rows go through a model at once.

    Args:
        row_bytes: bytes of activations that a row leaves until its gradient is computed; None for a pass without
            gradients.
    """
    on_cpu = device.type == "cpu"
    most_rows = _CACHE_ROWS if on_cpu else _DEVICE_ROWS
    if row_bytes is None:
        return most_rows
    most_bytes = _CACHE_BYTES if on_cpu else _DEVICE_BYTES
    return min(max(most_bytes // row_bytes, _LEAST_ROWS), most_rows)


def to_device(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor on the device and in the dtype of ``like``.

    A copy from the CPU to CUDA goes through page-locked memory, so the program goes on during the copy.
    """
    if like.device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.to(like.dtype).pin_memory().to(like.device, non_blocking=True)
    return tensor.to(like.device, like.dtype)
