"""`Relation`, and the comparison of two observations with allowed differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import attrs

from aotlite.testing.engines import Engine, engine
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import GradientSnapshot, Observation, TensorSnapshot
from aotlite.testing.programs.program import Program
from aotlite.testing.relations.step_edits import Loose
from aotlite.testing.relations.step_facts import Fact, Trace, trace


# ---------------------------------------------------------------------------------- the programs
class Traced:
    """A program whose calls run to their end, and the effects of each step."""

    def __init__(self, library: Engine, program: Program, traces: list[Trace]) -> None:
        self.library = library
        self.program = program
        self.traces = traces

    @staticmethod
    def of(library: Engine, program: Program) -> Traced:
        """The program, restricted to the calls that run eagerly."""
        found = [(call, trace(library, program, i)) for i, call in enumerate(program.calls)]
        calls = [call for call, seen in found if seen is not None]
        traces = [seen for _, seen in found if seen is not None]
        return Traced(library, attrs.evolve(program, calls=calls), traces)

    @cached_property
    def steps(self) -> list[list[Fact]]:
        """The facts of each step in each call."""
        return [[seen.facts[i] for seen in self.traces] for i in range(len(self.program.body))]

    def is_fragile(self, place: int) -> bool:
        """Whether the memory of an operand of a step is fragile in some call."""
        return any(
            seen.is_fragile(look.storage)
            for seen, fact in zip(self.traces, self.steps[place], strict=True)
            for look in fact.operands
        )

    def loose(self) -> Loose:
        """The body in a form for changes."""
        return Loose.of(self.program)

    def alone(self) -> Iterator[Traced]:
        """The program itself, then with each of its calls alone if it has several."""
        yield self
        if len(self.traces) > 1:
            for call, seen in zip(self.program.calls, self.traces, strict=True):
                yield Traced(self.library, attrs.evolve(self.program, calls=[call]), [seen])


@attrs.frozen
class Variant:
    """Another program with the observations of the first, by the claim of a relation."""

    program: Program
    cut: int | None = None
    """The number of first steps that are a function of their own; None: no split."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Options for compiling the variant's function, besides those of all programs."""
    first_options: Mapping[str, object] = attrs.field(factory=dict)
    """Options for compiling the first program's function."""
    calls: tuple[int, ...] | None = None
    """The calls that are compared with the first program's; None: all, in their order."""


# ------------------------------------------------------------------------------ the observations
@attrs.frozen
class Same:
    """The allowed differences of two observations; all other parts must be equal."""

    forgets: tuple[str, ...] = ()
    """The ignored fields of `TensorSnapshot`, and "gradient stride", "gradient storage"."""
    added_writes: int | None = 0
    """The most further writes of the variant (FUN-23): versions may be higher by as many, and not
    lower. None: versions are not compared."""
    of_made: tuple[str, ...] = ()
    """The ignored fields of objects that the body makes."""
    backward: bool = True
    """Whether both backwards have to agree; if False, they are compared if neither raises."""

    def differences(self, mine: Observation, its: Observation) -> list[str]:
        """Returns the differences of the variant's observation from the first program's."""
        if mine.error is None and its.error is None:
            mine, its = self._without_versions(mine, its)
            if not self.backward and (mine.backward or its.backward):
                mine, its = (attrs.evolve(each, backward=None, grads=[]) for each in (mine, its))
        return differences(self._forgotten(mine), self._forgotten(its))

    def _forgotten(self, world: Observation) -> Observation:
        fields: dict[str, Any] = {name: 0 for name in self.forgets if " " not in name}
        made = {**fields, **dict.fromkeys(self.of_made, 0)}

        def seen(all_seen: list[TensorSnapshot]) -> list[TensorSnapshot]:
            return [
                attrs.evolve(each, **(fields if i < world.given else made))
                for i, each in enumerate(all_seen)
            ]

        grads: list[GradientSnapshot | None] = [
            None if each is None else self._without_layout(each) for each in world.grads
        ]
        return attrs.evolve(
            world,
            called=seen(world.called),
            written=seen(world.written),
            grads=grads,
        )

    def _without_layout(self, gradient: GradientSnapshot) -> GradientSnapshot:
        if "gradient stride" in self.forgets:
            gradient = attrs.evolve(gradient, stride=())
        if "gradient storage" in self.forgets:
            gradient = attrs.evolve(gradient, storage=0)
        return gradient

    def _without_versions(
        self, mine: Observation, its: Observation
    ) -> tuple[Observation, Observation]:
        """The observations; an allowed version of the variant is replaced by the first's."""
        if self.added_writes == 0:
            return mine, its
        return (
            attrs.evolve(
                mine,
                called=self._versions(mine.called, its.called),
                written=self._versions(mine.written, its.written),
            ),
            its,
        )

    def _versions(
        self, mine: list[TensorSnapshot], its: list[TensorSnapshot]
    ) -> list[TensorSnapshot]:
        if len(mine) != len(its):
            return mine
        return [
            attrs.evolve(a, version=b.version) if self._allows(a.version - b.version) else a
            for a, b in zip(mine, its, strict=True)
        ]

    def _allows(self, more: int) -> bool:
        return self.added_writes is None or 0 <= more <= self.added_writes


# --------------------------------------------------------------------------------- the relations
@attrs.frozen
class Relation:
    """A claim that other programs have the same observations."""

    name: str
    claim: str
    """The change, the parts that stay equal, and the allowed differences with their reasons."""
    rules: tuple[str, ...]
    """The numbered rules behind it."""
    variants: Callable[[Traced], Iterator[Variant | Program]] = attrs.field(repr=False)
    """Returns all variants of a program; none if the relation does not apply."""
    same: Same = Same()
    needs_compiler: bool = False
    """Whether it is about options of a compiler, which eager engines lack."""

    def transform(self, program: Program, on: str | Engine = "aotlite") -> list[Variant]:
        """Returns the variants of a program, restricted to calls that run.

        >>> from aotlite.testing.generate.random_programs import draw
        >>> from aotlite.testing.relations import relation
        >>> len(relation("call twice").transform(draw(3)))
        1
        """
        return [each for _, each in self.pairs(Traced.of(engine(on), program))]

    def applies(self, program: Program, on: str | Engine = "aotlite") -> bool:
        """Whether a program has a variant."""
        return bool(self.transform(program, on))

    def pairs(self, traced: Traced) -> list[tuple[Traced, Variant]]:
        """The program and each variant; of single calls, if all calls allow no variant."""
        for some in traced.alone():
            found = [
                each if isinstance(each, Variant) else Variant(each)
                for each in (self.variants(some) if some.traces else ())
            ]
            if found:
                return [(some, each) for each in found]
        return []
