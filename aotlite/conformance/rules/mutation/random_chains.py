"""The rule with random cases: chains of views and writes, compared with the model of memory."""

from __future__ import annotations

import operator
from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import NoView, View, dense
from aotlite.conformance.models.model_arrays import (
    Modeled,
    Step,
    demand_writes,
    new,
    poke,
    see,
    step,
)
from aotlite.conformance.models.random_chains import Program, programs, smaller
from aotlite.conformance.rules import attempt, rule
from aotlite.conformance.unsupported import Absent

ARITHMETIC = {"add_": operator.add, "mul_": operator.mul}


@rule("MEM-1", "random chains of views and writes", programs, smaller=smaller)
def chains(on: Adapter, case: Program) -> None:
    """In the end all arrays have the values of the model; a refused write has written nothing."""
    demand_writes(on)
    shape, actions = case
    live = [new(on, shape)]
    done = 0
    for which, action in actions:
        twin = live[which % len(live)]
        try:
            act(on, live, twin, action)
        except (Absent, NoView):
            continue
        done += 1
    if not done:
        raise Absent("views and writes")
    for each in live:
        see(on, each, "an array at the end")


def act(on: Adapter, live: list[Modeled], twin: Modeled, action: Step) -> None:
    """Runs one step. Raises `NoView` or `Absent` where it is not possible."""
    name, *arguments = action
    if name == "clone":
        copy = dense(twin.view.values(), twin.view.shape)
        live.append(Modeled(on.clone(twin.array), copy))
    elif hasattr(View, name):
        live += step(on, twin, name, *arguments)
    elif name == "poke":
        attempt(poke, on, twin, arguments[0] + 10)
    elif name in ("setitem", "fill_"):
        one_value(on, twin, name, arguments[0] + 20)
    else:
        combine(on, live, twin, name, arguments[0])


def combine(on: Adapter, live: list[Modeled], twin: Modeled, way: str, number: int) -> None:
    """Writes from another array of the same shape, which may overlap. A refusal is allowed."""
    same = [each for each in live if each.view.shape == twin.view.shape and each is not twin]
    if twin.view.overlaps_itself() or not same:
        raise NoView
    other = same[number % len(same)]
    values = other.view.values()
    if attempt(getattr(on, way), twin.array, other.array) is not None:
        return
    if way in ARITHMETIC:
        pairs = zip(twin.view.values(), values, strict=True)
        values = [ARITHMETIC[way](*pair) for pair in pairs]
    twin.view.write(values)


def one_value(on: Adapter, twin: Modeled, way: str, number: int) -> None:
    """Writes one number to all elements, which may overlap. A refusal is allowed."""
    arguments: list[Any] = [twin.array, number] if way == "fill_" else [twin.array, ..., number]
    if attempt(getattr(on, way), *arguments) is None:
        twin.view.update(lambda _: number)
