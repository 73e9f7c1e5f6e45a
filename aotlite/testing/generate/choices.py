"""The source of the choices of random programs, and their limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

import attrs

from aotlite.ir.errors import ArgumentError
from aotlite.testing.coverage.cells import (
    CELLS,
    OUTPUTS,
    POSSIBLE,
    RELATIONS,
    WRITES,
    Cell,
    impossible,
)
from aotlite.testing.engines import Engine, engine
from aotlite.testing.programs.vocabulary import OF_COMPLEX, VIEWS

T = TypeVar("T")
DTYPES = ("float64", "complex128", "int64", "float32")
"""The dtypes of tensors in programs, besides bool masks and int64 indices."""
STEPS = 12
"""The default of the most steps of a body."""
MOST_STEPS = 40


class Source(Protocol):
    """The source of choices: `Seeded`, or `aotlite.testing.strategies.Choices`.

    A source that shrinks prefers the first of several options, numbers near 0, and chances that are
    False; draws are written so that these are the simplest.
    """

    def chance(self, share: float) -> bool: ...
    def choice(self, seq: Sequence[T], /) -> T: ...
    def choices(
        self, population: Sequence[T], weights: Sequence[int] | None = None, *, k: int = 1
    ) -> list[T]: ...
    def randrange(self, start: int, stop: int | None = None, /) -> int: ...
    def randint(self, a: int, b: int, /) -> int: ...
    def sample(self, population: Sequence[T], /, k: int) -> list[T]: ...


class Seeded(Random):
    """The choices of a seed."""

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self.random() < share


def times(source: Source, mean: float, most: int = 6) -> Iterator[int]:
    """Yields 0, 1, ...: at most `most` numbers, on average `mean` without that limit.

    Each number is a choice of its own, so that a source can drop any single one.
    """
    for count in range(most):
        if not source.chance(mean / (1 + mean)):
            return
        yield count


# ------------------------------------------------------------------------------------ the limits
def chosen(where: str, name: str, known: Sequence[str], given: Any) -> tuple[str, ...]:
    """Returns the given names, all known ones for None. Raises `ArgumentError`, about `where` and
    `name`, for unknown ones."""
    found = tuple(known) if given is None else (given,) if isinstance(given, str) else tuple(given)
    unknown = [each for each in found if each not in known]
    if unknown or not found:
        got = repr(unknown[0]) if unknown else "none"
        raise ArgumentError(f"{where}: {name} has {got}, expected some of {', '.join(known)}")
    return found


@attrs.frozen
class Limits:
    """The limits of random programs."""

    views: tuple[str, ...] = VIEWS
    writes: tuple[str, ...] = WRITES
    outputs: tuple[str, ...] = OUTPUTS
    relations: tuple[str, ...] = RELATIONS
    dtypes: tuple[str, ...] = DTYPES
    max_steps: int = STEPS
    library: Engine = attrs.field(factory=engine)
    """The engine that runs programs while they are drawn."""

    def cells(self) -> Sequence[int]:
        """The numbers of the possible cells of these limits."""
        if (self.views, self.writes, self.outputs, self.relations) == EVERYTHING:
            return POSSIBLE
        names = self.views, self.writes, self.outputs, self.relations
        return [
            number
            for number in POSSIBLE
            if all(own in given for own, given in zip(CELLS[number], names, strict=True))
        ]

    def cell(self, source: Source) -> Cell:
        """A random cell of these limits; each of its names is one choice."""
        view, write = source.choice(self.views), source.choice(self.writes)
        # An input is the simplest result, as it needs no step.
        simple = sorted(self.outputs, key=lambda output: output != "input")
        ends = {
            relation: [o for o in simple if not impossible((view, write, o, relation))]
            for relation in self.relations
        }
        relation = source.choice([relation for relation in ends if ends[relation]])
        return view, write, source.choice(ends[relation]), relation

    def allows(self, op: str, args: Sequence[object]) -> bool:
        """Whether programs may have this step."""
        name = "slice" if op == "getitem" else op
        if name in VIEWS and name not in self.views:
            return False
        return op != "view_dtype" or args[1] in self.dtypes


ANYTHING = Limits()
LIBRARY = ANYTHING.library
EVERYTHING = VIEWS, WRITES, OUTPUTS, RELATIONS


def limits_of(
    where: str,
    *,
    views: object = None,
    writes: object = None,
    outputs: object = None,
    relations: object = None,
    dtypes: object = None,
    max_steps: int = STEPS,
    on: str | Engine = "aotlite",
) -> Limits:
    """Returns the limits of these names; None stands for all names that the dtypes allow.

    Raises `ArgumentError`, about `where`, for unknown names, and for names that the dtypes exclude.
    """
    dtypes = chosen(where, "dtypes", DTYPES, dtypes)
    if not isinstance(max_steps, int) or not 1 <= max_steps <= MOST_STEPS:
        raise ArgumentError(f"{where}: max_steps is {max_steps!r}, expected 1 to {MOST_STEPS}")
    found = Limits(
        chosen(where, "views", _views_of(dtypes), views),
        chosen(where, "writes", WRITES, writes),
        chosen(where, "outputs", OUTPUTS, outputs),
        chosen(where, "relations", _relations_of(dtypes), relations),
        dtypes,
        max_steps,
        engine(on),
    )
    if not found.cells():
        raise ArgumentError(
            f"{where}: outputs {found.outputs} with relations {found.relations} are impossible, "
            "expected some that can meet: see aotlite.testing.coverage.cells.impossible"
        )
    return found


def _views_of(dtypes: Sequence[str]) -> tuple[str, ...]:
    """The view ops of tensors of these dtypes."""
    missing: tuple[str, ...] = OF_COMPLEX
    if "complex128" in dtypes:
        missing = () if "float64" in dtypes else ("view_as_complex",)
    return tuple(view for view in VIEWS if view not in missing)


def _relations_of(dtypes: Sequence[str]) -> tuple[str, ...]:
    missing = set() if len(dtypes) > 1 else {"other dtype"}
    if set(dtypes) == {"int64"}:
        missing.add("two leaves")
    return tuple(relation for relation in RELATIONS if relation not in missing)
