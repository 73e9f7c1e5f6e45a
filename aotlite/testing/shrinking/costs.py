"""The order of programs by size: the cost that shrinking reduces."""

from __future__ import annotations

from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step, is_name
from aotlite.testing.programs.vocabulary import MULTI, OPS, VIEWS

WRITTEN = ("mul_", "fill_", "add_", "setitem")
"""The ops whose last argument is the written value."""


def lines(program: Program) -> int:
    """The number of steps of a program, with those of setups."""
    return len(program.body) + sum(len(call.setup) for call in program.calls)


def cost(program: Program) -> tuple[int, ...]:
    """The cost: by lines, then by calls, arguments and results, then by simplicity."""
    steps = sum(map(step_cost, program.body)) + sum(map(_call_cost, program.calls))
    return lines(program), len(program.calls), program.arity, len(program.results), steps


def _call_cost(call: Call) -> int:
    spread = len({str(arg) for arg in call.args})
    around = 3 * (not call.grad)
    if call.write is not None:
        around += 4 + call.write[0] + (call.write[1] != "mul_")
    return around + spread + sum(map(step_cost, call.setup))


def step_cost(step: Step) -> int:
    """The cost of an op, its arguments and its mode."""
    numbers = 0
    if step.op in WRITTEN and step.args[1:] and type(step.args[-1]) in (int, float):
        # 2 is the simplest, as 0 gives zeros with a sign, and 1 changes nothing.
        numbers = 2 * abs(step.args[-1] - 2) - _number_cost(step.args[-1])
    rest = 8 * op_cost(step.op) + 4 * step.no_grad
    return rest + int(numbers) + sum(map(_argument_cost, step.args))


def op_cost(op: str) -> int:
    row = OPS.get(op)
    if row is not None and row.cost is not None:
        return row.cost
    return 7 if op in MULTI else 5 if op in VIEWS or op == "getitem" else 4


def _argument_cost(value: object) -> int:
    match value:
        case tuple():
            return 1 + len(value) + sum(map(_argument_cost, value))
        case bool():
            return 2 * value
        case int() | float():
            return _number_cost(value)
        case str() if is_name(value):
            return 12
        case "float64":
            return 0
        case str():
            return 2
    return 1


def _number_cost(number: float) -> int:
    """The cost of a number: 0, 1 and 2 are the simplest, then other whole numbers."""
    size = min(abs(number), 1000)
    return int(size) + 2 * (number < 0) + 3 * (isinstance(number, float) and number % 1 != 0)
