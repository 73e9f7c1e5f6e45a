"""Sign analysis: `exp` of arguments that are at most 0 (or NaN) becomes `exp_nonpositive`.

Such arguments are a value minus the maximum of its row (softmax), -|x| and -x^2. The cheaper
function handles no overflow and scales in one step. Results are the same, bit for bit. Spec:
`specs/fusion.md`, FUS-20.
"""

from __future__ import annotations

import math
from functools import partial

import attrs

from aotlite.backends.loops.program import Kernel, LoopProgram, Reduce, Statement, values_of
from aotlite.backends.loops.rewrite import on_statement, unchanged
from aotlite.backends.loops.templates.shared_templates import changed
from aotlite.ir.scalar.expression import Scalar, function, rebuilt, unknown, walk
from aotlite.ir.scalar.functions import has

Sign = int | None
"""-1: at most 0, or NaN. 1: at least 0, or NaN. None: not known."""


@attrs.frozen
class _Signs:
    """The signs of a kernel's expressions."""

    maxima: dict[int, Scalar] = attrs.field(factory=dict)
    """For each name that is a maximum over the inner axes, the expression that it is taken of."""
    known: dict[Scalar, Sign] = attrs.field(factory=dict)

    def of(self, root: Scalar) -> Sign:
        """Returns the sign of a value."""
        for value in unknown(root, self.known, _factors):
            self.known[value] = self._own(value)
        return self.known[root]

    def _own(self, value: Scalar) -> Sign:
        match value.op:
            case "const":
                return 1 if value.args[0] > 0 else -1
            case "abs" | "sqrt" | "exp" | "exp_nonpositive":
                return 1
            case "sub":
                a, b = value.args
                return -1 if b.op == "name" and self.maxima.get(b.args[0]) is a else None
            case "mul" if value.args[0] is value.args[1]:
                return 1
            case "mul" | "neg":
                signs = [self.known[each] for each in value.args]
                known = [each for each in signs if each is not None]
                turned = -1 if value.op == "neg" else 1
                return turned * math.prod(known) if len(known) == len(signs) else None
        return None


def _factors(value: Scalar) -> tuple[Scalar, ...]:
    """Returns the operands whose signs decide a value's sign."""
    return value.args if value.op in ("mul", "neg") else ()


def with_signs(program: LoopProgram) -> LoopProgram:
    """Returns the program with `exp_nonpositive` where the sign of the argument is known."""
    steps = [changed(_kernel, step) if type(step) is Kernel else step for step in program.steps]
    return attrs.evolve(program, steps=tuple(steps))


def _kernel(kernel: Kernel) -> Kernel:
    roots = [value for statement in kernel.body for value in values_of(statement)]
    if not any(value.op == "exp" for value in walk(roots)):
        return kernel
    signs = _Signs()
    memo: dict[Scalar, Scalar] = {}
    change = partial(_changed, signs=signs)
    body: list[Statement] = []
    for statement in kernel.body:
        body.append(on_statement(statement, lambda v: rebuilt(v, change, memo), unchanged))
        last = body[-1]
        if type(last) is Reduce and last.kind == "max":
            signs.maxima[last.names[0]] = last.values[0]
    return attrs.evolve(kernel, body=tuple(body))


def _changed(value: Scalar, signs: _Signs) -> Scalar | None:
    if value.op != "exp" or not has("exp_nonpositive", (value.dtype,)):
        return None
    (x,) = value.args
    return function("exp_nonpositive", value.dtype, x) if signs.of(x) == -1 else None
