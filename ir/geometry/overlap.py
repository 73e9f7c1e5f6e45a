"""Whether strided tensors share an address, or one tensor uses an address twice. Exact answers.

Ground floor. Used for writes to memory that overlaps (TEN-7, TEN-8) and for inputs that alias one
another (ALI-2 to ALI-5). For symbolic sizes the answer is that of the hints, and logged (ALI-7).

Each question becomes one equation, `Σ x_k stride_k = target` with `0 <= x_k <= count_k`. Merging
terms mostly leaves one or two, which need no search. A search that takes too long is ended by
`ir/geometry/box_equation.py`, so that the answer is exact up to six dimensions, for any strides.
"""

# Note [overlap is an equation]
#     a = buffer[0::2]; b = buffer[1::2]; a.mul_(b)     # interleaved: they share no address
# An address of a is offset_a + Σ i_k stride_k, one of b is offset_b + Σ j_k stride_k. Some of them
# are equal iff Σ i_k stride_k - Σ j_k stride_k = offset_b - offset_a has a solution in the bounds.
# Putting count_k - j_k for j_k makes all signs positive: above, 2i + 2j' = 1 + 2*count. The gcd of
# the strides, 2, does not divide the right side: no overlap. Ranges alone would say "maybe", and
# compiled code would merge the two inputs into one synthetic base for nothing.

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from aotlite.ir.geometry.box_equation import is_solvable
from aotlite.ir.geometry.single_element import without_few
from aotlite.ir.geometry.sizes import (
    Shape,
    Size,
    Stride,
    always_equal,
    at_least_one,
    hint_of,
    is_symbolic,
    numel,
    settled,
)
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.proving import is_proved
from aotlite.ir.symbols.table import table_of

__all__ = ["Geometry", "has_internal_overlap", "overlaps", "overlaps_bytes"]

Geometry: TypeAlias = tuple[Shape, Stride, int]
"""Shape, strides and storage offset, in elements."""

_Term: TypeAlias = tuple[int, int]
"""(stride, count): contributes `x * stride` for one `x` of 0..count."""

_EXACT_RANK = 6
_WORK_LIMIT = 100_000
_QUICK = 3000
"""The steps of a search before `is_solvable` takes over. Nearly all searches take a few."""


def overlaps(a: Geometry, b: Geometry) -> bool:
    """Whether two tensors of one storage and dtype have an element at the same address.

    The answer is exact up to six dimensions of size above 1. For more the work is limited, and the
    answer at the limit is True: a false overlap costs time, a missed one gives wrong results.

    >>> overlaps(((5,), (2,), 0), ((5,), (2,), 1))
    False
    >>> overlaps(((4, 5), (10, 1), 0), ((3, 3), (10, 1), 11))
    True
    """
    return _meet(a, b, _EXACT_RANK)


def _meet(a: Geometry, b: Geometry, exact_rank: int) -> bool:
    """`overlaps`, exact up to this rank."""
    (shape_a, stride_a, offset_a), (shape_b, stride_b, offset_b) = a, b
    if is_symbolic((*shape_a, *stride_a, offset_a, *shape_b, *stride_b, offset_b)):
        return bool(settled(overlaps, a, b))
    if 0 in shape_a or 0 in shape_b:
        return False
    if offset_a == offset_b:
        return True
    terms_a, terms_b = _terms(shape_a, stride_a), _terms(shape_b, stride_b)
    reach_a, reach_b = _reach(terms_a), _reach(terms_b)
    if offset_a + reach_a < offset_b or offset_b + reach_b < offset_a:
        return False
    # Indices of b run backwards (j -> count - j), which makes every term non-negative.
    limit = None if max(len(terms_a), len(terms_b)) <= exact_rank else _WORK_LIMIT
    return _solvable([*terms_a, *terms_b], offset_b - offset_a + reach_b, limit)


def overlaps_bytes(a: Geometry, itemsize_a: int, b: Geometry, itemsize_b: int) -> bool:
    """Whether two tensors of one storage share a byte; geometries in elements of their own size.

    >>> overlaps_bytes(((2,), (1,), 0), 4, ((4,), (1,), 4), 1)
    True
    >>> overlaps_bytes(((2,), (2,), 0), 4, ((4,), (1,), 4), 1)
    False
    """
    if itemsize_a == itemsize_b:
        return overlaps(a, b)
    # The bytes of an element are one more dimension.
    return _meet(_in_bytes(a, itemsize_a), _in_bytes(b, itemsize_b), _EXACT_RANK + 1)


def _in_bytes(geometry: Geometry, itemsize: int) -> Geometry:
    shape, stride, offset = geometry
    return (*shape, itemsize), (*(step * itemsize for step in stride), 1), offset * itemsize


def has_internal_overlap(shape: Shape, stride: Stride) -> bool:
    """Whether two different indices of a tensor have the same address (TEN-8).

    Exact up to six dimensions, as `overlaps` is.

    >>> has_internal_overlap((2, 2), (1, 1)), has_internal_overlap((2, 3), (3, 1))
    (True, False)
    """
    if is_symbolic((*shape, *stride)):
        is_empty = any(always_equal(size, 0) for size in shape)
        if is_empty or _is_nested(shape, stride):
            return False
        if _is_nested(shape, without_few(shape, stride)):  # without elements nothing overlaps
            return False
        pairs = zip(shape, stride, strict=True)
        if any(step == 0 and is_proved(size >= 2) for size, step in pairs if type(step) is int):
            return bool(numel(shape) != 0)
        return _decided(shape, stride)
    if 0 in shape:
        return False
    terms = sorted(_terms(shape, stride, keep_zero=True))
    if terms and terms[0][0] == 0:
        return True
    limit = None if len(terms) <= _EXACT_RANK else _WORK_LIMIT
    reach = 0
    for at, (step, count) in enumerate(terms):
        if step <= reach and _collides((step, count), terms[:at], limit):
            return True
        reach += step * count
    return False


# Note [comparisons about overlap]
#     x of f32[s0, s1][5, 1]                  # s1 <= 5
# The function's answer would be a guard, too, which no solver knows: not that it follows from
# others, nor at which sizes it alone fails. So comparisons are asked that suffice, where they hold
# for the hints.
def _decided(shape: Shape, stride: Stride) -> bool:
    """`has_internal_overlap` where sizes decide it, by comparisons if there are simple ones."""
    for at, (size, step) in enumerate(zip(shape, stride, strict=True)):
        for other, another in zip(shape[at + 1 :], stride[at + 1 :], strict=True):
            if always_equal(step, another) and hint_of(size) > 1 and hint_of(other) > 1:
                if size >= 2 and other >= 2:
                    return bool(numel(shape) != 0)
    asked: list[bool] = []
    if _is_nested(shape, without_few(shape, stride), asked) and all(asked):
        return False
    return bool(settled(has_internal_overlap, shape, stride))


def _is_nested(shape: Shape, stride: Stride, asked: list[bool] | None = None) -> bool:
    """Whether each dimension steps over the inner ones, for all values of the symbols.

    Then no address is used twice, whichever sizes are 0 or 1. Logs no assumption. With `asked` it
    is enough that it is so for the hints: what is to be assumed is added there.
    """
    table = table_of((*shape, *stride))
    hints = {} if table is None else table.hints
    typical = {name: max(hint, 2) for name, hint in hints.items()}  # 0 and 1 tell no order
    pairs = [pair for pair in zip(stride, shape, strict=True) if not always_equal(pair[1], 1)]
    try:
        pairs.sort(key=lambda pair: concrete(pair, typical))
    except ZeroDivisionError:  # the call's own sizes divide by no 0
        pairs.sort(key=lambda pair: concrete(pair, hints))
    reach: Size = 0
    whole: Size = 1
    beyond = above = True
    for step, size in pairs:
        beyond, above = beyond and is_proved(step > reach), above and is_proved(step >= whole)
        if not beyond and not above:
            if asked is None or not hint_of(step) > hint_of(reach):
                return False
            asked.append(step > reach)
            beyond = above = True
        reach += (size - 1) * step
        whole = step * at_least_one(size)
    return True


def _collides(outer: _Term, inner: Sequence[_Term], limit: int | None) -> bool:
    """Whether two indices that differ in `outer`, and maybe in `inner`, have the same address.

    They differ by 1 + x in `outer`, and by -count to count in each other dimension.
    """
    stride, count = outer
    doubled = [(step, 2 * times) for step, times in inner]
    return _solvable([(stride, count - 1), *doubled], _reach(inner) - stride, limit)


def _terms(shape: Shape, stride: Stride, *, keep_zero: bool = False) -> list[_Term]:
    pairs = zip(shape, stride, strict=True)
    return [(step, size - 1) for size, step in pairs if size > 1 and (step or keep_zero)]


def _reach(terms: Iterable[_Term]) -> int:
    return sum(stride * count for stride, count in terms)


def _solvable(terms: list[_Term], target: int, limit: int | None) -> bool:
    """Whether `Σ x_k stride_k = target` with `0 <= x_k <= count_k`; True at the work limit.

    Without a limit, `box_equation` answers where a short search does not, in milliseconds.
    """
    merged = _merged(terms)
    if not 0 <= target <= _reach(merged):
        return False
    found = _searched(merged, target, limit or _QUICK)
    if found is None:
        return True if limit else is_solvable(merged, target)
    return found


def _searched(merged: list[_Term], target: int, limit: int) -> bool | None:
    """The answer of a search of at most `limit` steps; None if it takes more.

    Depth first, largest stride first, over the remainders of the target that the bounds and the gcd
    of the remaining strides allow. It keeps its own stack, so that the rank is not limited by
    Python's recursion.
    """
    levels = [(*term, *_after(merged[at:])) for at, term in enumerate(merged, 1)]
    stack = [iter((target,))]
    work = 0
    while stack:
        rest = next(stack[-1], None)
        if rest is None:
            stack.pop()
            continue
        if rest == 0:
            return True
        work += 1
        if work == limit:
            return None
        stack.append(_remainders(rest, *levels[len(stack) - 1]))
    return False


def _merged(terms: list[_Term]) -> list[_Term]:
    """Fewer terms with the same set of sums, strides descending.

    A term whose stride continues the multiples of a smaller one without a gap is merged into it:
    nested contiguous dimensions become one term, and so do terms of equal strides.
    """
    merged: list[_Term] = []
    for stride, count in sorted(term for term in terms if term[1]):
        if merged:
            inner, steps = merged[-1]
            ratio, odd = divmod(stride, inner)
            if not odd and ratio <= steps + 1:
                merged[-1] = (inner, steps + count * ratio)
                continue
        merged.append((stride, count))
    return merged[::-1]


def _after(terms: Sequence[_Term]) -> tuple[int, int]:
    """(the largest sum of the terms, the gcd of their strides or 0 for none)."""
    return _reach(terms), math.gcd(*(stride for stride, _ in terms))


def _remainders(
    rest: int, stride: int, count: int, reach_after: int, gcd_after: int
) -> Iterator[int]:
    """The possible remainders of `rest` after this term, smallest first.

    A remainder must lie in 0..reach_after and be a multiple of gcd_after (ALI-4's division, for any
    rank). That fixes x modulo `period`, so that few values are tried.
    """
    lowest = max(0, -((reach_after - rest) // stride))
    highest = min(count, rest // stride)
    if gcd_after == 0:
        return iter((0,) if rest % stride == 0 and lowest <= highest else ())
    common = math.gcd(stride, gcd_after)
    if rest % common:
        return iter(())
    period = gcd_after // common
    first = rest // common * pow(stride // common, -1, period) % period
    highest -= (highest - first) % period
    return iter(range(rest - highest * stride, rest - lowest * stride + 1, period * stride))
