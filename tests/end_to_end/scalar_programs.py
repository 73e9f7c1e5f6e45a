"""Random programs that compute floats and ints of sizes, compared with eager bit by bit.

    python -m tests.end_to_end.scalar_programs --count 500 --seed 1

A program is a function of a tensor x of m rows and n columns, and of an int k: it computes scalars,
and uses them as factors, as sizes, as conditions and as results. It is compiled with `dynamic=True`
and called with many sizes. A program that asks nothing, and raises nothing, is compiled once.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import aotlite as al

BINARY = ("+", "-", "*", "/", "//", "%")
OF_ONE = (
    *("float({a})", "math.sqrt(abs({a}))", "math.log(abs({a}) + 1)", "math.exp(-abs({a}) / 9)"),
    *("abs({a})", "-{a}", "abs({a}) ** 0.5", "(abs({a}) + 1) ** -0.5"),
    *("math.sin({a})", "math.tanh({a})", "math.floor({a})", "math.ceil({a})", "round({a})"),
    *("round({a}, 1)", "int({a} / 3)", "math.trunc({a})", "round({a} / 2)", "int({a} * 0.5)"),
    *("math.isqrt(abs(math.floor({a})))", "math.floor({a}).bit_length()", "divmod({a}, 3)[0]"),
    *("divmod({a}, 0.7)[1]", "math.log2(abs({a}) + 2)", "math.hypot({a}, 2)", "({a}) ** 2"),
    *("math.fmod({a}, 3)", "math.gcd(math.floor({a}), 6)", "(1 / 3) * {a}"),
    *("float(math.ceil({a}))", "math.copysign(1.0, {a})"),
)
LEAVES = ("m", "n", "k", "m * n", "(m - n)", "m", "n", "2", "3", "0.5", "0.3", "7.0", "1e-3")
FACTORS = (
    *("x = x * ({s})", "x = x + ({s})", "x = ({s}) - x", "x = x / (abs({s}) + 1)"),
    *("x = x.clamp(max={s})", "x = x * x.numel() ** -0.5", "x = al.full((2, n), {s}) * x[:1]"),
    *("x = al.where(x > 0, x, {s})", "x = x.masked_fill(x < 0, {s})", "x = ({s}) / (x.abs() + 1)"),
)
"""Uses that ask nothing about the number."""
USES = (
    *FACTORS,
    *("x = x > ({s})", "x = x.add(x, alpha={s})", "x = (x.abs() + 1) ** (({s}) % 3)"),
    "x = x[: {i}]",
    "x = x.narrow(0, 0, {i})",
    "x = x.sum(0).expand({i} + 1, n)",
    "x = al.zeros({i}, n) + x.sum()",
    "x = al.cat([x, al.ones({i} + 1, n, dtype=x.dtype)])",
    "x = x.new_full(({i} + 2, n), {s})",
    "x = x.roll({i}, 0)",
    "x = x.repeat({i} + 1, 1)",
)
CONDITIONS = ("{s} > {t}", "{s} <= {t}", "{s} == {t}", "{s} > 2.5", "{s}", "{s} != {s}")
SIZES = (
    *((5, 3, 2), (7, 4, -3), (6, 3, 2), (2, 2, 1)),
    *((9, 5, 0), (12, 7, 5), (3, 11, -8), (31, 2, 4)),
)
"""Rows, columns and k of the calls."""


@attrs.frozen
class ScalarProgram:
    """The text of a function of x and k."""

    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text of the function."""
        head = "def program(x, k):", "    m, n = x.shape", "    a = m"
        return "\n".join((*head, *(f"    {each}" for each in self.lines)))

    def function(self) -> Callable[..., Any]:
        """The function."""
        scope: dict[str, Any] = {"al": al, "math": math}
        exec(compile(self.text, "<scalar program>", "exec"), scope)
        made: Callable[..., Any] = scope["program"]
        return made


@attrs.define
class Drawing:
    """Draws programs; `choose` picks one of some things."""

    choose: Callable[[Sequence[Any]], Any]
    asks: bool = True
    """Whether programs have conditions, and sizes that they compute."""

    def scalar(self, depth: int) -> str:
        """An expression of a scalar."""
        kind = self.choose(range(4)) if depth else 0
        if kind == 0:
            return str(self.choose((*LEAVES, "a")))
        if kind == 1:
            return "(" + str(self.choose(OF_ONE)).format(a=f"({self.scalar(depth - 1)})") + ")"
        left, right = self.scalar(depth - 1), self.scalar(depth - 1)
        return f"({left} {self.choose(BINARY)} {right})"

    def size(self) -> str:
        """An expression of an int that may be a size: at least 0, and not large."""
        rounding = self.choose(("int", "math.floor", "math.ceil", "round"))
        return f"({rounding}(abs({self.scalar(2)}) / 2) % 5)"

    def filled(self, template: str) -> str:
        """A use or a condition with expressions put in."""
        return template.format(s=self.scalar(2), t=self.scalar(1), i=self.size())

    def program(self) -> ScalarProgram:
        """A program of a few lines."""
        lines: list[str] = []
        for _ in range(self.choose((1, 2, 3, 4))):
            kinds = ("scalar", "use", "use", *(("condition",) if self.asks else ()))
            kind = self.choose(kinds)
            if kind == "scalar":
                lines.append(f"a = {self.scalar(3)}")
            elif kind == "use":
                lines.append(self.filled(self.choose(USES if self.asks else FACTORS)))
            else:
                use = self.filled(self.choose(USES))
                lines.append(f"if {self.filled(self.choose(CONDITIONS))}:\n        {use}")
        lines.append(f"return {self.choose(('x', '(x, a)', '(x, a / 3, m)', '[x * 1.5]'))}")
        return ScalarProgram(tuple(lines))


# ------------------------------------------------------------------------------------ comparing
RAISES = "raises"


def argument(rows: int, columns: int, kind: str) -> al.Tensor:
    """A new tensor of these sizes."""
    numbers = (np.arange(rows * columns) * 7 % 11 - 5).reshape(rows, columns)
    return al.tensor((numbers / 2).astype(kind))


def described(value: Any) -> Any:
    """A value as something that equals only what has the same types and bits."""
    if isinstance(value, al.Tensor):
        return str(value.meta), repr(value.detach().tolist())
    if isinstance(value, (tuple, list)):
        return [described(each) for each in value]
    return type(value).__name__, repr(value)


def outcome(function: Callable[..., Any], x: al.Tensor, *more: Any) -> Any:
    """What a call gives, with the gradient of x; or the error's type and text."""
    try:
        found = function(x, *more)
    except Exception as error:
        return RAISES, type(error).__name__, str(error).partition("\n")[0]
    seen = described(found)
    first = found[0] if isinstance(found, (tuple, list)) else found
    if x.requires_grad and first.requires_grad and first.dtype.is_floating_point:
        (gradient,) = al.autograd.grad(first.sum(), (x,))
        return seen, None if gradient is None else repr(gradient.tolist())
    return seen


@attrs.frozen
class Difference:
    """A call at which a compiled program differs from eager."""

    program: ScalarProgram
    call: str
    got: object
    expected: object

    def __str__(self) -> str:
        return f"{self.program.text}\nat {self.call}:\n  got {self.got}\n  expected {self.expected}"


@attrs.frozen
class Compared:
    """What a comparison found."""

    difference: Difference | None
    compilations: int
    errors: int
    """How many calls raise an error in eager."""


def compared(
    program: ScalarProgram,
    *,
    backend: str = "reference",
    kind: str = "float64",
    grad: bool = False,
    sizes: Sequence[tuple[int, int, int]] = SIZES,
) -> Compared:
    """Calls the compiled program at many sizes, and compares each call with eager."""
    eager = program.function()
    compiled = al.compile(program.function(), dynamic=True, backend=backend, recompile_limit=1000)
    errors = 0
    for rows, columns, k in sizes:
        x, y = argument(rows, columns, kind), argument(rows, columns, kind)
        if grad:
            x.requires_grad_()
            y.requires_grad_()
        expected, got = outcome(eager, x, k), outcome(compiled, y, k)
        errors += expected[0] == RAISES
        if got != expected:
            call = f"{kind}[{rows}, {columns}], {k}, grad={grad}, {backend}"
            difference = Difference(program, call, got, expected)
            return Compared(difference, len(compiled.entries), errors)
    return Compared(None, len(compiled.entries), errors)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares random programs, and prints those that differ; returns how many do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="reference")
    given = parser.parse_args(arguments)
    failed, made = 0, 0
    for number in range(given.count):
        draw = random.Random(f"{given.seed} {number}")
        asks = draw.random() < 0.7
        program = Drawing(draw.choice, asks=asks).program()
        found = compared(program, backend=given.backend, grad=number % 2 == 0)
        made += found.compilations
        if found.difference is not None:
            failed += 1
            print(f"program {number}\n{found.difference}", flush=True)
        elif not asks and found.compilations > 1 + found.errors:
            failed += 1
            print(f"program {number}: {found}\n{program.text}", flush=True)
    print(f"{given.count} programs: {failed} differ; {made} compilations")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
