"""`Parameter` and `Buffer`: the tensors of a module, told apart by their class."""

from __future__ import annotations

from typing import Any

from aotlite.eager.functions import tensor
from aotlite.eager.tensor import Tensor


class Parameter(Tensor):
    """A tensor that a module trains: a leaf on the memory of `data`, with gradient by default.

    >>> import aotlite as al
    >>> Parameter(al.zeros(2)).requires_grad
    True
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        _share(self, data)
        if requires_grad:
            self.requires_grad_()

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that a module keeps and does not train, on the memory of `data`.

    `persistent=False` keeps it out of `state_dict`; the object is then a `TransientBuffer`.
    """

    __slots__ = ()
    persistent = True

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        return super().__new__(cls if persistent else TransientBuffer)

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        _share(self, data)

    def __repr__(self) -> str:
        return f"{type(self).__name__} containing:\n{super().__repr__()}"


class TransientBuffer(Buffer):
    """A buffer that `state_dict` leaves out."""

    # A class and not a flag: all tensors have the same slots, which `deepcopy` relies on.
    __slots__ = ()
    persistent = False


def _share(made: Tensor, data: Any) -> None:
    """Makes `made` a tensor without history on the memory of `data`."""
    source = data.detach() if isinstance(data, Tensor) else tensor(data)
    Tensor.__init__(made, source.storage, source.meta, source.offset)
    made.value = source.value
