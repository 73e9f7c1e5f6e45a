"""The builder of loop programs: buffers and steps are added in order, and may be taken back."""

from __future__ import annotations

import attrs

from aotlite.backends.loops.program import BufferKind, LoopProgram, Placed, ProgramBuffer, Step
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.layout import always_contiguous
from aotlite.ir.geometry.single_element import without_few
from aotlite.ir.geometry.sizes import is_symbolic, minimum
from aotlite.ir.meta import TensorMeta


class NoLoops(Exception):
    """Raised where an op has no loop form for these arguments. `lower` catches it and emits an
    `Extern` step."""


def span_of(meta: TensorMeta) -> int:
    """Returns the span of a meta. Of symbolic sizes an expression that is right for empty tensors,
    too."""
    if not is_symbolic((*meta.shape, *meta.stride)):
        return meta.span
    if always_contiguous(meta.shape, meta.stride):
        return meta.numel
    sizes = zip(meta.shape, without_few(meta.shape, meta.stride), strict=True)
    reach = 1 + sum([(size - 1) * step for size, step in sizes])
    return reach * minimum(meta.numel, 1)


class ProgramBuilder:
    """Buffers and steps, in order. `back_to` removes those added since a `mark`, for an op that
    turns out to have no loop form after some of its kernels were added."""

    def __init__(self) -> None:
        self.buffers: list[ProgramBuffer] = []
        self.steps: list[Step] = []
        self.checks: dict[object, int] = {}
        """For each check of an index the number of steps up to it, so that it is made once."""

    def buffer(self, dtype: DType, size: int, kind: BufferKind, value: object = None) -> int:
        """Adds a buffer and returns its number."""
        number = len(self.buffers)
        self.buffers.append(ProgramBuffer(number, dtype, size, kind, value=value))
        return number

    def new(
        self, meta: TensorMeta, kind: BufferKind = BufferKind.TEMPORARY, value: object = None
    ) -> Placed:
        """Adds a buffer for a value with the layout of its meta, and returns its place."""
        return Placed(self.buffer(meta.dtype, span_of(meta), kind, value), 0, meta)

    @property
    def mark(self) -> tuple[int, int]:
        """The present numbers of buffers and steps, for `back_to`."""
        return len(self.buffers), len(self.steps)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Removes the buffers, steps and checks that were added since the mark."""
        del self.buffers[mark[0] :]
        del self.steps[mark[1] :]
        self.checks = {key: count for key, count in self.checks.items() if count <= mark[1]}

    def finish(
        self, name: str, inputs: list[int | None], outputs: list[Placed | None]
    ) -> LoopProgram:
        """Returns the program. Temporaries in which outputs lie become output buffers."""
        for number in {placed.buffer for placed in outputs if placed is not None}:
            buffer = self.buffers[number]
            if buffer.kind is BufferKind.TEMPORARY:
                self.buffers[number] = attrs.evolve(buffer, kind=BufferKind.OUTPUT)
        return LoopProgram(
            name, tuple(self.buffers), tuple(self.steps), tuple(inputs), tuple(outputs)
        )
