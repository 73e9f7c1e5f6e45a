"""The meanings of the shipped wrappers, independent of their code, and nestings of them.

A nesting is plain data: "dense", or a tuple of a form and its inner nestings, such as
("pair", ("quantized", "dense"), "dense"). `maker(nesting)` makes wrappers of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import aotlite as al
from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import AotliteError, ArgumentError, DTypeError
from aotlite.sharding import Mesh, Partial, Replicate, Shard, ShardedTensor
from aotlite.subclasses import (
    MaskedTensor,
    QuantizedTensor,
    SemiStructuredSparseTensor,
    TwoTensor,
)
from aotlite.testing.programs.vocabulary import KEEP_ZEROS
from aotlite.testing.subclasses.kinds import Meanings, SubclassKind
from aotlite.testing.subclasses.masked_model import MaskedModel
from aotlite.testing.subclasses.wrapper_programs import Making

Make = Callable[[Tensor], Tensor]


# -------------------------------------------------------------------------------------- makers
def turned(x: Tensor) -> Tensor:
    """A tensor of the same geometry with other numbers; for a dense one, in reverse order."""
    if isinstance(x, TwoTensor):
        return TwoTensor(turned(x.a), turned(x.b))
    if is_wrapper(x):
        return x * -1
    once = all(step or n == 1 for n, step in zip(x.shape, x.stride(), strict=True))
    other = x.detach().flip(list(range(x.dim()))) if once and x.dim() else x.detach()
    return al.ops.restride(other, x.stride())


def mask_for(x: Tensor, seed: int = 1) -> Tensor:
    """A mask without a third of the elements, equal for elements of one address."""
    sizes = [n if s or n == 1 else 1 for n, s in zip(x.shape, x.stride(), strict=True)]
    count = int(np.prod(sizes))
    kept = (np.arange(count) + seed) % 3 != 0
    return al.tensor(kept.reshape(sizes)).to(al.bool_).expand(x.shape)


def _floats(x: Tensor) -> Tensor:
    if x.dtype not in (al.float32, al.float64):
        raise DTypeError(f"quantized: dtype is {x.dtype}, expected float32 or float64")
    return x


def _quantized(dtype: DType, scale: object, zero: int | None = None) -> Make:
    def make(x: Tensor) -> Tensor:
        by = al.tensor(scale, dtype=_floats(x).dtype)
        zeros = None if zero is None else al.tensor(zero, dtype=al.int8)
        return QuantizedTensor.quantize(x, by, zeros, dtype=dtype)

    return make


def _per_channel(x: Tensor) -> Tensor:
    count = _floats(x).shape[0] if x.dim() else 1
    by = al.tensor([0.5, 0.25, 1.0] * (count // 3 + 1), dtype=x.dtype)[:count]
    return QuantizedTensor.quantize(x, by.view(-1, *[1] * (x.dim() - 1)) if x.dim() else by[0])


def _sparse(x: Tensor) -> SemiStructuredSparseTensor:
    dims = [d for d in range(-1, -x.dim() - 1, -1) if x.shape[d] % 4 == 0]
    return SemiStructuredSparseTensor.from_dense(_floats(x), dims[0] if dims else -1, prune=True)


def _sparse_quantized(x: Tensor) -> SemiStructuredSparseTensor:
    made = _sparse(x)
    values = _quantized(al.int8, 0.5)(made.values)
    return SemiStructuredSparseTensor(values, made.metadata, made.sparse_dim)


# ------------------------------------------------------------------------------------ meanings
def _of_quantized(x: QuantizedTensor) -> Tensor:
    values = x.values.to(x.scale.dtype)
    return (values if x.zero_point is None else values - x.zero_point) * x.scale


def _of_sparse(x: SemiStructuredSparseTensor) -> Tensor:
    """The values, scattered to their indices."""
    dim, metadata = x.sparse_dim, x.metadata.long()
    group = al.arange(metadata.shape[dim]).view(-1, *[1] * (x.dim() - 1 - dim)) * 4
    places = al.stack([metadata % 4 + group, metadata // 4 % 4 + group], dim + 1)
    where = places.view(x.values.shape)
    return x.values.new_zeros(x.shape).scatter(dim, where, _dense(x.values))


def _dense(x: Tensor) -> Tensor:
    return _of_quantized(x) if isinstance(x, QuantizedTensor) else x


def _stored_quantized(x: QuantizedTensor, value: Tensor) -> object:
    """The nearest number that 8 bits hold, by NumPy."""
    scale, limits = np.asarray(x.scale.array), _LIMITS[x.values.dtype]
    zero = 0 if x.zero_point is None else np.asarray(x.zero_point.array).astype(scale.dtype)
    with np.errstate(all="ignore"):
        steps = np.asarray(value.detach().array).astype(scale.dtype) / scale
        steps = np.rint(steps) if x.values.dtype is al.int8 else steps
        steps = np.clip(steps + zero, *limits).astype(x.values.dtype.numpy)
        return al.from_numpy(np.asarray((steps.astype(scale.dtype) - zero) * scale))


_LIMITS: dict[object, tuple[float, float]] = {
    al.int8: (-128, 127),
    al.float8_e4m3fn: (-448, 448),
    al.float8_e5m2: (-57344, 57344),
}


def _stored_sparse(x: SemiStructuredSparseTensor, value: Tensor) -> object:
    """The two largest of each four, by NumPy."""
    rows = np.moveaxis(np.asarray(value.detach().array).astype(x.dtype.numpy), x.sparse_dim, -1)
    groups = rows.reshape(*rows.shape[:-1], rows.shape[-1] // 4, 4)
    kept, size = np.zeros(groups.shape, bool), np.where(np.isnan(groups), np.inf, abs(groups))
    order = np.argsort(-size, -1, kind="stable")[..., :2]
    np.put_along_axis(kept, order, True, -1)
    found = np.where(kept, groups, 0).reshape(rows.shape)
    return al.from_numpy(np.ascontiguousarray(np.moveaxis(found, -1, x.sparse_dim)))


def _sharded(x: Tensor) -> Tensor:
    """The tensor sharded over two ranks along the first even dimension, or else replicated."""
    cut = [Shard(dim) for dim, size in enumerate(x.shape) if size % 2 == 0]
    return ShardedTensor.from_dense(x.detach(), Mesh(2), cut[0] if cut else Replicate())


def _of_sharded(x: Any) -> object:
    """Returns the whole tensor of the parts of two ranks, in its layout."""
    match x.placement:
        case Replicate():
            return x.rank_1
        case Shard(dim):
            whole = al.cat([x.rank_0, x.rank_1], dim)
        case Partial("sum"):
            whole = x.rank_0 + x.rank_1
        case _:
            with no_grad():
                return x.full_tensor()
    return al.ops.restride(whole, al.ops.clone(x).stride())


PAIR = SubclassKind(TwoTensor, lambda x: TwoTensor(x, turned(x)), lambda x: (x.a, x.b))
MASKED = SubclassKind(
    MaskedTensor,
    lambda x: MaskedTensor(x, mask_for(x)),
    lambda x: MaskedModel(x.data, x.mask),
    tolerance=1e-6,
)
QUANTIZED = SubclassKind(
    QuantizedTensor,
    _quantized(al.int8, 0.5),
    _of_quantized,
    _stored_quantized,
    holds=lambda value: _held_by(["quantized"])(value),
)
SPARSE = SubclassKind(
    SemiStructuredSparseTensor,
    _sparse,
    _of_sparse,
    _stored_sparse,
    grow=4,
    writes=KEEP_ZEROS,
    sizes=(4, 4, 2, 8, 0),
)
SHARDED = SubclassKind(ShardedTensor, _sharded, _of_sharded, tolerance=1e-5)
"""Sums over ranks go in another order."""
SHIPPED: tuple[SubclassKind, ...] = (PAIR, MASKED, QUANTIZED, SPARSE, SHARDED)
"""The shipped classes, for the laws."""

QUANTIZED_FORMS: dict[str, Make] = {
    "quantized": _quantized(al.int8, 0.5),
    "affine": _quantized(al.int8, 0.5, 3),
    "channels": _per_channel,
    "e4m3": _quantized(al.float8_e4m3fn, 0.5),
    "e5m2": _quantized(al.float8_e5m2, 1.0),
}


# ------------------------------------------------------------------------------------- nestings
Nesting: TypeAlias = "str | tuple[str, *tuple[Nesting, ...]]"
DEPTH = 3


def drawn_nesting(rng: Any, depth: int = DEPTH, outside: tuple[str, ...] = ()) -> Nesting:
    """A random nesting of at most `depth` classes, each inside a class that accepts it.

    >>> from random import Random
    >>> drawn_nesting(Random(0))
    ('e4m3', ('pair', 'dense', ('pair', 'dense', 'dense')))
    """
    if not depth or (outside and rng.random() < 0.35):
        return "dense"
    encoded = {"sparse", "small", *QUANTIZED_FORMS} & set(outside)
    forms = ["pair", "pair"] if len([f for f in outside if f == "pair"]) < 2 else []
    forms += [] if outside else ["masked"]  # gradients need masked tensors outermost
    forms += [] if encoded else [*QUANTIZED_FORMS, "sparse", "small"]
    form = rng.choice(forms or ["dense"])
    if form in ("dense", "small"):
        return form if form == "dense" else (form,)
    count = 2 if form == "pair" else 1
    return (form, *[drawn_nesting(rng, depth - 1, (*outside, form)) for _ in range(count)])


def forms_of(nesting: Nesting) -> set[str]:
    """The forms in a nesting."""
    if isinstance(nesting, str):
        return set()
    return {nesting[0]}.union(*[forms_of(each) for each in nesting[1:]])


def maker(nesting: Any) -> Make:
    """Returns the maker of a wrapper from a tensor, without classes that cannot hold it."""
    if nesting == "dense":
        return lambda x: x
    form, *inside = nesting
    makes = [maker(each) for each in inside]
    if form == "pair":
        first, second = makes
        return lambda x: TwoTensor(_if_can(first, x), _if_can(second, turned(x)))
    if form == "small":
        return _sparse_quantized
    around = {"masked": _masked, "sparse": _sparse, **QUANTIZED_FORMS}.get(form)
    if around is None:
        raise ArgumentError(f"nesting: a form is {form!r}, expected one of the shipped classes'")
    return lambda x: _if_can(around, _if_can(makes[0], x))


def _masked(x: Tensor) -> Tensor:
    return MaskedTensor(_floats(x), mask_for(x))


def _if_can(make: Make, x: Tensor) -> Tensor:
    """The wrapper of a tensor, or the tensor itself if the class refuses it."""
    try:
        with no_grad():
            return make(x)
    except AotliteError:
        return x


def worlds_in(nesting: Nesting) -> int:
    """Returns the largest number of worlds of a nesting's wrappers."""
    if isinstance(nesting, str):
        return 1
    counts = [worlds_in(each) for each in nesting[1:]]
    return sum(counts) if nesting[0] == "pair" else max(counts, default=1)


def making(nesting: Nesting, meanings: Meanings | None = None) -> Making:
    """Returns the maker of programs on a nesting of shipped classes."""
    forms = forms_of(nesting)
    quantized = sorted(({"small"} | set(QUANTIZED_FORMS)) & forms)
    sparse = {"sparse", "small"} & forms
    return Making(
        maker(nesting),
        meanings or Meanings(SHIPPED),
        worlds_in(nesting),
        _held_by(quantized) if quantized else None,
        KEEP_ZEROS if sparse else None,
        (4, 4, 2, 8, 0) if sparse else (2, 3, 4, 1, 0),
    )


def _held_by(forms: list[str]) -> Callable[[Tensor | MaskedModel], bool]:
    """Whether all of these forms hold numbers as they are."""
    makes = [
        _quantized(al.int8, 0.5) if f in ("small", "channels") else QUANTIZED_FORMS[f]
        for f in forms
    ]

    def holds(value: Tensor | MaskedModel) -> bool:
        dense = value.filled() if isinstance(value, MaskedModel) else value
        if not dense.dtype.is_floating_point:
            return True
        with no_grad():
            exact = dense.detach().to(al.float64)
            return all(bool((make(exact).decode() == exact).all().item()) for make in makes)

    return holds
