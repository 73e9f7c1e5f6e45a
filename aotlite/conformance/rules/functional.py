"""Functional ops: they do not change their operands, and their results are new memory."""

from __future__ import annotations

from collections.abc import Iterator

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.memory_model import Shape
from aotlite.conformance.models.model_arrays import (
    Chain,
    Modeled,
    chain,
    demand_writes,
    new,
    poke,
    see,
)
from aotlite.conformance.rules import attempt, expect, maybe, rule
from aotlite.conformance.rules.cases import layouts

OPS: tuple[str, ...] = ("add", "mul", "neg", "sum", "sort", "concat", "clone")


def apply(on: Adapter, op: str, a: Array) -> Array:
    """Applies one of `OPS`, with arguments that invite a library to return `a` or a view of it."""
    match op:
        case "add":
            return on.add(a, 0)
        case "mul":
            return on.mul(a, 1)
        case "sum":
            return on.sum(a, 0)
        case "concat":
            return on.concat([a], 0)
    result: Array = getattr(on, op)(a)
    return result


def operands() -> Iterator[tuple[str, Chain]]:
    """Every op with every layout of at least one dimension."""
    for case in layouts():
        if case[0]:
            yield from ((op, case) for op in OPS)


@rule("FUN-A1", "a functional op does not change its operand", operands)
def leaves(on: Adapter, case: tuple[str, Chain]) -> None:
    """The operand and its base keep their values, also where the op sorts or sums."""
    op, layout = case
    base, [twin] = chain(on, layout, rise=-1)
    apply(on, op, twin.array)
    see(on, twin, "the operand after the op")
    see(on, base, "the operand's base after the op")


@rule("FUN-A2", "a functional op's result is new memory", operands)
def new_memory(on: Adapter, case: tuple[str, Chain]) -> None:
    """Later writes to the operand do not show in the result, even where the op changes nothing."""
    demand_writes(on)
    op, layout = case
    _, [twin] = chain(on, layout)
    made = apply(on, op, twin.array)
    before = on.to_list(made)
    write_operand(on, twin)
    expect(on.to_list(made), before, "the result after the write to the operand")


def write_operand(on: Adapter, twin: Modeled) -> None:
    """Writes the first and the last element of an operand."""
    poke(on, twin, 100)
    poke(on, twin, 200, last=True)


@rule("FUN-A3", "a write to a functional op's result does not reach the operand", operands)
def written_alone(on: Adapter, case: tuple[str, Chain]) -> None:
    """The write changes the result alone, or is refused."""
    demand_writes(on)
    op, layout = case
    base, [twin] = chain(on, layout)
    made = apply(on, op, twin.array)
    attempt(on.setitem, made, ..., 100)
    see(on, base, "the operand's base after the write to the result")


@rule("FUN-A4", "results do not overlap themselves", [
    (op, shape) for op in OPS for shape in ((2,), (2, 2), (3,)) if op != "sum"
])  # fmt: skip
def no_own_overlap(on: Adapter, case: tuple[str, Shape]) -> None:
    """The result of an op on an expanded array has memory for each element."""
    op, shape = case
    _, [twin] = chain(on, ((1,), (("expand", shape),)))
    made = apply(on, op, twin.array)
    if attempt(on.setitem, made, (0,) * len(shape), 100) is None:
        flat = on.to_list(made)
        while isinstance(flat[0], list):
            flat = [each for row in flat for each in row]
        expect(flat, [100, *[0] * (len(flat) - 1)], "the elements of the result")


@rule("FUN-A5", "one array may be both operands", [(1,), (2,), (2, 2), ()])
def twice(on: Adapter, case: Shape) -> None:
    """`add(a, a)` is `2 * a` in new memory, and does not change `a`."""
    twin = new(on, case, first=1)
    made = on.add(twin.array, twin.array)
    doubled = twin.view.values()
    see(on, twin, "the operand after the op")
    said = maybe(on.shares_memory, twin.array, made)
    expect(bool(said), False, "the result of shares_memory")
    write_operand(on, twin)
    result = on.to_list(made)
    while isinstance(result, list) and result and isinstance(result[0], list):
        result = [each for row in result for each in row]
    expected = [2 * value for value in doubled]
    expect(result if isinstance(result, list) else [result], expected, "the result")
