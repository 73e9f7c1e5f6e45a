"""Strategies for programs and their parts: arguments, views, calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import assume
from hypothesis import strategies as st

from aotlite.ir.errors import ArgumentError
from aotlite.testing.coverage.cells import CELLS, NUMBER, RELATIONS, relations_of
from aotlite.testing.coverage.counts import ALIASING, ANY
from aotlite.testing.engines import Engine
from aotlite.testing.engines.base import EngineTensor
from aotlite.testing.generate.argument_aliases import HISTORIES, Slot, arguments
from aotlite.testing.generate.bodies import Draft
from aotlite.testing.generate.calls import OF_ONE, another_call, given_to
from aotlite.testing.generate.choices import STEPS, Limits, Source, limits_of, times
from aotlite.testing.generate.random_programs import attempted, kind_of_slots
from aotlite.testing.generate.step_arguments import name_of
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call
from aotlite.testing.strategies.hypothesis_choices import Choices

Names = Sequence[str] | None


def programs(
    *,
    cell: Sequence[str] | int | None = None,
    views: Names = None,
    writes: Names = None,
    outputs: Names = None,
    relations: Names = None,
    dtypes: Names = None,
    max_steps: int = STEPS,
    engine: str | Engine = "aotlite",
) -> st.SearchStrategy[Program]:
    """Whole programs of views and writes, which are exact and run on an engine.

    `views`, `writes`, `outputs` and `relations` are names of `aotlite.testing.coverage.cells`;
    programs use these alone. `cell` is the number of a cell or its four names, "any" for any name;
    all programs hit it. `engine` runs them while they are drawn. Second calls have other arguments.
    Raises `ArgumentError` for unknown names, and for names that no program combines.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5)
    ... @given(programs(cell=("expand", "fill", "any", "alone")))
    ... def test(program):
    ...     assert {"expand", "fill_"} & {step.op for step in program.body}
    >>> test()
    """
    limits = limits_of(
        "programs", views=views, writes=writes, outputs=outputs, relations=relations,
        dtypes=dtypes, max_steps=max_steps, on=engine,
    )  # fmt: skip
    return _programs(limits, limits if cell is None else _aim(limits, cell), cell is not None)


def _aim(limits: Limits, cell: Sequence[str] | int) -> Limits:
    """Returns the limits, restricted to the names of a cell."""
    if isinstance(cell, int):
        if cell not in ALIASING.possible:
            raise ArgumentError(f"programs: cell is {cell}, expected one of cells.POSSIBLE")
        cell = CELLS[cell]
    ALIASING.matching(*cell)
    named: dict[str, Any] = {
        f"{dim}s": (name,)
        for dim, name in zip(ALIASING.dimensions, cell, strict=True)
        if name != ANY
    }
    for dim, (name,) in named.items():
        if name not in getattr(limits, dim):
            among = getattr(limits, dim)
            raise ArgumentError(f"programs: cell has {name!r}, expected one of the {dim} {among}")
    aim = attrs.evolve(limits, **named)
    if not aim.cells():
        raise ArgumentError(f"programs: cell is {cell}, which is impossible: see cells.impossible")
    return aim


@st.composite
def _programs(draw: st.DrawFn, limits: Limits, aim: Limits, hits: bool) -> Program:
    source = Choices(draw)
    cell = aim.cell(source)
    attempt = attempted(source, cell, limits)
    assume(attempt is not None)
    assert attempt is not None
    assume(not hits or NUMBER[cell] in attempt[1])
    return attempt[0]


# --------------------------------------------------------------------------------- the arguments
def aliased_inputs(
    *,
    relations: Names = None,
    dtypes: Names = None,
    count: int | None = None,
    engine: str | Engine = "aotlite",
) -> st.SearchStrategy[Call]:
    """Arguments of which the first ones share memory in one relation, as a setup and their names.

    `relations`: names of `aotlite.testing.coverage.cells`. `count`: the number of related
    arguments; None for 2 or 3, or 1 if the relation is of one argument.

    >>> from hypothesis import find
    >>> find(aliased_inputs(relations=["same object"]), lambda call: True)
    Call((Step('make', (0, (), 'float64', False)),), ('$0', '$0'))
    """
    limits = limits_of("aliased_inputs", dtypes=dtypes, relations=relations, on=engine)
    known = [name for name in limits.relations if name != "made inside"]
    if count is not None:
        known = [name for name in known if (count == 1) == (name in OF_ONE) or name == "expanded"]
    if not known or count is not None and not 1 <= count <= 4:
        raise ArgumentError(
            f"aliased_inputs: count is {count} and relations are {relations}, expected 1 to 4 "
            f"arguments that can be so related: some of {', '.join(RELATIONS[:-1])}"
        )
    return _aliased_inputs(limits, known, count)


@st.composite
def _aliased_inputs(
    draw: st.DrawFn, limits: Limits, relations: list[str], count: int | None
) -> Call:
    source = Choices(draw)
    relation = source.choice(relations)
    shape, dtype = kind_of_slots(source, ("view", "fill", "input", relation), limits)
    related = count or (1 if relation in OF_ONE else source.randint(2, 3))
    slots = [Slot(shape, dtype) for _ in range(related)]
    extra = [Slot(shape, dtype) for _ in range(relation == "separate")]
    history = source.choice(HISTORIES)
    call = Call(*arguments(source, relation, slots, extra, limits, history))
    assume(relation in _relations(limits.library, call))
    return call


def _relations(library: Engine, call: Call) -> set[str]:
    """The relations of the arguments that share the first one's memory; none if the setup fails."""
    given = given_to(library, call)
    if given is None:
        return set()
    args = given[1]
    storage = library.storage_of(args[0])
    family = [arg for arg in args if library.storage_of(arg) == storage]
    return relations_of(library, family, len(args))


# ------------------------------------------------------------------------------------- the views
def view_chains(
    *,
    views: Names = None,
    dtypes: Names = None,
    max_length: int = 6,
    engine: str | Engine = "aotlite",
) -> st.SearchStrategy[Program]:
    """Programs that take views alone, each of the one before, and return the last view.

    >>> from hypothesis import find
    >>> chain = find(view_chains(views=["t", "select"]), lambda program: program.body)
    >>> chain.body, chain.results
    ((Step('t', ('$0',)),), ('$1',))
    """
    limits = limits_of("view_chains", views=views, dtypes=dtypes, max_steps=max_length, on=engine)
    return _view_chains(limits)


@st.composite
def _view_chains(draw: st.DrawFn, limits: Limits) -> Program:
    source = Choices(draw)
    cell = limits.views[0] if len(limits.views) == 1 else "view", "fill", "input", "alone"
    slot = Slot(*kind_of_slots(source, cell, limits))
    call = Call(*arguments(source, "alone", [slot], [], limits))
    given = given_to(limits.library, call)
    assume(given is not None)
    assert given is not None
    draft = Draft(source, given[1], limits)
    last = given[1][0]
    for _ in times(source, 3, limits.max_steps):
        last = _next_view(draft, last)
    return Program(draft.steps, [draft.name(last)], [call])


def _next_view(draft: Draft, last: EngineTensor) -> EngineTensor:
    made = draft.view_of(last, draft.rng.choice(draft.limits.views))
    return draft.rng.choice(made) if made else last


# ------------------------------------------------------------------------------------- the calls
def calls_of(
    program: Program, *, relations: Names = None, engine: str | Engine = "aotlite"
) -> st.SearchStrategy[Call]:
    """Further calls of a program: other relations of its arguments, sizes, `requires_grad`, modes.

    They run on the engine and are exact, but for a few that raise on purpose. Raises
    `ArgumentError` if the setup of the program's first call fails.

    >>> from hypothesis import find
    >>> from aotlite.testing import Call, Program
    >>> first = Call([["make", [0, [2], "float64", False]], ["clone", ["$0"]]], ["$0", "$1"])
    >>> program = Program([["add_", ["$0", "$1"]]], [], [first])
    >>> find(calls_of(program, relations=["same object"]), lambda call: True)
    Call((Step('make', (0, (2,), 'float64', False)),), ('$0', '$0'))
    """
    limits = limits_of("calls_of", relations=relations, on=engine)
    given = given_to(limits.library, program.calls[0]) if program.calls else None
    if given is None or not given[1]:
        raise ArgumentError(
            f"calls_of: the program has {len(program.calls)} calls, expected a first one whose "
            "setup runs and gives arguments"
        )
    return _calls_of(program, [Slot(list(x.shape), name_of(x.dtype)) for x in given[1]], limits)


@st.composite
def _calls_of(draw: st.DrawFn, program: Program, slots: list[Slot], limits: Limits) -> Call:
    source: Source = Choices(draw)
    order = source.sample(range(len(slots)), len(slots))
    shuffled = [slots[order.index(place)] for place in range(len(slots))]
    found = another_call(source, program, shuffled, order, limits)
    assume(found)
    return found[0]
