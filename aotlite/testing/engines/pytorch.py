"""PyTorch's eager mode as an engine for programs; needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from aotlite.testing.engines.base import Engine, EngineTensor


class TorchEngine(Engine):
    """PyTorch's eager library."""

    name = "torch"

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensor_type = torch.Tensor

    def make(
        self, values: list[object], shape: Sequence[int], dtype: str, *, grad: bool
    ) -> EngineTensor:
        made = self.torch.tensor(values, dtype=self.dtype(dtype))
        made = made if tuple(made.shape) == tuple(shape) else made.view(tuple(shape)).clone()
        return made.requires_grad_() if grad else made

    def full(self, shape: Sequence[int], number: float, dtype: str) -> EngineTensor:
        return self.torch.full(tuple(shape), number, dtype=self.dtype(dtype))

    def dtype(self, name: str) -> object:
        return getattr(self.torch, name)

    def function(self, name: str) -> Callable[..., EngineTensor]:
        return getattr(self.torch, name)

    def alias(self, tensor: EngineTensor) -> EngineTensor:
        return self.torch.ops.aten.alias(tensor)

    def hidden_alias(self, tensor: Any) -> EngineTensor:
        return tensor.data

    def resize(self, tensor: Any, shape: Sequence[int]) -> EngineTensor:
        memory = tensor.untyped_storage()
        size = memory.nbytes()
        tensor.resize_(tuple(shape))
        if memory.nbytes() > size:
            # By a tensor with its own version counter, which has counted no write.
            self.torch.empty(0, dtype=self.torch.uint8).set_(memory)[size:].zero_()
        return tensor

    def no_grad(self) -> AbstractContextManager[object]:
        return self.torch.no_grad()

    def backward(self, tensors: Sequence[Any], gradients: Sequence[Any]) -> None:
        self.torch.autograd.backward(tensors, gradients)

    def storage_of(self, tensor: Any) -> int:
        return tensor.untyped_storage()._cdata

    def version_of(self, tensor: Any) -> int:
        return tensor._version

    def base_of(self, tensor: Any) -> EngineTensor | None:
        return tensor._base

    def bytes_of(self, tensor: Any) -> bytes:
        # Memory that NumPy shares can no longer be resized.
        return tensor.resolve_conj().clone().numpy().tobytes()
