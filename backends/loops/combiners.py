"""Combiners: the associative operations of reductions and scans, as trees of scalars.

`sum` combines (a, b) to (a + b); `argmax` combines two (value, position); `moments`, as Welford
does, two (count, mean, sum of squared deviations). Printers and the interpreter use the same trees,
so that partial results have the same bits everywhere. Spec: `specs/loops.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from aotlite.ir.dtypes import DType, bool_
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar.expression import Scalar, const, function, make, where
from aotlite.ir.scalar.functions import has

Parts = Sequence[Scalar]


@attrs.frozen
class Combiner:
    """An associative operation on tuples of `parts` scalars.

    `combine(a, b)` gives the tuple of both, where `a` comes from earlier points. Combining with
    `identity(dtypes)` changes nothing. `empty(dtypes)` is the result of a reduction over no points;
    None where that is an error, as of `max`.
    """

    name: str
    parts: int
    identity: Callable[[Sequence[DType]], Parts]
    combine: Callable[[Parts, Parts], Parts]
    empty: Callable[[Sequence[DType]], Parts] | None = None
    ufunc: str | None = None
    """The name of the NumPy ufunc that computes the same bits, for combiners of one part."""
    selects: bool = False
    """Whether the result is one of the operands, as of `max`: then brackets change no bit, while a
    sum rounds differently in another order."""

    @property
    def is_symmetric(self) -> bool:
        """Whether operands may change places: no bit changes, but for NaN payloads."""
        return self.ufunc is not None

    @property
    def is_exact(self) -> bool:
        """Whether its result on integers does not depend on the order."""
        return self.parts == 1


def _is_nan(value: Scalar) -> Scalar:
    return make("ne", value, value)


def _larger(a: Parts, b: Parts) -> Parts:
    """NaN wins. Of equal values the earlier stays."""
    # `b > a ? b : a` is one instruction of CPUs, in which a nan in a stays.
    if not a[0].dtype.is_floating_point:
        return (where(a[0] >= b[0], a[0], b[0]),)
    return (where(_is_nan(b[0]), b[0], where(b[0] > a[0], b[0], a[0])),)


def _smaller(a: Parts, b: Parts) -> Parts:
    if not a[0].dtype.is_floating_point:
        return (where(a[0] <= b[0], a[0], b[0]),)
    return (where(_is_nan(b[0]), b[0], where(b[0] < a[0], b[0], a[0])),)


def _lowest(dtype: DType) -> Scalar:
    if dtype.is_floating_point:
        return const(-np.inf, dtype)
    return const(False if dtype is bool_ else np.iinfo(dtype.name).min, dtype)


def _highest(dtype: DType) -> Scalar:
    if dtype.is_floating_point:
        return const(np.inf, dtype)
    return const(True if dtype is bool_ else np.iinfo(dtype.name).max, dtype)


def _first_best(better: str) -> Callable[[Parts, Parts], Parts]:
    """Combines (value, position): the better value wins, NaN is best, of equals the first."""

    def combine(a: Parts, b: Parts) -> Parts:
        wins = make(better, b[0], a[0])
        same = make("eq", a[0], b[0])
        if a[0].dtype.is_floating_point:
            wins = make("or", wins, make("and", _is_nan(b[0]), make("not", _is_nan(a[0]))))
            same = make("or", same, make("and", _is_nan(a[0]), _is_nan(b[0])))
            wins = make("and", wins, make("or", make("not", _is_nan(a[0])), _is_nan(b[0])))
        wins = make("or", wins, make("and", same, b[1] < a[1]))
        return where(wins, b[0], a[0]), where(wins, b[1], a[1])

    return combine


def _last_best(better: str) -> Callable[[Parts, Parts], Parts]:
    """Combines (value, position) as `_first_best`, but of equal values and of NaNs the last."""

    def combine(a: Parts, b: Parts) -> Parts:
        later = b[1] >= a[1]
        wins = make("or", make(better, b[0], a[0]), make("and", make("eq", a[0], b[0]), later))
        if a[0].dtype.is_floating_point:
            alone = make("and", make("not", _is_nan(a[0])), wins)
            wins = where(_is_nan(b[0]), make("or", make("not", _is_nan(a[0])), later), alone)
        return where(wins, b[0], a[0]), where(wins, b[1], a[1])

    return combine


def _first_or_nan(a: Parts, b: Parts) -> Parts:
    """Combines (value, position): the first of the largest, but of NaNs the last, as PyTorch's
    max pooling has it."""
    wins = make("gt", b[0], a[0])
    same = make("and", make("eq", a[0], b[0]), b[1] < a[1])
    if a[0].dtype.is_floating_point:
        wins = make("and", make("not", _is_nan(a[0])), make("or", wins, same))
        last = make("or", make("not", _is_nan(a[0])), b[1] > a[1])
        wins = where(_is_nan(b[0]), last, wins)
    else:
        wins = make("or", wins, same)
    return where(wins, b[0], a[0]), where(wins, b[1], a[1])


def _joined_exponentials(a: Parts, b: Parts) -> Parts:
    """Combines (maximum, sum of exp(x - maximum)): the online softmax of Milakov and Gimelshein."""
    top = _larger(a[:1], b[:1])[0]
    # The part of the larger maximum stays, so that one exponential is enough.
    own, other = make("eq", a[0], top), make("eq", b[0], top)
    shift = function(_exp(top.dtype), top.dtype, where(own, b[0], a[0]) - top)
    return top, where(own, a[1], a[1] * shift) + where(other, b[1], b[1] * shift)


def _exp(dtype: DType) -> str:
    """Returns the name of the cheapest exp for arguments that are at most 0."""
    return "exp_nonpositive" if has("exp_nonpositive", (dtype,)) else "exp"


def _joined_moments(a: Parts, b: Parts) -> Parts:
    """Combines (count, mean, sum of squared deviations), by Chan, Golub and LeVeque (1979)."""
    count = a[0] + b[0]
    apart = b[1] - a[1]
    share = where(make("eq", b[0], 0.0), const(0.0, count.dtype), b[0] / count)
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


def _zeros(kinds: Sequence[DType]) -> Parts:
    """The identity of sums. A sum starts at 0.0 as NumPy's does: the sum of -0.0 is 0.0."""
    return [const(0, kind) for kind in kinds]


_LAST = np.iinfo(np.int64).max

COMBINERS: dict[str, Combiner] = {
    each.name: each
    for each in (
        Combiner("sum", 1, _zeros, lambda a, b: (a[0] + b[0],), _zeros, "add"),
        Combiner(
            "prod",
            1,
            lambda kinds: (const(1, kinds[0]),),
            lambda a, b: (a[0] * b[0],),
            lambda kinds: (const(1, kinds[0]),),
            "multiply",
        ),
        Combiner("max", 1, lambda kinds: (_lowest(kinds[0]),), _larger, selects=True),
        Combiner("min", 1, lambda kinds: (_highest(kinds[0]),), _smaller, selects=True),
        Combiner(
            "any",
            1,
            lambda kinds: (const(False, kinds[0]),),
            lambda a, b: (a[0] | b[0],),
            _zeros,
            "logical_or",
        ),
        Combiner(
            "all",
            1,
            lambda kinds: (const(True, kinds[0]),),
            lambda a, b: (a[0] & b[0],),
            lambda kinds: (const(True, kinds[0]),),
            "logical_and",
        ),
        Combiner(
            "argmax",
            2,
            lambda kinds: (_lowest(kinds[0]), const(_LAST, kinds[1])),
            _first_best("gt"),
            selects=True,
        ),
        Combiner(
            "argmin",
            2,
            lambda kinds: (_highest(kinds[0]), const(_LAST, kinds[1])),
            _first_best("lt"),
            selects=True,
        ),
        Combiner(
            "last_max",
            2,
            lambda kinds: (_lowest(kinds[0]), const(-1, kinds[1])),
            _last_best("gt"),
            selects=True,
        ),
        Combiner(
            "last_min",
            2,
            lambda kinds: (_highest(kinds[0]), const(-1, kinds[1])),
            _last_best("lt"),
            selects=True,
        ),
        Combiner(
            "pool_max",
            2,
            lambda kinds: (_lowest(kinds[0]), const(_LAST, kinds[1])),
            _first_or_nan,
            selects=True,
        ),
        Combiner(
            "sum_exp",
            2,
            lambda kinds: (_lowest(kinds[0]), const(0, kinds[1])),
            _joined_exponentials,
        ),
        Combiner("moments", 3, _zeros, _joined_moments, _zeros),
    )
}


def combiner(kind: str) -> Combiner:
    """Returns the combiner of this name. Raises GraphError for an unknown one."""
    found = COMBINERS.get(kind)
    if found is None:
        raise GraphError(f"loops: combiner is {kind!r}, expected one of {', '.join(COMBINERS)}")
    return found
