"""`ShardedTensor`: one tensor in the parts that N virtual ranks hold.

Its meaning is the dense tensor that `full_tensor` gives. Rules: SHD-1 to SHD-15.
Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, product
from operator import is_
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.storage_overlap import have_common_memory
from aotlite.eager.subclass.protocol import leaves_of, tangent_form
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.sharding import autograd_functions
from aotlite.sharding.dispatch import run
from aotlite.sharding.mesh import Mesh, Parts
from aotlite.sharding.placements import (
    REDUCTIONS,
    Partial,
    Placed,
    PlacedView,
    Placement,
    Replicate,
    Shard,
    is_formed,
)


class ShardedTensor(Tensor):
    """A tensor whose parts `rank_0`, `rank_1`, ... virtual ranks hold, as the placement says.

    Parts may be wrappers: what each rank computes is an op on its part.

    >>> import aotlite as al
    >>> from aotlite.sharding import Mesh, Shard, ShardedTensor
    >>> mesh = Mesh(2)
    >>> x = ShardedTensor.from_dense(al.arange(4.0), mesh, Shard(0))
    >>> x.rank_0, x.rank_1
    (tensor([0., 1.]), tensor([2., 3.]))
    >>> total = (x * x).sum()
    >>> total.placement, total.rank_0, total.rank_1, total.full_tensor()
    (Partial(reduce_op='sum'), tensor(1.), tensor(13.), tensor(14.))
    """

    mesh: Mesh
    placement: Placement

    def __new__(
        cls, parts: Sequence[Tensor], mesh: Mesh, placement: Placed, *, requires_grad: bool = False
    ) -> ShardedTensor:
        """The tensor of which rank r holds `parts[r]`, itself, no copy."""
        made: ShardedTensor = cls.of(mesh, placement, parts)
        _check_apart(cls, parts)
        return made.requires_grad_() if requires_grad else made  # type: ignore[return-value]

    @classmethod
    def of(
        cls, mesh: Mesh, placement: Placement, parts: Parts, meta: TensorMeta | None = None
    ) -> Any:
        """The tensor of these parts; of this size and these strides, or those the parts have."""
        first = _checked(cls, mesh, placement, parts)
        shape = first.shape if meta is None else meta.shape
        if isinstance(placement, Shard) and meta is None:
            if not 0 <= placement.dim < len(shape):
                raise wrong(cls, "placement", placement, f"a dimension of parts of shape {shape}")
            whole = shape[placement.dim] * mesh.size
            shape = (*shape[: placement.dim], whole, *shape[placement.dim + 1 :])
        strides = None if meta is None else meta.stride
        dtype = first.dtype if meta is None else meta.dtype
        made: Any = Tensor._make_wrapper_subclass(
            cls, shape, strides, dtype=dtype, device=first.device
        )
        made.mesh, made.placement = mesh, placement
        for rank, part in enumerate(parts):
            setattr(made, f"rank_{rank}", part)
        mesh.made(parts, placement)
        return made

    @classmethod
    def from_dense(cls, tensor: Tensor, mesh: Mesh, placement: Placed) -> ShardedTensor:
        """A tensor distributed: rank r gets a copy of its part. Differentiable."""
        if isinstance(tensor, cls):
            raise wrong(cls, "tensor", f"a {cls.__name__}", "a dense tensor, or redistribute()")
        return autograd_functions.FromDense.apply(
            cls, tensor, mesh, placed(cls, placement, tensor.meta, mesh)
        )

    def redistribute(self, placement: Placed) -> ShardedTensor:
        """The same tensor in another placement; itself if that is its own. Differentiable."""
        target = placed(type(self), placement, self.meta, self.mesh)
        return (
            self
            if target == self.placement
            else autograd_functions.Redistribute.apply(self, target)
        )

    def full_tensor(self) -> Tensor:
        """The whole, of one rank: dense, or what parts are. Differentiable."""
        return autograd_functions.Full.apply(self)

    def to_local(self, rank: int) -> Tensor:
        """What a rank holds, itself."""
        return self.parts[rank]

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """What each rank holds."""
        return tuple([getattr(self, f"rank_{rank}") for rank in self.mesh.ranks])

    # ------------------------------------------------------------------------------- the protocol
    def __tensor_flatten__(self) -> tuple[tuple[str, ...], tuple[Mesh, Placement]]:
        return _names(self.mesh.size), (self.mesh, self.placement)

    @classmethod
    def __tensor_unflatten__(
        cls,
        inner: dict[str, Tensor],
        spec: tuple[Mesh, Placement],
        outer_size: Sequence[int],
        outer_stride: Sequence[int],
    ) -> ShardedTensor:
        mesh, placement = spec
        parts = [inner[f"rank_{rank}"] for rank in mesh.ranks]
        dtype = placement.dtype if isinstance(placement, PlacedView) else parts[0].dtype
        meta = tensor_meta(outer_size, outer_stride, dtype, parts[0].device)
        made: ShardedTensor = cls.of(mesh, placement, parts, meta)
        return made

    @classmethod
    def __tensor_dispatch__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> Any:
        op = func.op  # type: ignore[attr-defined]
        return run(cls, op, op.bind(args, kwargs))

    def __tensor_gradient_form__(self) -> autograd_functions.Form:
        """One form for all gradients of tensors that are placed so. (SHD-13)"""
        return autograd_functions.Form(
            type(self), self.mesh, autograd_functions.back(self.placement)
        )

    def __tensor_coerce_gradient__(self, gradient: Tensor) -> Tensor:
        """A dense gradient that a backward is given is one that every rank has. (SHD-14)"""
        form = self.__tensor_gradient_form__()
        return gradient if isinstance(gradient, type(self)) else form(gradient)

    def __coerce_tangent_metadata__(self) -> ShardedTensor:
        """Each rank has a whole or a part, in the form that parts want: no sum, no window."""
        if isinstance(self.placement, PlacedView):
            return self.redistribute(Replicate()).__coerce_tangent_metadata__()
        if isinstance(self.placement, Partial):  # a form alone: parts need not be reducible
            one, meta = tangent_form(self.parts[0]), self.clone().meta
            copies = [one.clone() for _ in self.mesh.ranks]
            return type(self).of(self.mesh, Replicate(), copies, meta)
        parts = [tangent_form(part) for part in self.parts]
        same = all(map(is_, parts, self.parts))  # (SHD-14)
        return self if same else type(self).of(self.mesh, self.placement, parts, self.meta)

    def __coerce_same_metadata_as_tangent__(
        self, spec: Any, kind: type[object] | None = None
    ) -> Tensor | None:
        """This tangent in the expected placement, or whole where a dense one is expected; None
        where there is no way to it. (SHD-14)"""
        if kind is Tensor:
            return self.full_tensor()
        if not issubclass(kind or type(self), ShardedTensor):
            return None
        mesh, placement = spec
        other = mesh != self.mesh or isinstance(placement, PlacedView)
        return None if other else self.redistribute(placement)


@cache
def _names(size: int) -> tuple[str, ...]:
    return tuple([f"rank_{rank}" for rank in range(size)])


# -------------------------------------------------------------------------------------- arguments
def placed(cls: type[Tensor], placement: object, meta: TensorMeta, mesh: Mesh) -> Placed:
    """The placement, with dimensions from 0. Raises SubclassError for one that cannot be."""
    if not isinstance(mesh, Mesh):
        raise wrong(cls, "mesh", repr(mesh), "a Mesh")
    match placement:
        case Replicate():
            return placement
        case Partial(op) if op in REDUCTIONS:
            if not is_formed(op, meta.dtype):
                raise wrong(cls, "placement", placement, f"one that is formed of {meta.dtype}")
            return placement
        case Partial(op):
            raise wrong(cls, "placement", placement, f"a reduction of {[*REDUCTIONS]}")
        case Shard(dim) if type(dim) is int and -len(meta.shape) <= dim < len(meta.shape):
            if meta.shape[dim] % mesh.size:
                what = f"a dimension whose size is a multiple of {mesh.size}, in {meta.shape}"
                raise wrong(cls, "placement", placement, what)
            return Shard(dim % len(meta.shape))
        case Shard():
            raise wrong(cls, "placement", placement, f"a dimension of shape {meta.shape}")
    raise wrong(cls, "placement", repr(placement), "Shard(dim), Replicate() or Partial(reduce_op)")


def _checked(cls: type[Tensor], mesh: Mesh, placement: object, parts: Parts) -> TensorMeta:
    """The meta of every part."""
    if not isinstance(mesh, Mesh):
        raise wrong(cls, "mesh", repr(mesh), "a Mesh")
    if not isinstance(placement, (Shard, Replicate, Partial, PlacedView)):
        raise wrong(cls, "placement", repr(placement), "Shard(dim), Replicate() or Partial()")
    if len(parts) != mesh.size:
        raise wrong(cls, "parts", f"{len(parts)} tensors", f"one for each rank of {mesh}")
    for rank, part in enumerate(parts):
        if not isinstance(part, Tensor):
            raise wrong(cls, f"rank_{rank}", f"a {type(part).__name__}", "a tensor")
        first, meta = parts[0].meta, part.meta
        if meta is not first and not _are_alike(meta, first):
            what = f"shape, dtype and device of rank_0, {first}"
            raise wrong(cls, f"rank_{rank}", meta, what)
    found: TensorMeta = parts[0].meta
    if isinstance(placement, Partial) and not is_formed(placement.reduce_op, found.dtype):
        raise wrong(cls, "placement", placement, f"one that is formed of {found.dtype}")
    return found


def _are_alike(a: TensorMeta, b: TensorMeta) -> bool:
    return a.shape == b.shape and a.dtype is b.dtype and a.device == b.device


def _check_apart(cls: type[Tensor], parts: Parts) -> None:
    """That no two ranks hold one memory: what one writes would be there for another (SHD-2)."""
    for (first, a), (second, b) in combinations(enumerate(parts), 2):
        if any(have_common_memory(*pair) for pair in product(leaves_of(a), leaves_of(b))):
            shared = f"a tensor that shares memory with rank_{first}"
            raise wrong(cls, f"rank_{second}", shared, "memory of its own, as of a clone()")


def wrong(cls: type[Tensor], attribute: str, found: object, expected: str) -> Exception:
    """The error for what a sharded tensor cannot be made of."""
    return noted(
        SubclassError(f"{cls.__name__}: {attribute} is {found}, expected {expected}"),
        "Ranks hold equal parts of one tensor; what they may hold, a placement says. (SHD-2)",
    )
