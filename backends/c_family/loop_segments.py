"""Loops split where conditions on axes change: the insides of rolls, pads and joins have none.

A condition compares affine forms of axes. Along one axis it is constant but for a few *flips*,
whose places depend on the other axes by a common *base*. A loop is split at the flips of one base.
Input: values; output: ranges of an axis, and what conditions are in each. Nothing here is of C.
Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import attrs

from aotlite.backends.loops.expr import (
    COMPARISONS,
    Affine,
    Scalar,
    const,
    load,
    rebuilt,
    unknown,
    walk,
    where,
)
from aotlite.ir import dtypes

Base = tuple[tuple[int | Scalar, int], ...]
"""Pairs of an axis, or of a value that does not change in the loop, and its coefficient."""
Fixed = Callable[[Scalar], bool]
"""Whether an integer value does not change in a loop and may be computed before it."""
FLIPS = 6
"""A loop is split at so many places at most: every part is a text of its own."""
_OPPOSITE = {"gt": "lt", "ge": "le"}


@attrs.frozen
class Condition:
    """A comparison along one axis: `first` up to the first flip, then the other, and so on."""

    scalar: Scalar
    base: Base
    first: bool
    flips: tuple[int, ...]
    """Places from which it is the other, less the base."""

    def at(self, place: int) -> bool:
        """Its truth at a place less the base."""
        return self.first ^ (sum(flip <= place for flip in self.flips) % 2 == 1)


@attrs.frozen
class LoopSegment:
    """A range of an axis, [begin, end) less the base (None: from the start, to the end of the
    loop), and what the conditions are there."""

    base: Base
    begin: int | None
    end: int | None
    truths: Mapping[Scalar, bool]


def parts(roots: Iterable[Scalar], axis: int, fixed: Fixed | None) -> list[list[LoopSegment]]:
    """How to split a loop along an axis: parts by constant flips, then by flips of one base.

    The first list splits the whole loop, the second each of its parts. `fixed` allows flips that
    depend on other axes and on values.
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
    flips = sorted({flip for each in conditions for flip in each.flips})
    if not flips or len(flips) > FLIPS:
        return [LoopSegment((), None, None, {})]
    edges: list[int | None] = [None, *flips, None]
    found = []
    for begin, end in pairwise(edges):
        place = flips[0] - 1 if begin is None else begin
        truths = {each.scalar: each.at(place) for each in conditions}
        found.append(LoopSegment(base, begin, end, truths))
    return found


def folded(roots_truths: Mapping[Scalar, bool]) -> Callable[[Scalar], Scalar]:
    """A rewriting of values in which these conditions are known."""
    memo: dict[Scalar, Scalar] = {
        scalar: const(truth, dtypes.bool_) for scalar, truth in roots_truths.items()
    }

    def change(root: Scalar) -> Scalar:
        return rebuilt(root, _logic, memo)

    return change


def _logic(scalar: Scalar) -> Scalar | None:
    """A logical operation on constants, and a comparison of them, as its result."""
    if scalar.op in ("and", "or"):
        for one, other in (scalar.args, scalar.args[::-1]):
            if one.op == "const":
                return other if one.args[0] == (scalar.op == "and") else one
    if scalar.op == "not" and scalar.args[0].op == "const":
        return const(not scalar.args[0].args[0], dtypes.bool_)
    return None


# --------------------------------------------------------------------------------- affine forms
Form = tuple[dict[int | Scalar, int], int]
"""Coefficients of axes and of values that are not looked into, and a constant."""
LARGEST, FURTHEST = 1 << 30, 1 << 60
"""Of the coefficients and of the constant of a form."""
FAR = 1 << 40
"""Values beyond this are as good as this, as places to split loops at."""


class AffineForms:
    """The affine forms of integer values, each found once."""

    def __init__(self, fixed: Fixed | None) -> None:
        self.fixed = fixed
        self.known: dict[Scalar, Form | None] = {}

    def of(self, root: Scalar) -> Form | None:
        """An integer value as an affine form, if it is one."""
        for scalar in unknown(root, self.known, _terms):
            terms = [self.known[each] for each in _terms(scalar)]
            self.known[scalar] = _form(scalar, terms, self.fixed)
        return self.known[root]


def _terms(scalar: Scalar) -> tuple[Scalar, ...]:
    """What a value is the sum, difference or product of."""
    return scalar.args if scalar.op in ("neg", "add", "sub", "mul") else ()


def _form(scalar: Scalar, terms: list[Form | None], fixed: Fixed | None) -> Form | None:
    match scalar.op:
        case "const":
            return {}, int(scalar.args[0])
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
    """The form, if what it says stays within int64, whose sums wrap around."""
    if a is None or abs(a[1]) > FURTHEST or any(abs(c) > LARGEST for c in a[0].values()):
        return None
    return a


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
    """How a comparison goes along an axis, if it is one of affine forms that vary along it."""
    a, b = map(forms.of, scalar.args)
    op = scalar.op
    if op in _OPPOSITE:
        a, b, op = b, a, _OPPOSITE[op]
    apart = _added(a, _scaled(b, -1))
    if apart is None or axis not in apart[0]:
        return None
    rest, number = dict(apart[0]), apart[1]
    step = rest.pop(axis)
    values = [k for k in rest if not isinstance(k, int)]
    if rest and abs(step) != 1 or values and (len(rest) > 1 or abs(rest[values[0]]) != 1):
        return None
    sign = -1 if step > 0 else 1
    base = tuple([(k, sign * c) for k, c in sorted(rest.items(), key=str)])
    if abs(number) >= FAR // 2:
        return None
    return _flips(scalar, op, base, (step, number))


def _flips(scalar: Scalar, op: str, base: Base, line: tuple[int, int]) -> Condition | None:
    """The condition `step * x + number op 0`."""
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
    """The value with `where`s of two loads of a buffer as one load at a chosen address.

    Done where only the start differs and `fixed` says that the condition does not change in the
    innermost loop: then the address is chosen before it (rolls along outer axes).
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
"""Of values whether they choose between constants."""


def _start(address: Affine, known: Choices) -> Scalar | None:
    """The start of an address that is a number or was chosen."""
    if not address.dynamic:
        return const(address.start, dtypes.int64)
    value, step = address.dynamic[0]
    chosen = value.op == "where" and len(address.dynamic) == 1 and step == 1
    return value if chosen and address.start == 0 and _is_choice(value, known) else None


def _is_choice(root: Scalar, known: Choices) -> bool:
    """Whether a value chooses between constants."""
    for value in unknown(root, known, _branches):
        chosen = value.op == "where" and all(known[each] for each in _branches(value))
        known[value] = chosen or value.op == "const"
    return known[root]


def _branches(value: Scalar) -> tuple[Scalar, ...]:
    return value.args[1:] if value.op == "where" else ()
