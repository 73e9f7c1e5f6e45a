"""`ArrayTarget`: the array operations that a printer offers, and `Value`, an array in its program.

    graph -> lower -> ArrayTarget -> ONNX nodes, or StableHLO operations

A target has operations on whole arrays, with NumPy's broadcasting: reshape, take, reduce, product.
Constants are known to the lowering: operations on small ones are computed here, so that programs
hold no arithmetic of positions. Strides do not exist: a value is its elements in row-major order.
Spec: `specs/onnx.md`, `specs/stablehlo.md`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.backends.loops.combiners import combiner
from aotlite.interchange.sizes.program_sizes import has_symbols
from aotlite.ir import dtypes
from aotlite.ir.arrays import Array
from aotlite.ir.dtypes import DType
from aotlite.ir.graph import Node
from aotlite.ir.scalar.primitives import COMPARISONS, PRIMITIVE
from aotlite.ir.symbols.symint import SymInt

FOLDED = 1 << 12
"""The most elements of an array of constants that is computed here."""


class NotPrinted(Exception):
    """Raised where a target has no operation for something; the message says for what. Never
    leaves the package: `lower` names the op, and the line."""


@attrs.frozen(eq=False)
class Value:
    """An array of a program: what the target calls it, its dtype and shape."""

    handle: object
    dtype: DType
    shape: tuple[int, ...]
    source: Value | None = None
    """The value of which this one is a reshape."""
    array: Array | None = None
    """The elements, of a constant."""

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


class ArrayTarget(ABC):
    """Array operations that are printed in the order of the calls.

    Methods with `emit` in their name are the printer's. The others are what lowerings call: they
    compute constants, leave out what does nothing, and broadcast.
    """

    name: str
    """What messages call it."""
    has_symbols = False
    """Whether sizes may be symbols."""

    @abstractmethod
    def begin(self, name: str, node: Node) -> None:
        """Is told which node's operations come next, for names and for the user's line."""

    # ------------------------------------------------------------------------------- constants
    def constant(self, elements: object, dtype: DType) -> Value:
        """The array as a constant of the program; printed when it is used. A size that is a symbol
        is a number that the program computes."""
        if isinstance(elements, SymInt):
            return self.cast(self.size(elements), dtype)
        array = np.asarray(elements, dtype.numpy)
        return Value(None, dtype, array.shape, array=array)

    def positions(self, count: int, rank: int = 1, dim: int = 0) -> Value:
        """0, 1, 2, ... along `dim` of an array of this rank, int64."""
        if isinstance(count, SymInt):
            line = self.emit_positions(count)
            return self.reshape(line, [count if k == dim else 1 for k in range(rank)])
        shape = [count if k == dim else 1 for k in range(rank)]
        return self.constant(np.arange(count).reshape(shape), dtypes.int64)

    def full(self, shape: Sequence[int], number: object, dtype: DType) -> Value:
        """An array of one number."""
        return self.broadcast(self.constant(number, dtype), shape)

    # --------------------------------------------------------------------------------- geometry
    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The same elements in another shape."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if x.array is not None:
            return self.constant(x.array.reshape(shape), x.dtype)
        source = x.source or x
        if source.shape == shape:
            return source
        return attrs.evolve(self.emit_reshape(source, shape), source=source)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """The dimensions in another order."""
        order = tuple(order)
        shape = tuple([x.shape[k] for k in order])
        if [k for k in order if x.shape[k] != 1] == [k for k, n in enumerate(x.shape) if n != 1]:
            return self.reshape(x, shape)
        if self._is_folded(shape, x):
            return self.constant(_known(x).transpose(order), x.dtype)
        return self.emit_transpose(x, order)

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        """The array repeated to a shape, by NumPy's rule."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if self._is_folded(shape, x):
            return self.constant(np.broadcast_to(_known(x), shape), x.dtype)
        if 0 in shape:  # ONX-7
            return self.constant(np.zeros(shape), x.dtype)
        return self.emit_broadcast(x, shape)

    def slice(
        self, x: Value, begin: Sequence[int], end: Sequence[int], step: Sequence[int] | None = None
    ) -> Value:
        """The elements from `begin` up to `end`, which lie inside of the array; steps from 1."""
        step = step or [1] * len(x.shape)
        parts = list(zip(begin, end, step, strict=True))
        shape = tuple([b - a if by == 1 else -((a - b) // by) for a, b, by in parts])
        if shape == x.shape:
            return x
        if x.array is not None:
            return self.constant(x.array[tuple([slice(*each) for each in parts])], x.dtype)
        if 0 in shape:
            return self.full(shape, 0, x.dtype)
        return self.emit_slice(x, begin, end, step, shape)

    def pad(self, x: Value, low: Sequence[int], high: Sequence[int], filler: Value) -> Value:
        """The array with so many elements `filler` before and behind each dimension."""
        if not any((*low, *high)):
            return x
        pairs = zip(low, x.shape, high, strict=True)
        shape = tuple([a + n + b for a, n, b in pairs])
        if x.numel == 0:
            return self.broadcast(filler, shape)
        return self.emit_pad(x, low, high, filler, shape)

    def concatenate(self, parts: Sequence[Value], dim: int) -> Value:
        """The arrays, one behind the other along a dimension. At least one."""
        kept = [each for each in parts if each.shape[dim]] or list(parts[:1])
        if len(kept) == 1:
            return kept[0]
        shape = list(kept[0].shape)
        shape[dim] = sum([each.shape[dim] for each in kept])
        if self._is_folded(shape, *kept):
            return self.constant(np.concatenate([_known(k) for k in kept], dim), kept[0].dtype)
        return self.emit_concatenate(kept, dim, tuple(shape))

    def reverse(self, x: Value, dims: Sequence[int]) -> Value:
        """The elements in reverse order along dimensions."""
        for dim in dims:
            if x.shape[dim] > 1:
                last = self.size(x.shape[dim] - 1)
                order = self.primitive("sub", last, self.positions(x.shape[dim]))
                x = self.take(x, order, dim)
        return x

    # --------------------------------------------------------------------------------- elements
    def take(self, x: Value, index: Value, dim: int = 0) -> Value:
        """The elements at int64 positions from 0 on along a dimension, in the place of which the
        index's dimensions come."""
        shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
        if self._is_folded(shape, x, index):
            return self.constant(np.take(_known(x), _known(index), dim), x.dtype)
        if 0 in shape:
            return self.full(shape, 0, x.dtype)
        if not x.shape[dim]:  # every position is invalid, and hidden by a condition
            return self.full(shape, 0, x.dtype)
        return self.emit_take(x, index, dim, shape)

    def scatter(self, x: Value, index: Value, values: Value, combine: str | None) -> Value:
        """The flat array, with flat values combined with the elements at flat positions: "sum",
        "prod", "max" or "min". None: values replace them, of one position the last one."""
        if not index.numel:
            return x
        if combine is None:
            return self._replaced(x, index, values)
        if combine in ("max", "min") and x.dtype.is_floating_point:
            return self._extremes(x, index, values, combine)
        return self.emit_scatter(x, index, values, combine)

    def _replaced(self, x: Value, index: Value, values: Value) -> Value:
        # The order of writes is open in both targets. The last writer is a maximum of numbers; the
        # elements are taken, not chosen by `where`, which loses the sign of 0 in onnxruntime.
        own, count = np.arange(x.numel), index.numel
        if index.array is not None:
            own[index.array] = x.numel + np.arange(count)
            place = self.constant(own, dtypes.int64)
        else:
            writers = self.constant(x.numel + np.arange(count), dtypes.int64)
            start = self.constant(own, dtypes.int64)
            place = self.emit_scatter(start, index, writers, "max")
        return self.take(self.concatenate([x, values], 0), place)

    def _extremes(self, x: Value, index: Value, values: Value, combine: str) -> Value:
        """Of floats: NaN wins, which the targets leave open."""
        least = self.constant(-np.inf if combine == "max" else np.inf, x.dtype)
        odd, odd_values = (self.primitive("ne", each, each) for each in (x, values))
        plain = self.where(odd, least, x)
        found = self.emit_scatter(plain, index, self.where(odd_values, least, values), combine)
        flags = [self.cast(each, dtypes.int64) for each in (odd, odd_values)]
        met = self.emit_scatter(flags[0], index, flags[1], "max")
        is_odd = self.primitive("ne", met, self.constant(0, dtypes.int64))
        return self.where(is_odd, self.constant(np.nan, x.dtype), found)

    def primitive(self, op: str, *operands: Value) -> Value:
        """A primitive of scalar expressions on arrays of one dtype, which broadcast."""
        dtype = dtypes.bool_ if op in COMPARISONS else operands[0].dtype
        shape = broadcast_shapes(*[each.shape for each in operands])
        if self._is_folded(shape, *operands):
            with np.errstate(all="ignore"):
                found = PRIMITIVE[op].numpy(*[_known(each) for each in operands])
            return self.constant(found.astype(dtype.numpy), dtype)
        if operands[0].dtype in NARROW and op not in ("and", "or", "xor", "not"):
            wide = self.primitive(op, *[self.cast(each, dtypes.float32) for each in operands])
            return wide if dtype is dtypes.bool_ else self.cast(wide, dtype)
        if op == "trunc":
            zero = self.constant(0, dtype)
            down, up = (self.primitive(each, *operands) for each in ("floor", "ceil"))
            return self.where(self.primitive("lt", operands[0], zero), up, down)
        if op in ("idiv", "irem"):
            operands = (operands[0], self._divisor(operands[1]))
        return self.emit_primitive(op, operands, dtype, shape)

    def _divisor(self, x: Value) -> Value:
        """1 in the place of 0, which eager refuses, and which traps in a target."""
        if x.array is not None and x.array.all():
            return x
        one = self.constant(1, x.dtype)
        return self.where(self.primitive("eq", x, self.constant(0, x.dtype)), one, x)

    def where(self, condition: Value, then: Value, other: Value) -> Value:
        """The elements of `then` where the condition holds, else those of `other`."""
        if condition.array is not None and condition.numel:
            if condition.array.all() or not condition.array.any():
                chosen = then if condition.array.all() else other
                shapes = [each.shape for each in (condition, then, other)]
                return self.broadcast(chosen, broadcast_shapes(*shapes))
        shape = broadcast_shapes(condition.shape, then.shape, other.shape)
        if self._is_folded(shape, condition, then, other):
            found = np.where(_known(condition), _known(then), _known(other))
            return self.constant(found, then.dtype)
        return self.emit_where(condition, then, other, shape)

    def cast(self, x: Value, dtype: DType) -> Value:
        """The elements in another dtype."""
        if x.dtype is dtype:
            return x
        if self._is_folded(x.shape, x):
            with np.errstate(all="ignore"):
                return self.constant(_known(x).astype(dtype.numpy), dtype)
        if dtype is dtypes.bool_:
            return self.primitive("ne", x, self.constant(0, x.dtype))
        return self.emit_cast(x, dtype)

    def bits(self, x: Value, dtype: DType) -> Value:
        """The bits of the elements as another dtype of the same size."""
        if x.dtype is dtype:
            return x
        if self._is_folded(x.shape, x):
            return self.constant(
                np.ascontiguousarray(_known(x)).view(dtype.numpy).reshape(x.shape), dtype
            )
        return self.emit_bits(x, dtype)

    # ------------------------------------------------------------------------------- reductions
    def reduce(self, kind: str, x: Value, dims: Sequence[int]) -> Value:
        """A combiner of one part over dimensions, which go: sum, prod, max, min, any, all. Of
        floats NaN wins."""
        shape = [n for k, n in enumerate(x.shape) if k not in dims]
        if all(x.shape[k] == 1 for k in dims):
            return self.reshape(x, shape)
        if x.numel == 0:
            (number,) = combiner(kind).identity([x.dtype])
            return self.full(shape, number.args[0], x.dtype)
        if kind in ("max", "min") and x.dtype.is_floating_point:
            odd = self.primitive("ne", x, x)
            least = self.constant(-np.inf if kind == "max" else np.inf, x.dtype)
            found = self.emit_reduce(kind, self.where(odd, least, x), dims, tuple(shape))
            is_odd = self.emit_reduce("any", odd, dims, tuple(shape))
            return self.where(is_odd, self.constant(np.nan, x.dtype), found)
        return self.emit_reduce(kind, x, dims, tuple(shape))

    # ------------------------------------------------------------------------- for each printer
    def _is_folded(self, shape: Sequence[int], *values: Value) -> bool:
        known = all(each.array is not None for each in values) and not has_symbols(shape)
        return known and math.prod(shape) <= FOLDED

    def emit_positions(self, count: int) -> Value:
        """0, 1, 2, ... up to a size that is a symbol."""
        raise NotPrinted(f"counts to {count}, which is another number in each call")

    def size(self, size: Any) -> Value:
        """A size as a number of the program, 0-d int64. Of a symbol, where the target has one."""
        if isinstance(size, SymInt):
            raise NotPrinted(f"needs {size}, which is another number in each call")
        return self.constant(size, dtypes.int64)

    @abstractmethod
    def has_function(self, name: str, dtype: DType) -> bool:
        """Whether there is an operation for a function of scalar expressions."""

    @abstractmethod
    def formula(self, name: str, dtype: DType) -> Callable[..., Any] | None:
        """A function of scalars that computes the function by others; None for none."""

    @abstractmethod
    def emit_function(self, name: str, operands: Sequence[Value], dtype: DType) -> Value: ...
    @abstractmethod
    def emit_reshape(self, x: Value, shape: tuple[int, ...]) -> Value: ...
    @abstractmethod
    def emit_transpose(self, x: Value, order: tuple[int, ...]) -> Value: ...
    @abstractmethod
    def emit_broadcast(self, x: Value, shape: tuple[int, ...]) -> Value: ...
    @abstractmethod
    def emit_slice(
        self,
        x: Value,
        begin: Sequence[int],
        end: Sequence[int],
        step: Sequence[int],
        shape: tuple[int, ...],
    ) -> Value: ...
    @abstractmethod
    def emit_pad(
        self,
        x: Value,
        low: Sequence[int],
        high: Sequence[int],
        filler: Value,
        shape: tuple[int, ...],
    ) -> Value: ...
    @abstractmethod
    def emit_concatenate(
        self, parts: Sequence[Value], dim: int, shape: tuple[int, ...]
    ) -> Value: ...
    @abstractmethod
    def emit_take(self, x: Value, index: Value, dim: int, shape: tuple[int, ...]) -> Value: ...
    @abstractmethod
    def emit_scatter(self, x: Value, index: Value, values: Value, combine: str) -> Value: ...
    @abstractmethod
    def emit_primitive(
        self, op: str, operands: Sequence[Value], dtype: DType, shape: tuple[int, ...]
    ) -> Value: ...
    @abstractmethod
    def emit_where(
        self, condition: Value, then: Value, other: Value, shape: tuple[int, ...]
    ) -> Value: ...
    @abstractmethod
    def emit_cast(self, x: Value, dtype: DType) -> Value: ...
    @abstractmethod
    def emit_bits(self, x: Value, dtype: DType) -> Value: ...
    @abstractmethod
    def emit_reduce(
        self, kind: str, x: Value, dims: Sequence[int], shape: tuple[int, ...]
    ) -> Value: ...
    @abstractmethod
    def order(self, key: Value, dim: int, *, descending: bool) -> Value:
        """The int64 positions along a dimension that put integers in order; equal ones keep
        theirs. The array has elements."""

    @abstractmethod
    def running_sum(self, x: Value, dim: int) -> Value | None:
        """The sums up to each position along a dimension; None where there is no operation."""

    @abstractmethod
    def product(self, a: Value, b: Value) -> Value:
        """The matrix product (*batch, m, k) (*batch, k, n) -> (*batch, m, n)."""

    @abstractmethod
    def convolve(self, x: Value, weight: Value, window: ConvolutionWindow) -> Value | None:
        """The correlation of (n, c, h, w) with (o, c / groups, i, j); None for no operation."""


NARROW = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
"""The dtypes whose arithmetic is that of float32, rounded."""


@attrs.frozen
class ConvolutionWindow:
    """How a convolution moves: along two dimensions, padding before and behind."""

    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    """Negative numbers cut off."""
    spread: tuple[int, int]
    """The image's elements stand so far apart, with zeros between them."""
    dilation: tuple[int, int]
    groups: int


def _known(x: Value) -> Array:
    assert x.array is not None
    return x.array


def broadcast_shapes(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """NumPy's rule, for sizes that may be symbols: those that are not 1 are one expression."""
    if all(type(size) is not SymInt for shape in shapes for size in shape):
        return np.broadcast_shapes(*[tuple(shape) for shape in shapes])
    rank = max(map(len, shapes))
    laid = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for sizes in zip(*laid, strict=True):
        large = [size for size in sizes if not (type(size) is int and size == 1)]
        if any(size != large[0] for size in large[1:]):
            raise NotPrinted(f"joins sizes {' and '.join(map(str, large))}, which may differ")
        result.append(large[0] if large else 1)
    return tuple(result)
