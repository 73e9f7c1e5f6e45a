"""Scalar expressions on NumPy arrays: one operation, or the body of a library function.

The lowest module of the interpreter; it knows no kernels. Spec: `specs/loops.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from aotlite.ir.scalar.expression import Scalar, walk
from aotlite.ir.scalar.functions import find

Array = Any
Uses: TypeAlias = Counter[Scalar]
"""The number of scalars and statements that use each scalar."""


def filled(shape: tuple[int, ...], number: Scalar) -> Array:
    """Returns an array of one constant."""
    return np.full(shape, number.args[0], number.dtype.numpy)


def evaluate(root: Scalar, parameters: Sequence[Array]) -> Array:
    """Returns the value of a function's body on arrays of its parameters."""
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
    """Returns the number of uses of each scalar of the trees. Each mention as a root is one."""
    found: Uses = Counter(roots)
    for scalar in walk(list(found)):
        found.update(dict.fromkeys(scalar.operands, 1))
    return found


def apply(scalar: Scalar, operands: list[Array]) -> Array:
    """Returns the result of an operation on arrays of its operands."""
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
    """Returns the quotient of integers, rounded towards 0."""
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
