"""Random programs on wrappers that share memory: views of one base, parts, unusual classes.

An op that is refused is left out of both runs; a program whose backward eager refuses is not
compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import AotliteError
from aotlite.subclasses import TwoTensor
from tests.stages.wrappers.helpers.cases import dense, nested, two
from tests.stages.wrappers.helpers.classes import Odd, One
from tests.stages.wrappers.helpers.worlds import world_after


def one_part_twice() -> Any:
    part = dense((8,))
    return TwoTensor(part, part)


def overlapping_parts() -> Any:
    memory = dense((10,))
    return TwoTensor(memory[:8], memory[2:])


def parts_with_history() -> Any:
    return TwoTensor(dense((8,)).requires_grad_() * 2, dense((8,), 1.3))


BASES: dict[str, Callable[[], Any]] = {
    "pair": lambda: two(8),
    "pairs of pairs": lambda: nested(8),
    "odd": lambda: Odd(dense((8,))),
    "odd inside": lambda: TwoTensor(One(dense((8,))), One(dense((8,), 2.0))),
    "one part twice": one_part_twice,
    "overlapping parts": overlapping_parts,
    "parts with history": parts_with_history,
}
HISTORIES: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "leaf": lambda x: x.requires_grad_(),
    "behind an op": lambda x: x.requires_grad_() * 1.0,
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "inner": lambda x: x[1:-1],
    "start": lambda x: x[:4],
    "turned": lambda x: x.t() if x.dim() == 2 else x.view(2, -1),
    "detached": lambda x: x.detach(),
    "last of several": lambda x: (x.unbind(0) or (x,))[-1],
    "first half": lambda x: x.chunk(2)[0],
    "same": lambda x: x.view_as(x),
}


def write_without_history(x: Any, y: Any) -> None:
    with al.no_grad():
        x.add_(y)


def viewed(view: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: view(x)


OPS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda x, y: x * y,
    "sine": lambda x, y: x.sin(),
    "sum": lambda x, y: x.sum(),
    "doubled in place": lambda x, y: (x.mul_(2), None)[1],
    "multiplied in place": lambda x, y: (x.mul_(y), None)[1],
    "written": lambda x, y: (x.copy_(y * 1), None)[1],
    "written without history": write_without_history,
    "part": lambda x, y: x.a if isinstance(x, TwoTensor) else x + 1,
    "part of a view": lambda x, y: x.view_as(x).b if isinstance(x, TwoTensor) else x + 1,
    "new of parts": lambda x, y: TwoTensor(x.b, x.a) if isinstance(x, TwoTensor) else x + 1,
    **{f"view: {name}": viewed(view) for name, view in VIEWS.items()},
}

INDEX = st.integers(0, 7)


@attrs.frozen
class Program:
    """A base, views of it that are arguments, steps on the values so far, and results."""

    base: str
    history: str
    views: list[tuple[str, int]]
    passed: list[int]
    steps: list[tuple[str, int, int]]
    results: list[int]

    def arguments(self) -> tuple[Any, ...]:
        known = [HISTORIES[self.history](BASES[self.base]())]
        for name, of in self.views:
            known.append(VIEWS[name](known[of % len(known)]))
        return tuple([known[each % len(known)] for each in self.passed])

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        values = list(args)
        for name, i, j in self.steps:
            x = values[i % len(values)]
            like = [y for y in values if type(y) is type(x) and y.shape == x.shape]
            try:
                found = OPS[name](x, like[j % len(like)])
            except AotliteError:
                continue
            if found is not None:
                values.append(found)
        return tuple([values[each % len(values)] for each in self.results])


programs = st.builds(
    Program,
    st.sampled_from(sorted(BASES)),
    st.sampled_from(sorted(HISTORIES)),
    st.lists(st.tuples(st.sampled_from(sorted(VIEWS)), INDEX), max_size=3),
    st.lists(INDEX, min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(sorted(OPS)), INDEX, INDEX), min_size=1, max_size=6),
    st.lists(INDEX, min_size=1, max_size=3),
)


@pytest.mark.draws(long=600)
@pytest.mark.rules("SUB-9", "SUB-13", "SUB-15", "SUB-17", "SUB-20")
@settings(max_examples=140)
@given(programs)
def test_random_programs_on_wrappers_that_share_memory_leave_eagers_world(program: Program) -> None:
    """SUB-15, SUB-20: the first call, and one more by the same entry."""
    try:
        expected = world_after(program, program.arguments)
    except AotliteError:
        return
    compiled = al.compile(lambda *args: program(*args), backend="reference")
    assert world_after(compiled, program.arguments) == expected
    assert world_after(compiled, program.arguments) == expected
