"""`composed`: declares an op that is made of simpler ones, and has no kernel of its own.

The composition is a function in operand methods. Backends and passes call it on nodes, which makes
the op's decomposition (`PureOp.expands`); its kernel calls it on arrays, as `ArrayOperand`s. 16-bit
floats are computed in float32 and rounded once. Helpers of compositions are here, too. Spec:
`specs/op_declaration.md`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace, reducer
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Op, PureOp, schema_of
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.precision import cast, widened
from aotlite.ir.ops.reduce.blocked_sums import sum_over

Composition = Callable[..., Any]


def _unary(name: str) -> Callable[[ArrayOperand], ArrayOperand]:
    return lambda self: ArrayOperand(self.xp, getattr(self.xp, name)(self.array))


def _binary(
    function: Callable[[Array, object], Array],
) -> Callable[[ArrayOperand, object], ArrayOperand]:
    def method(self: ArrayOperand, other: object) -> ArrayOperand:
        if type(other) is ArrayOperand:
            other = other.array
        return ArrayOperand(self.xp, function(self.array, other))

    return method


class ArrayOperand(Operand):
    """An array with operand methods, computed as the ops' kernels do.

    The methods of this class know no meta and bind no arguments, so that they cost little more than
    the function of the array library; their compositions widen 16-bit floats first. Any other
    method is the kernel of its op.
    """

    __slots__ = ("array", "xp")

    def __init__(self, xp: Namespace, array: Array) -> None:
        self.xp, self.array = xp, array

    @property
    def meta(self) -> TensorMeta:  # type: ignore[override]
        return tensor_meta(self.shape, None, self.dtype)

    @property
    def dtype(self) -> DType:
        return dtypes.from_numpy(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return len(self.array.shape)

    def _apply(self, op: Op, args: tuple[object, ...]) -> Any:
        if not isinstance(op, PureOp):
            raise TypeError(f"composed: {op.name} is no pure op, expected one that has a kernel")
        found = op.kernel(self, op.infer(args), *map_operands(args, lambda each: each.array))
        if type(found) is tuple:
            return tuple([ArrayOperand(self.xp, each) for each in found])
        return ArrayOperand(self.xp, found)

    @property
    def namespace(self) -> Namespace:
        """The array library's functions: a kernel asks its array backend for no more."""
        return self.xp

    def to(self, dtype: DType) -> ArrayOperand:
        if self.array.dtype == dtype.numpy:
            return self
        return ArrayOperand(self.xp, cast(self.xp, self.array, dtype))

    to_kind = to

    @property
    def real(self) -> ArrayOperand:
        return ArrayOperand(self.xp, self.xp.real(self.array))

    def new_full(self, size: tuple[int, ...], value: object) -> ArrayOperand:
        return ArrayOperand(self.xp, self.xp.full(size, value, dtype=self.array.dtype))

    def view(self, *size: object) -> ArrayOperand:
        xp = self.xp
        return ArrayOperand(xp, xp.reshape(self.array, size if type(size[0]) is int else size[0]))

    reshape = view

    def unsqueeze(self, dim: int) -> ArrayOperand:
        return ArrayOperand(self.xp, self.xp.expand_dims(self.array, axis=dim))

    def permute(self, dims: tuple[int, ...]) -> ArrayOperand:
        return ArrayOperand(self.xp, self.xp.permute_dims(self.array, dims))

    def roll(self, shifts: tuple[int, ...], dims: tuple[int, ...]) -> ArrayOperand:
        return ArrayOperand(self.xp, self.xp.roll(self.array, shifts, axis=dims))

    def matmul(self, other: ArrayOperand) -> ArrayOperand:
        return ArrayOperand(self.xp, self.xp.matmul(self.array, other.array))

    def rsqrt(self) -> ArrayOperand:
        xp = self.xp
        return ArrayOperand(xp, xp.reciprocal(xp.sqrt(self.array)))

    def sum(self, dim: Any, keepdim: bool = False) -> ArrayOperand:
        axes = tuple(range(self.ndim)) if dim is None else dim
        return ArrayOperand(self.xp, sum_over(self.xp, self.array, axes, keepdims=keepdim))

    def mean(self, dim: tuple[int, ...], keepdim: bool = False) -> ArrayOperand:
        # A float, not an integer: an empty mean is nan, and of numbers a division by 0 would raise.
        xp, a = self.xp, self.array
        size = float(prod([a.shape[i] for i in dim]))
        return ArrayOperand(xp, xp.divide(sum_over(xp, a, dim, keepdims=keepdim), size))

    def amax(self, dim: tuple[int, ...], keepdim: bool = False) -> ArrayOperand:
        highest = reducer(self.xp, "max")
        return ArrayOperand(self.xp, highest(self.array, axis=dim, keepdims=keepdim))

    def amin(self, dim: tuple[int, ...], keepdim: bool = False) -> ArrayOperand:
        lowest = reducer(self.xp, "min")
        return ArrayOperand(self.xp, lowest(self.array, axis=dim, keepdims=keepdim))

    exp = _unary("exp")
    log = _unary("log")
    sqrt = _unary("sqrt")
    reciprocal = _unary("reciprocal")
    abs = _unary("abs")
    isnan = _unary("isnan")
    isinf = _unary("isinf")
    __add__ = _binary(operator.add)
    __sub__ = _binary(operator.sub)
    __mul__ = _binary(operator.mul)
    __truediv__ = _binary(operator.truediv)
    __pow__ = pow = _binary(operator.pow)
    __eq__ = _binary(operator.eq)
    __ne__ = _binary(operator.ne)
    __hash__ = object.__hash__

    def where(self, then: object, other: object) -> ArrayOperand:
        then = then.array if type(then) is ArrayOperand else then
        other = other.array if type(other) is ArrayOperand else other
        return ArrayOperand(self.xp, self.xp.where(self.array, then, other))


def _operand(xp: Any, value: Any) -> Any:
    """The argument of a composition for an array, a tuple of arrays, a number or None."""
    if hasattr(value, "dtype"):
        return ArrayOperand(xp, value)
    return tuple([ArrayOperand(xp, each) for each in value]) if type(value) is tuple else value


def map_operands(args: tuple[object, ...], function: Callable[[Any], object]) -> tuple[Any, ...]:
    """The arguments of an op with `function` of each operand, those of lists, too."""
    return tuple(
        [
            function(a)
            if isinstance(a, ArrayOperand)
            else map_operands(a, function)
            if type(a) is tuple
            else a
            for a in args
        ]
    )


def composed(schema: str, *, as_: Composition, **parts: Any) -> PureOp:
    """Declares an op by its composition `as_`, a function of its parameters in operand methods.

    `parts` are the other arguments of `pure`.
    """
    parameters = schema_of(schema).parameters
    count = sum(not parameter.keyword_only for parameter in parameters)
    names = [parameter.name for parameter in parameters[count:]]
    first, *others = [i for i, each in enumerate(parameters) if each.type.holds_tensor]
    assert first == 0 and max(others, default=0) < count

    def kernel(xp: Namespace, meta: object, *args: Any) -> Array | tuple[Array, ...]:
        operands = [_operand(xp, args[0]), *args[1:count]]
        for i in others:
            operands[i] = _operand(xp, operands[i])
        named = dict(zip(names, args[count:], strict=True)) if names else {}
        found = as_(*operands, **named)
        return found.array if type(found) is ArrayOperand else tuple([one.array for one in found])

    return pure(schema, kernel=kernel, expands=as_, **parts)


Given = tuple[int, ...] | int | None


def dims_of(x: Operand, dim: Given) -> tuple[int, ...]:
    """The dimensions that are reduced, ascending: all for None and for an empty list."""
    if dim is None or dim == () or not x.ndim:
        return tuple(range(x.ndim))
    return tuple(sorted(sizes.wrap_dims(sizes.as_tuple(dim), x.ndim)))


def count_of(x: Operand, dims: tuple[int, ...]) -> int:
    """The number of elements that each result of a reduction reduces."""
    return sizes.numel([x.shape[d] for d in dims])


def floating(x: Operand) -> DType:
    """The operand's dtype; the default one for integers."""
    return x.dtype if x.dtype.is_differentiable else dtypes.default_dtype


def over(x: Operand, count: float) -> Operand:
    """`x / count`, which is nan or infinite for 0, where Python's division would raise."""
    if type(count) in (int, float) and count != 0:
        return x / float(count)
    return x / x.new_full((), count)


def standard(x: Operand, dims: tuple[int, ...], eps: float) -> tuple[Operand, Operand, Operand]:
    """(the operand with mean 0 and variance 1 over these dimensions, its mean, its variance)."""
    # In the same ops as the gradient formulas, so that CSE can share them with the backward.
    mean = x.mean(dims, True)
    centered = x - mean
    var = (centered * centered).mean(dims, True)
    return centered * (var + eps).rsqrt(), mean, var


def affine(unit: Operand, weight: Operand | None, bias: Operand | None) -> Operand:
    """The operand times weight, plus bias, in the operand's dtype; either may be None."""
    unit = unit if weight is None else unit * widened(weight)
    return unit if bias is None else unit + widened(bias)


def as_channels(x: Operand, *values: Operand | None) -> list[Operand | None]:
    """(c,) -> (1, c, 1, ...) each, to go with `x`; None stays."""
    return [None if v is None else v.view(1, -1, *[1] * (x.ndim - 2)) for v in values]
