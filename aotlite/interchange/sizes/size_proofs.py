"""`check_range`: whether a program holds for all sizes of the ranges that a user has declared.

    Dim("n", min=3), x[::2]      s0 - s0 // 2 > 1       proved for s0 >= 3
    Dim("n", min=2)                                     false for s0 = 2: refused

Another runtime checks no condition of a model: it would compute the values of another branch.
Proofs are those of the symbol table (`ir/symbols/proofs.py`), in a table of the declared ranges.
Rules: ICH-9. Spec: `specs/interchange.md`.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

import attrs

from aotlite.interchange.sizes.program_sizes import (
    BINARY,
    Condition,
    ProgramSizes,
    condition_of,
    fails,
    table_in,
)
from aotlite.ir.errors import AotliteError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files.size_texts import size_tree
from aotlite.ir.symbols.table import SymbolTable


def check_range(graph: Graph, guards: Sequence[Any] | None, sizes: ProgramSizes) -> None:
    """Raises UnsupportedError if a condition, of the user's code or of an op, excludes a size that
    a declared range (of a `Dim`, of `mark_dynamic`) has, or if it cannot be told whether.

    A condition is proved for the declared ranges, or tried. Of one symbol all sizes are tried
    whose truth is not proved; a range without end that is not proved behind the tried sizes is
    refused. Symbols without a declared range are for the sizes that meet the conditions.
    """
    table = table_in(graph)
    if table is None or any(each.hint is None for each in table.symbols.values()):
        return
    declared = {n for n, each in table.symbols.items() if each.room not in _ANY_SIZE}
    proof = _Proof.of(table)
    found = {each: _names(each) for each in sizes.conditions if not proof.shows(each)}
    for condition, names in found.items():
        if len(names) == 1 and names <= declared:
            _check(graph, [condition], [], _each_size(table, min(names), condition))
            _check_decided(graph, table, condition, names)
    both = [each for each, names in found.items() if len(names) > 1 and names & declared]
    asked = [condition_of(each) for each in (table.log if guards is None else guards)]
    allowed = [each for each in asked if not _names(each) <= declared]
    _check(graph, both, allowed, _tried(table, declared) if both else ())
    for condition in both:
        if found[condition] <= declared:
            _check_decided(graph, table, condition, found[condition])


def _check(
    graph: Graph,
    conditions: Sequence[Condition],
    allowed: Sequence[Condition],
    tried: Iterable[Mapping[str, int]],
) -> None:
    for values in tried:
        if any(fails(each, values) for each in allowed):
            continue
        failed = next((each for each in conditions if fails(each, values)), None)
        if failed is not None:
            found = ", ".join([f"{name} = {size}" for name, size in values.items()])
            error = UnsupportedError(
                f"interchange: the model of {graph.name} needs {' '.join(failed)}, which is false "
                f"for {found}, expected a model for all sizes of the declared range"
            )
            error.add_note("Instead: give the Dim a min or max that leaves this size out, or none.")
            if len(values) > 1 and failed[1] == "==":
                error.add_note("Sizes that are always equal have one Dim.")
            raise error


_ANY_SIZE: Final = ((0, None), (None, None))
_TRIED: Final = 1024  # of one symbol: its conditions alone are evaluated
_TRIED_TOGETHER: Final = 17
_TRIED_ALL: Final = 2048


def _names(condition: Condition) -> set[str]:
    trees = [size_tree(text) for text in (condition[0], condition[2])]
    nodes = [node for tree in trees if tree is not None for node in ast.walk(tree)]
    return {each.id for each in nodes if isinstance(each, ast.Name)} - {"min", "max"}


def _each_size(table: Any, name: str, condition: Condition) -> Iterator[dict[str, int]]:
    """The first and last sizes of a range, and those at the numbers of the condition."""
    trees = [size_tree(text) for text in (condition[0], condition[2])]
    nodes = [node for tree in trees if tree is not None for node in ast.walk(tree)]
    numbers = [each.value for each in nodes if isinstance(each, ast.Constant)]
    near = [number + step for number in numbers if type(number) is int for step in (-1, 0, 1)]
    for size in _ends(table, name, _TRIED, near):
        yield {name: size}


def _ends(table: Any, name: str, count: int, more: Sequence[int] = ()) -> list[int]:
    least, most = table.symbols[name].room  # the declared range, which no guard has narrowed
    least = least or 0
    first = range(least, least + count)
    last = () if most is None else range(max(least, most - count), most + 1)
    tried = dict.fromkeys([*first, *last, *more])
    return [size for size in tried if size >= least and (most is None or size <= most)]


def _tried(table: Any, declared: Set[str]) -> Iterator[dict[str, int]]:
    """Sizes of declared ranges: each symbol's first and last ones, beside the trace's others; and
    all symbols' first ones, and last ones."""
    hints = list(table.hints.values())
    tried = {name: _ends(table, name, _TRIED_TOGETHER, hints) for name in table.hints}
    for name in sorted(declared):
        for size in tried[name]:
            yield {**table.hints, name: size}
    for end in (min, max):
        yield {**table.hints, **{name: end(tried[name]) for name in sorted(declared)}}


# ------------------------------------------------------------------------------------------ proofs
def _check_decided(graph: Graph, table: Any, condition: Condition, names: Set[str]) -> None:
    """Raises UnsupportedError where no try has failed, and nothing says that none would."""
    rooms = {name: table.symbols[name].room for name in sorted(names)}
    counts = [None if most is None else most - (least or 0) + 1 for least, most in rooms.values()]
    if None not in counts and math.prod(counts) <= _TRIED_ALL:  # type: ignore[arg-type]
        ranges = [range(least or 0, most + 1) for least, most in rooms.values()]
        tried = [dict(zip(rooms, sizes, strict=True)) for sizes in itertools.product(*ranges)]
        _check(graph, [condition], [], tried)
        return
    if len(rooms) == 1:  # the first and last ones were tried
        ((name, (least, most)),) = rooms.items()
        rooms = {name: ((least or 0) + _TRIED, None if most is None else most - _TRIED - 1)}
    if not _Proof.of(table, rooms).shows(condition):
        of = " and ".join(rooms)
        error = UnsupportedError(
            f"interchange: the model of {graph.name} needs {' '.join(condition)}, and it is not "
            f"known whether that holds for all sizes {of} of the declared range, expected a model "
            "for all of them"
        )
        error.add_note(
            f"Instead: give the Dims a max, with at most {_TRIED_ALL:,} choices of sizes, which "
            "are all tried; or no range."
        )
        raise error


@attrs.frozen
class _Proof:
    """What is known of sizes by their declared ranges alone."""

    table: SymbolTable

    @classmethod
    def of(cls, table: Any, rooms: Mapping[str, Any] | None = None) -> _Proof:
        """That of the declared ranges of a table, with other ones for some symbols."""
        made = SymbolTable()
        for name, each in table.symbols.items():
            least, most = (rooms or {}).get(name, each.room)
            made.named_symbol(name, None, (least or 0, most))
        return cls(made)

    def shows(self, condition: Condition) -> bool:
        """Whether a condition is proved for all sizes of these ranges."""
        left, relation, right = condition
        trees = size_tree(left), size_tree(right)
        try:
            sides = [self._number(tree) for tree in trees if tree is not None]
            known = len(sides) == 2 and self.table.known_truth(sides[0], relation, sides[1])
        except (AotliteError, ArithmeticError, ValueError):  # asked is what only hints answer
            return False
        return known is True and not self.table.log

    def _number(self, tree: ast.expr) -> Any:
        match tree:
            case ast.BinOp(left=left, op=op, right=right):
                return BINARY[type(op)](self._number(left), self._number(right))
            case ast.UnaryOp(operand=operand):
                return -self._number(operand)
            case ast.Call(func=ast.Name(id=name), args=args):
                first, second = map(self._number, args)
                return self.table.call(name, first, second)
            case ast.Name(id=name):
                return self.table.named(name)
            case ast.Constant(value=number):
                return number
        raise ValueError(tree)
