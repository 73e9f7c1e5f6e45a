"""Index set splitting: a loop is split where a condition on its axis changes.

    for (i < 10) b1[i] = i < 2 ? 0 : b0[i - 2];     a pad
      ->  for (i = 0; i < 2; ++i) b1[i] = 0;   for (i = 2; i < 10; ++i) b1[i] = b0[i - 2];

The parts have no branches, and vectorize. A condition compares affine forms of axes. Along one axis
it changes at a few points, its *flips*, whose places may depend on other axes: i0 + i1 < 5 flips
along i1 at 5 - i0, that is, at 5 from the *base* -i0. A loop is split at the flips of one base.
Nothing here is of C. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import attrs

from aotlite.ir import dtypes
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.scalar.expression import (
    Affine,
    Scalar,
    const,
    is_affine,
    load,
    rebuilt,
    unknown,
    walk,
    where,
)
from aotlite.ir.scalar.primitives import COMPARISONS
from aotlite.ir.symbols.proving import is_proved

Base = tuple[tuple[int | Scalar, int], ...]
"""A sum of (axis, or value that is constant in the loop; coefficient): the origin of flips."""
Fixed = Callable[[Scalar], bool]
"""Whether an integer value is invariant in the loop, and may be computed before it."""
FLIPS = 6
"""The most places at which a loop is split: each part is more C text."""
_OPPOSITE = {"gt": "lt", "ge": "le"}


@attrs.frozen
class Condition:
    """The truth of a comparison along one axis: `first` up to the first flip, then negated at each
    flip."""

    scalar: Scalar
    base: Base
    first: bool
    flips: tuple[int, ...]
    """The positions at which the truth changes, minus the base."""

    def at(self, place: int) -> bool:
        """Returns its truth at a position, given minus the base."""
        return self.first ^ (sum(flip <= place for flip in self.flips) % 2 == 1)


@attrs.frozen
class LoopSegment:
    """A part of a loop: [begin, end) minus the base, and the truth of the conditions in it. None
    stands for the start and the end of the loop."""

    base: Base
    begin: int | None
    end: int | None
    truths: Mapping[Scalar, bool]


def parts(roots: Iterable[Scalar], axis: int, fixed: Fixed | None) -> list[list[LoopSegment]]:
    """Returns two lists of parts of a loop along an axis: by constant flips, and by one base's.

    The first list splits the whole loop, the second splits each of its parts. Flips that depend on
    other axes, and on values that are `fixed`, are used only if `fixed` is given.
    """
    found: dict[Base, list[Condition]] = {}
    forms = AffineForms(fixed)
    for scalar in walk(roots):
        if scalar.op in COMPARISONS and scalar.args[0].dtype is dtypes.int64:
            condition = _condition(scalar, axis, forms)
            if condition is not None:
                found.setdefault(condition.base, []).append(condition)
    still = found.pop((), [])
    moved = next(iter(found.values()), []) if fixed is not None else []
    return [_parts((), still), _parts(moved[0].base if moved else (), moved)]


def _parts(base: Base, conditions: list[Condition]) -> list[LoopSegment]:
    flips = _in_order({flip for each in conditions for flip in each.flips})
    if not flips or len(flips) > FLIPS:
        return [LoopSegment((), None, None, {})]
    edges: list[int | None] = [None, *flips, None]
    found = []
    for begin, end in pairwise(edges):
        place = flips[0] - 1 if begin is None else begin
        truths = {each.scalar: each.at(place) for each in conditions}
        found.append(LoopSegment(base, begin, end, truths))
    return found


def _in_order(flips: set[int]) -> list[int]:
    """Returns the flips in ascending order; none where their order depends on sizes."""
    found = sorted(flips, key=hint_of)
    return found if all(is_proved(a < b) for a, b in pairwise(found)) else []


def folded(roots_truths: Mapping[Scalar, bool]) -> Callable[[Scalar], Scalar]:
    """Returns a function that rewrites values with these conditions replaced by their truth."""
    memo: dict[Scalar, Scalar] = {
        scalar: const(truth, dtypes.bool_) for scalar, truth in roots_truths.items()
    }

    def change(root: Scalar) -> Scalar:
        return rebuilt(root, _logic, memo)

    return change


def _logic(scalar: Scalar) -> Scalar | None:
    """Returns the result of a logical operation with a constant operand; None for another one."""
    if scalar.op in ("and", "or"):
        for one, other in (scalar.args, scalar.args[::-1]):
            if one.op == "const":
                return other if one.args[0] == (scalar.op == "and") else one
    if scalar.op == "not" and scalar.args[0].op == "const":
        return const(not scalar.args[0].args[0], dtypes.bool_)
    return None


# --------------------------------------------------------------------------------- affine forms
Form = tuple[dict[int | Scalar, int], int]
"""(coefficients of axes and of opaque values, constant)."""
LARGEST, FURTHEST = 1 << 30, 1 << 60
"""The largest coefficient and the largest constant of a form."""
FAR = 1 << 40
"""Positions are clamped to this: no loop is so long."""


class AffineForms:
    """The affine forms of integer values, with a cache."""

    def __init__(self, fixed: Fixed | None) -> None:
        self.fixed = fixed
        self.known: dict[Scalar, Form | None] = {}

    def of(self, root: Scalar) -> Form | None:
        """Returns the affine form that an integer value is; None if it is not affine."""
        for scalar in unknown(root, self.known, _terms):
            terms = [self.known[each] for each in _terms(scalar)]
            self.known[scalar] = _form(scalar, terms, self.fixed)
        return self.known[root]


def _terms(scalar: Scalar) -> tuple[Scalar, ...]:
    """Returns the operands of a sum, difference, product or negation; else nothing."""
    return scalar.args if is_affine(scalar) else ()


def _form(scalar: Scalar, terms: list[Form | None], fixed: Fixed | None) -> Form | None:
    match scalar.op:
        case "const":
            return {}, scalar.args[0] if is_symbolic(scalar.args) else int(scalar.args[0])
        case "axis":
            return {scalar.args[0]: 1}, 0
        case "neg":
            return _near(_scaled(terms[0], -1))
        case "add" | "sub":
            return _near(_added(terms[0], _scaled(terms[1], 1 if scalar.op == "add" else -1)))
        case "mul":
            a, b = terms
            if a is not None and b is not None and not (a[0] and b[0]):
                return _near(_scaled(a, b[1]) if a[0] else _scaled(b, a[1]))
        case _ if fixed is not None and fixed(scalar):
            return {scalar: 1}, 0
    return None


def _near(a: Form | None) -> Form | None:
    """Returns the form; None if its values may leave int64, whose sums wrap."""
    if a is None or _is_far(a[1], FURTHEST) or any(_is_far(c, LARGEST) for c in a[0].values()):
        return None
    return a


def _is_far(number: int, most: int) -> bool:
    """Whether a number is too large for a form; symbolic sizes are not (`affine.py`)."""
    return type(number) is int and abs(number) > most


def _scaled(a: Form | None, by: int) -> Form | None:
    if a is None:
        return None
    return {k: c * by for k, c in a[0].items() if c * by}, a[1] * by


def _added(a: Form | None, b: Form | None) -> Form | None:
    if a is None or b is None:
        return None
    total = {k: a[0].get(k, 0) + b[0].get(k, 0) for k in (*a[0], *b[0])}
    return {k: c for k, c in total.items() if c}, a[1] + b[1]


def _condition(scalar: Scalar, axis: int, forms: AffineForms) -> Condition | None:
    """Returns a comparison's truth along an axis; None unless it compares affine forms whose
    difference varies along the axis."""
    a, b = map(forms.of, scalar.args)
    op = scalar.op
    if op in _OPPOSITE:
        a, b, op = b, a, _OPPOSITE[op]
    apart = _added(a, _scaled(b, -1))
    if apart is None or axis not in apart[0]:
        return None
    rest, number = dict(apart[0]), apart[1]
    step = rest.pop(axis)
    if is_symbolic((step, *rest.values())) or (is_symbolic((number,)) and abs(step) != 1):
        return None
    values = [k for k in rest if not isinstance(k, int)]
    if rest and abs(step) != 1 or values and (len(rest) > 1 or abs(rest[values[0]]) != 1):
        return None
    sign = -1 if step > 0 else 1
    base = tuple([(k, sign * c) for k, c in sorted(rest.items(), key=str)])
    if _is_far(number, FAR // 2 - 1):
        return None
    return _flips(scalar, op, base, (step, number))


def _flips(scalar: Scalar, op: str, base: Base, line: tuple[int, int]) -> Condition | None:
    """Returns the truth along x of step * x + number op 0."""
    step, number = line
    if op == "le":
        op, number = "lt", number - 1
    if op == "lt":
        # Up: true before the least x at which it is not below 0. Down: false up to there.
        flip = -(number // step) if step > 0 else number // -step + 1
        return Condition(scalar, base, step > 0, (flip,))
    if number % step:
        return Condition(scalar, base, op == "ne", ())
    return Condition(scalar, base, op == "ne", (-number // step, -number // step + 1))


# ------------------------------------------------------------------------------ chosen addresses
def with_chosen_addresses(root: Scalar, fixed: Callable[[Scalar], bool]) -> Scalar:
    """Returns the value with a choice of two loads turned into one load at a chosen address.

        c ? b0[8*i0 + i1 + 2] : b0[8*i0 + i1 - 6]   ->   b0[8*i0 + i1 + (c ? 2 : -6)]

    Only where the addresses differ in their starts and the condition is invariant in the innermost
    loop (`fixed`): then the start is chosen before it, as in a roll along an outer axis.
    """

    known: Choices = {}

    def change(scalar: Scalar) -> Scalar | None:
        if scalar.op != "where" or not fixed(scalar.args[0]):
            return None
        condition, then, other = scalar.args
        return _joined(condition, (then, other), known)

    return rebuilt(root, change)


def _joined(condition: Scalar, loads: tuple[Scalar, Scalar], known: Choices) -> Scalar | None:
    a, b = loads
    if a.op != "load" or b.op != "load" or a.args[0] != b.args[0]:
        return None
    first, second = _start(a.args[1], known), _start(b.args[1], known)
    if first is None or second is None or a.args[1].coefficients != b.args[1].coefficients:
        return None
    chosen = where(condition, first, second)
    return load(a.args[0], Affine(a.args[1].coefficients, 0, ((chosen, 1),)), a.dtype)


Choices = dict[Scalar, bool]
"""For each value whether it is a choice between constants."""


def _start(address: Affine, known: Choices) -> Scalar | None:
    """Returns the start of an address as a scalar; None if it is neither a number nor a choice."""
    if not address.dynamic:
        return const(address.start, dtypes.int64)
    value, step = address.dynamic[0]
    chosen = value.op == "where" and len(address.dynamic) == 1 and step == 1
    return value if chosen and address.start == 0 and _is_choice(value, known) else None


def _is_choice(root: Scalar, known: Choices) -> bool:
    """Whether a value is a choice between constants."""
    for value in unknown(root, known, _branches):
        chosen = value.op == "where" and all(known[each] for each in _branches(value))
        known[value] = chosen or value.op == "const"
    return known[root]


def _branches(value: Scalar) -> tuple[Scalar, ...]:
    return value.args[1:] if value.op == "where" else ()
