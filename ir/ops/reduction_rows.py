"""Reductions and scans as rows of a table: `reduction`, `scan`.

A row says the name, how elements combine, the dtype of the result, and the gradient. Kernel, meta
rule, loops, the array library's function, labels of dimensions and the element that changes nothing
follow. A reduction made of simpler ops gives its composition instead. Spec:
`specs/op_declaration.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace, reducer
from aotlite.ir.dtypes import FLOATING, DType
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp, schema_of
from aotlite.ir.op.dims import along, reduced_over
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.composed import composed
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.loops import Loops, LoopTensor, Position
from aotlite.ir.ops.precision import accumulator, cast, wide
from aotlite.ir.ops.reduce.blocked_sums import is_in_parts, sum_over
from aotlite.ir.ops.reduce.dims import reduced, reduced_dims, reduction_loops, refuse_empty
from aotlite.ir.scalar.expression import Scalar

Function = Callable[..., Any]
Call = tuple[str, dict[str, Any]]
"""A function of the array library, by name, and its keyword arguments."""


# ---------------------------------------------------------------------------------- combiners
def lowest(dtype: DType) -> Number:
    """The number of this dtype that no other is below."""
    return -math.inf if dtype.kind >= FLOATING else _ends(dtype)[0]


def highest(dtype: DType) -> Number:
    """The number of this dtype that no other is above."""
    return math.inf if dtype.kind >= FLOATING else _ends(dtype)[1]


def _ends(dtype: DType) -> tuple[int, int]:
    if dtype is dtypes.bool_:
        return False, True
    bits = 8 * dtype.itemsize
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.is_signed else (0, (1 << bits) - 1)


@attrs.frozen
class Monoid:
    """The associative operation that combines the elements of a reduction or scan."""

    name: str
    """Its name in loops; for a reduction, also the array library's function."""
    pairs: str
    """The array library's function of two elements."""
    neutral: Callable[[DType], Number]
    """The element that changes nothing, in a dtype."""
    joins: str | None = None
    """The reduction that joins the results of shards."""
    empty: Number | None = None
    """The result of reducing no elements; None where that is refused."""


BY_SUM = Monoid("sum", "add", lambda dtype: 0, "sum", 0)
BY_PROD = Monoid("prod", "multiply", lambda dtype: 1, "product", 1)
BY_MAX = Monoid("max", "maximum", lowest, "max")
BY_MIN = Monoid("min", "minimum", highest, "min")
BY_ANY = Monoid("any", "logical_or", lambda dtype: False, "max", 0)
BY_ALL = Monoid("all", "logical_and", lambda dtype: True, "min", 1)


@attrs.frozen
class Terms:
    """The elements that a reduction combines, made from the operand's."""

    of_array: Callable[[Namespace, Array, DType], Array]
    in_loops: Callable[[Loops, Scalar, DType], Scalar]
    is_plain: Callable[[TensorMeta, TensorMeta], bool]
    """Whether they are the operand's own, and the result the combined ones, for these metas of the
    result and the operand."""


VALUES = Terms(
    wide,
    lambda k, x, dtype: k.cast(x, accumulator(dtype)),
    lambda meta, self: accumulator(meta.dtype) is self.dtype,
)
"""The operand's values in the dtype in which the result is formed."""
TRUTHS = Terms(
    lambda xp, a, dtype: cast(xp, a, dtypes.bool_),
    lambda k, x, dtype: k.truth(x),
    lambda meta, self: meta.dtype is dtypes.bool_ and self.dtype.numpy.kind != "V",
)
"""Whether the operand's values are not 0."""
COUNTS = Terms(
    lambda xp, a, dtype: cast(xp, cast(xp, a, dtypes.bool_), dtype),
    lambda k, x, dtype: k.cast(k.truth(x), dtype),
    lambda meta, self: False,
)
"""1 for values that are not 0, else 0."""


# --------------------------------------------------------------------------------- reductions
DIMS = "int[]? dim=None, bool keepdim=False"
DIM = "int? dim=None, bool keepdim=False"
DTYPE = ", *, dtype? dtype=None"


def reduction(
    name: str,
    parameters: str = DIMS,
    *,
    result: Callable[..., DType],
    vjp: Function | None,
    combiner: Monoid | None = None,
    elements: Terms = VALUES,
    as_: Function | None = None,
    results: str = "Tensor",
    empty_is_all: bool = True,
    refuses_empty: bool = False,
    joins: str | None = None,
    **facts: Any,
) -> PureOp:
    """Declares `name(Tensor self, parameters) -> results`, whose operand's elements combine.

    `result(name, dtype)` is the result's dtype; with a parameter `dtype`, its argument is the third
    one. Several results have the same meta. `elements` combine by `combiner`; or `as_` is the
    composition, in operand methods (`composed`). Without a parameter `dim` all dimensions are
    reduced; with `empty_is_all`, also for an empty list. `refuses_empty`: reducing no elements is
    an error. `joins` is the reduction that joins shards, if there is no combiner. `vjp` is the
    formula of the operand. `facts` are the other arguments of `pure`.
    """
    text = f"{name}(Tensor self{', ' * bool(parameters)}{parameters}) -> {results}"
    schema = schema_of(text)
    names = [parameter.name for parameter in schema.parameters[1:]]
    typed = slice(names.index("dtype"), None) if "dtype" in names else slice(0)
    dim, keepdim = [names.index(each) if each in names else None for each in ("dim", "keepdim")]
    over = Over(name, dim, keepdim, empty_is_all)
    count = len(schema.returns)
    refuses_empty = refuses_empty or (combiner is not None and combiner.empty is None)

    def rule(self: TensorMeta, *args: Any) -> Any:
        dims = over.dims(args, len(self.shape))
        if refuses_empty:
            refuse_empty(name, self, dims)
        dtype = result(name, self.dtype, *args[typed])
        meta = reduced(self, dims, over.keeps(args), dtype)
        return meta if count == 1 else (meta,) * count

    if combiner is not None:
        facts = {**_combined(combiner, elements, over), **facts}
    facts = {"dims": reduced_over(joins), "cost": Cost.REDUCTION, **facts}
    formulas = None if vjp is None else {"self": vjp}
    declare = pure if as_ is None else partial(composed, as_=as_)
    return declare(text, meta=rule, vjp=formulas, **facts)


@attrs.frozen
class Over:
    """The dimensions that a call of a reduction reduces, from its arguments after the operand."""

    name: str
    dim: int | None
    keepdim: int | None
    empty_is_all: bool

    def dims(self, args: tuple[Any, ...], ndim: int) -> tuple[int, ...]:
        dim = None if self.dim is None else args[self.dim]
        return reduced_dims(self.name, dim, ndim, empty_is_all=self.empty_is_all)

    def keeps(self, args: tuple[Any, ...]) -> bool:
        return self.keepdim is not None and args[self.keepdim]


def _combined(combiner: Monoid, elements: Terms, over: Over) -> dict[str, Any]:
    """Kernel, loops, and what else follows from the combiner."""
    name, is_sum = combiner.name, combiner.name == "sum"

    def kernel(xp: Namespace, meta: TensorMeta, a: Array, *args: Any) -> Array:
        axes, keepdims = over.dims(args, len(a.shape)), over.keeps(args)
        a = elements.of_array(xp, a, meta.dtype)
        if is_sum:
            return cast(xp, sum_over(xp, a, axes, keepdims=keepdims), meta.dtype)
        return cast(xp, reducer(xp, name)(a, axis=axes, keepdims=keepdims), meta.dtype)

    def loops(k: Loops, meta: TensorMeta, a: LoopTensor, *args: object) -> Any:
        dims = over.dims(args, a.ndim)
        return total_loops(
            k, meta, a, dims, combiner, lambda x: elements.in_loops(k, x, meta.dtype)
        )

    return {
        "kernel": kernel,
        "loops": loops,
        "namespaced": partial(plain_call, name, over, elements),
        "dims": reduced_over(combiner.joins),
        "neutral": combiner.neutral,
    }


def plain_call(
    name: str, over: Over, elements: Terms, meta: TensorMeta, self: TensorMeta, *args: object
) -> Call | None:
    """The reduction as the array library's function; None of a long sum, which a kernel adds up in
    parts, and where a kernel casts."""
    if not elements.is_plain(meta, self):
        return None
    axes = over.dims(args, len(self.shape))
    if name in ("sum", "mean") and is_in_parts(self.shape, self.stride, axes):
        return None
    return name, {"axis": axes, "keepdims": over.keeps(args)}


def total_loops(
    k: Loops,
    meta: TensorMeta,
    a: LoopTensor,
    dims: tuple[int, ...],
    combiner: Monoid,
    value: Callable[[Scalar], Scalar],
) -> object:
    """The loops of a reduction of one part, of `value` of each element; cast to the result."""
    if not dims:  # a sum begins with 0, so that of -0.0 is 0.0
        begun = (lambda x: value(x) + 0) if combiner.name == "sum" else value
        return k.map(meta, lambda *i: k.cast(begun(a.at(i)), meta.dtype))
    if 0 in [a.shape[d] for d in dims]:
        return k.map(meta, lambda *i: k.number(combiner.empty or 0, meta.dtype))
    reduced = (dims, combiner.name, lambda element, _: value(element))
    return reduction_loops(k, meta, a, reduced, lambda total: k.cast(total, meta.dtype))


# -------------------------------------------------------------------------------------- scans
def scan(
    name: str,
    parameters: str = "int dim",
    *,
    result: Callable[..., DType],
    vjp: Function | None,
    combiner: Monoid,
    function: str | None = None,
    join: Callable[[Any, DType], Function] | None = None,
    indexed: bool = False,
    parts: Function | None = None,
    finish: Function | None = None,
    **facts: Any,
) -> PureOp:
    """Declares `name(Tensor self, parameters)`: each element combines those up to it along `dim`.

    `result(name, dtype)` is the result's dtype, as for `reduction`. The kernel is the array
    library's `function`, or else a scan of `join(xp, dtype)`, a function of two elements: by
    default the combiner's. `indexed`: the results are (values, indices), and the last of equal
    values leads. In loops, `parts(k, value)` are what a combiner of several parts carries beside
    the value, and `finish(k, *parts)` is the result. `facts` are the other arguments of `pure`.
    """
    returns = "(Tensor values, Tensor indices)" if indexed else "Tensor"

    def rule(self: TensorMeta, dim: int, *typed: Any) -> Any:
        sizes.wrap_dim(dim, len(self.shape), op=name)
        meta = tensor_meta(self.shape, None, result(name, self.dtype, *typed), self.device)
        return (meta, meta.with_dtype(dtypes.int64)) if indexed else meta

    def kernel(xp: Namespace, metas: Any, a: Array, dim: int, *_: object) -> Any:
        dtype = metas[0].dtype if indexed else metas.dtype
        found = a = wide(xp, a, dtype)
        if a.shape and function is not None:
            found = getattr(xp, function)(a, axis=dim)
        elif a.shape:
            pair = getattr(xp, combiner.pairs) if join is None else join(xp, dtype)
            found = running(xp, pair, a, dim)
        values = cast(xp, found, dtype)
        return (values, _leads(xp, a, found, dim)) if indexed else values

    def namespaced(meta: TensorMeta, self: TensorMeta, dim: int, *_: object) -> Call | None:
        plain = VALUES.is_plain(meta, self) and bool(self.shape)
        return (str(function), {"axis": dim}) if plain else None

    return pure(
        f"{name}(Tensor self, {parameters}) -> {returns}",
        meta=rule,
        kernel=kernel,
        vjp=None if vjp is None else {"self": vjp},
        **{
            "cost": Cost.REDUCTION,
            "dims": along("dim"),
            "namespaced": namespaced if function else None,
            "loops": partial(_scan_loops, combiner.name, parts, finish),
            "neutral": None if indexed else combiner.neutral,
            **facts,
        },
    )


def running(xp: Namespace, join: Function, a: Array, dim: int) -> Array:
    """The inclusive scan of an associative `join` along `dim`.

    Where the array library has no scan of it, it takes log2(n) steps; each combines every element
    with one before it, at a distance that doubles from step to step.
    """
    accumulate = getattr(join, "accumulate", None)
    if accumulate is not None:  # a ufunc of NumPy, which has a scan for each
        return accumulate(a, axis=dim)
    a = xp.moveaxis(a, dim, -1)
    size, step = a.shape[-1], 1
    while step < size:
        a = xp.concat([a[..., :step], join(a[..., step:], a[..., :-step])], axis=-1)
        step *= 2
    return xp.moveaxis(a, -1, dim)


def _leads(xp: Namespace, a: Array, values: Array, dim: int) -> Array:
    """Where the running extremes of `a` lie: the last of equal ones, and each nan, lead."""
    if not a.shape:
        return xp.zeros((), dtype=xp.int64)
    places = xp.arange(a.shape[dim], dtype=xp.int64)
    places = xp.reshape(places, [-1 if i == dim % a.ndim else 1 for i in range(a.ndim)])
    leads = xp.where(xp.logical_or(a == values, xp.isnan(a)), places, xp.zeros_like(places))
    return running(xp, xp.maximum, leads, dim)


def _scan_loops(
    kind: str,
    parts: Function | None,
    finish: Function | None,
    k: Loops,
    metas: Any,
    a: LoopTensor,
    dim: int,
    *_: object,
) -> object:
    indexed = type(metas) is tuple
    dtype = metas[0].dtype if indexed else metas.dtype
    formed = accumulator(dtype)
    if not a.ndim:
        value = k.map(
            metas[0] if indexed else metas, lambda *i: k.cast(k.cast(a[i], formed), dtype)
        )
        return (value, k.map(metas[1], lambda: k.number(0, dtypes.int64))) if indexed else value
    dim %= a.ndim

    def values(*i: Position) -> Any:
        value = k.cast(a[i], formed)
        if indexed:
            return value, k.position(i[dim])
        return value if parts is None else (value, *parts(k, value))

    def finished(value: Scalar, *rest: Scalar) -> Any:
        if indexed:
            return k.cast(value, dtype), *rest
        return k.cast(value if finish is None else finish(k, value, *rest), dtype)

    return k.scan(kind, metas, dim, values, finish=finished)
