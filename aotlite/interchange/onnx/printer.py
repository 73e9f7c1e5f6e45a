"""`OnnxPrinter`: array operations as ONNX nodes, in the dtypes that onnxruntime has kernels for.

A node whose dtype has no kernel computes in one that holds all its values, and is cast back: no bit
is lost. Which dtypes these are is said in `kernels`. Spec: `specs/onnx.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.interchange.arrays.formulas import FORMULAS
from aotlite.interchange.arrays.target import (
    ArrayTarget,
    ConvolutionWindow,
    NotPrinted,
    Value,
    broadcast_shapes,
)
from aotlite.interchange.onnx import kernels
from aotlite.interchange.onnx.size_nodes import SizeNodes
from aotlite.interchange.sizes.program_sizes import has_symbols
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.graph import Node
from aotlite.ir.provenance.location import place_of
from aotlite.ir.symbols.symint import SymInt

Ints = Sequence[int]


class OnnxPrinter(ArrayTarget):
    """Collects nodes and initializers, in the order of the calls."""

    name = "ONNX"
    has_symbols = True

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.inputs: list[Value] = []
        self.outputs: list[str] = []
        self._scope = ""
        self._place = ""
        self._taken: set[str] = set()
        self._constants: dict[tuple[object, ...], str] = {}
        self.sizes = SizeNodes(self)

    # ------------------------------------------------------------------------------------ nodes
    def begin(self, name: str, node: Node) -> None:
        self._scope = name
        self._place = "" if node.location is None else str(place_of(node.location))

    def fresh(self, name: str) -> str:
        """A name that no value of the model has."""
        found, count = name, 0
        while found in self._taken:
            count += 1
            found = f"{name}.{count}"
        self._taken.add(found)
        return found

    def input(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Value:
        """An input of the model."""
        self.inputs.append(Value(self.fresh(name), dtype, shape))
        return self.inputs[-1]

    def reserve(self, name: str) -> None:
        """Keeps a name for an output."""
        self.outputs.append(name)
        self._taken.add(name)

    def node(
        self, kind: str, inputs: Sequence[Value], dtype: DType, shape: Ints, **attributes: Any
    ) -> Value:
        """A node with one result."""
        name = self.fresh(self._scope or kind.lower())
        self._append(kind, [self.named(each) for each in inputs], [name], attributes)
        return Value(name, dtype, tuple(shape))

    def _append(
        self, kind: str, inputs: list[str], outputs: list[str], attributes: dict[str, Any]
    ) -> None:
        from onnx import helper

        for name, value in attributes.items():
            if has_symbols(value if isinstance(value, list) else [value]):
                raise NotPrinted(f"has {name} {value} of {kind}, which are numbers")
        first = kernels.SINCE.get(kind, 0)
        if self.opset < first:
            raise NotPrinted(f"needs {kind}, which opset {first} has (opset={self.opset})")
        made = helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes)
        if self._place:
            made.doc_string = self._place
        self.nodes.append(made)

    def named(self, value: Value) -> str:
        """The name of a value; a constant becomes an initializer."""
        if value.array is None:
            return str(value.handle)
        from onnx import numpy_helper

        array = np.ascontiguousarray(value.array).reshape(value.shape)
        key = (array.tobytes(), value.dtype, value.shape)
        if key not in self._constants:
            name = self.fresh("constant")
            self.initializers.append(numpy_helper.from_array(array, name))
            self._constants[key] = name
        return self._constants[key]

    def result(self, value: Value, name: str) -> None:
        """Gives a value a name of its own, as an output of the model."""
        self._scope = self._place = ""
        self._append("Identity", [self.named(value)], [name], {})

    def used(self) -> tuple[list[Any], list[Any]]:
        """The nodes and initializers that the outputs need: a reshape of a reshape is one."""
        needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.output):
                needed.update(node.input)
                kept.append(node)
        return kept[::-1], [each for each in self.initializers if each.name in needed]

    def size(self, size: Any) -> Value:
        return self.sizes.number(size) if isinstance(size, SymInt) else super().size(size)

    def emit_positions(self, count: int) -> Value:
        first, step = (self.constant(number, dtypes.int64) for number in (0, 1))
        return self.node("Range", [first, self.size(count), step], dtypes.int64, (count,))

    def _ints(self, numbers: Ints) -> Value:
        if has_symbols(numbers):
            return self.sizes.numbers(numbers)
        return self.constant(np.array(numbers, np.int64), dtypes.int64)

    def _in(
        self,
        kind: str,
        operands: Sequence[Value],
        make: Callable[[list[Value]], Value],
    ) -> Value:
        """The result of `make` on operands in a dtype that has a kernel, cast back if the result
        has the operands' dtype."""
        dtype = operands[0].dtype
        carrier = kernels.carrier(kind, dtype)
        if carrier is dtype:
            return make(list(operands))
        made = make([self.emit_cast(each, carrier) for each in operands])
        return self.emit_cast(made, dtype) if made.dtype is carrier else made

    # --------------------------------------------------------------------------------- geometry
    def emit_reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.node("Reshape", [x, self._ints(shape)], x.dtype, shape, allowzero=1)

    def emit_transpose(self, x: Value, order: tuple[int, ...]) -> Value:
        shape = [x.shape[k] for k in order]
        return self.node("Transpose", [x], x.dtype, shape, perm=list(order))

    def emit_broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        _require_elements(shape)  # ONX-7
        size = self._ints(shape)
        return self._in(
            "Expand", [x], lambda xs: self.node("Expand", [xs[0], size], xs[0].dtype, shape)
        )

    def emit_slice(
        self, x: Value, begin: Ints, end: Ints, step: Ints, shape: tuple[int, ...]
    ) -> Value:
        cut = [k for k in range(len(shape)) if x.shape[k] != shape[k]]
        parts = [self._ints([each[k] for k in cut]) for each in (begin, end)]
        parts += [self._ints(cut), self._ints([step[k] for k in cut])]
        return self._in(
            "Slice", [x], lambda xs: self.node("Slice", [xs[0], *parts], xs[0].dtype, shape)
        )

    def emit_pad(
        self, x: Value, low: Ints, high: Ints, filler: Value, shape: tuple[int, ...]
    ) -> Value:
        sides = self._ints([*low, *high])
        return self._in(
            "Pad",
            [x, filler],
            lambda xs: self.node("Pad", [xs[0], sides, xs[1]], xs[0].dtype, shape),
        )

    def emit_concatenate(self, parts: Sequence[Value], dim: int, shape: tuple[int, ...]) -> Value:
        return self._in(
            "Concat", parts, lambda xs: self.node("Concat", xs, xs[0].dtype, shape, axis=dim)
        )

    # --------------------------------------------------------------------------------- elements
    def emit_take(self, x: Value, index: Value, dim: int, shape: tuple[int, ...]) -> Value:
        return self._in(
            "Gather",
            [x],
            lambda xs: self.node("Gather", [xs[0], index], xs[0].dtype, shape, axis=dim),
        )

    def emit_scatter(self, x: Value, index: Value, values: Value, combine: str) -> Value:
        how = kernels.COMBINED[combine]
        return self._in(
            "ScatterElements",
            [x, values],
            lambda xs: self.node(
                "ScatterElements",
                [xs[0], index, xs[1]],
                xs[0].dtype,
                x.shape,
                axis=0,
                reduction=how,
            ),
        )

    def emit_where(
        self, condition: Value, then: Value, other: Value, shape: tuple[int, ...]
    ) -> Value:
        return self._in(
            "Where",
            [then, other],
            lambda xs: self.node("Where", [condition, *xs], xs[0].dtype, shape),
        )

    def emit_cast(self, x: Value, dtype: DType) -> Value:
        from onnx import helper

        if dtype is dtypes.float8_e4m3fn and x.dtype is dtypes.float64:
            x = self.emit_cast(x, dtypes.float32)
        attributes = {"to": helper.np_dtype_to_tensor_dtype(dtype.numpy)}
        if dtype is dtypes.float8_e5m2:
            attributes["saturate"] = 0
        return self.node("Cast", [x], dtype, x.shape, **attributes)

    def emit_bits(self, x: Value, dtype: DType) -> Value:
        from onnx import helper

        to = helper.np_dtype_to_tensor_dtype(dtype.numpy)
        return self.node("BitCast", [x], dtype, x.shape, to=to)

    # ------------------------------------------------------------------------------- primitives
    def emit_primitive(
        self, op: str, operands: Sequence[Value], dtype: DType, shape: tuple[int, ...]
    ) -> Value:
        match op:
            case "ne":
                equal = self.primitive("eq", *operands)
                return self.node("Not", [equal], dtype, shape)
            case "neg" if not dtype.is_signed:
                return self.primitive("sub", self.constant(0, dtype), operands[0])
            case "shl" | "shr":
                return self._shifted(op, operands[0], operands[1], shape)
        kind, attributes = kernels.KINDS[op]
        result = dtypes.bool_ if dtype is dtypes.bool_ else None
        return self._in(
            kind,
            operands,
            lambda xs: self.node(kind, xs, result or xs[0].dtype, shape, **attributes),
        )

    def _shifted(self, op: str, x: Value, by: Value, shape: tuple[int, ...]) -> Value:
        """A shift of an integer's bits. ONNX shifts unsigned integers: a negative one is shifted
        as its complement."""
        dtype = x.dtype
        direction = {"shl": "LEFT", "shr": "RIGHT"}[op]
        if dtype.is_signed:
            unsigned = dtypes.by_name("u" + dtype.name)
            if op == "shr":
                below = self.primitive("lt", x, self.constant(0, dtype))
                x = self.where(below, self.primitive("bit_not", x), x)
            shifted = self._shifted(op, self.cast(x, unsigned), self.cast(by, unsigned), shape)
            made = self.cast(shifted, dtype)
            return self.where(below, self.primitive("bit_not", made), made) if op == "shr" else made
        return self._in(
            "BitShift",
            [x, by],
            lambda xs: self.node("BitShift", xs, xs[0].dtype, shape, direction=direction),
        )

    def has_function(self, name: str, dtype: DType) -> bool:
        return dtype in kernels.FUNCTIONS.get(name, ("", ()))[1]

    def formula(self, name: str, dtype: DType) -> Callable[..., Any] | None:
        return FORMULAS.get(name) if dtype.is_floating_point else None

    def emit_function(self, name: str, operands: Sequence[Value], dtype: DType) -> Value:
        kind = kernels.FUNCTIONS[name][0]
        shape = broadcast_shapes(*[each.shape for each in operands])
        attributes = {"fmod": 1} if kind == "Mod" else {}
        return self.node(kind, operands, dtype, shape, **attributes)

    # ------------------------------------------------------------------------------- reductions
    def emit_reduce(self, kind: str, x: Value, dims: Ints, shape: tuple[int, ...]) -> Value:
        _require_elements(x.shape)
        if kind in ("max", "min") and x.dtype is dtypes.uint64:
            return self._reduced_unsigned(kind, x, dims, shape)
        if kind in ("sum", "prod") and not x.dtype.is_floating_point:
            return self._reduced_integers(kind, x, dims, shape)
        op, axes = kernels.REDUCTIONS[kind], self._ints(dims)
        return self._in(
            op, [x], lambda xs: self.node(op, [xs[0], axes], xs[0].dtype, shape, keepdims=0)
        )

    def _reduced_integers(self, kind: str, x: Value, dims: Ints, shape: tuple[int, ...]) -> Value:
        """Integers wrap: onnxruntime's ReduceSum and ReduceProd of them do not. A sum is a product
        with ones, a product one of halves."""
        kept = [k for k in range(len(x.shape)) if k not in dims]
        rows = [math.prod([x.shape[k] for k in part]) for part in (kept, dims)]
        laid = self.reshape(self.transpose(x, [*kept, *dims]), rows)
        if kind == "sum":
            ones = self.full((rows[1], 1), 1, x.dtype)
            return self.reshape(self.product(laid, ones), shape)
        while (count := laid.shape[1]) > 1:
            if count % 2:
                laid = self.pad(laid, [0, 0], [0, 1], self.constant(1, x.dtype))
            middle, end = laid.shape[1] // 2, laid.shape[1]
            halves = [
                self.slice(laid, [0, a], [rows[0], b]) for a, b in ((0, middle), (middle, end))
            ]
            laid = self.primitive("mul", *halves)
        return self.reshape(laid, shape)

    def _reduced_unsigned(self, kind: str, x: Value, dims: Ints, shape: tuple[int, ...]) -> Value:
        """Of uint64: the order is that of int64 with the first bit changed."""
        first = self.constant(1 << 63, dtypes.uint64)
        signed = self.emit_cast(self.primitive("bit_xor", x, first), dtypes.int64)
        found = self.emit_reduce(kind, signed, dims, shape)
        return self.primitive("bit_xor", self.emit_cast(found, dtypes.uint64), first)

    def running_sum(self, x: Value, dim: int) -> Value | None:
        place = self.constant(dim, dtypes.int64)
        if not x.numel:
            return x
        return self._in(
            "CumSum", [x], lambda xs: self.node("CumSum", [xs[0], place], xs[0].dtype, x.shape)
        )

    def order(self, key: Value, dim: int, *, descending: bool) -> Value:
        values, places = self.fresh(self._scope), self.fresh(self._scope)
        count = self._ints([key.shape[dim]])
        attributes = {"axis": dim, "largest": int(descending), "sorted": 1}
        inputs = [self.named(key), self.named(count)]
        self._append("TopK", inputs, [values, places], attributes)
        return Value(places, dtypes.int64, key.shape)

    # --------------------------------------------------------------------------------- products
    def product(self, a: Value, b: Value) -> Value:
        shape = (*a.shape[:-1], b.shape[-1])
        return self._in("MatMul", [a, b], lambda xs: self.node("MatMul", xs, xs[0].dtype, shape))

    def convolve(self, x: Value, weight: Value, window: ConvolutionWindow) -> Value | None:
        if x.dtype is not dtypes.float32:
            return None
        x, window = self._without_cuts(self._spread(x, window.spread), window)
        (top, bottom), (left, right) = window.padding
        sizes = [
            (n + a + b - (k - 1) * d - 1) // s + 1
            for n, (a, b), k, d, s in zip(
                x.shape[2:],
                window.padding,
                weight.shape[2:],
                window.dilation,
                window.stride,
                strict=True,
            )
        ]
        return self.node(
            "Conv",
            [x, weight],
            x.dtype,
            (x.shape[0], weight.shape[0], *sizes),
            strides=list(window.stride),
            pads=[top, left, bottom, right],
            dilations=list(window.dilation),
            group=window.groups,
        )

    def _without_cuts(self, x: Value, window: ConvolutionWindow) -> tuple[Value, ConvolutionWindow]:
        """Negative padding as a slice."""
        begin, end = [0, 0], list(x.shape[:2])
        for n, (low, high) in zip(x.shape[2:], window.padding, strict=True):
            begin.append(max(-low, 0))
            end.append(n - max(-high, 0))
        (top, bottom), (left, right) = window.padding
        sides = (max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0))
        return self.slice(x, begin, end), attrs.evolve(window, padding=sides)

    def _spread(self, x: Value, spread: tuple[int, int]) -> Value:
        """Zeros between the elements of an image."""
        for dim, step in ((2, spread[0]), (3, spread[1])):
            if step > 1 and x.shape[dim] > 1:
                laid = self.reshape(x, (*x.shape[: dim + 1], 1, *x.shape[dim + 1 :]))
                low, high = [0] * len(laid.shape), [0] * len(laid.shape)
                high[dim + 1] = step - 1
                laid = self.pad(laid, low, high, self.constant(0, x.dtype))
                shape = list(x.shape)
                shape[dim] *= step
                x = self.reshape(laid, shape)
                end = list(x.shape)
                end[dim] -= step - 1
                x = self.slice(x, [0] * len(end), end)
        return x


def _require_elements(shape: Sequence[Any]) -> None:
    """Makes it a condition that sizes that are symbols are not 0."""
    for size in shape:
        if isinstance(size, SymInt) and size < 1:
            raise NotPrinted(f"has the size {size}, which is 0 where the graph was traced")
