"""`SemiStructuredSparseTensor`: 2:4 sparsity: of each four numbers along a dimension, two.

It stands for the dense tensor with zeros elsewhere. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from math import inf
from typing import Any

from aotlite.eager.base.modes import STATE, no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.factories import arange
from aotlite.eager.subclass.op_functions import FUNCTIONS as ops
from aotlite.ir.dtypes import uint8
from aotlite.subclasses.encoded import EncodedTensor, View, wrong
from aotlite.subclasses.sparse_views import GROUP, parts_seen


class SemiStructuredSparseTensor(EncodedTensor):
    """Two values of each group of four neighbors along one dimension, and their positions.

    `values` has half of the tensor's size along `dim`. `metadata`, uint8, has a quarter: of each
    group the places of its two values, 0 to 3 and rising, in the bits 0-1 and 2-3. Ops give dense
    results, but `clone` a sparse one; matrix products take it on either side. Views that leave
    groups whole are views of both parts. An in-place op keeps the two largest numbers of each four
    that it computes, and writes both parts.

    >>> import aotlite as al
    >>> x = al.tensor([[0.0, 3.0, 0.0, -5.0], [1.0, 0.0, 0.0, 0.0]])
    >>> sparse = SemiStructuredSparseTensor.from_dense(x)
    >>> sparse.values.tolist(), sparse.metadata.tolist()
    ([[3.0, -5.0], [1.0, 0.0]], [[13], [4]])
    >>> (sparse @ al.ones(4, 1)).tolist(), (al.ones(1, 4) @ sparse.t()).tolist()
    ([[-2.0], [1.0]], [[-2.0, 1.0]])
    >>> SemiStructuredSparseTensor.from_dense(al.tensor([4.0, 1.0, 2.0, 3.0]), prune=True).tolist()
    [4.0, 0.0, 0.0, 3.0]
    """

    values: Tensor
    metadata: Tensor
    sparse_dim: int

    def __new__(
        cls, values: Tensor, metadata: Tensor, dim: int = -1, *, requires_grad: bool = False
    ) -> SemiStructuredSparseTensor:
        dim = _check(cls, values, metadata, dim)
        _check_places(cls, metadata)
        size = (*values.shape[:dim], 2 * values.shape[dim], *values.shape[dim + 1 :])
        if values.is_contiguous():
            return cls._of(values, metadata, dim, size, None, requires_grad=requires_grad)
        step = values.stride(dim)
        stride = [
            s * 2 if s > step or (s == step and i < dim) else s
            for i, s in enumerate(values.stride())
        ]
        stride[dim] = step
        return cls._of(values, metadata, dim, size, stride, requires_grad=requires_grad)

    @classmethod
    def _of(
        cls, values: Any, metadata: object, dim: int, size: object, stride: object, **how: object
    ) -> SemiStructuredSparseTensor:
        geometry: Any = {"dtype": values.dtype, "device": values.device}
        made: Any = Tensor._make_wrapper_subclass(cls, size, stride, **geometry)
        made.values, made.metadata, made.sparse_dim = values, metadata, dim
        return made.requires_grad_() if how.get("requires_grad") else made

    def __tensor_flatten__(self) -> tuple[list[str], int]:
        return ["values", "metadata"], self.sparse_dim

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, Tensor], spec: int, outer_size: object, outer_stride: object
    ) -> SemiStructuredSparseTensor:
        values, metadata = inner["values"], inner["metadata"]
        _check(cls, values, metadata, spec)
        return cls._of(values, metadata, spec, outer_size, outer_stride)

    @classmethod
    def from_dense(
        cls, dense: Tensor, dim: int = -1, *, prune: bool = False
    ) -> SemiStructuredSparseTensor:
        """Keeps the two numbers of largest magnitude of each four along `dim`.

        Raises SubclassError if others are not 0, unless `prune` is set. The check reads values.
        """
        fits = dense.dim() and dense.shape[dim] % GROUP == 0
        if not fits or not dense.dtype.is_floating_point:
            raise wrong(cls, "dense", dense.meta, f"floats, a multiple of {GROUP} along dim {dim}")
        with no_grad():
            values, metadata = [part.contiguous() for part in _compressed(dense, dim)]
            made = cls(values, metadata, dim)
            if not prune and not (made.decode() == dense).all().item():
                found = "a tensor that has more than 2 numbers in a group of 4"
                raise wrong(cls, "dense", found, "at most 2 that are not 0, or prune=True")
        return made

    def decode(self) -> Tensor:
        """The dense tensor."""
        pairs = self.values.movedim(self.sparse_dim, -1).unflatten(-1, (-1, 2))
        packed = self.metadata.movedim(self.sparse_dim, -1).unsqueeze(-1)
        places = arange(GROUP, dtype=uint8, device=self.device)
        second = ops.where(packed.bitwise_right_shift(2) == places, pairs[..., 1:], 0.0)
        dense = ops.where(packed.bitwise_and(3) == places, pairs[..., :1], second)
        return dense.flatten(-2).movedim(-1, self.sparse_dim)

    def _encode(self, value: Tensor) -> None:
        values, metadata = _compressed(value.to(self.dtype), self.sparse_dim)
        self.values.copy_(values)
        self.metadata.copy_(metadata)

    def _viewed(self, view: View, rest: tuple[object, ...]) -> object:
        meta = view.op.infer((self, *rest))  # type: ignore[attr-defined]
        found = parts_seen(view.__name__, self, rest, meta.shape)
        if found is None:
            return NotImplemented
        of_values, of_metadata, dim = found
        parts = view(self.values, *of_values), view(self.metadata, *of_metadata)
        return type(self)._of(*parts, dim, meta.shape, meta.stride)

    @classmethod
    def __tensor_dispatch__(
        cls, func: View, types: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        x = args[0]
        if func.__name__ == "clone" and isinstance(x, SemiStructuredSparseTensor):
            parts = x.values.clone(), x.metadata.clone()
            return type(x)._of(*parts, x.sparse_dim, x.shape, x.stride())
        return super().__tensor_dispatch__(func, types, args, kwargs)


def _compressed(dense: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """(values, metadata) of the two largest of each four; of equal ones, the first. A nan counts
    as an infinity."""
    groups = dense.movedim(dim, -1).unflatten(-1, (-1, GROUP))
    size = ops.where(groups.isnan(), inf, groups.abs())
    place = arange(GROUP, dtype=uint8, device=dense.device)
    mine, other = size.unsqueeze(-1), size.unsqueeze(-2)
    before = (other > mine).logical_or((other == mine).logical_and(place < place.unsqueeze(-1)))
    kept = before.sum(-1) < 2
    first = ops.where(kept, place, GROUP - 1).amin(-1)
    second = ops.where(kept, place, 0).amax(-1)
    places = ops.stack((first, second), -1)
    values = groups.gather(-1, places.long()).flatten(-2).movedim(-1, dim)
    metadata = first.bitwise_or(second.bitwise_left_shift(2)).to(uint8)
    return values, metadata.movedim(-1, dim)


def _check_places(cls: type[Tensor], metadata: Tensor) -> None:
    """Raises unless each group has two ascending positions; not checked in a capture."""
    if STATE.recorder is not None or metadata.storage.buffer is None:
        return
    with no_grad():
        first, second = metadata.bitwise_and(3), metadata.bitwise_right_shift(2)
        wrong_ones = (first >= second).logical_or(second > 3)
        if wrong_ones.any().item():
            found = int(metadata[wrong_ones][0].item())
            shown = f"{found} ({found:#06b}) somewhere, places {found & 3} and {found >> 2}"
            raise wrong(cls, "metadata", shown, "two places from 0 to 3, rising")


def _check(cls: type[Any], values: Any, metadata: Any, dim: int) -> int:
    """The dimension, counted from the front."""
    for name, part in {"values": values, "metadata": metadata}.items():
        if not isinstance(part, Tensor):
            raise wrong(cls, name, f"a {type(part).__name__}", "a tensor")
    if not values.dim() or not values.dtype.is_floating_point:
        raise wrong(cls, "values", values.meta, "floats, of one dimension at least")
    if not -values.dim() <= dim < values.dim() or values.shape[dim] % 2:
        raise wrong(cls, "dim", dim, f"one of {values.dim()} dimensions, of even size")
    dim %= values.dim()
    shape = (*values.shape[:dim], values.shape[dim] // 2, *values.shape[dim + 1 :])
    if metadata.dtype is not uint8 or tuple(metadata.shape) != shape:
        raise wrong(cls, "metadata", metadata.meta, f"uint8 of shape {shape}")
    return dim
