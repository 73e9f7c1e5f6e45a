"""`inspect.stages_of`: the results of all stages of one compilation. Spec: `specs/pipeline.md`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from aotlite.api import CompiledFunction
from aotlite.ir.errors import ArgumentError, noted
from aotlite.pipeline.observers import StageRecord
from aotlite.pipeline.options import make_options

_NO_CONDITIONS = (
    "There are conditions where sizes are symbols: with compile(dynamic=True), which is --dynamic "
    "of aotlite explain, by a mark, or by dynamic_shapes."
)


@attrs.frozen(eq=False)
class Stages:
    """The results of the stages of one compilation, in order.

    `stages["joint"]` is the result of a stage: capture, analyze, convention, joint, desugar (if
    there are wrappers), functionalize, simplify, partition, forward, backward, conditions (if sizes
    are symbols), or `pass 'name'`.
    Printing shows all of them. Graphs also print as tables: `stages["joint"].sequence_table()`,
    `.print_tabular()`.
    """

    function: str
    records: tuple[StageRecord, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(record.name for record in self.records)

    def record(self, name: str) -> StageRecord:
        """The record of a stage. Raises ArgumentError for an unknown name."""
        for each in self.records:
            if name in (each.name, _short(each.name)):
                return each
        known = ", ".join(map(_short, self.names))
        error = ArgumentError(f"inspect: the stage is {name!r}, expected one of: {known}")
        raise noted(error, *([_NO_CONDITIONS] if name == "conditions" else []))

    def __getitem__(self, name: str) -> Any:
        return self.record(name).made

    def __iter__(self) -> Iterator[StageRecord]:
        return iter(self.records)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.records))


def _short(name: str) -> str:
    """`joint` of `4 joint`, `forward` of `8 partition, forward`; other names as they are."""
    return re.split(r", | ", name)[-1] if name[0].isdigit() else name


def stages_of(fn: Callable[..., object], *args: object, **kwargs: object) -> Stages:
    """Compiles `fn` for these arguments without running it; the result of every stage.

    `fn` may be a compiled function: its options are used, its entries do not change.

    >>> import aotlite as al
    >>> stages = stages_of(lambda x: x.t().mul_(2), al.ones(2, 3))
    >>> stages.names[:4]
    ('1 capture', '2 analyze', '3 convention', '4 joint')
    >>> print(stages["functionalize"].code)
    def _lambda_(primals_0: "f32[2, 3]") -> ("updated_primals_0",):
        t = ops.t(primals_0)
        mul = ops.mul(t, 2)
        t_1 = ops.t(mul)
        return (t_1,)
    """
    given = fn if isinstance(fn, CompiledFunction) else CompiledFunction(fn, make_options())
    records: list[StageRecord] = []

    def observe(stage: str, made: object) -> None:
        records.append(StageRecord(stage, made))

    options = attrs.evolve(given.options, observer=observe)
    CompiledFunction(given.function, options).prepare(*args, **kwargs)
    return Stages(getattr(given.function, "__name__", "graph"), tuple(records))
