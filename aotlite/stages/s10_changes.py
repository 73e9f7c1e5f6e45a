"""Lines of run-time functions that change inputs otherwise than by writing: their autograd state.

Used by stage 10 alone. Results that were taken before a change are rebuilt before it.
Rules: FUN-36, TEN-5. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.eager.autograd.history import detached_view
from aotlite.eager.tensor import Tensor
from aotlite.ir.role import IntermediateBase, Output
from aotlite.stages.facts import AliasOfInput, FunctionMeta, InputMeta, Plain, StateStep
from aotlite.stages.s10_guards import name_of
from aotlite.stages.s10_source import Source


def check_changes(source: Source, meta: FunctionMeta) -> None:
    """What eager would refuse is refused before anything runs."""
    for each in meta.inputs:
        if StateStep.DETACH in each.changes:
            source.use(detached_view)
            source.add(f"if {name_of(each.role)}._base is not None:", "    raise detached_view()")


def write_changes(
    source: Source, meta: FunctionMeta, rebuild: Callable[[int, AliasOfInput], None]
) -> None:
    """The changes of each input, in order, and the results that were taken in between."""
    for each in meta.inputs:
        for number, change in enumerate(each.changes):
            for index, view in _taken(meta, each, number):
                rebuild(index, view)
            source.add(f"{name_of(each.role)}.{change.value}")


def _taken(meta: FunctionMeta, each: InputMeta, number: int) -> Sequence[tuple[int, AliasOfInput]]:
    """The results that are views of an input after so many changes."""
    return [
        (index, output)
        for index, output in enumerate(meta.outputs)
        if isinstance(output, AliasOfInput)
        and output.role == each.role
        and output.changes_before == number
    ]


def keep_in_place(source: Source, meta: FunctionMeta, values: dict[Any, str]) -> None:
    """TEN-5: memory of which a hidden alias was taken may not move."""
    names = [name_of(each.role) for each in meta.inputs if each.shares_outside]
    names += [
        values[Output(index)]
        for index, output in enumerate(meta.outputs)
        if isinstance(output, Plain) and output.shares_outside
    ]
    names += [
        values[IntermediateBase(index)]
        for index, base in enumerate(meta.bases)
        if base.shares_outside
    ]
    source.add(*[f"{name}.storage.exported = True" for name in names])


def hide(view: Tensor, version: int) -> Tensor:
    """A rebuilt hidden alias, or view of one, with the writes that it went through (TEN-10)."""
    view.storage.version = version
    view.facts = None
    return view
