"""Sizes as symbols in programs: where they are read, under which conditions, and their values.

    primals_0: f32[s0, 4]      s0 is size 0 of primals_0; s0 >= 1

While a graph with symbols is lowered, questions about sizes are answered by proofs alone
(`ir/symbols/proving.py`). What a target cannot say for empty arrays (ONX-7) is excluded: each size
that may be 0 is a condition. Conditions are data, and no text is executed. Rules: ICH-9. Spec:
`specs/interchange.md`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np

from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files.size_texts import size_tree
from aotlite.ir.graph.symbolic.binding import bindings_in, sizes_among
from aotlite.ir.symbols.proving import Demands
from aotlite.ir.symbols.python_number import NEGATED
from aotlite.ir.symbols.symint import RELATIONS, SymBool, SymInt

Condition = tuple[str, str, str]
"""(left, relation, right), where both sides are texts of sizes."""


@attrs.frozen
class ProgramSizes:
    """The symbols of a program."""

    bindings: tuple[tuple[str, str, int, int, str], ...] = ()
    """(symbol, input, dim, times, rest): the size of the input is `times * symbol + rest`."""
    conditions: tuple[Condition, ...] = ()
    """The program is for sizes that meet these."""


def table_in(graph: Graph) -> Any:
    """The table of a graph's symbols; None if its sizes are numbers."""
    return next((size.table for size in _sizes(graph)), None)


def _sizes(graph: Graph) -> list[SymInt]:
    found = sizes_among([part for node in graph.nodes for part in (node.args, node.meta)])
    return list({id(size): size for size in found}.values())


def sizes_of(graph: Graph, guards: Sequence[Any] | None = None) -> ProgramSizes:
    """The symbols of a graph, and the conditions under which a program of it holds. `guards` are
    those of a captured program; without, those of the trace.

    Raises UnsupportedError for symbols that no size of an input gives.
    """
    table = table_in(graph)
    if table is None:
        return ProgramSizes()
    found = bindings_in(graph)
    other = [*found.free, *[each.symbol for each in found.computed]]
    if other:
        raise _refused(f"graph {graph.name} has the size {other[0]}, which no input's size gives")
    bindings = [
        (each.symbol, str(each.source.role), each.dim, each.times, str(each.rest))
        for each in found.given
    ]
    conditions = [condition_of(each) for each in (table.log if guards is None else guards)]
    symbols = {name: size for size in _sizes(graph) if (name := str(size)) in table.symbols}
    for name, size in symbols.items():
        least, most = table.range(size)
        conditions += [] if not least else [(name, ">=", str(least))]
        conditions += [] if most is None else [(name, "<=", str(most))]
    shown = [d for node in graph.nodes for d in _dims(node.meta) if type(d) is SymInt]
    for size in shown:
        if (table.range(size)[0] or 0) < 1:
            conditions.append((str(size), ">=", "1"))
    texts = {text for left, _, right in conditions for text in (left, right)}
    for text in texts | {str(size) for size in shown}:
        if size_tree(text) is None:
            raise _refused(
                f"graph {graph.name} has the size {text}, which is no arithmetic of ints"
            )
    return ProgramSizes(tuple(bindings), tuple(dict.fromkeys(conditions)))


def demands_of(table: Any) -> Demands | None:
    """What the lowering may ask of sizes: it takes the way of the sizes of the trace, and each
    answer is a condition. None where there are no symbols, or these have no sizes any more."""
    if table is None or any(each.hint is None for each in table.symbols.values()):
        return None
    return Demands({name: each.hint for name, each in table.symbols.items()})


def with_demands(sizes: ProgramSizes, demands: Demands | None) -> ProgramSizes:
    """The conditions, with the answers that the lowering has taken."""
    answers = {} if demands is None else demands.answers
    more = [_answered(*question, answer) for question, answer in answers.items()]
    return attrs.evolve(sizes, conditions=tuple(dict.fromkeys([*sizes.conditions, *more])))


def fails(condition: Condition, values: Mapping[str, int]) -> bool:
    left, relation, right = condition
    return not RELATIONS[relation](value_of(left, values), value_of(right, values))


_FACTORS: Final = (2, 3, 4, 8, 16, 64)


def limit_in(demands: Demands) -> Condition | None:
    """An answer that fails for larger sizes than those of the trace: an upper limit, or one of
    single sizes. What grows may have any size that a lower limit allows."""
    for factor in _FACTORS:
        larger = {name: factor * size for name, size in demands.sizes.items()}
        if not demands.hold(larger):
            pairs = demands.answers.items()
            return next(
                _answered(*question, answer)
                for question, answer in pairs
                if not Demands(larger, {question: answer}).hold(larger)
            )
    return None


def _answered(function: Any, operands: tuple[Any, ...], answer: object) -> Condition:
    relation = _RELATIONS.get(function)
    texts = [str(each) for each in operands]
    if relation is None or len(texts) != 2 or any(size_tree(text) is None for text in texts):
        raise _refused(f"{getattr(function, '__name__', function)} of {', '.join(texts)} is asked")
    return texts[0], relation if answer else NEGATED[relation], texts[1]


_RELATIONS: Final = {function: name for name, function in RELATIONS.items()}


def _dims(meta: Any) -> list[Any]:
    if type(meta) is tuple:
        return [dim for each in meta for dim in _dims(each)]
    return list(getattr(meta, "shape", ()))


def condition_of(guard: Any) -> Condition:
    fact = guard.fact
    if not isinstance(fact, SymBool):
        raise _refused(f"the graph holds for sizes with {guard.text}, which no program can check")
    return str(fact.left), fact.relation, str(fact.right)


def _refused(what: str) -> Exception:
    return UnsupportedError(
        f"interchange: {what}, expected sizes of inputs: export without dynamic_shapes, for the "
        "sizes of the call"
    )


# -------------------------------------------------------------------------------------- values
BINARY: Final[dict[type, Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def value_of(text: str, values: Mapping[str, int]) -> int:
    """The value of a size's text for these symbols. Raises ArgumentError for what is none."""
    tree = size_tree(text)
    if tree is None:
        raise ArgumentError(f"interchange: {text!r} is no size, expected arithmetic of symbols")
    return _value(tree, values)


def _value(tree: ast.expr, values: Mapping[str, int]) -> int:
    match tree:
        case ast.BinOp(left=left, op=op, right=right):
            return BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values)
        case ast.Call(func=ast.Name(id=name), args=args):
            return (max if name == "max" else min)(_value(each, values) for each in args)
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.Constant(value=int() as number):
            return number
    raise ArgumentError(f"interchange: a size has no value for {ast.unparse(tree)}, expected one")


def values_in(
    what: str, convention: Mapping[str, Any], inputs: Mapping[str, object]
) -> dict[str, int]:
    """The values of the symbols for these inputs. Raises ArgumentError where a condition fails."""
    sizes = convention.get("sizes") or attrs.asdict(ProgramSizes())  # none before there were some
    values: dict[str, int] = {}
    for symbol, name, dim, times, rest in sizes["bindings"]:
        shape = np.shape(np.asarray(inputs[name]))
        if dim >= len(shape):
            raise ArgumentError(
                f"{what}: input {name} has {len(shape)} dimensions, expected more than {dim}"
            )
        values[symbol] = (shape[dim] - value_of(rest, values)) // times
    for left, relation, right in sizes["conditions"]:
        if fails((left, relation, right), values):
            found = ", ".join([f"{name} = {size}" for name, size in values.items()])
            raise ArgumentError(
                f"{what}: the sizes are {found}, expected {left} {relation} {right}, for which the "
                "program was exported"
            )
    return values


def has_symbols(sizes: Sequence[Any]) -> bool:
    """Whether one of these sizes is a symbol."""
    return any(type(size) is SymInt for size in sizes)
