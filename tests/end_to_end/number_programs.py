"""Random programs that compute with numbers among their arguments, compared with eager.

    python -m tests.end_to_end.number_programs --count 2000 --seed 1

Each program is a text of some lines, a function of tensors x and y, ints a and b, and a float c.
It is compiled with `dynamic=True` or `dynamic=None`, and called with many ints of both signs, with
many floats, and with numbers of other types that equal them: results, their types, and errors must
be eager's.
"""

from __future__ import annotations

import argparse
import math
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
FLOATS = (
    *("{f} * 0.5", "1 - {f}", "{f} + {g}", "{f} / {g}", "-{f}", "{f} ** 2", "{f} % 0.3"),
    *("abs({f})", "{f} // 0.3", "math.sqrt(abs({f}))", "max({f}, 0.25)"),
    "{f} if {f} > 0.2 else {g}",
    *("{f} * a", "float(str({f}))", "round({f}, 1)", "2 ** {f}", "{f} - x.shape[0]", "{f} * True"),
)
OF_FLOATS = (
    *("{x} * {f}", "{f} * {x}", "{x} + {f}", "{f} - {x}", "{x} / {f}", "{f} / {x}", "{x} ** {f}"),
    *("{f} ** {x}", "{x} > {f}", "{x} == {f}", "{x}.clamp(min={f})"),
    "al.full((2, 3), {f})",
    *("al.where({x} > 0, {x}, {f})", "al.where({x} > 0, {f}, {g})"),
    "{x}.masked_fill({x} > 0, {f})",
    *("al.add({x}, {x}, alpha={f})", "al.lerp({x} * 1.0, {x} * 2.0, {f})", "{x} % {f}"),
    "{x} // {f}",
    *("al.nn.functional.leaky_relu({x}, {f})", "al.tensor([{f}, 1.0])", "al.xlogy({f}, {x})"),
    *("al.logical_and({x}, {f})", "al.copysign({x}, {f})"),
    "({x} * 1.0).addcmul({x}, {x}, value={f})",
)
OF_FLOAT_WRITES = ("{x}.mul_({f})", "{x}[0] = {f}", "{x}.fill_({f})", "{x}.sub_({x}, alpha={f})")
CONDITIONS = (
    *("{i} > {j}", "{i} == {c}", "{i} % 2", "{i}", "not {i}", "{i} < 0"),
    "{i} == x.shape[0]",
)
WRITES = ("{x}[0] = {i}", "{x}.mul_({i})", "{x}.fill_({i})", "{x}[:{i}].zero_()", "{x} += {i}")
RESULTS = ("x", "(y, c)", "(x, a)", "(a + b, x)", "[y, {{'n': a}}]", "(x, b, str(a))")
VALUES = (0, 1, 2, 3, 5, -1, -2, -4)
FLOAT_VALUES = (0.1, 0.1, 0.5, 2.0, -0.3, 0.0, -0.0, 1.5, 1e-3, 1e-320, 1e300, 1, True, 7)


@attrs.frozen
class Program:
    """The text of a function of x, y, a, b, c."""

    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text of the function."""
        return "\n".join(("def program(x, y, a, b, c):", *(f"    {each}" for each in self.lines)))

    def function(self) -> Callable[..., Any]:
        """The function."""
        scope: dict[str, Any] = {"al": al, "math": math}
        exec(compile(self.text, "<number program>", "exec"), scope)
        made: Callable[..., Any] = scope["program"]
        return made


def program(draw: random.Random) -> Program:
    """A random program."""

    def filled(template: str) -> str:
        number = draw.choice(("a", "b", "a", "b", "a + 1", "x.shape[0]"))
        other = draw.choice(("a", "b", "2"))
        at = draw.choice("xy")
        f, g = draw.choice(("c", "c", "(c * 0.5)", "(1 - c)")), draw.choice(("c", "0.75"))
        small = draw.choice((1, 2, 3, 7))
        return template.format(i=f"({number})", j=other, c=small, x=at, f=f, g=g)

    lines: list[str] = []
    of_floats = draw.random() < 0.5
    for _ in range(draw.randrange(1, 5)):
        kind = draw.random()
        if of_floats and kind < 0.6:
            made = (
                f"c = {filled(draw.choice(FLOATS))}"
                if kind < 0.2
                else f"{draw.choice('xy')} = {filled(draw.choice(OF_FLOATS))}"
            )
            lines.append(made if kind > 0.05 else filled(draw.choice(OF_FLOAT_WRITES)))
        elif kind < 0.3:
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
    """The elements of a tensor; a nan equals any other, and floats may differ by some roundings."""

    array: np.ndarray

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Values)
        roundings = 64 * np.finfo(np.float32).eps if self.array.dtype.kind == "f" else 0
        with np.errstate(all="ignore"):
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


def calls(draw: random.Random, count: int) -> Iterator[tuple[Sequence[int], Any, Any, Any]]:
    """Shapes and numbers of calls; some numbers are bools and floats, which equal ints."""
    for _ in range(count):
        shape = draw.choice(((4, 3), (4, 3), (5, 2), (3, 3)))
        first, second = draw.choice(VALUES), draw.choice(VALUES)
        a: Any = draw.choice((first, first, first, first, float(first), bool(first)))
        yield shape, a, second, draw.choice(FLOAT_VALUES)


def difference(made: Program, draw: random.Random, backend: str, count: int = 24) -> str | None:
    """The first call at which the compiled program differs from eager; None if none does."""
    kind = draw.choice(("float32", "float32", "int64", "int32", "float64"))
    dynamic = draw.choice((True, None))
    eager = made.function()
    options: dict[str, Any] = {"dynamic": dynamic, "backend": backend, "recompile_limit": 1000}
    compiled = al.compile(made.function(), **options)
    for shape, *numbers in calls(draw, count):
        if backend != "reference" and numbers[-1] == 1e-320:
            continue  # a constant that is 0 as float32: kernels take it for 0
        expected = outcome(eager, kind, shape, *numbers)
        got = outcome(compiled, kind, shape, *numbers)
        if got != expected and type(expected) is str:  # of an op whose result nothing reads?
            alone = al.compile(made.function(), backend=backend)
            expected = outcome(alone, kind, shape, *numbers)
        if got != expected:
            call = f"{kind}{list(shape)}, numbers {numbers}, dynamic={dynamic}"
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
