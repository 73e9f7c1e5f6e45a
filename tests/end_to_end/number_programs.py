"""Random programs that compute with ints among their arguments, compared with eager at all values.

    python -m tests.end_to_end.number_programs --count 2000 --seed 1

Each program is a text of some lines, a function of tensors x and y and of ints a and b. It is
compiled with `dynamic=True` or `dynamic=None`, and called with many ints of both signs, and with
bools and floats that equal them: results, their types, and errors must be eager's.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

import aotlite as al

NUMBERS = (
    *("{i} + {j}", "{i} - {j}", "{i} * {j}", "{i} // {j}", "{i} % {j}", "-{i}", "abs({i})"),
    *("max({i}, {j})", "min({i}, {j})", "{i} * {c}", "{i} + {c}", "{i} // {c}", "{i} % {c}"),
    *("{c} - {i}", "{c} // {i}", "{i} ** 2", "2 ** {i}", "{i} + x.shape[0]", "x.shape[1] - {i}"),
    *("{i} << 1", "{i} >> 1", "{i} & 3", "{i} ^ {j}", "int({i} / 2)", "{i} if {i} > {j} else {j}"),
    *("int({i} == {j})", "len(range({i}))", "divmod({i}, 3)[1]", "round({i})"),
)
TENSORS = (
    *("{x} * {i}", "{x} + {i}", "{i} - {x}", "{x} / {i}", "{x} ** {i}", "{x} * ({i} * {j})"),
    *("{x} > {i}", "{x}.clamp(min={i})", "al.full((2, 3), {i})", "al.where({x} > 0, {x}, {i})"),
    *("{x}[{i}:]", "{x}[:{i}]", "{x}[{i}]", "{x}[{i}:{j}]", "{x}[::{i}]", "{x}.roll({i}, 0)"),
    *("{x}.sum({i})", "{x}.transpose(0, {i})", "{x}.narrow(0, {i}, 1)", "{x}.unsqueeze({i})"),
    *("{x}.reshape({i}, -1)", "{x}.tril({i})", "{x}.flip({i})", "{x}.select(0, {i})"),
    *("al.arange({i})", "al.arange({i}, {j})", "al.zeros({i}, 2)", "{x}.repeat({i}, 1)"),
    *("al.nn.functional.pad({x}, (1, {i}))", "{x}.diagonal({i})", "{x}.cumsum({i})"),
    "{x}.double()",
    *("{x}.masked_fill({x} > 0, {i})", "al.add({x}, {x}, alpha={i})", "{x} // {i}", "{x} % {i}"),
    *("{x}.split({i})[0]", "al.nn.functional.leaky_relu({x}, {i})", "{x}.new_full((2,), {i})"),
)
CONDITIONS = (
    *("{i} > {j}", "{i} == {c}", "{i} % 2", "{i}", "not {i}", "{i} < 0"),
    "{i} == x.shape[0]",
)
WRITES = ("{x}[0] = {i}", "{x}.mul_({i})", "{x}.fill_({i})", "{x}[:{i}].zero_()", "{x} += {i}")
RESULTS = ("x", "y", "(x, a)", "(a + b, x)", "[y, {{'n': a}}]", "(x, b, str(a))", "(x, a == b)")
VALUES = (0, 1, 2, 3, 5, -1, -2, -4)


@attrs.frozen
class Program:
    """The text of a function of x, y, a, b."""

    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text of the function."""
        return "\n".join(("def program(x, y, a, b):", *(f"    {each}" for each in self.lines)))

    def function(self) -> Callable[..., Any]:
        """The function."""
        scope: dict[str, Any] = {"al": al}
        exec(compile(self.text, "<number program>", "exec"), scope)
        made: Callable[..., Any] = scope["program"]
        return made


def program(draw: random.Random) -> Program:
    """A random program."""

    def filled(template: str) -> str:
        number = draw.choice(("a", "b", "a", "b", "a + 1", "x.shape[0]"))
        other = draw.choice(("a", "b", "2"))
        at = draw.choice("xy")
        return template.format(i=f"({number})", j=other, c=draw.choice((1, 2, 3, 7)), x=at)

    lines: list[str] = []
    for _ in range(draw.randrange(1, 5)):
        kind = draw.random()
        if kind < 0.3:
            lines.append(f"{draw.choice('ab')} = {filled(draw.choice(NUMBERS))}")
        elif kind < 0.75:
            lines.append(f"{draw.choice('xy')} = {filled(draw.choice(TENSORS))}")
        elif kind < 0.88:
            inner = filled(draw.choice(TENSORS))
            lines.append(f"if {filled(draw.choice(CONDITIONS))}:\n        x = {inner}")
        else:
            lines.append(filled(draw.choice(WRITES)))
    lines.append(f"return {draw.choice(RESULTS).format()}")
    return Program(tuple(lines))


# ------------------------------------------------------------------------------------ comparing
def arguments(kind: str, rows: int, columns: int) -> list[al.Tensor]:
    """New tensors x and y, of one dtype."""
    numbers = (np.arange(rows * columns) * 7 % 11 - 5).reshape(rows, columns)
    made = [numbers / 2, numbers + 1] if kind.startswith("float") else [numbers, numbers + 1]
    return [al.tensor(each.astype(kind)) for each in made]


def outcome(function: Callable[..., Any], kind: str, shape: Sequence[int], *numbers: object) -> Any:
    """What a call gives: results with their types, what it wrote, or the error's type."""
    x, y = arguments(kind, *shape)
    try:
        found = described(function(x, y, *numbers))
    except Exception as error:
        return type(error).__name__
    return found, described((x, y))


@attrs.frozen(eq=False)
class Values:
    """The elements of a tensor; a nan equals any other, and floats may differ by two roundings."""

    array: np.ndarray

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Values)
        roundings = 2 * np.finfo(np.float32).eps if self.array.dtype.kind == "f" else 0
        return np.allclose(self.array, other.array, rtol=roundings, atol=0, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]


def described(value: Any) -> Any:
    """A value as something that compares equal only to an equal one of the same types."""
    if isinstance(value, al.Tensor):
        return str(value.meta), Values(value.numpy())
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [described(each) for each in value]
    if isinstance(value, dict):
        return [(key, described(each)) for key, each in value.items()]
    return type(value).__name__, repr(value)


def calls(draw: random.Random, count: int) -> Iterator[tuple[Sequence[int], Any, Any]]:
    """Shapes and numbers of calls; some numbers are bools and floats, which equal ints."""
    for _ in range(count):
        shape = draw.choice(((4, 3), (4, 3), (5, 2), (3, 3)))
        first, second = draw.choice(VALUES), draw.choice(VALUES)
        a: Any = draw.choice((first, first, first, first, float(first), bool(first)))
        yield shape, a, second


def difference(made: Program, draw: random.Random, backend: str, count: int = 24) -> str | None:
    """The first call at which the compiled program differs from eager; None if none does."""
    kind = draw.choice(("float32", "float32", "int64", "int32", "float64"))
    dynamic = draw.choice((True, None))
    eager = made.function()
    options: dict[str, Any] = {"dynamic": dynamic, "backend": backend, "recompile_limit": 1000}
    compiled = al.compile(made.function(), **options)
    for shape, a, b in calls(draw, count):
        expected = outcome(eager, kind, shape, a, b)
        got = outcome(compiled, kind, shape, a, b)
        if got != expected and type(expected) is str:  # of an op whose result nothing reads?
            alone = al.compile(made.function(), backend=backend)
            expected = outcome(alone, kind, shape, a, b)
        if got != expected:
            call = f"{kind}{list(shape)}, a={a!r}, b={b!r}, dynamic={dynamic}"
            return f"{made.text}\nat {call}:\n  got {got}\n  expected {expected}"
    return None


def run(count: int, seed: int, backend: str) -> Counter[str]:
    """Compares random programs; prints each difference."""
    found: Counter[str] = Counter()
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        made = program(draw)
        try:
            text = difference(made, draw, backend)
        except Exception as error:
            text = f"{made.text}\nraised {error!r}"
        found["programs"] += 1
        if text is not None:
            found["differences"] += 1
            print(f"--- program {number} of seed {seed}\n{text}\n", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="reference")
    chosen = parser.parse_args()
    total = run(chosen.count, chosen.seed, chosen.backend)
    print(dict(total))
    sys.exit(bool(total["differences"]))
