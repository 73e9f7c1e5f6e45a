"""`Module.to`: moves a module to another device or dtype.

Parameters and buffers stay the same objects, so that an optimizer keeps them. Rules: DEV-7, TEN-26.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from aotlite.eager.base.devices import device_of
from aotlite.eager.base.modes import STATE, no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.memory import take_place, tell_apart
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType, as_dtype
from aotlite.ir.errors import ArgumentError
from aotlite.nn.parameter import Buffer, Parameter

Convert = Callable[[Tensor], Tensor]


class ModuleTree(Protocol):
    """The one method of a module that `move` calls."""

    def modules(self) -> Iterable[Any]: ...


def move(module: ModuleTree, device: Device | None, dtype: DType | None) -> None:
    """Converts all parameters and buffers, and their gradients, to this device and dtype.

    Integer tensors keep their dtype.
    """
    if dtype is not None and not dtype.is_differentiable:
        raise ArgumentError(f"to: dtype is {dtype}, expected a floating or complex one")

    def convert(tensor: Tensor) -> Tensor:
        wanted = dtype if tensor.dtype.is_differentiable else None
        found: Tensor = tensor.to(device or tensor.device, wanted or tensor.dtype)
        return found

    each_tensor(module, convert)


def each_tensor(module: ModuleTree, convert: Convert) -> None:
    """Replaces the memory of each tensor of the module by that of `convert(tensor)`."""
    recorder = STATE.recorder
    if recorder is not None:
        raise recorder.refuse("a module that moves", "move it outside")
    with no_grad():
        for owner in module.modules():
            for name, held in list(vars(owner).items()):
                if isinstance(held, Tensor) and _is_member(held):
                    _replace(owner, name, held, convert)


def _is_member(held: Tensor) -> bool:
    return isinstance(held, (Parameter, Buffer))


def _replace(owner: ModuleTree, name: str, held: Tensor, convert: Convert) -> None:
    grad = held.grad
    if is_wrapper(held):
        raise ArgumentError(
            f"to: {name!r} is a {type(held).__name__}, expected plain tensors; make the module of "
            "converted ones"
        )
    moved = convert(held.detach())
    if moved.storage is not held.storage:
        tell_apart(held.storage, moved.storage)
        take_place(held, moved)
    if grad is not None and (grad.device is not held.device or grad.dtype is not held.dtype):
        held.grad = None
        held.grad = convert(grad)


def wishes_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Device | None, DType | None]:
    """The device and the dtype of `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`."""
    given = dict(kwargs)
    given.pop("non_blocking", None)
    device, dtype = given.pop("device", None), given.pop("dtype", None)
    dtype = as_dtype(dtype)
    for value in map(as_dtype, args):
        if isinstance(value, DType):
            dtype = value
        elif isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif type(value) is not bool:  # non_blocking
            device = value
    if given:
        raise ArgumentError(f"to: there is no argument {next(iter(given))!r}")
    return None if device is None else device_of("to", device), dtype
