"""`FloatInputs`: the float arguments of one capture whose values are those of each call.

Ops take such a float as a 0-d tensor, which each call makes anew: a hidden input, whose place is an
expression (`FloatPath`). What was asked about a float is a guard. Rules: DYN-27.
Spec: `specs/float_inputs.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import numpy as np

from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import GuardError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.floats.symfloat import FloatFact, FloatFacts, SymFloat
from aotlite.stages.records.guards.access_paths import AccessPath

_MARK = "Leave it out of dynamic_shapes, or let that line not depend on the number."
_PASS_A_TENSOR = "Leave it out of dynamic_shapes, or pass it as a tensor without dimensions."


@attrs.frozen(eq=False)
class FloatArgumentGuard:
    """The flat argument number `index` is a float, of any value."""

    index: int


@attrs.frozen(eq=False)
class FloatFactGuard:
    """What was asked about floats has the same answer."""

    fact: FloatFact


@attrs.frozen(eq=False)
class FloatPath(AccessPath):
    """The place of a tensor that each call makes of its float arguments."""

    number: SymFloat = attrs.field(kw_only=True)
    meta: TensorMeta = attrs.field(kw_only=True)

    def resolve(self, leaves: Sequence[object]) -> Tensor:
        """The tensor of a call. It raises an error of guards where it is none that eager computes
        with: a float that is not 0, and is 0 in the tensor's dtype."""
        return self.of(self.number.value(leaves))

    def of(self, value: float) -> Tensor:
        """The tensor of this value. Raises ValueError if it is 0 there alone."""
        with np.errstate(all="ignore"):
            array = np.array(value)
            if self.meta.dtype.itemsize < 4:  # as eager rounds a number
                array = array.astype(np.float32)
            array = array.astype(self.meta.dtype.numpy)
        if value != 0 and array == 0:
            raise ValueError(f"{value} is 0 as {self.meta}, expected a number that is none")
        return tensor_over(array, self.meta, 0)

    def __str__(self) -> str:
        return self.number.text


@attrs.define(eq=False, repr=False)
class FloatInputs:
    """The float arguments of one capture that are inputs, and what was asked about them."""

    arguments: dict[int, SymFloat] = attrs.field(factory=dict)
    """By the number of the flat argument."""
    marked: dict[int, str] = attrs.field(factory=dict)
    """Those that the user named, and how: it is an error if the function fixes one."""
    facts: FloatFacts = attrs.field(factory=FloatFacts)
    is_taken: bool = False

    def __bool__(self) -> bool:
        return bool(self.arguments)

    def argument(self, index: int, value: float, how_asked: str) -> SymFloat:
        """A float argument as an input; how the user asked for it, empty where that was not so."""
        made = SymFloat(self.facts, None, (index,), value, f"argument {index}")
        self.arguments[index] = made
        if how_asked:
            self.marked[index] = how_asked
        return made

    def take(self) -> None:
        """Takes the values of all floats: users' Python runs in the backward, or in derivatives of
        it, and may ask for anything."""
        self.is_taken = True
        for number in self.arguments.values():
            number.plain()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """A block that may ask nothing new: calls were made with the guards that there are."""
        self.facts.is_closed = not self.is_taken
        try:
            yield
        finally:
            self.facts.is_closed = False

    def guards(self) -> tuple[FloatArgumentGuard | FloatFactGuard, ...]:
        """The guards of later calls.

        Raises GuardError if the program fixes a float that the user named.
        """
        for index, how_asked in self.marked.items():
            fixing = [fact for fact in self.facts if fact.fixes and index in _read(fact.number)]
            if fixing:
                why = "users' Python is differentiated" if self.is_taken else repr(fixing[0])
                what = f"argument {index} {how_asked}, and the function fixes it"
                raise noted(
                    GuardError(f"compile: {what}: {why}, expected a function of every float"),
                    _PASS_A_TENSOR if self.is_taken else _MARK,
                )
        floats = [FloatArgumentGuard(index) for index in self.arguments]
        return (*floats, *map(FloatFactGuard, self.facts))


def _read(number: SymFloat) -> set[int]:
    """The numbers of the flat arguments that an expression reads."""
    found, waiting, seen = set[int](), [number], set[int]()
    while waiting:
        each = waiting.pop()
        if each.function is None:
            found.add(each.argument)
        elif id(each) not in seen:
            seen.add(id(each))
            waiting += [x for x in each.operands if type(x) is SymFloat]
    return found


def facts_of(guards: Sequence[object]) -> tuple[FloatFact, ...]:
    """The conditions on float arguments."""
    return tuple([each.fact for each in guards if isinstance(each, FloatFactGuard)])


def numbers_of(leaves: Sequence[object], guards: Sequence[object]) -> dict[int, float | None]:
    """The ints and floats among flat arguments; None for a float of any value."""
    inputs = {g.index: None for g in guards if isinstance(g, FloatArgumentGuard)}
    return {i: x for i, x in enumerate(leaves) if isinstance(x, (int, float))} | inputs
