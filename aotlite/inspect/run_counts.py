"""`inspect.counting`: counts captures, eager ops and graph runs, by order of derivative.

Uses the thread's profile hook, set in the block only: outside of it nothing costs.
Spec: `docs/counters.md`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.eager.dispatch import _apply
from aotlite.stages.s1_capture import capture
from aotlite.stages.s10_runtime.guards.writer import MISS
from aotlite.stages.s10_runtime.source import ORDER


@attrs.define
class Ran:
    """The counts of a block."""

    captures: int = 0
    """Captures: one for each new entry."""
    eager_ops: int = 0
    """Ops of the eager engine, with those of gradient formulas, without those of captures."""
    graphs: Counter[int] = attrs.field(factory=Counter)
    """Runs of compiled graphs by order: 0 for forwards, 1 for backwards, 2 for double backwards."""

    def __str__(self) -> str:
        graphs = ", ".join(f"{count} of order {k}" for k, count in sorted(self.graphs.items()))
        counts = f"captures: {self.captures}, eager ops: {self.eager_ops}"
        return f"{counts}, graphs: {graphs or 'none'}"


_CAPTURE: CodeType = capture.__code__
_OP: CodeType = _apply.__code__


def _makes(code: CodeType, value: object) -> bool:
    """Whether the code defines the function that it returns, as what makes the function of each
    vector of sizes does (DYN-41): that is no run."""
    return isinstance(value, FunctionType) and value.__code__ in code.co_consts


@contextmanager
def counting() -> Iterator[Ran]:
    """A block that counts what this thread runs; yields the counts, which are live.

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

    def count(frame: FrameType, event: str, value: object) -> None:
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
            if order is not None and value is not MISS and not _makes(code, value):
                ran.graphs[order] += 1

    sys.setprofile(count)
    try:
        yield ran
    finally:
        sys.setprofile(before)
