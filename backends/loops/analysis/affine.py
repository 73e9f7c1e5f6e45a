"""The algebra of affine forms of axes: composition, ranges, and the solver that fusion needs.

A form is an `Affine`: an address in elements, or a position along another kernel's axis. A producer
stores at b1[8*i0 + i1], its consumer loads b1[8*j1 + j0]: `solve` finds i0 = j1 and i1 = j0, so
that the producer's expression can be written in the consumer's axes. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from typing import Final, TypeAlias

import attrs

from aotlite.backends.loops.analysis.size_proofs import (
    exact_quotient,
    floor_quotient,
    is_axis,
    reached,
)
from aotlite.ir.dtypes import int64
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.scalar.expression import Affine, Scalar, axis, cast, const, is_affine
from aotlite.ir.symbols.proving import is_proved

Bounds: TypeAlias = tuple[tuple[int, int], ...]
"""The least and the greatest position along each axis, both included."""
Forms: TypeAlias = tuple[Affine, ...]
"""For each axis of one kernel, its position as a form of another kernel's axes."""


@attrs.frozen
class Split:
    """An answer of `solve`: a solution exists once `axis` is split with this inner extent."""

    axis: int
    inner: int


# ------------------------------------------------------------------------------------------ making
def whole(extents: Sequence[int]) -> Bounds:
    """Returns the bounds of all points of these extents."""
    return tuple([(0, extent - 1) for extent in extents])


@cache
def unit(k: int, count: int) -> Affine:
    """Returns the form that is axis k of `count` axes."""
    return Affine(tuple([int(k == each) for each in range(count)]))


@cache
def fixed(value: int, count: int) -> Affine:
    """Returns the form that is a constant, over `count` axes."""
    return Affine((0,) * count, value)


@cache
def identity(count: int) -> Forms:
    """Returns the forms that map each axis to itself."""
    return tuple([unit(k, count) for k in range(count)])


def composed(address: Affine, forms: Forms, count: int) -> Affine:
    """Returns the address with axis k replaced by `forms[k]`, a form of `count` axes.

    Its own dynamic values stay: `rewrite.moved` replaces their axes.
    """
    coefficients = [0] * count
    start, dynamic = address.start, address.dynamic
    for step, form in zip(address.coefficients, forms, strict=True):
        if not step:
            continue
        start += step * form.start
        for k, coefficient in enumerate(form.coefficients):
            if coefficient:
                coefficients[k] += step * coefficient
        if form.dynamic:
            dynamic += tuple([(value, each * step) for value, each in form.dynamic])
    return Affine(tuple(coefficients), start, dynamic)


def as_scalar(form: Affine) -> Scalar:
    """Returns the form as an int64 expression."""
    total: Scalar | None = None
    for k, coefficient in enumerate(form.coefficients):
        if coefficient:
            term = axis(k) if coefficient == 1 else axis(k) * coefficient
            total = term if total is None else total + term
    for value, step in form.dynamic:
        term = cast(value, int64) * step if step != 1 else cast(value, int64)
        total = term if total is None else total + term
    if total is None:
        return const(form.start, int64)
    return total + form.start if form.start else total


def form_of(value: Scalar, count: int) -> Affine | None:
    """Returns the affine form that an int64 expression is; None where it is not affine."""
    if value.dtype is not int64:
        return None
    stack = [value]
    while stack:
        missing = [each for each in _terms(stack[-1]) if each.linear is None]
        stack += missing
        if not missing:
            last = stack.pop()
            object.__setattr__(last, "linear", _linear(last))
    if value.linear is _NO_FORM:
        return None
    coefficients, start = value.linear
    return Affine(coefficients + (0,) * (count - len(coefficients)), start)


Linear: TypeAlias = tuple[tuple[int, ...], int]
"""(coefficients up to the last axis that is used, start)."""
_NO_FORM: Final = ((), None)
"""The value of `Scalar.linear` for an expression that is not affine."""
LARGEST = 1 << 30
"""The largest coefficient of a form. Times a position it stays within int64, whose sums wrap."""
FURTHEST = 1 << 60
"""The largest start of a form."""


def _terms(value: Scalar) -> tuple[Scalar, ...]:
    """Returns the operands of an int64 sum, difference, product or negation; else nothing."""
    return value.args if value.dtype is int64 and is_affine(value) else ()


def _linear(value: Scalar) -> Linear | tuple[tuple[()], None]:
    """Returns the form of a value whose terms' forms are known."""
    found: Linear | None = None
    match value.op:
        case "axis":
            found = (0,) * value.args[0] + (1,), 0
        case "const" if value.dtype is int64:
            found = (), value.args[0]
        case _ if value.dtype is int64 and is_affine(value):
            terms = [each.linear for each in value.args]
            if all(each is not _NO_FORM for each in terms):
                found = _combined(value.op, terms)
    if found is None or _is_far(found[1], FURTHEST) or any(_is_far(c, LARGEST) for c in found[0]):
        return _NO_FORM
    return found


def _is_far(number: int, most: int) -> bool:
    """Whether a number is so large that forms with it may leave int64. Sizes are not: what they are
    multiplied by is a position, and the product one, too."""
    return type(number) is int and abs(number) > most


def _combined(op: str, terms: list[Linear]) -> Linear | None:
    (first, start), (second, other) = terms[0], terms[-1]
    if op == "neg":
        return tuple([-c for c in first]), -start
    if op != "mul":
        sign = 1 if op == "add" else -1
        pairs = zip_longest(first, second, fillvalue=0)
        return tuple([a + sign * b for a, b in pairs]), start + sign * other
    if not any(first):
        first, start, second, other = second, other, first, start
    return None if any(second) else (tuple([c * other for c in first]), start * other)


def added(first: Affine, second: Affine, factor: int = 1) -> Affine:
    """Returns first + factor * second, for forms without dynamic values."""
    coefficients = [
        a + factor * b for a, b in zip(first.coefficients, second.coefficients, strict=True)
    ]
    return Affine(tuple(coefficients), first.start + factor * second.start)


# ------------------------------------------------------------------------------------------ ranges
def reach(form: Affine, bounds: Bounds) -> tuple[int, int]:
    """Returns the least and the greatest value of a form's affine part within bounds."""
    low = high = form.start
    for coefficient, (first, last) in zip(form.coefficients, bounds, strict=True):
        if coefficient:
            least, most = reached(coefficient, first, last)
            low, high = low + least, high + most
    return low, high


def is_injective(coefficients: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether different points have different addresses, for sure: each stride exceeds the reach of
    all smaller ones together. False may mean "not known"."""
    used = [(abs(c), n) for c, n in zip(coefficients, extents, strict=True) if is_axis(n)]
    below = 0
    for step, extent in sorted(used, key=_by_hint):
        if not is_proved(step > below):
            return False
        below += step * (extent - 1)
    return True


def _by_hint(values: Sequence[int]) -> list[int]:
    """The key that sorts tuples of sizes by what they are in the traced call."""
    return [hint_of(value) for value in values]


def range_of(value: Scalar) -> tuple[int, int] | None:
    """Returns bounds of an integer expression that a `where` clamps, as lowering clamps the indices
    of a gather; None where no bounds are known."""
    if value.op == "const":
        return int(value.args[0]), int(value.args[0])
    if value.op != "where":
        return None
    condition, then, other = value.args
    outside, inside = range_of(other), _confined(then, condition)
    if outside is None or inside is None:
        return None
    return min(inside[0], outside[0]), max(inside[1], outside[1])


def _confined(value: Scalar, condition: Scalar) -> tuple[int, int] | None:
    """Returns bounds of a value where the condition low <= value < high holds."""
    low = high = None
    for each in condition.args if condition.op == "and" else ():
        if len(each.args) == 2 and each.args[0] is value and each.args[1].op == "const":
            bound = each.args[1].args[0]
            if is_symbolic((bound,)):
                return None
            bound = int(bound)
            low = bound if each.op == "ge" else low
            high = bound - 1 if each.op == "lt" else high
    return None if low is None or high is None else (low, high)


# ----------------------------------------------------------------------------------------- solving
def solve(
    address: Affine, bounds: Bounds, target: Affine, extents: Sequence[int]
) -> Forms | Split | None:
    """Returns the points of a producer at which a consumer's loads were stored.

    That is, for each axis of the producer (`extents`, stores at `target`), a form of the consumer's
    axes (`bounds`, loads at `address`), with which the two addresses are equal at each point within
    the bounds. A stored address is a number in mixed radix whose digits are the producer's axes:

        target 8*i0 + i1, i0<4, i1<8;  address 8*j0 + 2*j1 + 1, j1<4   ->   i0 = j0, i1 = 2*j1 + 1

    From the largest stride on, each term of the address is divided into this digit and the rest.
    None: there are no such forms. Split: an axis of the consumer runs over more than one digit, so
    that it must be split first. Dynamic values with known bounds count as axes.
    """
    if target.dynamic:
        return None
    if not address.dynamic:
        return _solved(address, bounds, target, extents)
    ranges = [range_of(value) for value, _ in address.dynamic]
    known = tuple([each for each in ranges if each is not None])
    if len(known) < len(ranges):
        return None
    steps = tuple([step for _, step in address.dynamic])
    wide = Affine((*address.coefficients, *steps), address.start)
    found = _solved(wide, (*bounds, *known), target, extents)
    if not isinstance(found, tuple):
        return found if found is None or found.axis < len(bounds) else None
    return tuple([_narrow(form, address, len(bounds)) for form in found])


def _narrow(form: Affine, address: Affine, count: int) -> Affine:
    """Returns the form with the axes behind `count` replaced by the address's dynamic values."""
    steps = form.coefficients[count:]
    pairs = [(v, step) for (v, _), step in zip(address.dynamic, steps, strict=True) if step]
    return Affine(form.coefficients[:count], form.start, tuple(pairs))


def _solved(
    address: Affine, bounds: Bounds, target: Affine, extents: Sequence[int]
) -> Forms | Split | None:
    levels = sorted(
        [
            (step, n, k)
            for k, (step, n) in enumerate(zip(target.coefficients, extents, strict=True))
            if is_axis(n)
        ],
        key=_by_hint,
        reverse=True,
    )
    below = sum([step * (n - 1) for step, n, _ in levels])
    rest = _without_fixed(address, bounds, address.start - target.start)
    found = [fixed(0, len(bounds))] * len(extents)
    for step, extent, k in levels:
        below -= step * (extent - 1)
        if not is_proved(step > below):
            return None
        digit = _digit(rest, bounds, step, below)
        if not isinstance(digit, tuple):
            return digit
        found[k], rest = digit
        low, high = reach(found[k], bounds)
        if not (is_proved(low >= 0) and is_proved(high < extent)):
            return None
    return None if rest.start or any(rest.coefficients) else tuple(found)


def _without_fixed(address: Affine, bounds: Bounds, start: int) -> Affine:
    """Returns the address with axes of a single position replaced by that position."""
    if all(low != high for low, high in bounds):
        return Affine(address.coefficients, start)
    coefficients = list(address.coefficients)
    for k, (low, high) in enumerate(bounds):
        if low == high:
            start += coefficients[k] * low
            coefficients[k] = 0
    return Affine(tuple(coefficients), start)


def _digit(
    address: Affine, bounds: Bounds, step: int, below: int
) -> tuple[Affine, Affine] | Split | None:
    """Returns (digit, rest) with address = digit * step + rest and 0 <= rest <= below."""
    digits: list[int] = []
    rests: list[int] = []
    for k, coefficient in enumerate(address.coefficients):
        quotient, rest = _divmod(coefficient, step)
        if rest and is_symbolic((coefficient, step, below, *bounds[k])):
            part = _split_by_size(k, coefficient, step, bounds[k])
            if part is not None:
                return part
        elif rest:
            choice = _divided(quotient, rest, step, below // max(bounds[k][1] - bounds[k][0], 1))
            if choice is None:
                return _split(k, coefficient, step, bounds[k])
            quotient, rest = choice
        digits.append(quotient)
        rests.append(rest)
    low, high = reach(Affine(tuple(rests)), bounds)
    found = floor_quotient(address.start + low, step)
    if found is None:
        return None
    quotient = found
    start = address.start - quotient * step
    if not is_proved(start + high <= below):
        return None
    return Affine(tuple(digits), quotient), Affine(tuple(rests), start)


def _divmod(coefficient: int, step: int) -> tuple[int, int]:
    """Returns a quotient and a rest; of sizes the exact quotient, or else (0, coefficient)."""
    if type(coefficient) is int and type(step) is int:
        return divmod(coefficient, step)
    exact = exact_quotient(coefficient, step)
    return (0, coefficient) if exact is None else (exact, 0)


def _divided(quotient: int, rest: int, step: int, most: int) -> tuple[int, int] | None:
    """Returns (quotient, rest) of a term's coefficient by the step, with the smaller |rest| where
    two fit: rests may be negative."""
    nearest = (quotient + 1, rest - step) if step - rest < rest else (quotient, rest)
    other = (quotient, rest) if step - rest < rest else (quotient + 1, rest - step)
    return next((each for each in (nearest, other) if abs(each[1]) <= most), None)


def _split(k: int, coefficient: int, step: int, bound: tuple[int, int]) -> Split | None:
    if coefficient <= 0 or step % coefficient or bound[0]:
        return None
    inner = step // coefficient
    return Split(k, inner) if 1 < inner <= bound[1] and (bound[1] + 1) % inner == 0 else None


def _split_by_size(k: int, coefficient: int, step: int, bound: tuple[int, int]) -> Split | None:
    """`_split` where the parts are symbolic: both are exact quotients."""
    inner = exact_quotient(step, coefficient) if bound[0] == 0 else None
    if inner is None or exact_quotient(bound[1] + 1, inner) is None or inner == 1:
        return None
    if not is_proved(inner >= 0):
        return None  # the axis runs backwards
    return None if inner == bound[1] + 1 else Split(k, inner)
