"""Collectives as pure ops: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, wait.

Each takes one tensor per rank, all of one shape and dtype, and returns one per rank. The kernels
here compute in one process; a distributed engine runs the same nodes with kernels of its own. A
reduction goes in the order of the ranks, so that its result has the same bits on every rank and in
every run. Rules: COL-1 to COL-8. Spec: `specs/collectives.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
    noted,
)
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, Cost, Op, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.positions import replaced
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOAT8, INTEGER, STORED, Refused, kind_of, refusal
from aotlite.ir.ops.precision import OperandT, accumulator, cast, wide

Metas = tuple[TensorMeta, ...]
Arrays = tuple[Any, ...]

LINEAR: dict[str, Refused] = {"sum": BOOL | STORED, "avg": BOOL | INTEGER | STORED}
"""Linear reductions, whose gradient reads no value -> the kinds of dtype that they refuse."""

NONLINEAR: dict[str, Refused] = {
    "product": BOOL | FLOAT8,
    "max": COMPLEX | FLOAT8,
    "min": COMPLEX | FLOAT8,
}
"""The other reductions. They have ops of their own, because their gradients save operands."""


# ------------------------------------------------------------------------------------ meta rules
def _ranks(name: str, tensors: Metas) -> TensorMeta:
    """The meta that all ranks' tensors have in common. Raises where they differ (COL-1)."""
    if not tensors:
        raise ArgumentError(f"{name}: argument 'tensors' is empty, expected one tensor a rank")
    first = tensors[0]
    for rank, meta in enumerate(tensors):
        if meta.shape != first.shape:
            raise noted(
                ShapeError(
                    f"{name}: the tensor of rank {rank} has shape {meta.shape}, expected "
                    f"{first.shape}, that of rank 0"
                ),
                "All ranks must have shards of one size: pad the sharded dimension. (COL-1)",
            )
        if meta.dtype is not first.dtype:
            raise DTypeError(
                f"{name}: the tensor of rank {rank} is {meta.dtype}, expected {first.dtype}, "
                "that of rank 0"
            )
    common_device(name, list(tensors))
    return first


def _each(tensors: Metas, shape: Sequence[int]) -> Metas:
    """A contiguous result of this shape for every rank."""
    first = tensors[0]
    return (tensor_meta(tuple(shape), None, first.dtype, first.device),) * len(tensors)


def _check_reduction(name: str, meta: TensorMeta, op: str, known: Mapping[str, Refused]) -> None:
    if op not in known:
        raise ArgumentError(f"{name}: argument 'op' is {op!r}, expected one of {[*known]}")
    if kind_of(meta.dtype) in known[op]:
        raise refusal(name, meta.dtype, known[op])


def _cut(name: str, meta: TensorMeta, dim: int, ranks: int) -> int:
    """The size of one rank's part of a dimension (COL-2)."""
    size = meta.shape[dim]
    if size % ranks:
        raise noted(
            ShapeError(
                f"{name}: dimension {dim} has size {size}, expected a multiple of {ranks}, the "
                "number of ranks"
            ),
            "All ranks must have shards of one size: pad the sharded dimension. (COL-2)",
        )
    return size // ranks


def _wrapped(name: str, meta: TensorMeta, dim: int) -> int:
    if not meta.shape:
        raise ShapeError(f"{name}: the tensors have no dimensions, expected at least one")
    return sizes.wrap_dim(dim, len(meta.shape), op=name)


def _reduce_rule(name: str, known: Mapping[str, Refused]) -> Callable[..., Metas]:
    def rule(tensors: Metas, op: str) -> Metas:
        first = _ranks(name, tensors)
        _check_reduction(name, first, op, known)
        return _each(tensors, first.shape)

    return rule


def _all_gather_rule(tensors: Metas, dim: int) -> Metas:
    first = _ranks("all_gather", tensors)
    dim = _wrapped("all_gather", first, dim)
    return _each(tensors, replaced(first.shape, dim, first.shape[dim] * len(tensors)))


def _scatter_rule(name: str, known: Mapping[str, Refused]) -> Callable[..., Metas]:
    def rule(tensors: Metas, dim: int, op: str) -> Metas:
        first = _ranks(name, tensors)
        _check_reduction(name, first, op, known)
        dim = _wrapped(name, first, dim)
        return _each(tensors, replaced(first.shape, dim, _cut(name, first, dim, len(tensors))))

    return rule


def _all_to_all_rule(tensors: Metas, split_dim: int, concat_dim: int) -> Metas:
    first = _ranks("all_to_all", tensors)
    split_dim = _wrapped("all_to_all", first, split_dim)
    concat_dim = _wrapped("all_to_all", first, concat_dim)
    shape = replaced(first.shape, split_dim, _cut("all_to_all", first, split_dim, len(tensors)))
    return _each(tensors, replaced(shape, concat_dim, shape[concat_dim] * len(tensors)))


def _broadcast_rule(tensors: Metas, source: int) -> Metas:
    first = _ranks("broadcast", tensors)
    if not 0 <= source < len(tensors):
        raise IndexOutOfRangeError(
            f"broadcast: argument 'source' is {source}, expected a rank below {len(tensors)}"
        )
    return _each(tensors, first.shape)


def _wait_rule(tensors: Metas) -> Metas:
    return _each(tensors, _ranks("wait", tensors).shape)


# --------------------------------------------------------------------------------------- kernels
_COMBINES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda xp, a, b: a + b,
    "avg": lambda xp, a, b: a + b,
    "product": lambda xp, a, b: a * b,
    "max": lambda xp, a, b: xp.maximum(a, b),
    "min": lambda xp, a, b: xp.minimum(a, b),
}


def _reduced(xp: Namespace, dtype: DType, arrays: Sequence[Array], op: str) -> Array:
    """The reduction of the ranks' arrays, rank 0 first; 16-bit floats are rounded once (COL-3)."""
    operands = [wide(xp, a, dtype) for a in arrays]
    total = reduce(lambda a, b: _COMBINES[op](xp, a, b), operands)
    if op == "avg":
        total = total / xp.asarray(len(arrays), dtype=accumulator(dtype).numpy)
    return cast(xp, total, dtype)


def _windows(xp: Namespace, metas: Metas, array: Array) -> Arrays:
    """The same array for every rank; `adopt` copies each, as none is memory of its own."""
    return tuple([xp.broadcast_to(array, meta.shape) for meta in metas])


def _blocks(xp: Namespace, array: Array, ranks: int, dim: int) -> Arrays:
    """The array split along a dimension into one part per rank."""
    shape = array.shape
    part = shape[dim] // ranks
    apart = xp.reshape(array, (*shape[:dim], ranks, part, *shape[dim + 1 :]))
    front = xp.permute_dims(apart, (dim, *[i for i in range(len(shape) + 1) if i != dim]))
    return tuple([front[rank] for rank in range(ranks)])


def _all_reduce(xp: Namespace, metas: Metas, tensors: Sequence[Array], op: str) -> Arrays:
    return _windows(xp, metas, _reduced(xp, metas[0].dtype, tensors, op))


def _all_gather(xp: Namespace, metas: Metas, tensors: Sequence[Array], dim: int) -> Arrays:
    return _windows(xp, metas, xp.concat(list(tensors), axis=dim))


def _reduce_scatter(
    xp: Namespace, metas: Metas, tensors: Sequence[Array], dim: int, op: str
) -> Arrays:
    total = _reduced(xp, metas[0].dtype, tensors, op)
    return _blocks(xp, total, len(metas), dim % metas[0].ndim)


def _all_to_all(
    xp: Namespace, metas: Metas, tensors: Sequence[Array], split_dim: int, concat_dim: int
) -> Arrays:
    ranks, dim = range(len(metas)), split_dim % metas[0].ndim
    sent = [_blocks(xp, a, len(ranks), dim) for a in tensors]
    return tuple([xp.concat([blocks[r] for blocks in sent], axis=concat_dim) for r in ranks])


def _broadcast(xp: Namespace, metas: Metas, tensors: Sequence[Array], source: int) -> Arrays:
    return _windows(xp, metas, tensors[source])


def _wait(xp: Namespace, metas: Metas, tensors: Sequence[Array]) -> Arrays:
    pairs = zip(tensors, metas, strict=True)
    return tuple([xp.broadcast_to(a, meta.shape) for a, meta in pairs])


# ------------------------------------------------------------------------------------- gradients
def waited(name: str, tensors: Sequence[OperandT], *args: object) -> list[OperandT]:
    """The results of a collective, after `wait`: gradient formulas and wrapper classes call it."""
    sent = _call(OPS[name], tensors, *args)
    return list(_call(OPS["wait"], sent))


def _call(op: Op, tensors: Sequence[OperandT], *args: object) -> tuple[OperandT, ...]:
    if not tensors:
        raise ArgumentError(f"{op.name}: argument 'tensors' is empty, expected one tensor a rank")
    found: tuple[OperandT, ...] = tensors[0]._apply(op, (tuple(tensors), *args))
    return found


def _averaged(totals: Sequence[Operand], op: str) -> list[Operand]:
    return [total / len(totals) for total in totals] if op == "avg" else list(totals)


def _of_nonlinear(tensors: Sequence[Operand], totals: Sequence[Operand], op: str) -> list[Operand]:
    """The gradients of the ranks' operands; `totals` is the result's gradient, on every rank."""
    if op == "product":
        gathered = waited("all_gather", [x._do("unsqueeze", 0) for x in tensors], 0)
        pairs = enumerate(zip(totals, gathered, strict=True))
        return [total * _others(each, rank).conj() for rank, (total, each) in pairs]
    best = waited("all_reduce_nonlinear", tensors, op)
    hits = [_is_best(x, m).to(g.dtype) for x, m, g in zip(tensors, best, totals, strict=True)]
    counts = waited("all_reduce", hits, "sum")
    return [total * hit / n for total, hit, n in zip(totals, hits, counts, strict=True)]


def _is_best(x: Operand, best: Operand) -> Operand:
    """Where the extreme is this rank's element; a nan of any rank counts as the extreme."""
    return x._do("eq", best)._do("logical_or", x._do("isnan"))


def _others(gathered: Operand, rank: int) -> Operand:
    """The product over all ranks but one; ranks are along the first dimension."""
    rows = [gathered._do("select", 0, i) for i in range(gathered.shape[0]) if i != rank]
    if not rows:
        return gathered.new_ones(gathered.shape[1:])
    return reduce(lambda a, b: a * b, rows)


def _broadcast_vjp(grads: Sequence[Operand], source: int) -> list[Operand]:
    totals = waited("all_reduce", grads, "sum")
    return [g if r == source else g.new_zeros(g.shape) for r, g in enumerate(totals)]


# ------------------------------------------------------------------------------------------- ops
def _collective(schema: str, meta: Any, kernel: Any, vjp: Any, *, is_linear: bool = True) -> PureOp:
    return pure(
        f"{schema} -> Tensor[]",
        meta=meta,
        kernel=kernel,
        vjp={"tensors": vjp},
        cost=Cost.OPAQUE,
        workspace={RESULTS: 2, OPERANDS: 2},
        linear=(("tensors",),) if is_linear else (),
    )


ALL_REDUCE = _collective(
    "all_reduce(Tensor[] tensors, str op='sum')",
    _reduce_rule("all_reduce", LINEAR),
    _all_reduce,
    lambda grads, op: _averaged(waited("all_reduce", grads, "sum"), op),
)
ALL_REDUCE_NONLINEAR = _collective(
    "all_reduce_nonlinear(Tensor[] tensors, str op)",
    _reduce_rule("all_reduce_nonlinear", NONLINEAR),
    _all_reduce,
    lambda grads, tensors, op: _of_nonlinear(tensors, waited("all_reduce", grads, "sum"), op),
    is_linear=False,
)
ALL_GATHER = _collective(
    "all_gather(Tensor[] tensors, int dim=0)",
    _all_gather_rule,
    _all_gather,
    lambda grads, dim: waited("reduce_scatter", grads, dim, "sum"),
)
REDUCE_SCATTER = _collective(
    "reduce_scatter(Tensor[] tensors, int dim=0, str op='sum')",
    _scatter_rule("reduce_scatter", LINEAR),
    _reduce_scatter,
    lambda grads, dim, op: _averaged(waited("all_gather", grads, dim), op),
)
REDUCE_SCATTER_NONLINEAR = _collective(
    "reduce_scatter_nonlinear(Tensor[] tensors, int dim, str op)",
    _scatter_rule("reduce_scatter_nonlinear", NONLINEAR),
    _reduce_scatter,
    lambda grads, tensors, dim, op: _of_nonlinear(tensors, waited("all_gather", grads, dim), op),
    is_linear=False,
)
ALL_TO_ALL = _collective(
    "all_to_all(Tensor[] tensors, int split_dim=0, int concat_dim=0)",
    _all_to_all_rule,
    _all_to_all,
    lambda grads, split_dim, concat_dim: waited("all_to_all", grads, concat_dim, split_dim),
)
BROADCAST = _collective(
    "broadcast(Tensor[] tensors, int source=0)", _broadcast_rule, _broadcast, _broadcast_vjp
)
WAIT = _collective("wait(Tensor[] tensors)", _wait_rule, _wait, lambda grads: list(grads))
"""The completed results of a collective; nobody may read them before. In one process, a copy."""


@composite("all_reduce(Tensor[] tensors, str op='sum') -> Tensor[]", is_method=False)
def all_reduce(tensors: tuple[Operand, ...], op: str) -> tuple[Operand, ...]:
    """The reduction of the ranks' tensors, for each: 'sum', 'avg', 'product', 'max' or 'min'."""
    return _call(OPS[reduction("all_reduce", op)], tensors, op)


@composite("reduce_scatter(Tensor[] tensors, int dim=0, str op='sum') -> Tensor[]", is_method=False)
def reduce_scatter(tensors: tuple[Operand, ...], dim: int, op: str) -> tuple[Operand, ...]:
    """The reduction of the ranks' tensors, of which each rank gets its part along a dimension."""
    return _call(OPS[reduction("reduce_scatter", op)], tensors, dim, op)


def reduction(name: str, op: str) -> str:
    """The name of the op for this reduction. Raises ArgumentError for an unknown reduction."""
    if op not in LINEAR and op not in NONLINEAR:
        raise ArgumentError(
            f"{name}: argument 'op' is {op!r}, expected one of {[*LINEAR, *NONLINEAR]}"
        )
    return f"{name}_nonlinear" if op in NONLINEAR else name
