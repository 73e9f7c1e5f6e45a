"""The events of a compilation: its begin and end, its stages, what each stage made, its guards.

Used by the journey through `request` and `observers`. Rules: LOG-1, LOG-2, GEN-9.
Spec: `specs/logs.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.logs import NO_COMPILATION, current_id, emit, is_heard, timed, within
from aotlite.pipeline.logs import call_events
from aotlite.pipeline.logs.artifact_text import facts_of
from aotlite.pipeline.logs.loggers import refresh
from aotlite.stages.s10_runtime.guarded_function import GuardedFunction

Stage = Callable[..., Any]

_MOST_CHARACTERS = 80
"""Longer texts of arguments are cut."""
_MOST_BITS = 256
"""Longer ints are not written out: Python refuses to write some thousand digits."""


class StageTable(dict[str, Stage]):
    """Stages by name. A stage that is looked up while somebody listens is timed.

    The partition is timed where it is called: users' partitioners take its place there. `get`
    returns a stage as it was given, for who asks which function it is.
    """

    def __init__(self, stages: Mapping[str, Stage], compile_id: str) -> None:
        super().__init__(stages)
        self.compile_id = compile_id

    def __getitem__(self, name: str) -> Stage:
        stage = super().__getitem__(name)
        return partial(self._timed, name, stage) if is_heard() and name != "partition" else stage

    def _timed(self, name: str, stage: Stage, *args: object, **options: object) -> Any:
        """Calls a stage as one event. It may run after the compilation, when a call has new sizes
        or is differentiated twice."""
        here = self.compile_id if current_id() == NO_COMPILATION else None
        with timed("stage", here, stage=name) as facts:
            made = stage(*args, **options)
            facts.update(facts_of(made))
        if isinstance(made, GuardedFunction):
            emit("guards", lambda: {"guards": made.checks}, compile_id=here)
        return made


def stage_table(
    stages: Mapping[str, Stage], number: int, *, is_silent: bool
) -> Mapping[str, Stage]:
    """The stages of a compilation with this number, as a table that times them."""
    refresh()
    if is_silent:
        call_events.SILENT.add(str(number))
        return stages
    return StageTable(stages, str(number))


def emit_artifact(stage: str, made: object) -> None:
    """An observer that emits the result of each stage; listeners format it, or not (LOG-2)."""
    emit("artifact", lambda: {"stage": stage, **facts_of(made)}, made)


def emit_recompile(function: str, number: int, reasons: Sequence[object]) -> None:
    """Emits why an entry was made beside others: for each of them the guard that failed."""
    emit("recompile", lambda: {"function": function, "reasons": reasons}, compile_id=str(number))


@contextmanager
def compiling(request: Any, compilation: Any) -> Iterator[None]:
    """A block that is one compilation of a request: its events have its number (GEN-9)."""
    options = compilation.options
    with within(str(compilation.number), is_silent=not options.enable_log):
        if not is_heard():
            yield
            return
        emit(
            "compile_start",
            lambda: {
                "function": request.name,
                "arguments": [_argument(each) for each in request.leaves],
                "options": attrs.asdict(options, recurse=False),
            },
        )
        with timed("compile", function=request.name):
            yield


def _argument(leaf: object) -> str:
    """A flat argument: a tensor by its meta, a plain value as Python writes it."""
    if isinstance(leaf, Tensor):
        return f"{leaf.meta}{', requires grad' * leaf.requires_grad}"
    if type(leaf) in (int, float, complex, bool, str, bytes, type(None)):
        is_long = isinstance(leaf, int) and leaf.bit_length() > _MOST_BITS
        text = "a long int" if is_long else repr(leaf)
        return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return type(leaf).__name__
