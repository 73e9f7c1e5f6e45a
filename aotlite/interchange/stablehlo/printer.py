"""`StableHloPrinter`: array operations as StableHLO, by the MLIR bindings of jaxlib.

Each operation has the user's line as its location. Spec: `specs/stablehlo.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.backends.loops.combiners import combiner
from aotlite.interchange.arrays.formulas import FORMULAS
from aotlite.interchange.arrays.target import ArrayTarget, ConvolutionWindow, Value
from aotlite.interchange.stablehlo.bindings import MlirBindings
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.graph import Node
from aotlite.ir.provenance.location import place_of
from aotlite.ir.scalar.functions import FUNCTIONS as LIBRARY

Ints = Sequence[int]

_FLOATS = (dtypes.float32, dtypes.float64)
_WIDE = {
    **dict.fromkeys((dtypes.uint8, dtypes.int8, dtypes.uint16, dtypes.int16), dtypes.int32),
    dtypes.uint32: dtypes.int64,
}
"""Integers to which a cast of a float goes by a wider integer, as in C; XLA's would saturate."""


class StableHloPrinter(ArrayTarget):
    """Appends operations at the insertion point of the bindings' context."""

    name = "StableHLO"

    def __init__(self, bindings: MlirBindings) -> None:
        self.mlir = bindings
        self._place: Any = None
        self._constants: dict[tuple[object, ...], Any] = {}

    def begin(self, name: str, node: Node) -> None:
        if node.location is None:
            self._place = self.mlir.named_location(name)
        else:
            place = place_of(node.location)
            self._place = self.mlir.location(name, place.file, place.line)

    # ------------------------------------------------------------------------------- operations
    def op(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """The operation of this name, such as "AddOp"."""
        return getattr(self.mlir.ops, name)(*args, loc=self._place, **kwargs)

    def type(self, dtype: DType, shape: Ints) -> Any:
        """The type of an array."""
        return self.mlir.tensor(dtype, tuple(shape))

    def handle(self, x: Value) -> Any:
        """The MLIR value of an array; a constant is printed."""
        if x.array is None:
            return x.handle
        array = np.ascontiguousarray(x.array).reshape(x.shape)
        key = (array.tobytes(), x.dtype, x.shape)
        if key not in self._constants:
            attribute = self.mlir.elements(array, x.dtype)
            self._constants[key] = self.op("ConstantOp", attribute).result
        return self._constants[key]

    def _alike(self, operands: Sequence[Value], shape: tuple[int, ...]) -> list[Any]:
        return [self.handle(self.broadcast(each, shape)) for each in operands]

    def _made(self, name: str, dtype: DType, shape: Ints, *args: Any, **kwargs: Any) -> Value:
        return Value(self.op(name, *args, **kwargs).result, dtype, tuple(shape))

    # --------------------------------------------------------------------------------- geometry
    def emit_reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self._made("ReshapeOp", x.dtype, shape, self.type(x.dtype, shape), self.handle(x))

    def emit_transpose(self, x: Value, order: tuple[int, ...]) -> Value:
        shape = [x.shape[k] for k in order]
        return self._made("TransposeOp", x.dtype, shape, self.handle(x), list(order))

    def emit_broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        more = len(shape) - len(x.shape)
        kept = [k for k, n in enumerate(x.shape) if n == shape[more + k]]
        narrow = self.reshape(x, [x.shape[k] for k in kept])
        if narrow.shape == shape:
            return narrow
        dims = [more + k for k in kept]
        made = self.type(x.dtype, shape)
        return self._made("BroadcastInDimOp", x.dtype, shape, made, self.handle(narrow), dims)

    def emit_slice(
        self, x: Value, begin: Ints, end: Ints, step: Ints, shape: tuple[int, ...]
    ) -> Value:
        cut = [list(each) for each in (begin, end, step)]
        return self._made("SliceOp", x.dtype, shape, self.handle(x), *cut)

    def emit_pad(
        self, x: Value, low: Ints, high: Ints, filler: Value, shape: tuple[int, ...]
    ) -> Value:
        sides = [list(low), list(high), [0] * len(shape)]
        return self._made("PadOp", x.dtype, shape, self.handle(x), self.handle(filler), *sides)

    def emit_concatenate(self, parts: Sequence[Value], dim: int, shape: tuple[int, ...]) -> Value:
        return self._made(
            "ConcatenateOp", parts[0].dtype, shape, list(map(self.handle, parts)), dim
        )

    def reverse(self, x: Value, dims: Ints) -> Value:
        dims = [dim for dim in dims if x.shape[dim] > 1]
        if not dims or x.array is not None:
            return super().reverse(x, dims)
        return self._made("ReverseOp", x.dtype, x.shape, self.handle(x), dims)

    # --------------------------------------------------------------------------------- elements
    def emit_take(self, x: Value, index: Value, dim: int, shape: tuple[int, ...]) -> Value:
        rank = len(index.shape)
        kept = [*range(dim), *range(dim + rank, len(shape))]
        numbers = self.mlir.ops.GatherDimensionNumbers.get(kept, [dim], [], [], [dim], rank)
        sizes = [1 if k == dim else n for k, n in enumerate(x.shape)]
        place = self.handle(self.reshape(index, (*index.shape, 1)))
        return self._made("GatherOp", x.dtype, shape, self.handle(x), place, numbers, sizes)

    def emit_scatter(self, x: Value, index: Value, values: Value, combine: str) -> Value:
        numbers = self.mlir.ops.ScatterDimensionNumbers.get([], [0], [], [], [0], 1)
        place = self.handle(self.reshape(index, (index.numel, 1)))
        made = self.op(
            "ScatterOp",
            [self.type(x.dtype, x.shape)],
            [self.handle(x)],
            place,
            [self.handle(values)],
            numbers,
        )
        self._combining(made.regions[0], x.dtype, combine)
        return Value(made.results[0], x.dtype, x.shape)

    def _combining(self, region: Any, dtype: DType, kind: str) -> None:
        """Fills the region of a reduction with the combiner of two scalars."""
        scalar = self.type(dtype, ())
        with self.mlir.block(region, [scalar, scalar]) as (a, b):
            self.op("ReturnOp", [self.op(_COMBINED[kind], a, b).result])

    def emit_where(
        self, condition: Value, then: Value, other: Value, shape: tuple[int, ...]
    ) -> Value:
        operands = self._alike([condition, then, other], shape)
        return self._made("SelectOp", then.dtype, shape, *operands)

    def emit_cast(self, x: Value, dtype: DType) -> Value:
        if dtype is dtypes.float8_e4m3fn:
            x = self._saturated(x)
        wide = _WIDE.get(dtype)
        if wide is not None and x.dtype.is_floating_point:
            x = self.emit_cast(x, wide)  # where no integer of the dtype holds it, its bits wrap
        made = self.type(dtype, x.shape)
        return self._made("ConvertOp", dtype, x.shape, made, self.handle(x))

    def _saturated(self, x: Value) -> Value:
        for op, most in (("gt", 448.0), ("lt", -448.0)):
            bound = self.constant(most, x.dtype)
            x = self.where(self.primitive(op, x, bound), bound, x)
        return x

    def emit_bits(self, x: Value, dtype: DType) -> Value:
        made = self.type(dtype, x.shape)
        return self._made("BitcastConvertOp", dtype, x.shape, made, self.handle(x))

    # ------------------------------------------------------------------------------- primitives
    def emit_primitive(
        self, op: str, operands: Sequence[Value], dtype: DType, shape: tuple[int, ...]
    ) -> Value:
        given = self._alike(operands, shape)
        if op in _DIRECTIONS:
            direction = self.mlir.ops.ComparisonDirectionAttr.get(_DIRECTIONS[op])
            kind = self.mlir.ops.ComparisonTypeAttr.get(_order(operands[0].dtype))
            return self._made("CompareOp", dtype, shape, *given, direction, compare_type=kind)
        if op == "neg" and not dtype.is_signed:
            return self.primitive("sub", self.constant(0, dtype), operands[0])
        if op == "abs" and not dtype.is_signed:
            return operands[0]
        name = "ShiftRightArithmeticOp" if op == "shr" and dtype.is_signed else _OPERATIONS[op]
        return self._made(name, dtype, shape, *given)

    def has_function(self, name: str, dtype: DType) -> bool:
        return name in _FUNCTIONS and dtype in _FLOATS

    def formula(self, name: str, dtype: DType) -> Callable[..., Any] | None:
        if name == "atan":
            return lambda x: LIBRARY["atan2"](x, 1.0)
        return FORMULAS.get(name) if dtype.is_floating_point else None

    def emit_function(self, name: str, operands: Sequence[Value], dtype: DType) -> Value:
        shape = np.broadcast_shapes(*[each.shape for each in operands])
        return self._made(_FUNCTIONS[name], dtype, shape, *self._alike(operands, shape))

    # ------------------------------------------------------------------------------- reductions
    def emit_reduce(self, kind: str, x: Value, dims: Ints, shape: tuple[int, ...]) -> Value:
        (neutral,) = combiner(kind).identity([x.dtype])
        start = self.handle(self.constant(neutral.args[0], x.dtype))
        made = self.op(
            "ReduceOp", [self.type(x.dtype, shape)], [self.handle(x)], [start], list(dims)
        )
        self._combining(made.regions[0], x.dtype, kind)
        return Value(made.results[0], x.dtype, shape)

    def running_sum(self, x: Value, dim: int) -> Value | None:
        return None

    def order(self, key: Value, dim: int, *, descending: bool) -> Value:
        key = self.primitive("bit_not", key) if descending else key
        places = self.broadcast(self.positions(key.shape[dim], len(key.shape), dim), key.shape)
        kinds = [self.type(each.dtype, each.shape) for each in (key, places)]
        given = [self.handle(each) for each in (key, places)]
        made = self.op("SortOp", kinds, given, dimension=dim, is_stable=True)
        scalars = [self.type(each.dtype, ()) for each in (key, key, places, places)]
        direction = self.mlir.ops.ComparisonDirectionAttr.get("LT")
        kind = self.mlir.ops.ComparisonTypeAttr.get("SIGNED")
        with self.mlir.block(made.regions[0], scalars) as (a, b, _, _):
            is_less = self.op("CompareOp", a, b, direction, compare_type=kind).result
            self.op("ReturnOp", [is_less])
        return Value(made.results[1], dtypes.int64, key.shape)

    # --------------------------------------------------------------------------------- products
    def product(self, a: Value, b: Value) -> Value:
        batch = list(range(len(a.shape) - 2))
        rank = len(batch)
        numbers = self.mlir.ops.DotDimensionNumbers.get(batch, batch, [rank + 1], [rank])
        shape = (*a.shape[:-1], b.shape[-1])
        made = self.type(a.dtype, shape)
        given = [self.handle(each) for each in (a, b)]
        return self._made("DotGeneralOp", a.dtype, shape, made, *given, numbers)

    def convolve(self, x: Value, weight: Value, window: ConvolutionWindow) -> Value | None:
        x, window = self._large_enough(x, weight, window)
        plane = [2, 3]
        numbers = self.mlir.ops.ConvDimensionNumbers.get(0, 1, plane, 1, 0, plane, 0, 1, plane)
        sizes = [
            ((n - 1) * wide + 1 + sum(sides) - (k - 1) * apart - 1) // step + 1
            for n, wide, sides, k, apart, step in zip(
                x.shape[2:],
                window.spread,
                window.padding,
                weight.shape[2:],
                window.dilation,
                window.stride,
                strict=True,
            )
        ]
        shape = (x.shape[0], weight.shape[0], *sizes)
        return self._made(
            "ConvolutionOp",
            x.dtype,
            shape,
            self.type(x.dtype, shape),
            self.handle(x),
            self.handle(weight),
            numbers,
            window.groups,
            1,
            window_strides=list(window.stride),
            padding=self.mlir.integers(np.array(window.padding, np.int64)),
            lhs_dilation=list(window.spread),
            rhs_dilation=list(window.dilation),
        )

    def _large_enough(
        self, x: Value, weight: Value, window: ConvolutionWindow
    ) -> tuple[Value, ConvolutionWindow]:
        """The image with its padding, where it is smaller than the kernel without: XLA 0.10 would
        exchange the two, and then fails its own check where one is dilated."""
        if math.prod(x.shape[2:]) >= math.prod(weight.shape[2:]):
            return x, window
        sides, between = [[0, 0, *each] for each in zip(*window.padding, strict=True)], [0, 0]
        between += [each - 1 for each in window.spread]
        filler = self.handle(self.constant(0, x.dtype))
        made = self.op("PadOp", self.handle(x), filler, *sides, between)
        kept = self.op("OptimizationBarrierOp", [made.result]).results[0]
        shape = tuple(kept.type.shape)
        plain = attrs.evolve(window, padding=((0, 0), (0, 0)), spread=(1, 1))
        return Value(kept, x.dtype, shape), plain


def _order(dtype: DType) -> str:
    if dtype.is_floating_point:
        return "FLOAT"
    return "SIGNED" if dtype.is_signed else "UNSIGNED"


_DIRECTIONS = {"lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "eq": "EQ", "ne": "NE"}
_OPERATIONS = {
    "add": "AddOp",
    "sub": "SubtractOp",
    "mul": "MulOp",
    "div": "DivOp",
    "neg": "NegOp",
    "abs": "AbsOp",
    "sqrt": "SqrtOp",
    "floor": "FloorOp",
    "ceil": "CeilOp",
    "rint": "RoundNearestEvenOp",
    "idiv": "DivOp",
    "irem": "RemOp",
    "shl": "ShiftLeftOp",
    "shr": "ShiftRightLogicalOp",
    "bit_and": "AndOp",
    "bit_or": "OrOp",
    "bit_xor": "XorOp",
    "bit_not": "NotOp",
    "and": "AndOp",
    "or": "OrOp",
    "xor": "XorOp",
    "not": "NotOp",
}
"""Primitive of scalar expressions -> operation."""
_COMBINED = {
    "sum": "AddOp",
    "prod": "MulOp",
    "max": "MaxOp",
    "min": "MinOp",
    "any": "OrOp",
    "all": "AndOp",
}
"""Combiner -> operation."""
_FUNCTIONS = {
    "exp": "ExpOp",
    "exp_nonpositive": "ExpOp",
    "expm1": "Expm1Op",
    "log": "LogOp",
    "log1p": "Log1pOp",
    "sin": "SineOp",
    "cos": "CosineOp",
    "tan": "TanOp",
    "tanh": "TanhOp",
    "atan2": "Atan2Op",
    "pow": "PowOp",
    "fmod": "RemOp",
}
"""Function of scalar expressions -> operation."""
