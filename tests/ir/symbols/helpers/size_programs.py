"""Small programs on sizes, which run on symbols and on ints, and an oracle of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import attrs

from aotlite.ir.geometry import sizes
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation.claims import Evaluation, Premises

ROOMS: Sequence[tuple[int | None, int | None]] = ((2, None), (0, None), (1, 8), (None, None))
"""The ranges of symbols."""
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": sizes.maximum,
    "min": sizes.minimum,
    "abs": lambda a, b: abs(a - b),
    "neg": lambda a, b: -a + b,
    "ceil": sizes.ceil_div,
    "**2": lambda a, b: a**2 - b,
    "<<": lambda a, b: (a << 2) - b,
    ">>": lambda a, b: (a >> 1) + b,
    "r-": lambda a, b: 3 - a + b,
    "r//": lambda a, b: 12 // a + b,
    "r%": lambda a, b: 12 % b + a,
    "2**": lambda a, b: 2 ** sizes.minimum(sizes.maximum(a, 0), 3) + b,
}
RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@attrs.frozen
class SizeProgram:
    """Steps on sizes; each is (name, operand, operand), and an operand the number of an earlier one
    or a constant, as a text. The symbols are the first values."""

    hints: tuple[int, ...]
    rooms: tuple[tuple[int | None, int | None], ...]
    steps: tuple[tuple[str, Any, Any], ...]

    def run(self, given: Sequence[Any]) -> list[Any]:
        """The result of each step: sizes, and truths of comparisons."""
        values = list(given)
        results: list[Any] = []
        for name, left, right in self.steps:
            a, b = (values[k] if isinstance(k, int) else int(k) for k in (left, right))
            if name in RELATIONS:
                results.append(bool(RELATIONS[name](a, b)))
            elif name == "known":  # asked, and no branch: nothing is assumed
                truth = a > b
                results.append(None if isinstance(truth, SymBool) else bool(truth))
            elif name == "int":
                results.append(int(a))
            else:
                values.append(BINARY[name](a, b))
                results.append(values[-1])
        return results

    def trace(self) -> tuple[SymbolTable, list[Any]]:
        """The table, and the symbolic results."""
        table = SymbolTable()
        given = [
            table.symbol(hint, f"x.shape[{k}]", lower=low, upper=high)
            for k, (hint, (low, high)) in enumerate(zip(self.hints, self.rooms, strict=True))
        ]
        return table, self.run(given)


def difference(
    program: SizeProgram, table: SymbolTable, results: Sequence[Any], largest: int = 6
) -> dict[str, int] | None:
    """Sizes that the log admits and at which the program on ints gives other results; or None."""
    premises = Premises(table, tuple(table.log))
    for values in points(program, largest):
        named = {f"s{k}": value for k, value in enumerate(values)}
        if premises.admit(named) and not _same(program, values, results, Evaluation(named)):
            return named
    return None


def points(program: SizeProgram, largest: int) -> Iterator[tuple[int, ...]]:
    """All small values of the symbols, in their ranges."""
    choices = [
        [v for v in range(-largest, largest + 1) if (low is None or v >= low) and _under(v, high)]
        for low, high in program.rooms
    ]
    return itertools.product(*choices)


def _under(value: int, high: int | None) -> bool:
    return high is None or value <= high


def _same(
    program: SizeProgram, values: Sequence[int], results: Sequence[Any], at: Evaluation
) -> bool:
    try:
        expected = program.run(values)
        found = [at.of(r) if isinstance(r, SymInt) else r for r in results]
    except ZeroDivisionError:
        return False
    return all(
        f == e and type(f) is type(e)
        for f, e, r in zip(found, expected, results, strict=True)
        if r is not None
    )


def drawn(seed: int, steps: int = 10) -> SizeProgram:
    """A random program; the same one for the same seed."""
    random = Random(seed)
    count = random.choice((1, 2, 2, 2, 3))
    rooms = tuple(random.choice(ROOMS[: 4 if seed % 3 == 0 else 2]) for _ in range(count))
    hints = tuple(random.randint(2, 6) for _ in range(count))
    made: list[tuple[str, Any, Any]] = []
    values = count

    def operand() -> Any:
        if random.random() < 0.35:
            return str(random.choice((-3, -2, -1, 0, 1, 2, 2, 3, 4, 5, 6)))
        return random.randrange(values)

    for _ in range(steps):
        kind = random.random()
        if kind < 0.62:
            made.append((random.choice([*BINARY]), random.randrange(values), operand()))
            values += 1
        elif kind < 0.86:
            made.append((random.choice([*RELATIONS]), random.randrange(values), operand()))
        elif kind < 0.97:
            made.append(("known", random.randrange(values), operand()))
        else:
            made.append(("int", random.randrange(count), "0"))
    return SizeProgram(hints, rooms, tuple(made))
