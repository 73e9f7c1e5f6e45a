"""Numbers in the place of symbolic sizes, in loop programs and in graphs.

    kernel k[i0<s0]: b1[i0] = b0[s1*i0]     at s0 = 3, s1 = 8     kernel k[i0<3]: b1[i0] = b0[8*i0]

A program with symbols is one for all sizes; with numbers put in it is an ordinary one, which the
interpreter runs and memory is planned for. Spec: `specs/sized_kernels.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import attrs

from aotlite.backends.loops.program import (
    Extern,
    Gemm,
    Kernel,
    LoopProgram,
    MatrixWindow,
    Placed,
    ProgramBuffer,
    Reduce,
    Statement,
    Step,
    Store,
)
from aotlite.backends.loops.rewrite import on_statement
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic.numbers import with_sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.scalar.expression import Affine, Scalar, const, load, unknown, with_operands
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt

T = TypeVar("T")


class SizesAt:
    """Replaces symbols by numbers, given by name."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values
        self._known: dict[object, object] = {}
        self._scalars: dict[Scalar, Scalar] = {}

    def put(self, value: T) -> T:
        """Returns a size, a meta, a place, or a tuple of them with numbers; all else as it is."""
        return self._put(value)  # type: ignore[return-value]

    def _put(self, value: object) -> object:
        if type(value) is tuple:
            return tuple(map(self._put, value))
        if type(value) is Placed:
            return Placed(value.buffer, self.put(value.start), self.put(value.meta))
        if type(value) not in (SymInt, SizeFloat, TensorMeta):
            return value
        if value not in self._known:
            self._known[value] = concrete(value, self.values)
        return self._known[value]

    # ------------------------------------------------------------------------------------ graphs
    def graph(self, graph: Graph) -> Graph:
        """Returns the graph at these sizes."""
        return with_sizes(graph, self.put)

    # ---------------------------------------------------------------------------------- programs
    def program(self, program: LoopProgram) -> LoopProgram:
        """Returns the program at these sizes, without steps that have nothing to do."""
        steps = tuple([each for each in map(self.step, program.steps) if not is_idle(each)])
        return attrs.evolve(self.outline(program), steps=steps)

    def outline(self, program: LoopProgram) -> LoopProgram:
        """Returns the program with the buffers and outputs at these sizes, and its steps as they
        are: all that a call and the plan of its memory need."""
        buffers = tuple([self.buffer(each) for each in program.buffers])
        return attrs.evolve(program, buffers=buffers, outputs=self.put(program.outputs))

    def buffer(self, buffer: ProgramBuffer) -> ProgramBuffer:
        """Returns the buffer at these sizes."""
        if type(buffer.size) is int:
            return buffer
        size = self.put(buffer.size)
        return ProgramBuffer(buffer.number, buffer.dtype, size, buffer.kind, value=buffer.value)

    def step(self, step: Step) -> Step:
        """Returns the step at these sizes."""
        match step:
            case Kernel():
                body = [on_statement(each, self._scalar, self._affine) for each in step.body]
                extents = self.put(step.extents)
                if 0 in extents[step.space :]:
                    body = _of_no_points(body)
                return attrs.evolve(step, extents=extents, body=tuple(body))
            case Gemm():
                a, b, c = map(self._window, (step.a, step.b, step.c))
                sizes = self.put((step.batch, step.m, step.n, step.k))
                return Gemm(step.name, *sizes, a, b, c)
            case Extern():
                return self.extern(step)
        return step

    def extern(self, step: Extern) -> Extern:
        """Returns the call of an op at these sizes."""
        args, results, meta = self.put((step.args, step.results, step.meta))
        return Extern(step.op, args, results, meta)

    def _window(self, window: MatrixWindow) -> MatrixWindow:
        sizes = self.put((window.start, window.batch, window.row, window.column))
        return MatrixWindow(window.buffer, *sizes)

    def _affine(self, address: Affine) -> Affine:
        dynamic = tuple([(value, self.put(step)) for value, step in address.dynamic])
        return Affine(self.put(address.coefficients), self.put(address.start), dynamic)

    def _scalar(self, root: Scalar) -> Scalar:
        memo = self._scalars
        for value in unknown(root, memo):
            memo[value] = self._own(value, tuple([memo[each] for each in value.operands]))
        return memo[root]

    def _own(self, value: Scalar, operands: tuple[Scalar, ...]) -> Scalar:
        if value.op == "const" and type(value.args[0]) is SymInt:
            return const(self.put(value.args[0]), value.dtype)
        if value.op == "load":
            buffer, address = value.args
            steps = [step for _, step in address.dynamic]
            dynamic = tuple(zip(operands, steps, strict=True))
            return load(buffer, self._affine(attrs.evolve(address, dynamic=dynamic)), value.dtype)
        return with_operands(value, operands)


def _of_no_points(body: Sequence[Statement]) -> list[Statement]:
    """Returns the statements of rows without inner points: what they would reduce is not loaded."""
    found: list[Statement] = []
    for each in body:
        if type(each) is Reduce:
            nothing = tuple([const(0, value.dtype) for value in each.values])
            found.append(attrs.evolve(each, values=nothing))
        elif type(each) is Store and each.each_row:
            found.append(each)
    return found


def is_idle(step: Step) -> bool:
    """Whether a step stores nothing, since an independent axis has no points."""
    match step:
        case Kernel():
            return 0 in step.extents[: step.space]
        case Gemm():
            return 0 in (*step.batch, step.m, step.n)
    return False
