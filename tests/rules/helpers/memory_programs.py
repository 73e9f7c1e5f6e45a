"""Random programs that change the memory and the autograd state of their arguments.

A program is plain data: numbers that pick operations and operands modulo what there is. Steps that
eager refuses are dropped, so that what is left runs to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import attrs
from hypothesis import strategies as st

import aotlite as al
from tests.end_to_end.helpers.cases import Call
from tests.end_to_end.helpers.worlds import World, world_of


@attrs.frozen
class MemoryStep:
    """An operation on the values at hand, all picked modulo their number."""

    op: str
    first: int
    second: int
    grad: bool


@attrs.frozen
class MemoryProgram:
    """The kinds of arguments, the steps, and the numbers of the results."""

    inputs: tuple[str, ...]
    steps: tuple[MemoryStep, ...]
    outputs: tuple[int, ...]


Act = Callable[[Any, Any, int], Any]
"""An operation on two values and a number; what it makes, or None."""

ACTS: dict[str, Act] = {
    "hidden": lambda x, y, n: x.hidden_alias(),
    "detach": lambda x, y, n: x.detach(),
    "head": lambda x, y, n: x.view(-1)[: 1 + n % 3],
    "tail": lambda x, y, n: x.view(-1)[1:],
    "element": lambda x, y, n: x[n % max(len(x), 1)],
    "times": lambda x, y, n: x * (2 + n % 2),
    "clone": lambda x, y, n: x.clone(),
    "product": lambda x, y, n: x * y,
    "write": lambda x, y, n: _nothing(x.mul_(2 + n % 2)),
    "fill": lambda x, y, n: _nothing(x.fill_(n)),
    "write by": lambda x, y, n: _nothing(x.mul_(y)),
    "copy": lambda x, y, n: _nothing(x.copy_(y)),
    "longer": lambda x, y, n: _nothing(x.unsqueeze_(0)),
    "turn": lambda x, y, n: _nothing(x.transpose_(0, -1)),
    "put": lambda x, y, n: _nothing(x.set_(y)),
    "put window": lambda x, y, n: _nothing(x.set_(y, n % 2, (2,), (1,))),
    "put nowhere": lambda x, y, n: _nothing(x.set_()),
    "resize": lambda x, y, n: _nothing(x.resize_((0, 1, 2, 3, 5, 7)[n % 6])),
    "track": lambda x, y, n: _nothing(x.requires_grad_()),
    "untrack": lambda x, y, n: _nothing(x.requires_grad_(False)),
    "take out": lambda x, y, n: _nothing(x.detach_()),
}
CHANGES = ("put", "put window", "resize", "track", "untrack", "take out", "hidden")
KINDS = ("plain", "leaf", "value", "view")


def _nothing(value: Any) -> None:
    """The object is among the values already."""


def numbers(count: int, first: int) -> Any:
    return al.arange(float(count)) + first


def made(kinds: tuple[str, ...]) -> list[Any]:
    """The inputs, then what is behind them."""
    given, behind = [], []
    for number, kind in enumerate(kinds):
        count = 2 + number
        if kind == "view":
            behind.append(numbers(count + 1, number))
            given.append(behind[-1][1:])
            continue
        x = numbers(count, number)
        if kind != "plain":
            x.requires_grad_()
        if kind == "value":
            behind.append(x)
            x = x * 1
        given.append(x)
    return [*given, *behind]


def act(step: MemoryStep, values: list[Any]) -> None:
    """Does one step."""
    x = values[step.first % len(values)]
    y = values[step.second % len(values)]
    with nullcontext() if step.grad else al.no_grad():
        result = ACTS[step.op](x, y, step.second)
    if result is not None:
        values.append(result)


def legal(program: MemoryProgram) -> MemoryProgram:
    """The program without the steps that eager refuses."""
    values = made(program.inputs)[: len(program.inputs)]
    kept = []
    for step in program.steps:
        try:
            act(step, values)
        except al.AotliteError:
            continue
        kept.append(step)
    return attrs.evolve(program, steps=tuple(kept))


def body_of(program: MemoryProgram) -> Callable[..., tuple[Any, ...]]:
    """The function that the program is."""

    def body(*inputs: Any) -> tuple[Any, ...]:
        values = list(inputs)
        for step in program.steps:
            act(step, values)
        return tuple([values[i % len(values)] for i in program.outputs])

    return body


def run(program: MemoryProgram, kinds: tuple[str, ...], function: Callable[..., Any]) -> World:
    """The world after a call with inputs of these kinds."""
    call = Call(tuple(range(len(kinds))), backward="each")
    return world_of(function, made(kinds), call)


_PLACES = st.integers(0, 11)
_STEPS = st.builds(
    MemoryStep,
    st.one_of(st.sampled_from(CHANGES), st.sampled_from(tuple(ACTS))),
    _PLACES,
    _PLACES,
    st.booleans(),
)


def programs() -> st.SearchStrategy[MemoryProgram]:
    """Programs without steps that eager refuses for the first inputs."""
    kinds = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map(tuple)
    steps = st.lists(_STEPS, min_size=1, max_size=9).map(tuple)
    outputs = st.lists(_PLACES, max_size=3).map(tuple)
    return st.builds(MemoryProgram, kinds, steps, outputs).map(legal)
