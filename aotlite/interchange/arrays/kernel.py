"""The loops of an op on arrays: each kernel becomes operations on all of its points at once.

An op that says its loops (`PureOp.loops`) needs no printer of its own. A scalar of a kernel becomes
an array that broadcasts over the kernel's axes, a load a window of a flat buffer or a `take`, a
store a scatter. Checks of values (K-11) are left out: a program that leaves raises nothing.
Spec: `specs/onnx.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.lowering.builder import NoLoops, ProgramBuilder
from aotlite.backends.loops.lowering.writer import LoopOperand, LoopWriter
from aotlite.backends.loops.program import (
    BufferKind,
    Gemm,
    Kernel,
    MatrixWindow,
    Reduce,
    Scan,
    Statement,
    Step,
    Store,
    ValueCheck,
    reads,
    values_of,
    writes,
)
from aotlite.backends.loops.rewrite import without_lets
from aotlite.interchange.arrays.expression import evaluated
from aotlite.interchange.arrays.memory import BufferArrays, in_memory
from aotlite.interchange.arrays.scan import scanned
from aotlite.interchange.arrays.target import ArrayTarget, NotPrinted, Value
from aotlite.ir import dtypes
from aotlite.ir.errors import AotliteError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp
from aotlite.ir.scalar.expression import Affine, Scalar, walk


def by_loops(
    t: ArrayTarget, op: PureOp, metas: Any, args: Sequence[Any], layouts: Sequence[Any]
) -> Any:
    """The results of an op by the loops of its declaration. `layouts` has the metas of operands in
    the places of `args`; of a result whose elements share or leave out places, it is dense."""
    assert op.loops is not None
    builder, memory = ProgramBuilder(), BufferArrays(t)
    k = LoopWriter(builder, op.name)
    wanted = tuple([_dense(meta) for meta in metas]) if type(metas) is tuple else _dense(metas)
    try:
        operands = [_operand(k, memory, a, m) for a, m in zip(args, layouts, strict=True)]
        made = op.loops(k, wanted, *operands)
    except (NoLoops, ArithmeticError, IndexError) as error:
        raise NotPrinted("has no loops for these arguments") from error
    except AotliteError as error:
        raise NotPrinted(f"has no loops for these arguments ({error})") from error
    if made is None:
        raise NotPrinted("has no loops for these arguments")
    results = made if type(made) is tuple else (made,)
    program = _Program(t, builder, memory)
    program.run([each.placed.buffer for each in results])
    found = [memory.read(each.placed) for each in results]
    return tuple(found) if type(made) is tuple else found[0]


def _dense(meta: TensorMeta) -> TensorMeta:
    return meta if meta.dense else meta.as_contiguous(meta.shape)


def _operand(k: LoopWriter, memory: BufferArrays, value: Any, layout: Any) -> Any:
    if isinstance(value, Value):
        dense = _dense(layout)
        placed = k.program.new(dense, BufferKind.INPUT)
        memory.flat[placed.buffer] = in_memory(memory.t, value, dense)
        return LoopOperand(k, placed)
    if type(value) is tuple and type(layout) is tuple:
        return tuple([_operand(k, memory, a, m) for a, m in zip(value, layout, strict=True)])
    return value


@attrs.define
class _Program:
    """The steps of an op's loops, run on the arrays of buffers."""

    t: ArrayTarget
    builder: ProgramBuilder
    memory: BufferArrays

    def run(self, results: Sequence[int]) -> None:
        """Runs the steps that the results need."""
        for buffer in self.builder.buffers:
            if buffer.kind is BufferKind.CONSTANT:
                self.memory.flat[buffer.number] = self.t.constant(buffer.value, buffer.dtype)
            elif buffer.kind is not BufferKind.INPUT:
                self.memory.sizes[buffer.number] = buffer.size, buffer.dtype
        for step in self._needed(set(results)):
            if isinstance(step, Kernel):
                _KernelRun(self.t, self.memory, without_lets(step)).run()
            elif isinstance(step, Gemm):
                self._gemm(step)
            else:
                raise NotPrinted("has a step without loops")

    def _needed(self, wanted: set[int]) -> list[Step]:
        kept: list[Step] = []
        for step in reversed(self.builder.steps):
            if type(step) is not ValueCheck and wanted & writes(step):
                kept.append(step)
                wanted |= reads(step) | writes(step)
        return kept[::-1]

    def _gemm(self, step: Gemm) -> None:
        a = self._matrices(step.a, step.batch, (step.m, step.k))
        b = self._matrices(step.b, step.batch, (step.k, step.n))
        made = self.t.product(a, b)
        shape = (*step.batch, step.m, step.n)
        coefficients = (*step.c.batch, step.c.row, step.c.column)
        address = Affine(coefficients, step.c.start)
        self.memory.store(step.c.buffer, address, self.t.reshape(made, shape))

    def _matrices(
        self, window: MatrixWindow, batch: tuple[int, ...], size: tuple[int, int]
    ) -> Value:
        address = Affine((*window.batch, window.row, window.column), window.start)
        shape = (*batch, *size)
        return self.t.broadcast(self.memory.load(window.buffer, address, shape), shape)


@attrs.define
class _KernelRun:
    """The evaluation of one kernel at all of its points."""

    t: ArrayTarget
    memory: BufferArrays
    kernel: Kernel
    names: dict[int, Value] = attrs.field(factory=dict)
    known: dict[Scalar, Value] = attrs.field(factory=dict)
    guarded: set[Scalar] = attrs.field(factory=set)

    def run(self) -> None:
        """Runs the statements; loads see memory as it was before the kernel (K-6)."""
        self.guarded = _guarded(self.kernel.body)
        pending = []
        for statement in self.kernel.body:
            match statement:
                case Reduce(names=names, kind=kind, values=values):
                    found = self._reduced(kind, [self._whole(each) for each in values])
                    self.names |= zip(names, found, strict=True)
                case Scan(names=names, kind=kind, values=values):
                    found = self._scanned(kind, [self._whole(each) for each in values])
                    self.names |= zip(names, found, strict=True)
                case Store():
                    pending.append((statement, *self._stored(statement)))
        for store, value, address in pending:
            if address is None:
                self.memory.store(store.buffer, store.address, value)
            else:
                self.memory.scatter(store.buffer, address, value, store.combine)

    @property
    def _extents(self) -> tuple[int, ...]:
        return self.kernel.extents

    def _value(self, root: Scalar) -> Value:
        return evaluated(self.t, root, self._leaf, self.known)

    def _whole(self, root: Scalar) -> Value:
        return self.t.broadcast(self._value(root), self._extents)

    def _leaf(self, scalar: Scalar) -> Value:
        match scalar.op:
            case "name":
                return self.names[scalar.args[0]]
            case "axis":
                k, rank = scalar.args[0], len(self._extents)
                return self.t.positions(self._extents[k], rank, k)
        buffer, address = scalar.args
        if address.dynamic or self.memory.is_beside(buffer, address, self._extents):
            place = self._address(address)
            return self.memory.take(buffer, place, is_guarded=scalar in self.guarded)
        return self.memory.load(buffer, address, self._extents)

    def _address(self, address: Affine) -> Value:
        t, rank = self.t, len(self._extents)
        total = t.reshape(t.constant([address.start], dtypes.int64), (1,) * rank)
        for k, coefficient in enumerate(address.coefficients):
            if coefficient:
                times = t.constant(coefficient, dtypes.int64)
                part = t.primitive("mul", t.positions(self._extents[k], rank, k), times)
                total = t.primitive("add", total, part)
        for scalar, step in address.dynamic:
            factor = t.constant(step, dtypes.int64)
            part = t.primitive("mul", t.cast(self._value(scalar), dtypes.int64), factor)
            total = t.primitive("add", total, part)
        return total

    # --- statements
    def _stored(self, store: Store) -> tuple[Value, Value | None]:
        space = self.kernel.space
        shape = self._extents
        if store.each_row:
            shape = shape[:space] + (1,) * (len(shape) - space)
        value = self.t.broadcast(self._value(store.value), shape)
        if not store.address.dynamic and store.combine is None:
            return value, None
        return value, self.t.broadcast(self._address(store.address), shape)

    def _reduced(self, kind: str, values: list[Value]) -> list[Value]:
        space, rank = self.kernel.space, len(self._extents)
        inner = list(range(space, rank))
        shape = self._extents[:space] + (1,) * len(inner)
        if combiner(kind).parts == 1:
            return [self.t.reshape(self.t.reduce(kind, values[0], inner), shape)]
        if kind not in _CHOICES:
            raise NotPrinted(f"has a reduction {kind!r}, which is not printed")
        found = self._chosen(kind, values, inner, shape)
        return [self.t.reshape(each, shape) for each in found]

    def _chosen(
        self, kind: str, values: list[Value], inner: list[int], shape: tuple[int, ...]
    ) -> list[Value]:
        """(value, position) of the best: of equals the first, or last, position."""
        t, (largest, first) = self.t, _CHOICES[kind]
        best = t.reduce("max" if largest else "min", values[0], inner)
        is_best = t.primitive("eq", values[0], t.reshape(best, shape))
        takes_last = not first
        if values[0].dtype.is_floating_point:
            odd = t.primitive("ne", values[0], values[0])
            is_best = t.primitive("or", is_best, odd)
            if kind == "pool_max":  # of NaNs the last one, of numbers the first
                last = t.reduce("max", t.where(odd, values[1], t.constant(-1, dtypes.int64)), inner)
        ends = (1 << 63) - 1, -(1 << 63)
        end = t.constant(ends[takes_last], values[1].dtype)
        place = t.reduce("max" if takes_last else "min", t.where(is_best, values[1], end), inner)
        if kind == "pool_max" and values[0].dtype.is_floating_point:
            some = t.primitive("ge", last, t.constant(0, dtypes.int64))
            place = t.where(some, last, place)
        return [best, place]

    def _scanned(self, kind: str, values: list[Value]) -> list[Value]:
        space = self.kernel.space
        flat = (*self._extents[:space], math.prod(self._extents[space:]))
        found = scanned(self.t, kind, [self.t.reshape(each, flat) for each in values], space)
        return [self.t.reshape(each, self._extents) for each in found]


_CHOICES = {"argmax": (True, True), "argmin": (False, True), "pool_max": (True, True)}
"""Combiners of (value, position): whether the largest is best, and whether the first is."""


def _guarded(body: Sequence[Statement]) -> set[Scalar]:
    """The loads in branches, which may lie outside of the memory where a branch is not taken."""
    found: set[Scalar] = set()
    for statement in body:
        for scalar in walk(values_of(statement)):
            if scalar.op == "where":
                found.update(*[facts(branch).loads for branch in scalar.args[1:]])
    return found
