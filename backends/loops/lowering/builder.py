"""The program while it is being made: buffers and steps."""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.backends.loops.program import BufferKind, LoopProgram, Placed, ProgramBuffer, Step
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta


class NoLoops(Exception):
    """What is asked for has no loop form: the op runs as it is. Never leaves `lower`."""


class ProgramBuilder:
    """Buffers and steps, in order. What was added since a mark can be taken back."""

    def __init__(self) -> None:
        self.buffers: list[ProgramBuffer] = []
        self.steps: list[Step] = []
        self.checks: dict[Any, int] = {}
        """Of each check of an index how many steps there were with it."""

    def buffer(self, dtype: DType, size: int, kind: BufferKind, value: Any = None) -> int:
        """The number of a new buffer."""
        number = len(self.buffers)
        self.buffers.append(ProgramBuffer(number, dtype, size, kind, value=value))
        return number

    def new(
        self, meta: TensorMeta, kind: BufferKind = BufferKind.TEMPORARY, value: Any = None
    ) -> Placed:
        """A value in a new buffer of its own, laid out as its meta says."""
        return Placed(self.buffer(meta.dtype, meta.span, kind, value), 0, meta)

    @property
    def mark(self) -> tuple[int, int]:
        """Where the program is now."""
        return len(self.buffers), len(self.steps)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Takes back what was added since the mark."""
        del self.buffers[mark[0] :]
        del self.steps[mark[1] :]
        self.checks = {key: count for key, count in self.checks.items() if count <= mark[1]}

    def finish(
        self, name: str, inputs: list[int | None], outputs: list[Placed | None]
    ) -> LoopProgram:
        """The program. Buffers that outputs lie in are given away."""
        for number in {placed.buffer for placed in outputs if placed is not None}:
            buffer = self.buffers[number]
            if buffer.kind is BufferKind.TEMPORARY:
                self.buffers[number] = attrs.evolve(buffer, kind=BufferKind.OUTPUT)
        return LoopProgram(
            name, tuple(self.buffers), tuple(self.steps), tuple(inputs), tuple(outputs)
        )
