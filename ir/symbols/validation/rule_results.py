"""Results of rules that ran by cases, tried at a few small sizes: no solver knows the rules.

Ground floor. A result depends on the sizes of its operands alone, so that it is tried once for each
vector of these, however many symbols the trace has.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

from aotlite.ir.errors import AotliteError
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.ir.symbols.cases.results import tried_before
from aotlite.ir.symbols.validation.claims import Claim, Premises, Values
from aotlite.ir.symbols.validation.search import Found, near, sides, small

__all__ = ["wrong_result"]

_MOST_POINTS = 64
_MOST_SIDE = 3
_NEAR = 5
"""The most sizes, the largest one, and how many are near the hints: rules by cases tell apart 0, 1
and the rest."""


def wrong_result(premises: Premises, claims: Sequence[Claim], deadline: float) -> Found | None:
    """The earliest of these results that is another one at some sizes, by its index, and where."""
    left, found = list(map(_Result, claims)), None
    for values in _points(premises):
        if not left or time.thread_time() > deadline:
            break
        waiting = [index for index, each in enumerate(left) if not each.was_tried(values)]
        if not waiting or not _is_admitted(premises, values):
            continue
        for index in waiting:
            if not left[index].holds(values):
                found = Found(index, values)
                del left[index:]
                break
    return found


def _points(premises: Premises) -> Iterator[dict[str, int]]:
    cubes = [small(premises, side) for side in sides(premises, _MOST_POINTS) if side <= _MOST_SIDE]
    return itertools.chain(itertools.islice(near(premises), _NEAR), *cubes)


def _is_admitted(premises: Premises, values: Values) -> bool:
    try:
        return premises.admit(values)
    except OverflowError:
        return False


class _Result:
    """A claim, and the sizes at which it was found to hold, for any trace."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.names: Sequence[str]
        _, self.operands, *known = claim.left
        if known:
            self.names, self.tried = known[0].names, known[0].of(claim.result)
        else:
            self.names = sorted(names_in((self.operands, claim.result)))
            self.tried = tried_before((*claim.left, claim.result), self.names)

    def was_tried(self, values: Values) -> bool:
        return tuple([values[name] for name in self.names]) in self.tried

    def holds(self, values: Values) -> bool:
        """Whether it is true at these values."""
        try:
            operands = [concrete(each, values) for each in self.operands]
            found = self.claim.gives(operands, values)
        except OverflowError:
            return True
        except (AotliteError, ZeroDivisionError, ValueError):
            return False
        if found:
            self.tried.add(tuple([values[name] for name in self.names]))
        return found
