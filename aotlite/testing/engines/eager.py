"""aotlite's eager mode as an engine for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.dtypes import DType
from aotlite.testing.engines.base import Engine, EngineTensor


class AotliteEngine(Engine):
    """aotlite's eager library."""

    name = "aotlite"

    def __init__(self) -> None:
        self.tensor_type: type = al.Tensor

    def make(self, values: list[object], shape: Sequence[int], dtype: str, *, grad: bool) -> Tensor:
        # By NumPy, as a view of the tensor of the list would have a base, and a clone is slow.
        array = np.array(values, None if values else "float64").reshape(tuple(shape))
        made = al.tensor(array, dtype=self.dtype(dtype))
        return made.requires_grad_() if grad else made

    def full(self, shape: Sequence[int], number: float, dtype: str) -> Tensor:
        return al.full(tuple(shape), number, dtype=self.dtype(dtype))

    def dtype(self, name: str) -> DType:
        return getattr(al, "bool_" if name == "bool" else name)

    def function(self, name: str) -> Callable[..., EngineTensor]:
        return getattr(al, name)

    def alias(self, tensor: Any) -> Tensor:
        return tensor.alias()

    def hidden_alias(self, tensor: Any) -> Tensor:
        return tensor.hidden_alias()

    def resize(self, tensor: Any, shape: Sequence[int]) -> Tensor:
        return tensor.resize_(tuple(shape))

    def no_grad(self) -> AbstractContextManager[object]:
        return al.no_grad()

    def backward(self, tensors: Sequence[Any], gradients: Sequence[Any]) -> None:
        al.autograd.backward(tensors, gradients)

    def storage_of(self, tensor: Any) -> int:
        # A hidden alias has its own storage, with its own version, on the same buffer.
        return id(tensor.storage.buffer)

    def version_of(self, tensor: Any) -> int:
        return tensor.version

    def base_of(self, tensor: Any) -> Tensor | None:
        return tensor.base

    def bytes_of(self, tensor: Any) -> bytes:
        return tensor._data.tobytes()
