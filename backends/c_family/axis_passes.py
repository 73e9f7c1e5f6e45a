"""In which order a kernel's statements are computed: passes over the inner axes.

A pass is one loop over all inner axes. What depends on a reduction comes in a later one; before
each pass comes a *row stage*, which computes and stores what is of row level. Values that are dear
and needed in several passes are kept in a scratch row. Output: frozen `Passes`. Nothing is of C.
Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

import attrs

from aotlite.backends.c_family.scalar_text import KernelFacts
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.expr import PRIMITIVES, Scalar, const, name, rebuilt, unknown, walk
from aotlite.backends.loops.program import Reduce, Scan, Statement, Store, values_of
from aotlite.backends.loops.rewrite import on_statement, unchanged

DEAR = 8
"""Operations from which on a value is kept rather than computed again."""
_COSTS = {"div": 4, "sqrt": 6, "idiv": 20, "irem": 20}
_CALL = 16


@attrs.frozen
class Pass:
    """Statements of element level that one loop over the inner axes computes."""

    reduces: tuple[Reduce, ...]
    stores: tuple[Store, ...]
    scans: tuple[Scan, ...] = ()
    """Those that the pass goes along, its own and those that it needs again."""

    @property
    def roots(self) -> list[Scalar]:
        """The values that the pass is for."""
        statements: tuple[Statement, ...] = (*self.scans, *self.reduces, *self.stores)
        return [value for each in statements for value in values_of(each)]

    @property
    def lanes(self) -> int:
        """How many partial results its reductions have; 1 where it has to go in order."""
        lanes = {each.lanes for each in self.reduces}
        return 1 if self.scans or len(lanes) != 1 else lanes.pop()


@attrs.frozen
class Stage:
    """Stores of row level, then passes."""

    rows: tuple[Store, ...]
    passes: tuple[Pass, ...]


@attrs.frozen
class Passes:
    """The stages of a kernel in order."""

    stages: tuple[Stage, ...]
    defined: dict[int, Reduce | Scan]
    """The statement of each name."""
    kept: tuple[Scalar, ...]
    """Values of element level that the first pass that computes them writes to scratch."""


def passes(body: Sequence[Statement], facts: KernelFacts, budget: int) -> Passes:
    """The passes of statements without Lets; `budget` bytes of each inner point may be kept."""
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
        """The statements, sorted into stages."""
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
        """The first stage in which a value can be computed."""
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
        """Where each statement is computed: 2 x stage, and 1 more behind its row level.

        Stores into memory that is loaded come when all has been loaded (K-6), and stores of one
        buffer one after the other. A store that waits loads later, and others wait for it in turn.
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
            assert max(places.values()) <= most, "stores wait for each other: K-6 is broken"

    def _loads(self, statement: Statement) -> set[int]:
        """The regions of memory that a statement loads, also through scans, which passes repeat."""
        todo, found = list(values_of(statement)), set()
        while todo:
            for scalar in walk([todo.pop()]):
                if scalar.op == "load":
                    found.add(self.facts.region(scalar.args[0]))
                elif scalar.op == "name" and type(self.defined[scalar.args[0]]) is Scan:
                    todo += self.defined[scalar.args[0]].values
        return found

    # --- what is kept
    def _kept(self, order: list[Pass], budget: int) -> list[Scalar]:
        """The uppermost dear values that two passes need, while they fit."""
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
        """The stages, where each pass has the scans that no earlier pass has kept for it."""
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
        """The scans that values need, by identity."""
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
    """Operations that one scalar takes, roughly."""
    if scalar.op == "load":
        return 4 if scalar.args[1].dynamic else 1
    return _COSTS.get(scalar.op, 1) if scalar.op in PRIMITIVES else _CALL


def _grouped(statements: list[Statement]) -> list[Pass]:
    """One loop for all, but where reductions have different numbers of partial results."""
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
    """The statement with each of its values changed."""
    return cast(Changed, on_statement(statement, change, unchanged))


def of_no_points(body: Iterable[Statement]) -> list[Statement]:
    """What is left where the inner axes are empty: rows, with the results of no points."""
    empty: dict[Scalar, Scalar] = {}
    for each in body:
        if type(each) is Reduce:
            kinds = [value.dtype for value in each.values]
            results = combiner(each.kind).empty
            # Without a result of no points the program is wrong, which the interpreter says.
            parts = [const(0, kind) for kind in kinds] if results is None else results(kinds)
            for number, part in zip(each.names, parts, strict=True):
                empty[name(number, part.dtype)] = part

    def change(root: Scalar) -> Scalar:
        return rebuilt(root, empty.get)

    return [with_values(each, change) for each in body if type(each) is Store and each.each_row]
