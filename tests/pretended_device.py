"""A device that does not exist: its tensors claim to be on a GPU, and tensors of the CPU hold their values.

Inside :func:`pretended_device` the tensors of that device behave as those of a GPU do where it matters to a program:
they have no address and no ``numpy()``, and an operation refuses tensors of two devices. So code that forgets to move a
tensor fails here as it would on a GPU. The values are those of the CPU, so results can be compared with the CPU's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

from polyformer.nn import tracing

__all__ = ["DeviceFault", "PretendedTensor", "pretended_device"]

_BELIEVED = torch.device("meta")
"""The device that torch's own C++ code is told: autograd would ask a GPU for its streams."""

_DEVICE_TYPES = ("cuda", "mps", _BELIEVED.type)

_aten = torch.ops.aten
_INDEXINGS = (_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default, _aten._index_put_impl_.default)
"""Operations on a tensor of the device whose indices may lie on the CPU."""


class DeviceFault(RuntimeError):
    """What a GPU would have refused."""


class PretendedTensor(torch.Tensor):
    """A tensor of the pretended device; ``held`` is the tensor of the CPU that has its values."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> PretendedTensor:
        layout = {}
        if held.layout is torch.strided:
            layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        tensor = torch.Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype, device=_BELIEVED, **layout)
        tensor.held = held
        return tensor

    claimed = torch.device("cuda", 0)
    """The device that all such tensors claim to be on; :func:`pretended_device` sets it."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return type(self).claimed

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return type(self).claimed.type == "cuda"

    def __repr__(self) -> str:  # type: ignore[override]
        return f"PretendedTensor({self.held})"

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.detach().cpu().numpy()
        raise DeviceFault("can't convert a tensor of the pretended device to numpy")

    def __array__(self, dtype: Any = None) -> Any:  # type: ignore[override]
        raise DeviceFault("can't convert a tensor of the pretended device to numpy")

    def data_ptr(self) -> int:
        raise DeviceFault("a tensor of the pretended device has no address on the CPU")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class _Operations(TorchDispatchMode):
    """Takes what makes tensors on a device that is named, and what moves them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _compute(func, args, kwargs or {})
        for leaf in tree_flatten(result)[0] if PretendedTensor.claimed.type == "mps" else ():
            if isinstance(leaf, PretendedTensor) and leaf.dtype is torch.float64:
                raise DeviceFault(f"{func} makes float64, which the pretended device does not have")
        return result


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the tensors that hold the values; what it gives belongs to the device if the arguments do."""
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, PretendedTensor)]
    here = [tensor for tensor in tensors if not isinstance(tensor, PretendedTensor) and tensor.dim() > 0]
    if func in (_aten._pin_memory.default, _aten.is_pinned.default):
        if there:
            raise DeviceFault("only a tensor of the CPU can be pinned")
        return args[0].clone() if func is _aten._pin_memory.default else False
    moves = func in (_aten.copy_.default, _aten._to_copy.default)
    if there and here and not moves and not _may_mix(func, args):
        raise DeviceFault(f"{func} got tensors of the CPU and of the pretended device")
    asked = kwargs.get("device")
    on_device = bool(there) if asked is None else torch.device(asked).type in _DEVICE_TYPES
    plain_args, plain_kwargs = tree_map(
        lambda leaf: leaf.held if isinstance(leaf, PretendedTensor) else leaf, (args, kwargs)
    )
    if asked is not None:
        plain_kwargs = plain_kwargs | {"device": torch.device("cpu")}
    result = func(*plain_args, **plain_kwargs)
    if func is _aten.copy_.default:
        return args[0]
    if func is _aten._to_copy.default and result is plain_args[0]:
        result = result.clone()
    if not on_device:
        return result
    wrapped = tree_map(lambda leaf: PretendedTensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, result)
    return return_and_correct_aliasing(func, args, kwargs, wrapped) if there else wrapped


def _may_mix(func: Any, args: Any) -> bool:
    """Whether the operation indexes a tensor of the device by indices of the CPU, which torch admits."""
    if func not in _INDEXINGS or not isinstance(args[0], PretendedTensor):
        return False
    values = args[2] if len(args) > 2 else None
    return values is None or isinstance(values, PretendedTensor) or values.dim() == 0


@contextlib.contextmanager
def pretended_device(kind: str = "cuda", free_bytes: int = 1 << 40) -> Iterator[torch.device]:
    """Inside this context ``--device cuda`` is the pretended device; all its tensors must be used inside.

    Args:
        kind: ``cuda``, or ``mps``, which refuses float64 as the GPUs of Apple do.
        free_bytes: memory that the device claims to have free.
    """
    state = torch.get_rng_state()
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with (
            mock.patch.multiple(
                torch.cuda,
                is_available=lambda: kind == "cuda",
                device_count=lambda: 1,
                current_device=lambda: 0,
                _lazy_init=lambda: None,
                mem_get_info=lambda device=None: (free_bytes, free_bytes),
                get_rng_state=lambda device=None: state,
                set_rng_state=lambda new_state, device=None: None,
                manual_seed_all=lambda seed: None,
            ),
            mock.patch.object(torch.backends.mps, "is_available", return_value=kind == "mps"),
            # The kernel must be kept from these tensors by their device, not by the mode that they work in.
            mock.patch.object(tracing, "_dispatch_modes", return_value=0),
            mock.patch.object(PretendedTensor, "claimed", torch.device(kind, 0)),
            _Operations(),
        ):
            yield PretendedTensor.claimed
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
