"""The judges that compare two libraries, both eager."""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.testing.engines import Engine
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.fuzzing.oracles import Judge, Options, Player, Sides, Verdict, eager_call
from aotlite.testing.memory import memory_differences
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program


@attrs.frozen
class Across(Judge):
    """Compares the eager functions of two libraries. Any two errors are equal."""

    engine: Engine
    other: Engine

    @property
    def names(self) -> tuple[str, str]:  # type: ignore[override]
        return self.engine.name, self.other.name

    def player(self, program: Program, options: Options) -> Player:
        del options

        def play(number: int) -> Sides:
            mine, cells = eager_call(program, number, self.engine)
            its = observe_call(self.other, program, number, body_of(self.other, program))
            return Sides(mine, its, cells)

        return play

    def verdict(self, program: Program, number: int, sides: Sides) -> Verdict:
        del program, number
        mine, its = sides.mine, sides.its
        name = self.other.name
        if mine.error is not None or its.error is not None:
            differs = (mine.error is None) != (its.error is None)
            return Verdict([f"error: {mine.error!r}, {name} {its.error!r}"] if differs else [])
        found = differences(in_plain_words(mine, its), in_plain_words(its, mine))
        return Verdict([line.replace(", eager ", f", {name} ") for line in found])


@attrs.frozen
class AgainstMemory(Across):
    """Compares with an oracle of values and memory that has no histories: NumPy."""

    def verdict(self, program: Program, number: int, sides: Sides) -> Verdict:
        del program, number
        found = memory_differences(sides.its, sides.mine)
        its, mine = self.other.name, self.engine.name
        return Verdict([f"{its} gives {line.replace(', eager ', f', {mine} ')}" for line in found])


def in_plain_words(world: Observation, other: Observation) -> Observation:
    """The observation with neutral names of dtypes and errors: an error is "raised"."""
    return attrs.evolve(
        world,
        backward=_raised(world.backward, other.backward),
        write=_raised(world.write, other.write),
        called=[_plain_seen(each) for each in world.called],
        written=[_plain_seen(each) for each in world.written],
        grads=[g and attrs.evolve(g, dtype=_plain_dtype(g.dtype)) for g in world.grads],
    )


def _raised(mine: str | None, its: str | None) -> str | None:
    return "raised" if mine and its else mine


def _plain_seen(seen: Any) -> Any:
    leaf, node = ("raised" if isinstance(x, str) else x for x in (seen.leaf, seen.node))
    return attrs.evolve(seen, dtype=_plain_dtype(seen.dtype), leaf=leaf, node=node)


def _plain_dtype(name: str) -> str:
    return name.rpartition(".")[2].rstrip("_")
