"""Where the choices of random programs come from, and what they are limited to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

import attrs

from aotlite.ir.errors import ArgumentError
from aotlite.testing.cells import (
    CELLS,
    OUTPUTS,
    POSSIBLE,
    RELATIONS,
    VIEWS,
    WRITES,
    Cell,
    impossible,
)
from aotlite.testing.engines import Engine, engine

T = TypeVar("T")
DTYPES = ("float64", "complex128", "int64", "float32")
"""Of tensors in programs; masks of bool and indices of int64 come besides."""
STEPS = 12
"""The most steps of a body."""


class Source(Protocol):
    """What draws ask for choices: `random.Random`, or `aotlite.testing.strategies.Choices`.

    A source that makes programs simpler prefers the first of several options, numbers next to 0,
    and `random()` next to 1: draws put what is simplest there.
    """

    def random(self) -> float: ...
    def choice(self, seq: Sequence[T], /) -> T: ...
    def choices(self, population: Sequence[T], weights: Any = None, *, k: int = 1) -> list[T]: ...
    def randrange(self, start: int, stop: int | None = None, /) -> int: ...
    def randint(self, a: int, b: int, /) -> int: ...
    def sample(self, population: Sequence[T], /, k: int) -> list[T]: ...


def times(source: Source, mean: float, most: int = 6) -> Iterator[int]:
    """Counts 0, 1, ... so often as a source wants: `mean` times on average, `most` at most.

    It is asked anew each time, so that a source can leave out any single turn.
    """
    for count in range(most):
        if source.random() >= mean / (1 + mean):
            return
        yield count


# ------------------------------------------------------------------------------------ the limits
def _chosen(name: str, known: Sequence[str], given: Any) -> tuple[str, ...]:
    """What is given of the known names, all of them for None."""
    found = tuple(known) if given is None else (given,) if isinstance(given, str) else tuple(given)
    unknown = [each for each in found if each not in known]
    if unknown or not found:
        got = repr(unknown[0]) if unknown else "empty"
        raise ArgumentError(f"programs: {name} is {got}, expected some of {', '.join(known)}")
    return found


@attrs.frozen
class Limits:
    """What random programs may have."""

    views: tuple[str, ...] = VIEWS
    writes: tuple[str, ...] = WRITES
    outputs: tuple[str, ...] = OUTPUTS
    relations: tuple[str, ...] = RELATIONS
    dtypes: tuple[str, ...] = DTYPES
    max_steps: int = STEPS
    library: Engine = attrs.field(factory=engine)
    """Programs are tried on it while they are drawn."""

    def cells(self) -> Sequence[int]:
        """The numbers of the possible cells within."""
        if (self.views, self.writes, self.outputs, self.relations) == EVERYTHING:
            return POSSIBLE
        names = self.views, self.writes, self.outputs, self.relations
        return [
            number
            for number in POSSIBLE
            if all(own in given for own, given in zip(CELLS[number], names, strict=True))
        ]

    def cell(self, source: Source) -> Cell:
        """Some cell within, each of its names a choice of its own."""
        view, write = source.choice(self.views), source.choice(self.writes)
        relation = source.choice(self.relations)
        outputs = [o for o in self.outputs if not impossible((view, write, o, relation))]
        return view, write, source.choice(outputs or self.outputs), relation

    def allows(self, op: str, args: Sequence[Any]) -> bool:
        """Whether programs may have this step."""
        name = "slice" if op == "getitem" else op
        if name in VIEWS and name not in self.views:
            return False
        return op != "view_dtype" or args[1] in self.dtypes


ANYTHING = Limits()
LIBRARY = ANYTHING.library
EVERYTHING = VIEWS, WRITES, OUTPUTS, RELATIONS
OF_COMPLEX = ("view_as_real", "real", "imag", "view_as_complex")


def limits_of(
    *,
    views: Any = None,
    writes: Any = None,
    outputs: Any = None,
    relations: Any = None,
    dtypes: Any = None,
    max_steps: int = STEPS,
    on: str | Engine = "aotlite",
) -> Limits:
    """Limits of these names; None stands for all that the dtypes allow.

    Raises `ArgumentError` for unknown names, and for views or relations that the dtypes rule out.
    """
    dtypes = _chosen("dtypes", DTYPES, dtypes)
    if not isinstance(max_steps, int) or not 1 <= max_steps <= 40:
        raise ArgumentError(f"programs: max_steps is {max_steps!r}, expected 1 to 40")
    possible = _views_of(dtypes), _relations_of(dtypes)
    found = Limits(
        _chosen("views", possible[0], views),
        _chosen("writes", WRITES, writes),
        _chosen("outputs", OUTPUTS, outputs),
        _chosen("relations", possible[1], relations),
        dtypes,
        max_steps,
        engine(on),
    )
    if not found.cells():
        raise ArgumentError(
            f"programs: outputs are {found.outputs} with relations {found.relations}, expected "
            "some that can meet: see aotlite.testing.cells.impossible"
        )
    return found


def _views_of(dtypes: Sequence[str]) -> tuple[str, ...]:
    """The views that there are for tensors of these dtypes."""
    missing: tuple[str, ...] = OF_COMPLEX
    if "complex128" in dtypes:
        missing = () if "float64" in dtypes else ("view_as_complex",)
    return tuple(view for view in VIEWS if view not in missing)


def _relations_of(dtypes: Sequence[str]) -> tuple[str, ...]:
    missing = set() if len(dtypes) > 1 else {"other dtype"}
    if set(dtypes) == {"int64"}:
        missing.add("two leaves")
    return tuple(relation for relation in RELATIONS if relation not in missing)
