"""Scalar expressions on NumPy's arrays: an operation, and the body of a function.

Input: scalars and arrays of their operands; output: arrays. Knows nothing of kernels.
Spec: `specs/loops.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from aotlite.backends.loops.expr import Scalar, walk
from aotlite.backends.loops.functions import find

Array = Any
Uses: TypeAlias = Counter[Scalar]
"""How many scalars, and statements, use a scalar."""


def filled(shape: tuple[int, ...], number: Scalar) -> Array:
    """An array of one constant."""
    return np.full(shape, number.args[0], number.dtype.numpy)


def evaluate(root: Scalar, parameters: Sequence[Array]) -> Array:
    """The value of a function's body on arrays."""
    found: dict[Scalar, Array] = {}
    uses = uses_of([root])
    for scalar in walk([root]):
        if scalar.op == "parameter":
            found[scalar] = parameters[scalar.args[0]]
        elif scalar.op == "const":
            found[scalar] = np.asarray(scalar.args[0], scalar.dtype.numpy)
        else:
            found[scalar] = apply(scalar, [found[operand] for operand in scalar.args])
            for operand in dict.fromkeys(scalar.args):
                uses[operand] -= 1
                if not uses[operand]:
                    del found[operand]
    return found[root]


def uses_of(roots: Iterable[Scalar]) -> Uses:
    """How many scalars use each scalar beneath some roots; a root once more each time it is one."""
    found: Uses = Counter(roots)
    for scalar in walk(list(found)):
        found.update(dict.fromkeys(scalar.operands, 1))
    return found


def apply(scalar: Scalar, operands: list[Array]) -> Array:
    """An operation on arrays of its operands."""
    primitive = _PRIMITIVES.get(scalar.op)
    if primitive is not None:
        return primitive(*operands)
    if scalar.op == "cast":
        return operands[0].astype(scalar.dtype.numpy)
    if scalar.op == "bits":
        return operands[0].view(scalar.dtype.numpy)
    kinds = [operand.dtype for operand in scalar.args]
    return evaluate(find(scalar.op, kinds).body, operands)


def _truncated(a: Array, b: Array) -> Array:
    """The quotient of integers, rounded towards 0."""
    quotient = np.floor_divide(a, b)
    return np.where((quotient * b != a) & ((a < 0) != (b < 0)), quotient + 1, quotient).astype(
        a.dtype
    )


_PRIMITIVES: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "neg": np.negative,
    "abs": np.absolute,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "idiv": _truncated,
    "irem": np.fmod,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.invert,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "where": np.where,
}
