"""Random programs of the loop IR, as lowering makes them: a tiny kernel for each op.

`drawn(seed)` gives a program and arrays for its inputs. Values are windows of buffers: views cost
no kernel. What is loaded is always written before and inside its buffer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import attrs
import numpy as np

from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    Let,
    LoopProgram,
    Placed,
    ProgramBuffer,
    Reduce,
    Scan,
    Statement,
    Store,
)
from aotlite.ir.dtypes import DType, float32, float64, int64
from aotlite.ir.meta import tensor_meta
from aotlite.ir.scalar.expression import Affine, Scalar, axis, cast, const, load, make, name, where

Drawn = tuple[LoopProgram, list[np.ndarray]]


@attrs.frozen
class Value:
    """A window of a buffer."""

    buffer: int
    start: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: DType


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a row-major array."""
    return tuple([math.prod(shape[k + 1 :]) for k in range(len(shape))])


class Drawer:
    """A program under way."""

    def __init__(self, seed: int, extents: tuple[int, ...] = (2, 3, 4, 6)) -> None:
        self.random = random.Random(seed)
        self.extents = extents
        self.buffers: list[ProgramBuffer] = []
        self.steps: list[Kernel] = []
        self.values: list[Value] = []
        self.inputs: list[np.ndarray] = []

    # --- the pieces
    def buffer(self, dtype: DType, size: int, kind: BufferKind = BufferKind.TEMPORARY) -> int:
        """A new buffer."""
        self.buffers.append(ProgramBuffer(len(self.buffers), dtype, size, kind))
        return len(self.buffers) - 1

    def input(self) -> None:
        """A new input."""
        shape = tuple(
            [self.random.choice(self.extents) for _ in range(self.random.choice((1, 2, 2, 3)))]
        )
        dtype = self.random.choice((float32, float32, float32, float64))
        number = self.buffer(dtype, math.prod(shape), BufferKind.INPUT)
        data = np.random.default_rng(len(self.buffers)).integers(-8, 9, math.prod(shape))
        self.inputs.append((data / 4).astype(dtype.numpy))
        self.values.append(Value(number, 0, shape, contiguous(shape), dtype))

    def at(
        self, value: Value, index: list[Affine], pairs: tuple[tuple[Scalar, int], ...] = ()
    ) -> Scalar:
        """The load of the element at these positions."""
        count = len(index[0].coefficients) if index else 0
        coefficients, start = [0] * count, value.start
        for form, step in zip(index, value.stride, strict=True):
            start += form.start * step
            coefficients = [
                a + b * step for a, b in zip(coefficients, form.coefficients, strict=True)
            ]
        return load(value.buffer, Affine(tuple(coefficients), start, pairs), value.dtype)

    def plain(self, value: Value, count: int | None = None) -> Scalar:
        """The load at the point of the last axes; broadcast where an extent is 1."""
        count = len(value.shape) if count is None else count
        coefficients = [0] * (count - len(value.shape))
        coefficients += [s if n > 1 else 0 for n, s in zip(value.shape, value.stride, strict=True)]
        return load(value.buffer, Affine(tuple(coefficients), value.start), value.dtype)

    def result(self, label: str, shape: tuple[int, ...], value: Scalar) -> None:
        """A pointwise kernel that stores the value over this shape, rows last now and then."""
        order = list(range(len(shape)))
        if self.random.random() < 0.2:
            self.random.shuffle(order)
        stride = [0] * len(shape)
        size = 1
        for k in reversed(order):
            stride[k], size = size, size * shape[k]
        number = self.buffer(value.dtype, size)
        self.steps.append(
            Kernel(label, shape, len(shape), (Store(number, Affine(tuple(stride)), value),))
        )
        self.values.append(Value(number, 0, shape, tuple(stride), value.dtype))

    def find(self, condition: Callable[[Value], bool]) -> Value | None:
        """One of the values, rather a late one."""
        found = [value for value in self.values if condition(value)]
        return self.random.choice(found[-8:]) if found else None

    def pick(self, condition: Callable[[Value], bool] = lambda value: True) -> Value:
        """One of the values where there certainly is one."""
        found = self.find(condition)
        assert found is not None
        return found

    # --- ops
    def pointwise(self) -> None:
        """One to three operands that broadcast."""
        first = self.pick(lambda v: v.dtype is not int64)
        operands, shape = [first], first.shape
        for _ in range(self.random.choice((0, 1, 1, 2))):
            fitting = [
                v for v in self.values if v.dtype is not int64 and _broadcasts(v.shape, shape)
            ]
            operands.append(self.random.choice(fitting[-8:]))
            shape = np.broadcast_shapes(shape, operands[-1].shape)
        scalars = [cast(self.plain(v, len(shape)), first.dtype) for v in operands]
        total = scalars[0]
        for each in scalars[1:]:
            total = make(self.random.choice(("add", "sub", "mul")), total, each)
        self.result("pointwise", shape, self.unary(total))

    def unary(self, value: Scalar) -> Scalar:
        """Something cheap or dear of the value."""
        match self.random.randrange(6):
            case 0:
                return value
            case 1:
                return value * 0.5 + 1.0
            case 2:
                return where(value > 0.0, value, const(0, value.dtype))
            case 3:
                for _ in range(6):
                    value = make("sqrt", make("abs", value) + 1.0)
                return value
            case 4:
                return make("sqrt", make("abs", value)) - 0.25
            case _:
                return cast(cast(value, float64) * 1.5, value.dtype)

    def let(self) -> None:
        """A value used twice, by name."""
        value = self.pick(lambda v: v.dtype is not int64)
        loaded = self.plain(value)
        named = name(0, value.dtype)
        self.result("let", value.shape, named * named)
        kernel = self.steps[-1]
        self.steps[-1] = attrs.evolve(kernel, body=(Let(0, loaded + 1.0), *kernel.body))

    def fill(self) -> None:
        """A constant, or positions."""
        shape = tuple(
            [self.random.choice(self.extents) for _ in range(self.random.randrange(1, 3))]
        )
        value = const(1.5, float32)
        if self.random.random() < 0.5:
            value = cast(axis(len(shape) - 1) * 2 + 1, float32)
        self.result("fill", shape, value)

    def view(self) -> None:
        """Another window of the same buffer."""
        value = self.pick()
        shape, stride, start = list(value.shape), list(value.stride), value.start
        k = self.random.randrange(len(shape)) if shape else 0
        match self.random.randrange(7):
            case 6 if shape and shape[k] > 1:  # windows that overlap
                width = self.random.randrange(1, shape[k] + 1)
                shape[k] -= width - 1
                shape.insert(k + 1, width)
                stride.insert(k, stride[k])
            case 0:
                order = list(range(len(shape)))
                self.random.shuffle(order)
                shape, stride = [shape[k] for k in order], [stride[k] for k in order]
            case 1 if shape and shape[k] > 1:
                begin = self.random.randrange(shape[k] - 1)
                start += begin * stride[k]
                shape[k] -= begin
            case 2 if shape:
                shape[k] = (shape[k] + 1) // 2
                stride[k] *= 2
            case 3 if len(shape) < 4:
                shape.insert(k, self.random.choice((1, *self.extents)))
                stride.insert(k, 0)
            case 4 if len(shape) > 1:
                start += self.random.randrange(shape[k]) * stride[k]
                del shape[k], stride[k]
            case 5 if value.stride == contiguous(value.shape) and shape:
                shape = list(self._reshaped(math.prod(shape)))
                stride = list(contiguous(tuple(shape)))
            case _:
                return
        if math.prod(shape) <= 600:
            self.values.append(Value(value.buffer, start, tuple(shape), tuple(stride), value.dtype))

    def _reshaped(self, size: int) -> tuple[int, ...]:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        first = self.random.choice(divisors)
        second = self.random.choice([n for n in divisors if size // first % n == 0])
        return self.random.choice(
            [(size,), (first, size // first), (first, second, size // first // second)]
        )

    def moved(self) -> None:
        """A roll, a pad, a flip, or a part put into another."""
        value = self.find(lambda v: len(v.shape) > 0 and v.dtype is not int64)
        if value is None:
            return
        k, count = self.random.randrange(len(value.shape)), len(value.shape)
        n = value.shape[k]
        here = [Affine(tuple([int(a == b) for b in range(count)])) for a in range(count)]

        def shifted(by: int, sign: int = 1) -> Scalar:
            index = list(here)
            index[k] = Affine(tuple([sign * int(a == k) for a in range(count)]), by)
            return self.at(value, index)

        by, shape = self.random.randrange(n), list(value.shape)
        match self.random.randrange(4):
            case 0:
                self.result("roll", value.shape, where(axis(k) < by, shifted(n - by), shifted(-by)))
            case 1:
                inside = make("and", axis(k) >= by, axis(k) < by + n)
                shape[k] = n + 2 * by
                self.result("pad", tuple(shape), where(inside, shifted(-by), const(0, value.dtype)))
            case 2:
                self.result("flip", value.shape, shifted(n - 1, -1))
            case 3:
                other = self.pick(lambda v: v.shape == value.shape and v.dtype is value.dtype)
                shape[k] = 2 * n
                index = list(here)
                index[k] = Affine(here[k].coefficients, -n)
                second = self.at(other, index)
                self.result("cat", tuple(shape), where(axis(k) < n, shifted(0), second))

    def reduction(self) -> None:
        """Over some of the dimensions; the result may keep them as extents of 1."""
        value = self.find(lambda v: len(v.shape) > 0 and v.dtype is not int64)
        if value is None:
            return
        count = len(value.shape)
        dims = self.random.sample(range(count), self.random.randrange(1, count + 1))
        if self.random.random() < 0.5:
            dims = [count - 1]
        kept = [k for k in range(count) if k not in dims]
        order = [*kept, *sorted(dims)]
        address = Affine(tuple([value.stride[k] for k in order]), value.start)
        loaded = self.unary(load(value.buffer, address, value.dtype))
        extents = tuple([value.shape[k] for k in order])
        outer = tuple([value.shape[k] for k in kept])
        kind = self.random.choice(("sum", "sum", "max", "argmax"))
        lanes = 1 if kind == "argmax" else self.random.choice((1, 1, 2))
        number, into = self.buffer(value.dtype, math.prod(outer)), contiguous(outer)
        body: list[Statement] = [Reduce((0,), kind, (loaded,), lanes)]
        result: Scalar = name(0, loaded.dtype)
        if kind == "argmax":
            body = [Reduce((0, 1), kind, (loaded, axis(len(extents) - 1)))]
            result = result + cast(name(1, int64), loaded.dtype)
        store = Store(number, Affine((*into, *[0] * len(dims))), result, each_row=True)
        self.steps.append(Kernel("reduce", extents, len(kept), (*body, store)))
        strides = dict(zip(kept, into, strict=True))
        if self.random.random() < 0.7:
            shape = tuple([1 if k in dims else n for k, n in enumerate(value.shape)])
            stride = tuple([strides.get(k, 0) for k in range(count)])
            self.values.append(Value(number, 0, shape, stride, value.dtype))
        else:
            self.values.append(Value(number, 0, outer, into, value.dtype))

    def centered(self) -> None:
        """A value less its mean over the last dimension, as softmax and norms have it."""
        value = self.find(lambda v: len(v.shape) > 1 and v.shape[-1] > 1 and v.dtype is not int64)
        if value is None:
            return
        address = Affine(value.stride, value.start)
        outer = value.shape[:-1]
        number, into = self.buffer(value.dtype, math.prod(outer)), contiguous(outer)
        loaded = load(value.buffer, address, value.dtype)
        store = Store(number, Affine((*into, 0)), name(0, value.dtype) / 4.0, each_row=True)
        body = (Reduce((0,), "sum", (loaded,), 2), store)
        self.steps.append(Kernel("mean", value.shape, len(outer), body))
        mean = load(number, Affine((*into, 0)), value.dtype)
        self.result("centered", value.shape, self.unary(loaded - mean))

    def scan(self) -> None:
        """Along the last dimension."""
        value = self.find(lambda v: len(v.shape) > 0 and v.dtype is not int64)
        if value is None:
            return
        number = self.buffer(value.dtype, math.prod(value.shape))
        stride = contiguous(value.shape)
        body = (
            Scan((0,), "sum", (self.plain(value),)),
            Store(number, Affine(stride), name(0, value.dtype)),
        )
        self.steps.append(Kernel("scan", value.shape, len(value.shape) - 1, body))
        self.values.append(Value(number, 0, value.shape, stride, value.dtype))

    def gather(self) -> None:
        """Along the last dimension, at computed positions."""
        value = self.find(lambda v: len(v.shape) > 1 and v.dtype is not int64)
        if value is None:
            return
        shape = value.shape[:-1]
        self.result("positions", shape, make("irem", axis(len(shape) - 1) * 5 + 1, value.shape[-1]))
        positions = self.values.pop()
        found = self.plain(positions)
        inside = make("and", found >= 0, found < value.shape[-1])
        found = where(inside, found, const(0, int64))
        coefficients = tuple(value.stride[:-1])
        pairs = ((found, value.stride[-1]),)
        self.result(
            "gather",
            shape,
            load(value.buffer, Affine(coefficients, value.start, pairs), value.dtype),
        )

    def scatter(self) -> None:
        """Added to a copy, at computed positions."""
        value = self.find(lambda v: len(v.shape) == 2 and v.dtype is not int64)
        if value is None:
            return
        rows, columns = value.shape
        self.result("zeros", (rows, 4), const(0, value.dtype))
        into = self.values[-1]
        position = make("irem", axis(1) * 3, 4)
        address = Affine((into.stride[0], 0), 0, ((position, into.stride[1]),))
        body = (Store(into.buffer, address, self.plain(value), combine="sum"),)
        self.steps.append(Kernel("scatter", (rows, columns), 1, body))

    def closing(self) -> list[Kernel]:
        """Copies into inputs, at the end."""
        kernels = []
        for buffer in self.buffers:
            value = self._fitting(buffer)
            if buffer.kind is BufferKind.INPUT and value is not None and self.random.random() < 0.3:
                store = Store(buffer.number, Affine(value.stride), self.plain(value))
                kernels.append(Kernel("copy", value.shape, len(value.shape), (store,)))
        return kernels

    def _fitting(self, buffer: ProgramBuffer) -> Value | None:
        """A computed value that has the geometry of the whole buffer."""
        return self.find(
            lambda v: (
                self.buffers[v.buffer].kind is not BufferKind.INPUT
                and v.dtype is buffer.dtype
                and math.prod(v.shape) == buffer.size
                and v.stride == contiguous(v.shape)
            )
        )

    def program(self, count: int) -> Drawn:
        """A program of about so many ops."""
        for _ in range(self.random.randrange(1, 4)):
            self.input()
        ops = [
            *[self.pointwise] * 8, *[self.view] * 5, *[self.moved] * 3, *[self.reduction] * 3,
            *[self.centered] * 3, self.scan, self.gather, self.scatter, self.fill, self.let,
        ]  # fmt: skip
        for _ in range(count):
            self.random.choice(ops)()
        given = sum([b.kind is BufferKind.INPUT for b in self.buffers])
        copies = self.closing()
        made = [v for v in self.values if v.buffer >= given]
        outputs = self.random.sample(made, min(len(made), self.random.randrange(1, 4)))
        returned = {v.buffer for v in outputs}
        buffers = [
            attrs.evolve(b, kind=BufferKind.OUTPUT) if b.number in returned else b
            for b in self.buffers
        ]
        placed = [
            Placed(v.buffer, v.start, tensor_meta(v.shape, v.stride, v.dtype)) for v in outputs
        ]
        steps = (*self.steps, *copies)
        program = LoopProgram("drawn", tuple(buffers), steps, tuple(range(given)), tuple(placed))
        return program, self.inputs


def _broadcasts(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    try:
        shape = np.broadcast_shapes(first, second)
    except ValueError:
        return False
    return math.prod(shape) <= 600


def drawn(seed: int, count: int = 12) -> Drawn:
    """A program and arrays for its inputs."""
    return Drawer(seed).program(count)
