"""The effects of a program's steps on memory, from an eager run of each of its calls.

Place: `aotlite.testing.relations`, below the relations, which apply by these facts.
`aotlite.ir.geometry.overlap` decides whether two tensors overlap; it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import numpy as np

from aotlite.ir.geometry.overlap import has_internal_overlap, overlaps_bytes
from aotlite.testing.coverage.cells import Watcher
from aotlite.testing.engines import Engine
from aotlite.testing.engines.interpreter import run_steps, setup_of
from aotlite.testing.generate.step_arguments import name_of
from aotlite.testing.observe.observe_call import tensors_in
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step, resolved
from aotlite.testing.programs.vocabulary import MULTI, kind_of_op

DATA = ("pointwise", "copy", "fill", "setitem", "index")
"""Kinds of writes that change elements, and nothing else."""


@attrs.frozen
class Look:
    """The state of a tensor at one moment."""

    identity: int
    storage: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: str
    requires_grad: bool
    is_cut: bool
    """Whether a detach is between it and the first tensor on its memory."""
    is_leaf_view: bool
    """Whether it is a leaf that requires grad and a view of another tensor (TEN-23)."""

    def meets(self, other: Look) -> bool:
        """Whether the two have a byte in common."""
        if self.storage != other.storage:
            return False
        mine, its = ((each.shape, each.stride, each.offset) for each in (self, other))
        return overlaps_bytes(mine, _itemsize(self.dtype), its, _itemsize(other.dtype))

    @property
    def overlaps_itself(self) -> bool:
        return has_internal_overlap(self.shape, self.stride)


def _itemsize(dtype: str) -> int:
    return np.dtype(dtype).itemsize


@attrs.frozen(eq=False)
class Fact:
    """The effect of one step."""

    step: Step
    kind: str | None
    """The kind of write, None for steps that do not write."""
    operands: tuple[Look, ...]
    """Its tensor operands, in their state before it; a write changes the first one."""
    results: tuple[Look, ...]
    grad: bool
    """Whether it ran in grad mode."""

    @property
    def writes_data(self) -> bool:
        """Whether it changes elements, and neither geometry nor memory."""
        return self.kind in DATA

    @property
    def is_view(self) -> bool:
        """Whether it returns new tensors on the memory of its first operand."""
        if self.kind is not None or not self.operands or not self.results:
            return False
        source = self.operands[0]
        return all(
            each.storage == source.storage and each.identity != source.identity
            for each in self.results
        )

    @property
    def is_pure(self) -> bool:
        """Whether it reads memory and its results are new memory."""
        shared = {each.storage for each in self.operands}
        return self.kind is None and not any(each.storage in shared for each in self.results)

    @property
    def is_tracked(self) -> bool:
        """Whether some operand requires grad."""
        return any(each.requires_grad for each in self.operands)


@attrs.frozen(eq=False)
class Trace:
    """One call of a program that ran to its end."""

    call: Call
    arguments: tuple[Look, ...]
    facts: tuple[Fact, ...]
    results: tuple[Look, ...]
    """The results that are tensors."""
    kept: Any = attrs.field(repr=False)
    """The values, kept alive so that identities and memories stay different."""

    def is_fragile(self, storage: int) -> bool:
        """Whether another write or view of a memory could be refused (TEN-19).

        It requires grad and has views made several at once or under no_grad; or it has a leaf that
        is a view, which loses its history when the memory gets another (TEN-23)."""
        there = [
            look
            for fact in self.facts
            for look in (*fact.operands, *fact.results)
            if look.storage == storage
        ]
        if any(look.is_leaf_view for look in (*self.arguments, *there)):
            return True
        return any(look.requires_grad for look in there) and any(
            fact.is_view
            and fact.operands[0].storage == storage
            and (fact.step.op in MULTI or not fact.grad)
            for fact in self.facts
        )


def trace(library: Engine, program: Program, number: int) -> Trace | None:
    """Returns the effects of a call's steps; None if the call raises."""
    call = program.calls[number]
    try:
        setup, args = setup_of(library, call)
        with nullcontext() if call.grad else library.no_grad():
            return _traced(library, program, call, setup, args)
    except Exception:  # of any library and class: the call has no facts
        return None


def _traced(
    library: Engine, program: Program, call: Call, setup: Sequence[object], args: list[object]
) -> Trace:
    watcher = Watcher(library, args, grad=call.grad)
    look = _looker(library, watcher)
    arguments = tuple(map(look, args))
    values, facts = list(args), []
    for step in program.body:
        operands = tuple(map(look, tensors_in(library, resolved(step.args, values))))
        run_steps(library, [step], values, watcher)
        results = tuple(map(look, tensors_in(library, [values[-1]])))
        grad = call.grad and not step.no_grad
        facts.append(Fact(step, kind_of_op(step.op), operands, results, grad))
    results = tuple(map(look, tensors_in(library, resolved(program.results, values))))
    return Trace(call, arguments, tuple(facts), results, (setup, values))


def _looker(library: Engine, watcher: Watcher) -> Callable[[object], Look]:
    def look(value: Any) -> Look:
        known = watcher.objects.get(id(value))
        return Look(
            id(value),
            library.storage_of(value),
            tuple(value.shape),
            tuple(value.stride()),
            value.storage_offset(),
            name_of(value.dtype),
            value.requires_grad,
            known is not None and known.cut is not None,
            value.requires_grad and library.base_of(value) is not None and _is_leaf(value),
        )

    return look


def _is_leaf(value: Any) -> bool:
    """Whether it is a leaf; False for a view whose `is_leaf` raises after a write (TEN-18)."""
    try:
        return bool(value.is_leaf)
    except Exception:
        return False
