"""Ops whose results' shapes depend on values, and the two pure ops that graphs have for each.

    nonzero(x)             eager: the kernel finds how many rows there are
    nonzero_count(x)       the number of rows, a 0-d tensor
    nonzero_fitted(x, n)   the first n rows; rows of zeros follow if there are fewer

In a capture the number is a size that each call computes (`specs/data_sizes.md`, DYN-30).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, ArrayBackend, Namespace
from aotlite.ir.errors import ShapeError
from aotlite.ir.meta import Outline, TensorMeta, tensor_meta
from aotlite.ir.op import Cost, DataOp, PureOp, parse_vjp, register, schema_of
from aotlite.ir.ops.declare import Formulas, Results, common_device

Outlines = Outline | tuple[Outline, ...]
Shapes = tuple[tuple[int, ...], ...]


def data_dependent(
    schema: str,
    *,
    outline: Callable[..., Outlines],
    kernel: Callable[..., Results],
    count: Callable[..., Array],
    shapes: Callable[..., Shapes],
    vjp: Formulas,
    fitted: Callable[..., Results] | None = None,
    fitted_vjp: Formulas = None,
    cost: Cost,
    advice: str,
    workspace: Mapping[str, object] | None = None,
    count_workspace: Mapping[str, object] | None = None,
) -> DataOp:
    """Declares an op whose results' shapes depend on values: `outline(*key)` gives an `Outline`.

    `kernel(xp, outline, *args)` returns the array; its shape is the result's. `count(xp, *args)`
    gives the one size that depends on values as a 0-d array of int64, and `shapes(n, *key)` the
    shapes of the results, where it is n. `advice` says what a captured program can do instead
    where there is no such size ("use where"). `fitted(xp, metas, *args, n)` is the kernel of the
    op that takes n, by default `kernel` and a cut; `fitted_vjp` has its formulas.
    """
    declared = schema_of(schema)

    def run(arrays: ArrayBackend, known: object, *args: Any) -> Results:
        return kernel(arrays.namespace, known, *args)

    facts: dict[str, Any] = {"cost": cost, "workspace": workspace}
    counting = {"cost": cost, "workspace": count_workspace or workspace}
    fit = partial(_cut_kernel, kernel) if fitted is None else partial(_without_arrays, fitted)
    op: DataOp = register(
        DataOp(
            declared,
            outline,
            kernel=run,
            vjp=parse_vjp(declared, vjp),
            number=_count_op(schema, outline, count, counting),
            fitted=_fitted_op(schema, outline, shapes, fit, fitted_vjp, facts),
            advice=advice,
            **facts,
        )
    )
    return op


def _parameters(schema: str) -> str:
    return schema[schema.index("(") + 1 : schema.index(") ->")]


def _results(schema: str) -> str:
    return schema[schema.index(") ->") + 4 :]


# ------------------------------------------------------------------------------- the two pure ops
def _count_op(
    schema: str,
    outline: Callable[..., Outlines],
    count: Callable[..., Array],
    facts: Mapping[str, Any],
) -> PureOp:
    """The op that gives the size as a tensor."""

    def counted(arrays: ArrayBackend, known: object, *args: Any) -> Array:
        return count(arrays.namespace, *args)

    declared = schema_of(f"{schema_of(schema).name}_count({_parameters(schema)}) -> Tensor")
    rule = partial(_count_rule, outline)
    made: PureOp = register(PureOp(declared, rule, kernel=counted, vjp=None, **facts))
    return made


def _fitted_op(
    schema: str,
    outline: Callable[..., Outlines],
    shapes: Callable[..., Shapes],
    kernel: Callable[..., Results],
    vjp: Formulas,
    facts: Mapping[str, Any],
) -> PureOp:
    """The op that takes the size."""
    name, asked = schema_of(schema).name, re.sub(r"=[^,)]+", "", _parameters(schema))
    declared = schema_of(f"{name}_fitted({asked}, int count) ->{_results(schema)}")
    rule = partial(_fitted_rule, name, outline, shapes)
    formulas = parse_vjp(declared, vjp)
    made: PureOp = register(PureOp(declared, rule, kernel=kernel, vjp=formulas, **facts))
    return made


def _without_arrays(
    kernel: Callable[..., Results], arrays: ArrayBackend, metas: Any, *args: Any
) -> Results:
    return kernel(arrays.namespace, metas, *args)


def _cut_kernel(
    kernel: Callable[..., Results], arrays: ArrayBackend, metas: Any, *args: Any
) -> Results:
    """The kernel that takes the size, of the one that does not."""
    return _cut(arrays.namespace, kernel(arrays.namespace, metas, *args[:-1]), metas)


def _count_rule(outline: Callable[..., Outlines], *key: Any) -> TensorMeta:
    outline(*key)
    device = common_device("count", [each for each in key if isinstance(each, TensorMeta)])
    return tensor_meta((), None, dtypes.int64, device)


def _fitted_rule(
    name: str, outline: Callable[..., Outlines], shapes: Callable[..., Shapes], *key: Any
) -> TensorMeta | tuple[TensorMeta, ...]:
    *given, count = key
    if count < 0:
        raise ShapeError(f"{name}_fitted: argument 'count' is {count}, expected at least 0")
    outlines, found = outline(*given), shapes(count, *given)
    if isinstance(outlines, Outline):
        return outlines.meta(found[0])
    return tuple([one.meta(shape) for one, shape in zip(outlines, found, strict=True)])


def _cut(xp: Namespace, found: Any, metas: Any) -> Any:
    """The results, each cut off or filled with zeros where its shape is another one."""
    if not isinstance(metas, TensorMeta):
        return tuple([_cut(xp, *each) for each in zip(found, metas, strict=True)])
    if found.shape == metas.shape:
        return found
    common = tuple([slice(min(a, b)) for a, b in zip(found.shape, metas.shape, strict=True)])
    made = xp.zeros(metas.shape, dtype=found.dtype)
    made[common] = found[common]
    return made
