"""Random programs of one kernel: any layout, reductions, scans, conditions, gathers, all dtypes."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    Let,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Scan,
    Statement,
    Store,
)
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import (
    Affine,
    Scalar,
    axis,
    cast,
    const,
    function,
    load,
    make,
    name,
    where,
)
from aotlite.ir.scalar.functions import has

FLOATS = (dtypes.float32, dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
INTEGERS = (dtypes.int64, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint32)
EXTENTS = (1, 2, 3, 5, 8, 17, 33, 64, 70)
NEAR = {1: 1, 4: 2, 16: 1, 64: 16}
"""For numbers of lanes, how many neighbors are combined first."""


def numbers(generator: np.random.Generator, buffer: ProgramBuffer) -> Any:
    """An array of small numbers for a buffer."""
    dtype = buffer.dtype.numpy
    if buffer.dtype.kind == dtypes.BOOL:
        return generator.integers(0, 2, buffer.size).astype(dtype)
    if buffer.dtype.kind < dtypes.FLOATING:
        low = -3 if buffer.dtype.is_signed else 0
        return generator.integers(low, 4, buffer.size).astype(dtype)
    return (generator.standard_normal(buffer.size) * 2).astype(dtype)


class Drawn:
    """One drawn program, and how to make inputs of it; `in_place`: it writes some of these."""

    def __init__(self, seed: int, *, in_place: bool = False) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.buffers: list[ProgramBuffer] = []
        self.body: list[Statement] = []
        self.count = 0
        self.rows: list[Scalar] = []
        self.elements: list[Scalar] = []
        self.extents, self.space = self._axes()
        self.dtype = self.random.choice(FLOATS if self.random.random() < 0.75 else INTEGERS)
        self.written = [self._written() for _ in range(self.random.choice((2, 3, 4)) * in_place)]
        self.program = self._program()

    def inputs(self) -> list[Any]:
        """Arrays for the inputs, small numbers."""
        generator = np.random.default_rng(self.seed)
        return [numbers(generator, b) for b in self.buffers if b.kind is BufferKind.INPUT]

    # --- geometry
    def _axes(self) -> tuple[tuple[int, ...], int]:
        space = self.random.choice((0, 1, 1, 2, 2, 3))
        inner = self.random.choice((0, 0, 1, 1, 1, 2))
        extents = [self.random.choice(EXTENTS) for _ in range(space + inner)]
        while math.prod(extents) > 6000:
            largest = extents.index(max(extents))
            extents[largest] = max(extents[largest] // 2, 1)
        return tuple(extents), space

    def _address(self, axes: list[int], *, spread: bool) -> Affine:
        """Strides in some order of the axes; `spread`: each point has its own address."""
        order = axes[:] if self.random.random() < 0.5 else self.random.sample(axes, len(axes))
        coefficients, step, start = [0] * len(self.extents), 1, 0
        for k in reversed(order):
            if not spread and self.random.random() < 0.15:
                continue
            coefficients[k] = step
            step *= self.extents[k] + (self.random.random() < 0.1)
            if self.random.random() < 0.1:
                start -= coefficients[k] * -(self.extents[k] - 1)
                coefficients[k] = -coefficients[k]
        return Affine(tuple(coefficients), start)

    def _reach(self, address: Affine) -> int:
        pairs = zip(address.coefficients, self.extents, strict=True)
        return address.start + sum(max(c, 0) * (n - 1) for c, n in pairs) + 1

    def _buffer(self, dtype: DType, size: int, kind: BufferKind) -> int:
        self.buffers.append(ProgramBuffer(len(self.buffers), dtype, size, kind))
        return self.buffers[-1].number

    # --- expressions
    def _load(self, axes: list[int]) -> Scalar:
        address = self._address(axes, spread=False)
        kind = self.random.random()
        dtype = self.dtype if kind < 0.6 else self.random.choice((*FLOATS, *INTEGERS))
        if dtype.is_floating_point and not self.dtype.is_floating_point:
            dtype = self.dtype
        if kind > 0.9:
            positions = self._buffer(dtypes.int64, self._reach(address), BufferKind.INPUT)
            index = load(positions, address, dtypes.int64)
            table = self._buffer(dtype, 7, BufferKind.INPUT)
            zero = (0,) * len(self.extents)
            return cast(load(table, Affine(zero, 3, ((index, 1),)), dtype), self.dtype)
        shift = self._shifted(axes) if kind < 0.2 and axes else None
        if shift is not None:
            return shift
        number = self._buffer(dtype, self._reach(address), BufferKind.INPUT)
        return cast(load(number, address, dtype), self.dtype)

    def _shifted(self, axes: list[int]) -> Scalar:
        """A pad or a roll: a load beside the own point, where that is inside."""
        address = self._address(axes, spread=True)
        k = self.random.choice(axes)
        by = self.random.choice((-2, -1, 1, 3))
        number = self._buffer(self.dtype, self._reach(address), BufferKind.INPUT)
        step, n = address.coefficients[k], self.extents[k]
        near = load(number, Affine(address.coefficients, address.start + by * step), self.dtype)
        inside = axis(k) < n - by if by > 0 else axis(k) >= -by
        if self.random.random() < 0.5 or abs(by) > n:
            return where(inside, near, const(1, self.dtype))
        turn = by - n if by > 0 else by + n
        far = load(number, Affine(address.coefficients, address.start + turn * step), self.dtype)
        return where(inside, near, far)

    def _value(self, axes: list[int], known: list[Scalar], depth: int) -> Scalar:
        choice = self.random.random()
        if depth == 0 or choice < 0.1:
            if known and self.random.random() < 0.6:
                return self.random.choice(known)
            return self._load(axes)
        a = self._value(axes, known, depth - 1)
        if choice < 0.3:
            return self._single(a)
        b = self._value(axes, known, depth - 1)
        if choice < 0.42:
            test = make(self.random.choice(("lt", "le", "gt", "ge", "eq", "ne")), a, b)
            if self.random.random() < 0.3:
                test = make(self.random.choice(("and", "or", "xor")), test, make("not", a > b))
            return where(test, b, self._value(axes, known, depth - 1))
        if choice < 0.47 and axes:
            k = self.random.choice(axes)
            return where(axis(k) < self.random.randrange(self.extents[k] + 1), a, b)
        if choice < 0.52 and len(axes) > 1:
            k, other = self.random.sample(axes, 2)
            return where(axis(k) <= axis(other) + self.random.choice((-1, 0, 2)), a, b)
        return self._double(a, b)

    def _single(self, a: Scalar) -> Scalar:
        if not self.dtype.is_floating_point:
            return make(self.random.choice(("abs", "neg", "bit_not")), a)
        call = self.random.choice(("sin", "cos", "tanh", "exp", ""))
        if self.random.random() < 0.4 and has(call, (self.dtype,)):
            return function(call, self.dtype, a)
        op = self.random.choice(("abs", "neg", "sqrt", "floor", "ceil", "trunc", "rint", "round"))
        if op == "round":
            return cast(cast(a, self.random.choice(FLOATS)), self.dtype)
        return make("sqrt", make("abs", a)) if op == "sqrt" else make(op, a)

    def _double(self, a: Scalar, b: Scalar) -> Scalar:
        if self.dtype.is_floating_point:
            return make(self.random.choice(("add", "sub", "mul", "mul", "div")), a, b)
        ops = ("add", "sub", "mul", "bit_and", "bit_or", "bit_xor", "idiv", "irem", "shl", "shr")
        op = self.random.choice(ops)
        if op in ("idiv", "irem"):
            b = where(make("eq", b, 0), const(3, self.dtype), b)
        if op in ("shl", "shr"):
            b = make("bit_and", b, 7)
        return make(op, a, b)

    # --- statements
    def _written(self) -> tuple[int, Affine, bool]:
        """An input that is read and, at the end, written at one address only (K-6)."""
        inner = self.space < len(self.extents)
        each_row = inner and self.random.random() < 0.5
        axes = list(range(self.space if each_row else len(self.extents)))
        address = self._address(axes, spread=True)
        number = self._buffer(self.dtype, self._reach(address), BufferKind.INPUT)
        value = load(number, address, self.dtype)
        if each_row:
            self.rows.append(value)
        else:
            self.elements.append(value)
        return number, address, each_row

    def _write(self, number: int, address: Affine, each_row: bool) -> None:
        level = list(range(self.space if each_row else len(self.extents)))
        known = self.rows if each_row else [*self.rows, *self.elements]
        value = self._value(level, known, self.random.choice((1, 2, 3)))
        self.body.append(Store(number, address, value, each_row=each_row))

    def _fresh(self) -> int:
        self.count += 1
        return self.count - 1

    def _program(self) -> LoopProgram:
        for _ in range(self.random.choice((1, 2, 2, 3, 4))):
            self._statement()
        for written in self.random.sample(self.written, len(self.written)):
            self._write(*written)
        if not any(type(each) is Store for each in self.body):
            self._store()
        vector = self.random.choice((None, *range(len(self.extents))))
        kernel = Kernel(
            f"drawn{self.seed}", self.extents, self.space, tuple(self.body), vector=vector
        )
        inputs = tuple([b.number for b in self.buffers if b.kind is BufferKind.INPUT])
        return LoopProgram(kernel.name, tuple(self.buffers), (kernel,), inputs, ())

    def _statement(self) -> None:
        has_inner = self.space < len(self.extents)
        draw = self.random.random()
        if draw < 0.2:
            number, value = self._fresh(), self._any_value()
            self.body.append(Let(number, value))
            self.elements.append(name(number, self.dtype))
        elif draw < 0.55 and has_inner:
            self._reduce()
        elif draw < 0.62 and has_inner:
            number = self._fresh()
            kind = self.random.choice(("sum", "max", "min", "prod"))
            self.body.append(Scan((number,), kind, (self._any_value(),)))
            self.elements.append(name(number, self.dtype))
        else:
            self._store()

    def _any_value(self) -> Scalar:
        axes = list(range(len(self.extents)))
        return self._value(axes, [*self.rows, *self.elements], self.random.choice((1, 2, 3)))

    def _reduce(self) -> None:
        lanes = self.random.choice((1, 1, 4, 16, 64))
        kind = self.random.choice(("sum", "sum", "max", "min", "prod", "argmax", "moments"))
        value = self._any_value()
        if kind == "moments" and not self.dtype.is_floating_point:
            kind = "argmin"
        if kind.startswith("arg"):
            position: Scalar = axis(len(self.extents) - 1)
            names = (self._fresh(), self._fresh())
            self.body.append(Reduce(names, kind, (value, position), lanes, NEAR[lanes]))
            self.rows += [
                name(names[0], self.dtype),
                cast(name(names[1], dtypes.int64), self.dtype),
            ]
        elif kind == "moments":
            three = (self._fresh(), self._fresh(), self._fresh())
            one = const(1, self.dtype)
            self.body.append(
                Reduce(three, kind, (one, value, const(0, self.dtype)), lanes, NEAR[lanes])
            )
            self.rows += [name(each, self.dtype) for each in three]
        else:
            number = self._fresh()
            self.body.append(Reduce((number,), kind, (value,), lanes, NEAR[lanes]))
            self.rows.append(name(number, self.dtype))

    def _store(self) -> None:
        inner = self.space < len(self.extents)
        if inner and self.random.random() < 0.4:
            value = self._value(list(range(self.space)), self.rows, 2)
            address = self._address(list(range(self.space)), spread=True)
            number = self._buffer(self.dtype, self._reach(address), BufferKind.OUTPUT)
            self.body.append(Store(number, address, value, each_row=True))
            return
        address = self._address(list(range(len(self.extents))), spread=True)
        number = self._buffer(self.dtype, self._reach(address), BufferKind.OUTPUT)
        self.body.append(Store(number, address, self._any_value()))
