"""`ProgramRecords`: all of a program but its state, as data that a file holds.

Spec: `specs/programs.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import optree

from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.polynomial import Range
from aotlite.pipeline.arguments import FlatArguments, call_of, dict_orders
from aotlite.pipeline.order_records import OrderRecords
from aotlite.pipeline.record_files.containers import is_same_by_name
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.programs.parameters import Parameters
from aotlite.stages.records.symbolic_sizes import NumberSource, SizeSource, Source
from aotlite.stages.s10_runtime.guards.call_facts import ComparedCall
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts

MOST_ORDER: Final = 5
"""The highest order: the graphs of one more are some five times as many."""


@attrs.frozen(eq=False)
class Arguments:
    """How the arguments of a call are found in those of the function that was captured."""

    names: tuple[str, ...]
    """The names of the flat arguments of the function: `x`, `batch['y'][0]`."""
    places: tuple[int, ...]
    """Their numbers, of those that a call passes; the others are Modules and optimizers, whose
    tensors are state."""
    spec: Any
    """The containers of (args, kwargs) as a call passes them."""
    arrays: tuple[int, ...]
    """The numbers of those that are ndarrays."""
    parameters: Parameters = attrs.field(factory=Parameters)

    @property
    def form(self) -> tuple[Any, ...]:
        """The key of calls with these containers."""
        tree: Any = optree.tree_unflatten(self.spec, [0] * self.spec.num_leaves)
        args, kwargs = tree
        nested = kwargs or any(isinstance(arg, (dict, list, tuple)) for arg in args)
        return self.spec, dict_orders(tree) if nested else (), self.arrays

    def leaves(self, call: FlatArguments) -> list[Any]:
        """The flat arguments of the function; None for Modules and optimizers."""
        found: list[Any] = [None] * len(self.names)
        for place, leaf in zip(self.places, call.leaves, strict=True):
            found[place] = leaf
        return found

    def in_form(self, call: FlatArguments) -> FlatArguments:
        """The call as the captured one was spelled. Raises ArgumentError for another call."""
        whole: Any = optree.tree_unflatten(self.spec, [0] * self.spec.num_leaves)
        if self.parameters.rows:
            made = self.parameters.like((call.args, call.kwargs), whole)
            call = call if made is None else call_of(*made)
        if call.form == self.form:
            return call
        if call.form[1:] == self.form[1:] and is_same_by_name(call.spec, self.spec):
            return call  # named tuples of a class of the caller's
        got, expected = (_shape_words(each) for each in (call.spec, self.spec))
        is_spelled_so = got == expected
        if is_spelled_so and call.form[2] == self.arrays and call.spec != self.spec:
            expected = "containers of the classes that were captured"
        elif is_spelled_so:
            got, expected = f"{got} with ndarrays at {call.form[2]}", f"{self.arrays}"
        error = ArgumentError(f"program: the arguments are {got}, expected {expected}")
        if call.spec == self.spec and call.form[2] == self.arrays:
            noted(error, "Pass keys of dicts in the same order: the function can see it.")
        raise error


def _shape_words(spec: Any) -> str:
    whole: Any = optree.tree_unflatten(spec, ["_"] * spec.num_leaves)
    args, kwargs = whole
    words = [*[_tree_words(x) for x in args], *[f"{k}={_tree_words(x)}" for k, x in kwargs.items()]]
    return f"({', '.join(words)})"


def _tree_words(tree: Any) -> str:
    return repr(tree).replace("'_'", "_")


@attrs.frozen(eq=False)
class ProgramRecords:
    """All of a program but its state."""

    name: str
    arguments: Arguments
    records: StageRecords
    """At rest: without what lives in one process."""
    facts: GuardedFacts
    """What guards check; hidden inputs are found in the `Slots` of the state."""
    call: ComparedCall
    """The facts of the call that was captured."""
    baked_in: tuple[str, ...]
    """What was fixed when it was captured, in words."""
    order: int
    """How often its results can be differentiated."""
    orders: tuple[tuple[tuple[tuple[Any, bool], ...], OrderRecords], ...]
    """By the gradients that arrive, and whether these have a history: the next order."""
    reached: tuple[Any, ...]
    """The inputs that derivatives of some order reach (DBL-2)."""
    sources: dict[str, Source]
    """Where a call finds the values of symbols, by name."""
    guards: Sequence[Assumption]
    """The conditions on symbols."""
    rooms: Mapping[str, Range] = attrs.field(factory=dict)
    """By name of a symbol the least and the most that the user asked for, where there are such."""

    def values(self, leaves: Sequence[object]) -> dict[str, int]:
        """The values of the symbols in a call. Raises ArgumentError where there is none."""
        found = {}
        for name, source in self.sources.items():
            try:
                found[name] = source.value(leaves)
            except (TypeError, IndexError, AttributeError) as error:
                what = self.arguments.names[source.argument]
                raise ArgumentError(
                    f"program: argument {what} has no {source}, expected one"
                ) from error
        for name, (least, most) in self.rooms.items():
            size = found[name]
            if (least is not None and size < least) or (most is not None and size > most):
                raise ArgumentError(
                    f"program: {self.words(self.sources[name])} is {size}, expected "
                    f"{room_words(least, most)}"
                )
        return found

    def words(self, source: Source) -> str:
        """A source with the name of its argument: `size 0 of x`."""
        return str(source).replace(
            f"argument {source.argument}", self.arguments.names[source.argument]
        )


def room_words(least: int | None, most: int | None) -> str:
    """`7 to 40`, `at least 7`, `at most 40`.

    >>> room_words(7, None)
    'at least 7'
    """
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"at most {most}" if least is None else f"at least {least}"


def rooms_from(data: object, sources: Mapping[str, Source]) -> dict[str, Range] | None:
    """The rooms of data; None for other data."""
    if type(data) is not dict or not data.keys() <= sources.keys():
        return None
    for each in data.values():
        match each:
            case ((None | int()) as least, (None | int()) as most) if bool not in map(
                type, (least, most)
            ):
                continue
            case _:
                return None
    return data


def written_sources(sources: dict[str, Source]) -> dict[str, Any]:
    """The sources as data."""
    return {
        name: (each.argument, *((each.dim, each.path) if isinstance(each, SizeSource) else ()))
        for name, each in sources.items()
    }


def sources_from(data: object) -> dict[str, Source] | None:
    """The sources of data; None for other data."""
    if type(data) is not dict:
        return None
    found: dict[str, Source] = {}
    for name, each in data.items():
        match each:
            case (int() as argument, int() as dim, tuple() as path) if (
                argument >= 0 and dim >= 0 and all(type(x) is str for x in path)
            ):
                found[name] = SizeSource(argument, dim, path)
            case (int() as argument,) if argument >= 0:
                found[name] = NumberSource(argument)
            case _:
                return None
    return found
