"""Functions by lines: the steps of a loop that calls many functions.

The text of a loop with all bodies of its functions in it is long, and C compilers take long for it.
Such a loop is divided: for a block of points, each function is computed for the whole line of them,
by a C function that the text has once.

    y[i] = sin(sin(x[i] * 2) * 2) + 1      step 0   p0 = x[i] * 2       p1 = sin(p0)
                                           step 1   p2 = p1 * 2         p3 = sin(p2)
                                           rest     y[i] = p3 + 1

Output: frozen `LineStep`s; nothing here is of C. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import cache

import attrs

from aotlite.backends.c_family.axis_passes import cost
from aotlite.backends.c_family.loop_body import PointWork
from aotlite.backends.c_family.scalar_text import KernelFacts
from aotlite.backends.loops.rewrite import replaced
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.scalar.expression import Scalar, unknown, walk, with_operands
from aotlite.ir.scalar.functions import find
from aotlite.ir.scalar.primitives import LEAVES, PRIMITIVES

LONG = 600
"""The operations of the functions that a loop calls above which they are computed by lines."""
CHAIN = 100
"""The same of functions of which each is called with results of the one before: C compilers keep
the constants of all their bodies in registers, of which there are too few."""
FEW = 64
"""The points of a loop below which a chain stays in it."""
SHORT = 16
"""The operations of a function below which no line of it is computed: it stays in the loop."""
KEPT = 3
"""The operations of a value that several steps need above which it is kept in a line."""


@attrs.frozen
class LineStep:
    """Values that a loop writes to lines, and a function of lines that is called then."""

    filled: tuple[tuple[Scalar, Scalar], ...]
    """(value, name of its line); names in the values are those of earlier lines."""
    call: Scalar
    """The call, of names of lines and of values that are the same along the loop."""
    result: Scalar
    """The name of the line of the results."""

    @property
    def needed(self) -> set[Scalar]:
        """The names in the values and in the call."""
        return names_in([*[value for value, _ in self.filled], self.call])

    @property
    def made(self) -> list[Scalar]:
        """The names of the lines that the step writes."""
        return [*[leaf for _, leaf in self.filled], self.result]


def names_in(roots: Iterable[Scalar]) -> set[Scalar]:
    """Returns the names in expressions."""
    return {each for each in walk(roots) if each.op == "name"}


@cache
def operations_of(op: str, kinds: tuple[DType, ...]) -> int:
    """Returns the operations of a function, with those of the functions that it calls.

    >>> operations_of("isnan", (dtypes.float32,)), operations_of("sin", (dtypes.float32,))
    (1, 136)
    """
    return sum(map(_operations, walk([find(op, kinds).body])))


def _operations(scalar: Scalar) -> int:
    if scalar.op in LEAVES:
        return 0
    return 1 if scalar.op in PRIMITIVES else operations_of(scalar.op, _kinds(scalar))


def _kinds(scalar: Scalar) -> tuple[DType, ...]:
    return tuple([operand.dtype for operand in scalar.args])


def calls_by_lines(work: PointWork, facts: KernelFacts, axis: int) -> list[Scalar]:
    """Returns the calls of a loop along an axis that are computed by lines, operands first; none if
    the loop prints their bodies (EMIT-5).

    Lines pay where the bodies are long together, where functions are called with results of others,
    and most where such a function has a shorter body for usual numbers: a test before the loop
    cannot tell whether these are usual.
    """
    computed = facts.computed(work.roots)
    going = {number for scan in work.scans for number in scan.names}
    apart: set[Scalar] = set()
    """The values that depend on a scan, which a loop computes point by point."""
    tested: set[Scalar] = set()
    """The values in which a function with a shorter body is called."""
    chains: dict[Scalar, int] = {}
    """The most operations of functions in a chain of calls, each with results of the one before."""
    longest = CHAIN if hint_of(facts.extents[axis]) >= FEW else LONG
    found, total, pays = [], 0, False
    for scalar in walk(work.roots):
        is_scan = scalar.op == "name" and scalar.args[0] in going
        if is_scan or not apart.isdisjoint(scalar.operands):
            apart.add(scalar)
        is_above = not tested.isdisjoint(scalar.operands)
        has_usual = _is_call(scalar) and find(scalar.op, _kinds(scalar)).usual is not None
        if is_above or has_usual:
            tested.add(scalar)
        before = max([chains[each] for each in scalar.operands], default=0)
        size = _operations(scalar) if _is_call(scalar) else 0
        is_line = size >= SHORT and scalar in computed and scalar not in apart
        if is_line and facts.axes(scalar) & 1 << axis and _has_no_bool(scalar):
            found.append(scalar)
            pays |= (is_above and has_usual) or (before > 0 and before + size > longest)
            total, before = total + size, before + size
        chains[scalar] = before
    return found if pays or total > LONG else []


def _is_call(scalar: Scalar) -> bool:
    return scalar.op not in PRIMITIVES and scalar.op not in LEAVES


def _has_no_bool(call: Scalar) -> bool:
    return dtypes.bool_ not in (call.dtype, *_kinds(call))


def line_steps(
    work: PointWork,
    calls: Sequence[Scalar],
    facts: KernelFacts,
    axis: int,
    named: Callable[[Scalar], Scalar],
) -> tuple[list[LineStep], PointWork]:
    """Returns the steps that compute the calls (`calls_by_lines`), and the work that is left, of
    names of lines. `named` makes the name of a value's line."""
    return _Steps(calls, facts, 1 << axis, named).of(work)


class _Steps:
    def __init__(
        self,
        calls: Sequence[Scalar],
        facts: KernelFacts,
        bit: int,
        named: Callable[[Scalar], Scalar],
    ) -> None:
        self.calls, self.facts, self.bit, self.named = calls, facts, bit, named
        self.lines: dict[Scalar, Scalar] = {}
        """The name of the line of each value that has one so far."""
        self.memo: dict[Scalar, Scalar] = {}

    def of(self, work: PointWork) -> tuple[list[LineStep], PointWork]:
        """Returns the steps and the work that is left."""
        kept, found = self._kept(work), []
        for call in self.calls:
            operands = [each for each in call.args if self._moves(each)]
            inside = [each for each in self._inside(operands) if each in kept or each in operands]
            values = [replaced(each, self.memo) for each in inside]
            lines = [self._line(each) for each in inside]
            given = with_operands(call, tuple([self.lines.get(each, each) for each in call.args]))
            found.append(LineStep(tuple(zip(values, lines, strict=True)), given, self._line(call)))
        return found, work.changed(lambda root: replaced(root, self.memo))

    def _line(self, value: Scalar) -> Scalar:
        leaf = self.lines[value] = self.memo[value] = self.named(value)
        return leaf

    def _moves(self, scalar: Scalar) -> bool:
        return bool(self.facts.axes(scalar) & self.bit)

    def _inside(self, roots: Sequence[Scalar]) -> list[Scalar]:
        """Returns the values along the loop that are computed for others, operands first."""
        done = set(self.lines)
        return [
            scalar
            for root in roots
            for scalar in _computed(root, self.facts, done)
            if self._moves(scalar)
        ]

    def _kept(self, work: PointWork) -> Set[Scalar]:
        """Returns the values that several steps need and that are dear. The first step that
        computes one writes it to a line."""
        kept: set[Scalar] = set()
        seen: set[Scalar] = set()
        lined: set[Scalar] = set()
        for call in [*self.calls, None]:
            new: set[Scalar] = set()
            todo = list(work.roots if call is None else call.args)
            while todo:
                scalar = todo.pop()
                if scalar in new or scalar in lined or not self._moves(scalar):
                    continue
                new.add(scalar)
                if scalar in seen and self._is_dear(scalar, lined):
                    kept.add(scalar)
                    lined.add(scalar)
                else:
                    todo += self.facts.computed_for(scalar)
            seen |= new
            lined.update([] if call is None else [call, *call.args])
        return kept

    def _is_dear(self, root: Scalar, lined: Set[Scalar]) -> bool:
        """Whether a value has at least `KEPT` operations on values in lines and in memory."""
        todo, done, count = [root], set(lined) - {root}, 0
        while todo and count < KEPT:
            scalar = todo.pop()
            if scalar not in done and self._moves(scalar):
                done.add(scalar)
                count += 0 if scalar.op in LEAVES else cost(scalar)
                todo += self.facts.computed_for(scalar)
        return count >= KEPT


def _computed(root: Scalar, facts: KernelFacts, done: set[Scalar]) -> Iterator[Scalar]:
    """Yields the scalars that are computed at each point for a value, operands first, and adds them
    to `done`. Those that are in it already are left out."""
    for scalar in unknown(root, done, facts.computed_for):
        done.add(scalar)
        yield scalar
