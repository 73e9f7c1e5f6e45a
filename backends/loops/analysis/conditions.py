"""Bounds of axes inside the branches of `where`: the points at which a scalar is executed.

In `where(i0 < 3, b0[i0], b1[i0 - 3])` of i0<8 the first load runs at (0, 2), the second at (3, 7).
So fusion can inline a producer into one branch, as of a concatenation. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotlite.backends.loops.analysis.affine import Bounds, added, form_of, reach, whole
from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.backends.loops.program import Statement, values_of
from aotlite.backends.loops.rewrite import replaced_body
from aotlite.ir.geometry.sizes import maximum, minimum
from aotlite.ir.scalar.expression import Affine, Scalar, walk, with_operands
from aotlite.ir.scalar.primitives import COMPARISONS, PRIMITIVE
from aotlite.ir.symbols.proving import is_proved


def executed(roots: Iterable[Scalar], bounds: Bounds) -> dict[Scalar, Bounds | None]:
    """Returns, for each scalar of the trees, bounds of the points at which it is executed; None for
    one that is never executed."""
    roots = list(roots)
    order = list(walk(roots))
    if all(value.op != "where" for value in order):
        return dict.fromkeys(order, bounds)
    known: Narrowed = {}
    found: dict[Scalar, Bounds | None] = dict.fromkeys(order)
    found.update(dict.fromkeys(roots, bounds))
    for value in reversed(order):
        inside = found[value]
        if inside is None:
            continue
        branches: tuple[Bounds | None, ...] = (inside, inside, inside)
        if value.op == "where":
            condition = value.args[0]
            branches = (
                inside,
                narrowed(inside, condition, known, holds=True),
                narrowed(inside, condition, known, holds=False),
            )
        for operand, each in zip(value.operands, _all(value, branches), strict=True):
            found[operand] = hull(found[operand], each)
    return found


def _all(value: Scalar, branches: tuple[Bounds | None, ...]) -> tuple[Bounds | None, ...]:
    return branches if value.op == "where" else branches[:1] * len(value.operands)


def hull(first: Bounds | None, second: Bounds | None) -> Bounds | None:
    """Returns the least bounds that contain both; None stands for no points."""
    if first is None or second is None or first is second:
        return second if first is None else first
    pairs = zip(first, second, strict=True)
    return tuple([(minimum(a, c), maximum(b, d)) for (a, b), (c, d) in pairs])


Narrowed = dict[tuple[Scalar, bool, Bounds], Bounds | None]
"""A cache of `narrowed`: (condition, whether it holds, bounds) -> narrower bounds."""


def narrowed(
    bounds: Bounds | None, condition: Scalar, known: Narrowed, *, holds: bool
) -> Bounds | None:
    """Returns bounds of the points within `bounds` at which the condition holds, or does not hold;
    None if there are none. `known` is a cache, since conditions share parts."""
    if bounds is None:
        return None
    key = condition, holds, bounds
    if key not in known:
        known[key] = _narrowed(bounds, condition, known, holds)
    return known[key]


def _narrowed(bounds: Bounds, condition: Scalar, known: Narrowed, holds: bool) -> Bounds | None:
    match condition.op:
        case "const":
            return bounds if bool(condition.args[0]) is holds else None
        case "not":
            return narrowed(bounds, condition.args[0], known, holds=not holds)
        case "and" | "or":
            first, second = condition.args
            one = narrowed(bounds, first, known, holds=holds)
            if (condition.op == "and") is holds:
                return narrowed(one, second, known, holds=holds)
            return hull(one, narrowed(bounds, second, known, holds=holds))
        case op if op in COMPARISONS:
            return _compared(bounds, condition, op if holds else PRIMITIVE[op].opposite)
    return bounds


def _compared(bounds: Bounds, condition: Scalar, op: str) -> Bounds | None:
    left, right = [form_of(operand, len(bounds)) for operand in condition.args]
    if left is None or right is None or op == "ne":
        return bounds
    apart = added(left, right, -1)
    back = added(right, left, -1)
    match op:
        case "lt":
            at_most = [(apart, 1)]
        case "le":
            at_most = [(apart, 0)]
        case "gt":
            at_most = [(back, 1)]
        case "ge":
            at_most = [(back, 0)]
        case _:
            at_most = [(apart, 0), (back, 0)]
    found: Bounds | None = bounds
    for form, margin in at_most:
        found = None if found is None else _at_most(found, form, -margin)
    return found


def _at_most(bounds: Bounds, form: Affine, limit: int) -> Bounds | None:
    """Returns bounds of the points where form <= limit; None if there are none."""
    low, _ = reach(form, bounds)
    if is_proved(low > limit):
        return None
    result = list(bounds)
    for k, coefficient in enumerate(form.coefficients):
        first, last = bounds[k]
        if type(coefficient) is not int:
            continue
        if coefficient > 0:
            result[k] = (first, minimum(last, first + (limit - low) // coefficient))
        elif coefficient:
            result[k] = (maximum(first, last - (limit - low) // -coefficient), last)
    return tuple(result)


def decided(body: Sequence[Statement], extents: Sequence[int]) -> tuple[Statement, ...]:
    """Returns the statements without branches that no point takes."""
    roots = [value for statement in body for value in values_of(statement)]
    if not any(facts(root).branches for root in roots):
        return tuple(body)
    bounds = executed(roots, whole(extents))
    memo: dict[Scalar, Scalar] = {}
    known: Narrowed = {}
    for value in bounds:
        same = with_operands(value, tuple([memo[operand] for operand in value.operands]))
        memo[value] = same if value.op != "where" else _taken(value, same, bounds[value], known)
    return replaced_body(body, memo)


def _taken(value: Scalar, same: Scalar, bounds: Bounds | None, known: Narrowed) -> Scalar:
    """Returns the branch that all points take, or else the `where` itself."""
    if same.op != "where" or bounds is None:
        return same
    condition = value.args[0]
    if narrowed(bounds, condition, known, holds=True) is None:
        return same.operands[2]
    if narrowed(bounds, condition, known, holds=False) is None:
        return same.operands[1]
    return same
