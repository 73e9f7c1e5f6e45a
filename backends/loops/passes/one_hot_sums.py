"""One-hot sums: a sum over j of `where(j == k, value, 0)` becomes `value`, without a loop.

k and the value must not depend on j. The gradient of a gather is such a sum after fusion. The
result is the same, bit for bit. Spec: `specs/fusion.md`, FUS-18.
"""

from __future__ import annotations

import attrs

from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.program import Kernel, Reduce, Scan, Statement
from aotlite.backends.loops.rewrite import Memo, replaced_body
from aotlite.ir.scalar.expression import Scalar, axis, const, make, name, where


def with_selected(kernel: Kernel) -> Kernel:
    """Returns the kernel without one-hot sums."""
    if kernel.space != len(kernel.extents) - 1 or not is_axis(kernel.extents[-1]):
        return kernel
    memo: Memo = {}
    body: list[Statement] = []
    for statement in kernel.body:
        (changed,) = replaced_body([statement], memo)
        found = _selected(changed, kernel) if isinstance(changed, Reduce) else None
        if found is None:
            body.append(changed)
        else:
            assert isinstance(changed, Reduce)
            memo[name(changed.names[0], found.dtype)] = found
    return attrs.evolve(kernel, body=tuple(body)) if memo else kernel


def _selected(statement: Reduce, kernel: Kernel) -> Scalar | None:
    """Returns the value of a one-hot sum; None for another reduction.

    The sum of a value and zeros is the value, but 0.0 if that is -0.0: hence `then + 0`.
    """
    value = statement.values[0]
    if statement.kind != "sum" or value.op != "where" or value.args[0].op != "eq":
        return None
    condition, then, other = value.args
    j = axis(kernel.space)
    place = next((k for k in condition.args if k is not j), None)
    is_zero = other.op == "const" and str(other.args[0]) in ("0", "0.0")
    if place is None or j not in condition.args or not is_zero:
        return None
    if not (is_of_row(place, kernel) and is_of_row(then, kernel)):
        return None
    inside = make("and", place >= 0, place < kernel.extents[-1])
    return where(inside, then + 0, const(0, then.dtype))


def is_of_row(value: Scalar, kernel: Kernel) -> bool:
    """Whether an expression uses no inner axis, so that it is one value a row."""
    found, space = facts(value), kernel.space
    scans = {k for s in kernel.body if type(s) is Scan for k in s.names}
    return (
        all(k < space for k in found.axes)
        and all(not any(load.args[1].coefficients[space:]) for load in found.loads)
        and scans.isdisjoint(found.names)
    )
