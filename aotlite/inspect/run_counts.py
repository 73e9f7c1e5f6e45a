"""`inspect.counting`: what runs in a block: captures, eager ops, graphs by order of derivative.

Counted by Python's profile hook of the thread, which is set in the block alone: nothing is asked,
and nothing costs, outside of it. Spec: `docs/counters.md`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.eager.dispatch import _apply
from aotlite.stages.s1_capture import capture
from aotlite.stages.s10_runtime.guards.writer import MISS
from aotlite.stages.s10_runtime.source import ORDER


@attrs.define
class Ran:
    """What has run."""

    captures: int = 0
    """Runs of functions that are compiled: one for each entry."""
    eager_ops: int = 0
    """Ops of the eager engine, those of gradient formulas among them. Not those of captures."""
    graphs: Counter[int] = attrs.field(factory=Counter)
    """Runs of compiled graphs: of forwards at 0, of backwards at 1, of second derivatives at 2."""

    def __str__(self) -> str:
        graphs = ", ".join(f"{count} of order {k}" for k, count in sorted(self.graphs.items()))
        counts = f"captures: {self.captures}, eager ops: {self.eager_ops}"
        return f"{counts}, graphs: {graphs or 'none'}"


_CAPTURE: CodeType = capture.__code__
_OP: CodeType = _apply.__code__


@contextmanager
def counting() -> Iterator[Ran]:
    """A block that counts what runs in this thread; it gives the counts, which go on in the block.

    >>> import aotlite as al
    >>> cube = al.compile(lambda x: (x * x * x).sum())
    >>> x = al.ones(2, requires_grad=True)
    >>> with counting() as ran:
    ...     for _ in range(2):
    ...         loss = cube(x)
    ...         _ = al.autograd.grad(loss, [x])
    >>> print(ran)
    captures: 1, eager ops: 0, graphs: 2 of order 0, 2 of order 1
    """
    ran, before = Ran(), sys.getprofile()

    def count(frame: FrameType, event: str, value: Any) -> None:
        if before is not None:
            before(frame, event, value)  # type: ignore[arg-type]
        if event != "return":
            return
        code = frame.f_code
        if code is _OP:
            ran.eager_ops += STATE.recorder is None
        elif code is _CAPTURE:
            ran.captures += 1
        elif code.co_filename.startswith("<aotlite") and code.co_name != "<module>":
            order = frame.f_globals.get(ORDER)
            if order is not None and value is not MISS:
                ran.graphs[order] += 1

    sys.setprofile(count)
    try:
        yield ran
    finally:
        sys.setprofile(before)
