"""Passes over the inner axes: the order in which a kernel's statements are computed.

A pass is one loop over all inner axes. A statement that uses a reduction's result belongs to a
later pass. Before each pass comes a *row stage* with the stores of row level. For a softmax over
rows:

    stage 0   rows: -                pass: v0 = reduce<max>(x)
    stage 1   rows: -                pass: v1 = reduce<sum>(exp(x - v0))     keeps exp(x - v0)
    stage 2   rows: b2[i0] = log(v1) pass: b1[..] = exp(x - v0) / v1

Expensive values that several passes need are kept in a scratch row. Output: frozen `Passes`;
nothing here is of C. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

import attrs

from aotlite.backends.c_family.scalar_text import KernelFacts
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.program import Reduce, Scan, Statement, Store, values_of
from aotlite.backends.loops.rewrite import on_statement, unchanged
from aotlite.ir.scalar.expression import Scalar, const, name, rebuilt, unknown, walk
from aotlite.ir.scalar.primitives import PRIMITIVES

DEAR = 8
"""A value of at least this many operations is kept in scratch, not computed again."""
_COSTS = {"div": 4, "sqrt": 6, "idiv": 20, "irem": 20}
_CALL = 16


@attrs.frozen
class Pass:
    """The element-level statements of one loop over the inner axes."""

    reduces: tuple[Reduce, ...]
    stores: tuple[Store, ...]
    scans: tuple[Scan, ...] = ()
    """The scans that run along with the pass: its own, and earlier ones that it must repeat."""

    @property
    def roots(self) -> list[Scalar]:
        """The values that the pass has to compute."""
        statements: tuple[Statement, ...] = (*self.scans, *self.reduces, *self.stores)
        return [value for each in statements for value in values_of(each)]

    @property
    def lanes(self) -> int:
        """The lanes of its reductions; 1 if its points have to come in order."""
        lanes = {each.lanes for each in self.reduces}
        return 1 if self.scans or len(lanes) != 1 else lanes.pop()


@attrs.frozen
class Stage:
    """A stage: stores of row level, then passes."""

    rows: tuple[Store, ...]
    passes: tuple[Pass, ...]


@attrs.frozen
class Passes:
    """The stages of a kernel, in order."""

    stages: tuple[Stage, ...]
    defined: dict[int, Reduce | Scan]
    """The statement that defines each name."""
    kept: tuple[Scalar, ...]
    """Element-level values that are kept: the first pass that computes one writes it to scratch."""


def passes(body: Sequence[Statement], facts: KernelFacts, budget: int) -> Passes:
    """Returns the passes of statements without Lets. Up to `budget` bytes of each inner point are
    kept in scratch."""
    return _Analysis(body, facts).passes(budget)


class _Analysis:
    def __init__(self, body: Sequence[Statement], facts: KernelFacts) -> None:
        self.body, self.facts = body, facts
        self.defined: dict[int, Reduce | Scan] = {}
        for each in body:
            if type(each) is Reduce or type(each) is Scan:
                self.defined.update(dict.fromkeys(each.names, each))
        self.known_stages: dict[Scalar, int] = {}

    def passes(self, budget: int) -> Passes:
        """Returns the statements sorted into stages."""
        places = self._places()
        stages: list[Stage] = []
        for k in range(max(places.values(), default=0) // 2 + 1):
            rows = [s for s in self.body if type(s) is Store and places[id(s)] == 2 * k]
            elements = [s for s in self.body if places[id(s)] == 2 * k + 1]
            stages.append(Stage(tuple(rows), tuple(_grouped(elements))))
        kept = self._kept([each for stage in stages for each in stage.passes], budget)
        return Passes(tuple(self._with_scans(stages, kept)), self.defined, tuple(kept))

    # --- stages
    def stage(self, root: Scalar) -> int:
        """Returns the first stage in which a value can be computed."""
        for scalar in unknown(root, self.known_stages):
            own = self._stage_of_name(scalar.args[0]) if scalar.op == "name" else 0
            below = [self.known_stages[each] for each in scalar.operands]
            self.known_stages[scalar] = max([own, *below])
        return self.known_stages[root]

    def _stage_of_name(self, number: int) -> int:
        statement = self.defined[number]
        stage = max([self.stage(value) for value in statement.values])
        return stage + 1 if type(statement) is Reduce else stage

    def _places(self) -> dict[int, int]:
        """Returns the place of each statement: 2 * stage at row level, 2 * stage + 1 in its passes.

        A store into memory that others load comes when all of them have loaded (K-6), and stores of
        one buffer come one after the other. A store that waits also loads later, so that others may
        have to wait for it: repeated until nothing moves.
        """
        places = {}
        for each in self.body:
            stage = max([self.stage(root) for root in values_of(each)], default=0)
            places[id(each)] = 2 * stage + (not self.facts.is_row_store(each))
        stores = [each for each in self.body if type(each) is Store]
        loads = {id(each): self._loads(each) for each in self.body}
        most = max(places.values(), default=0) + 2 * len(stores) + 2
        while True:
            loaded: dict[int, int] = {}
            for key, regions in loads.items():
                for region in regions:
                    loaded[region] = max(loaded.get(region, 0), places[key])
            before = list(places.values())
            for each in stores:
                region, place = self.facts.region(each.buffer), places[id(each)]
                first = max(loaded.get(region, 0), place)
                places[id(each)] = first + (first - place) % 2
                loaded[region] = places[id(each)] + 1
            if before == list(places.values()):
                return places
            assert max(places.values()) <= most, "stores wait for each other: K-6 does not hold"

    def _loads(self, statement: Statement) -> set[int]:
        """Returns the regions of memory that a statement loads, also by scans that it repeats."""
        todo, found = list(values_of(statement)), set()
        while todo:
            for scalar in walk([todo.pop()]):
                if scalar.op == "load":
                    found.add(self.facts.region(scalar.args[0]))
                elif scalar.op == "name" and type(self.defined[scalar.args[0]]) is Scan:
                    todo += self.defined[scalar.args[0]].values
        return found

    # --- values in scratch
    def _kept(self, order: list[Pass], budget: int) -> list[Scalar]:
        """Returns the outermost expensive values that two passes need, while they fit."""
        kept: list[Scalar] = []
        seen: set[Scalar] = set()
        for each in order:
            new: set[Scalar] = set()
            todo = list(reversed(each.roots))
            while todo:
                scalar = todo.pop()
                if scalar in new or scalar in kept:
                    continue
                new.add(scalar)
                if scalar in seen and self._is_dear(scalar) and scalar.dtype.itemsize <= budget:
                    budget -= scalar.dtype.itemsize
                    kept.append(scalar)
                else:
                    todo.extend(self.facts.computed_for(scalar))
            seen |= new
        return kept

    def _is_dear(self, scalar: Scalar) -> bool:
        of_elements = [each for each in walk([scalar]) if self.facts.is_element(each)]
        if scalar.op == "name":
            return bool(of_elements)
        return sum(map(cost, of_elements)) >= DEAR and scalar in of_elements

    # --- scans
    def _with_scans(self, stages: list[Stage], kept: list[Scalar]) -> list[Stage]:
        """Returns the stages with each pass given the scans whose values are not in scratch yet."""
        ready: set[Scalar] = set()
        found = []
        for stage in stages:
            changed = []
            for each in stage.passes:
                needed = self._scans_of(each.roots, ready)
                scans = tuple([s for s in self.body if type(s) is Scan and id(s) in needed])
                changed.append(attrs.evolve(each, scans=scans))
                ready |= self.facts.computed(changed[-1].roots) & set(kept)
            found.append(attrs.evolve(stage, passes=tuple(changed)))
        return found

    def _scans_of(self, roots: Iterable[Scalar], ready: set[Scalar]) -> set[int]:
        """Returns the ids of the scans that values need."""
        found: set[int] = set()
        todo, done = list(roots), set(ready)
        while todo:
            scalar = todo.pop()
            if scalar in done:
                continue
            done.add(scalar)
            todo += scalar.operands
            if scalar.op == "name" and type(self.defined[scalar.args[0]]) is Scan:
                found.add(id(self.defined[scalar.args[0]]))
                todo += self.defined[scalar.args[0]].values
        return found


def cost(scalar: Scalar) -> int:
    """Returns the estimated operations of one scalar."""
    if scalar.op == "load":
        return 4 if scalar.args[1].dynamic else 1
    return _COSTS.get(scalar.op, 1) if scalar.op in PRIMITIVES else _CALL


def _grouped(statements: list[Statement]) -> list[Pass]:
    """Returns one pass for all statements; several if reductions have different lanes."""
    if not statements:
        return []
    reduces = [each for each in statements if type(each) is Reduce]
    stores = tuple([each for each in statements if type(each) is Store])
    scans = tuple([each for each in statements if type(each) is Scan])
    orders = sorted({(each.lanes, each.near) for each in reduces})
    if scans or len(orders) < 2:
        return [Pass(tuple(reduces), stores, scans)]
    groups = [
        tuple([each for each in reduces if (each.lanes, each.near) == order]) for order in orders
    ]
    return [*[Pass(group, ()) for group in groups[:-1]], Pass(groups[-1], stores)]


# ------------------------------------------------------------------------------------- statements
Changed = TypeVar("Changed", bound=Statement)


def with_values(statement: Changed, change: Callable[[Scalar], Scalar]) -> Changed:
    """Returns the statement with `change` applied to each of its values."""
    return cast(Changed, on_statement(statement, change, unchanged))


def of_no_points(body: Iterable[Statement]) -> list[Statement]:
    """Returns the statements of a kernel whose inner axes are empty: the row stores, in which a
    reduction is its combiner's result for no points."""
    empty: dict[Scalar, Scalar] = {}
    for each in body:
        if type(each) is Reduce:
            kinds = [value.dtype for value in each.values]
            results = combiner(each.kind).empty
            # A combiner without such a result: the program is wrong, and the interpreter raises.
            parts = [const(0, kind) for kind in kinds] if results is None else results(kinds)
            for number, part in zip(each.names, parts, strict=True):
                empty[name(number, part.dtype)] = part

    def change(root: Scalar) -> Scalar:
        return rebuilt(root, empty.get)

    return [with_values(each, change) for each in body if type(each) is Store and each.each_row]
