"""Scalar expressions on NumPy arrays: one operation, or a whole expression.

The interpreter of loops computes a function by its body, as kernels do; laws, by the function of
NumPy that its row names (`by_numpy`). Spec: `specs/loops.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from aotlite.ir.arrays import Array
from aotlite.ir.scalar.expression import Scalar, walk
from aotlite.ir.scalar.functions import FUNCTIONS, find
from aotlite.ir.scalar.primitives import PRIMITIVE

Called: TypeAlias = Callable[[Scalar, list[Array]], Array]
"""Computes the call of a function."""
Uses: TypeAlias = Counter[Scalar]
"""The number of scalars and statements that use each scalar."""


def filled(shape: tuple[int, ...], number: Scalar) -> Array:
    """Returns an array of one constant."""
    return np.full(shape, number.args[0], number.dtype.numpy)


def by_body(scalar: Scalar, operands: list[Array]) -> Array:
    """Returns the value of a function as kernels compute it."""
    kinds = [operand.dtype for operand in scalar.args]
    return evaluate(find(scalar.op, kinds).body, operands)


def by_numpy(scalar: Scalar, operands: list[Array]) -> Array:
    """Returns the value of a function by NumPy."""
    return FUNCTIONS[scalar.op].numpy(*operands)


def evaluate(root: Scalar, parameters: Sequence[Array], called: Called = by_body) -> Array:
    """Returns the value of an expression on arrays of its parameters."""
    found: dict[Scalar, Array] = {}
    uses = uses_of([root])
    for scalar in walk([root]):
        if scalar.op == "parameter":
            found[scalar] = parameters[scalar.args[0]]
        elif scalar.op == "const":
            found[scalar] = np.asarray(scalar.args[0], scalar.dtype.numpy)
        else:
            operands = [found[operand] for operand in scalar.args]
            found[scalar] = apply(scalar, operands, called)
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


def apply(scalar: Scalar, operands: list[Array], called: Called = by_body) -> Array:
    """Returns the result of an operation on arrays of its operands."""
    primitive = PRIMITIVE.get(scalar.op)
    if primitive is not None:
        return primitive.numpy(*operands)
    if scalar.op == "cast":
        return operands[0].astype(scalar.dtype.numpy)
    if scalar.op == "bits":
        return operands[0].view(scalar.dtype.numpy)
    return called(scalar, operands)
