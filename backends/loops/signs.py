"""Functions of what cannot be positive, which cost less there.

Input: a program; output: the same, bit for bit, with `exp` of values that are known to be at most 0
(or nan) as `exp_nonpositive`: a value less the maximum of its row, -|x|, -x^2. It needs no limit
above, and one factor less. Spec: `specs/fusion.md`, FUS-20.
"""

from __future__ import annotations

from functools import partial

import attrs

from aotlite.backends.loops.expr import Scalar, function, rebuilt, walk
from aotlite.backends.loops.functions import has
from aotlite.backends.loops.program import Kernel, Program, Reduce, Statement, values_of
from aotlite.backends.loops.rewrite import on_statement, unchanged

Maxima = dict[int, Scalar]
"""Of what a name is the maximum."""


def with_signs(program: Program) -> Program:
    """The program with such functions."""
    steps = [_kernel(step) if type(step) is Kernel else step for step in program.steps]
    return attrs.evolve(program, steps=tuple(steps))


def _kernel(kernel: Kernel) -> Kernel:
    roots = [value for statement in kernel.body for value in values_of(statement)]
    if not any(value.op == "exp" for value in walk(roots)):
        return kernel
    maxima: Maxima = {}
    memo: dict[Scalar, Scalar] = {}
    change = partial(_changed, maxima=maxima)
    body: list[Statement] = []
    for statement in kernel.body:
        body.append(on_statement(statement, lambda v: rebuilt(v, change, memo), unchanged))
        last = body[-1]
        if type(last) is Reduce and last.kind == "max":
            maxima[last.names[0]] = last.values[0]
    return attrs.evolve(kernel, body=tuple(body))


def _changed(value: Scalar, maxima: Maxima) -> Scalar | None:
    if value.op != "exp" or not has("exp_nonpositive", (value.dtype,)):
        return None
    (x,) = value.args
    return function("exp_nonpositive", value.dtype, x) if _sign(x, maxima) == -1 else None


def _sign(value: Scalar, maxima: Maxima) -> int | None:
    """-1: at most 0 or nan, 1: at least 0 or nan, None: not known."""
    match value.op:
        case "const":
            return 1 if value.args[0] > 0 else -1
        case "abs" | "sqrt" | "exp" | "exp_nonpositive":
            return 1
        case "neg":
            sign = _sign(value.args[0], maxima)
            return None if sign is None else -sign
        case "mul":
            return _sign_of_product(value, maxima)
        case "sub":
            a, b = value.args
            return -1 if b.op == "name" and maxima.get(b.args[0]) is a else None
    return None


def _sign_of_product(value: Scalar, maxima: Maxima) -> int | None:
    if value.args[0] is value.args[1]:
        return 1
    one, other = [_sign(factor, maxima) for factor in value.args]
    return None if one is None or other is None else one * other
