"""Smaller programs: with simpler steps, numbers and modes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import attrs

from aotlite.testing.engines import engine
from aotlite.testing.engines.interpreter import run_steps
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step, is_name, resolved
from aotlite.testing.programs.vocabulary import MULTI, VIEWS, kind_of_op
from aotlite.testing.shrinking.drop_parts import steps_of, with_call, without_steps

DTYPES = ("float64", "float32", "int64", "complex128", "complex64", "bool")


def simpler_calls(program: Program) -> Iterator[Program]:
    """Calls without a write after them, and with grad mode."""
    for number, call in enumerate(program.calls):
        if call.write is not None:
            yield with_call(program, number, attrs.evolve(call, write=None))
            for write in ((0, "mul_"), (0, call.write[1])):
                yield with_call(program, number, attrs.evolve(call, write=write))
        yield with_call(program, number, attrs.evolve(call, grad=True))


# ------------------------------------------------------------------------------ direct setups
def made_at_once(program: Program) -> Iterator[Program]:
    """With setups that make a value directly, without the steps that led to it."""
    for number, call in enumerate(program.calls):
        for place in reversed(range(len(call.setup))):
            step = call.setup[place]
            if step.op != "make":
                for made in _like(call, place):
                    setup = (*call.setup[:place], made, *call.setup[place + 1 :])
                    changed = with_call(program, number, attrs.evolve(call, setup=setup))
                    yield from _without_unused(changed, number)


def _like(call: Call, place: int) -> Iterator[Step]:
    """The steps that make a tensor like a step's value directly."""
    library = engine("aotlite")
    values: list[Any] = []
    try:
        run_steps(library, call.setup[: place + 1], values)
        value = resolved(f"${place}", values)
        dtype = str(value.dtype).rpartition(".")[2].rstrip("_")
        yield from (Step("make", (0, tuple(value.shape), dtype, on)) for on in (False, True))
    except Exception:  # a setup that raises, or a value that is no tensor
        return


def _without_unused(program: Program, number: int) -> Iterator[Program]:
    """The program without the steps of a setup whose values are not used."""
    while True:
        call = program.calls[number]
        used = repr((call.args, [step.args for step in call.setup]))
        place = next((i for i in range(len(call.setup)) if not _is_in(f"${i}", used)), None)
        if place is None:
            yield program
            return
        program = next(without_steps(program, number, [place]))


def _is_in(name: str, text: str) -> bool:
    return f"'{name}'" in text or f"'{name}." in text


# -------------------------------------------------------------------------------- simpler steps
def simpler_steps(program: Program) -> Iterator[Program]:
    """With one step in a simpler form: of the body, then of setups."""
    for place, step in enumerate(program.body):
        for simpler in forms(step):
            body = (*program.body[:place], simpler, *program.body[place + 1 :])
            yield attrs.evolve(program, body=body)
    for number, call in enumerate(program.calls):
        for place, step in enumerate(call.setup):
            for simpler in forms(step):
                setup = (*call.setup[:place], simpler, *call.setup[place + 1 :])
                yield with_call(program, number, attrs.evolve(call, setup=setup))


def forms(step: Step) -> Iterator[Step]:
    """Simpler forms of a step to try; most do not run."""
    if step.no_grad:
        yield attrs.evolve(step, no_grad=False)
    if step.op == "make":
        seed, shape, _, grad = step.args
        yield from (Step("make", (seed, shape, dtype, grad)) for dtype in DTYPES)
        yield Step("make", (0, shape, *step.args[2:]))
        yield Step("make", (*step.args[:3], False))
        return
    yield from _simpler_ops(step)
    for place, value in enumerate(step.args):
        is_target = place == 0 and is_name(value)
        for simpler in () if is_target else _simpler_arguments(value):
            yield attrs.evolve(step, args=(*step.args[:place], simpler, *step.args[place + 1 :]))


def _simpler_ops(step: Step) -> Iterator[Step]:
    target = step.args[0] if step.args else None
    if not is_name(target):
        return
    kind = kind_of_op(step.op)
    others: list[tuple[str, tuple[Any, ...]]]
    if kind in ("pointwise", "copy", "fill", "setitem", "index"):
        others = [("mul_", (2,)), ("fill_", (2,)), ("add_", (2,))]
    elif step.op in MULTI:
        others = [("unbind", (0,)), ("split", (1,))]
    elif step.op in VIEWS or step.op == "getitem":
        others = [("select", (0, 0)), ("narrow", (0, 0, 1)), ("detach", ()), ("alias", ())]
    elif kind is None:
        others = [("neg", ()), ("mul", (1,))]
    else:
        return
    yield from (Step(op, (target, *more), step.no_grad) for op, more in others)


def _simpler_arguments(value: object) -> Iterator[object]:
    match value:
        case bool():
            yield False
        case int() | float():
            yield from (0, 1, 2)
        case tuple():
            for place, item in enumerate(value):
                yield value[:place] + value[place + 1 :]
                for simpler in _simpler_arguments(item):
                    yield (*value[:place], simpler, *value[place + 1 :])
        case str() if is_name(value):
            yield from (1, 2)
        case str() if value in DTYPES:
            yield from DTYPES


# ------------------------------------------------------------------------- two changes at once
PARTS = ((0,), (1,), ("1:",), (":1",), (":", 0), (":", 1))
"""The indices to try for a part of a tensor."""


def joined_writes(program: Program) -> Iterator[Program]:
    """With a write of a part of a tensor in place of a view and a write of the view."""
    for number, step in enumerate(program.body):
        place = program.arity + number
        if step.op in MULTI or step.op in VIEWS or step.op == "getitem":
            for later in range(number + 1, len(program.body)):
                write = program.body[later]
                if write.args and str(write.args[0]).partition(".")[0] == f"${place}":
                    for index in PARTS:
                        part = Step("setitem", (step.args[0], index, 2), write.no_grad)
                        body = (*program.body[:later], part, *program.body[later + 1 :])
                        yield from without_steps(attrs.evolve(program, body=body), None, [number])


ITEMS = (0, 1, "1:", ":1", ":2", ":", "none")
"""The items of indices to try in place of two views."""


def joined_views(program: Program) -> Iterator[Program]:
    """With one view by an index of two items in place of a view of a view in the body."""
    for number, step in enumerate(program.body):
        inner = f"${program.arity + number}"
        if not _is_view(step):
            continue
        for later in range(number + 1, len(program.body)):
            outer = program.body[later]
            if _is_view(outer) and str(outer.args[0]).partition(".")[0] == inner:
                whole = _with_whole_value(program, later)
                for index in product(ITEMS, ITEMS):
                    view = Step("getitem", (step.args[0], index), outer.no_grad)
                    body = (*whole.body[:later], view, *whole.body[later + 1 :])
                    yield from without_steps(attrs.evolve(whole, body=body), None, [number])


def _is_view(step: Step) -> bool:
    return step.op in VIEWS or step.op == "getitem"


def _with_whole_value(program: Program, number: int) -> Program:
    """The program with a step's value itself in place of its parts."""
    name = f"${program.arity + number}"

    def whole(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(whole, value))
        return name if is_name(value) and value.startswith(f"{name}.") else value

    body = [attrs.evolve(step, args=whole(step.args)) for step in program.body]
    return attrs.evolve(program, body=body, results=whole(program.results))


def written_in_bases(program: Program) -> Iterator[Program]:
    """With writes of a part of an argument in place of an argument that is this part."""
    if len(program.calls) > 1:
        return
    (call,) = program.calls
    for slot, arg in enumerate(call.args):
        place = arg[1:] if is_name(arg) else ""
        index = _index_of(call.setup[int(place)]) if place.isdecimal() else None
        if index is not None:
            base = call.setup[int(place)].args[0]
            args = (*call.args[:slot], base, *call.args[slot + 1 :])
            body = [
                Step("setitem", (step.args[0], index, 2), step.no_grad)
                if kind_of_op(step.op) and step.args[0] == f"${slot}"
                else step
                for step in program.body
            ]
            changed = Program(body, program.results, [attrs.evolve(call, args=args)])
            yield from _without_unused(changed, 0)


def _index_of(step: Step) -> tuple[object, ...] | None:
    """The index with the result of a window of the first dimension."""
    match step.op, *step.args:
        case "select", _, 0, int(place):
            return (place,)
        case "narrow", _, 0, int(start), int(length):
            return (f"{start}:{start + length}",)
    return None


def dropped_and_changed(program: Program) -> Iterator[Program]:
    """Without one step, and with another one in a simpler form, or of another shape."""
    lists: list[int | None] = [None, *range(len(program.calls))]
    for which in lists:
        for place in range(len(steps_of(program, which))):
            for smaller in without_steps(program, which, [place]):
                yield from simpler_steps(smaller)
