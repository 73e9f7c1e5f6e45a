"""Records with symbols from a document: on one symbol table, as a capture makes them.

Each graph of a document is read into a table of its own, in which its guards prove all that its ops
ask. Here its sizes become those of the records' table, in which all assumptions of the capture
hold; and it is checked that the parts speak of the same symbols. Rules: CACHE-17, CACHE-20. Spec:
`specs/artifacts.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from aotlite.artifacts.files.symbol_words import KeptSymbols
from aotlite.ir.errors import FormatError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Primal
from aotlite.ir.graph.symbolic.binding import sizes_among
from aotlite.ir.graph.symbolic.numbers import with_sizes
from aotlite.ir.meta import TensorMeta, table_in, tensor_meta
from aotlite.ir.symbols.assumption import Assumption, concrete
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.symbolic_sizes import (
    GivenRole,
    NumberSource,
    Source,
    SymbolicSizes,
    place_of_role,
    sources_of,
)


@attrs.frozen(eq=False)
class EntrySymbols:
    """The symbols of a kept entry, in a table of this process."""

    sizes: SymbolicSizes
    guards: tuple[Assumption, ...]
    words: KeptSymbols

    def first(self) -> dict[GivenRole, TensorMeta | int]:
        """The metas and ints of the call that was captured: it assumes less than others may."""
        hints, sizes = self.sizes.table.hints, self.sizes
        numbers = {Primal(i): int(concrete(each, hints)) for i, each in sizes.numbers.items()}
        return {role: meta.concrete(hints) for role, meta in sizes.metas.items()} | numbers

    def admits(self, leaves: Sequence[Any]) -> bool:
        """Whether the sizes of a call satisfy the bounds and conditions."""
        sizes = self.sizes
        try:
            values = sizes.values(leaves)
            metas = [
                (each, leaves[place_of_role(role)[0]].meta) for role, each in sizes.metas.items()
            ]
        except (TypeError, IndexError, AttributeError):  # another argument is there
            return False
        numbers = [(each, leaves[index]) for index, each in sizes.numbers.items()]
        rooms = [(values[name], *room) for name, room in sizes.rooms.items()]
        return (
            all(meta.concrete(values) is found for meta, found in metas)
            and all(concrete(number, values) == found for number, found in numbers)
            and all((a is None or a <= n) and (b is None or n <= b) for n, a, b in rooms)
            and all(guard.holds(values) for guard in self.guards)
        )


# Note [sizes of graphs]
#     max(1, s0)                                       # is s0, where the guards say s0 >= 1
# A capture makes most sizes before it knows the guards, and keeps their form. A table that knows
# the guards would make other ones, and a graph would be another. So the document of the records has
# the sizes of its graphs, too: a reader makes the sizes of a document first, and learns the guards
# then. A size of a graph's own table is found by its text.
def written_root(
    cut: StageRecords, higher: tuple[Any, ...] | None, sizes: SymbolicSizes
) -> tuple[Any, ...]:
    """What a document has of records with symbols: also the metas and numbers of the arguments, and
    the sizes in the graphs. Note [sizes of graphs]."""
    halves = cut.joint.graph, cut.partition.forward, cut.partition.backward
    graphs = [each for each in halves if each is not None]
    nodes = [(node.args, node.meta) for graph in graphs for node in graph.nodes]
    inner = tuple(dict.fromkeys(sizes_among(nodes)))
    return cut, higher, (tuple(sizes.metas.items()), tuple(sizes.numbers.items()), inner)


def sized_arguments(sizes: SymbolicSizes) -> tuple[int, ...]:
    """The flat arguments that are symbols, or have some for sizes."""
    return tuple(sorted({*sizes.numbers, *[place_of_role(role)[0] for role in sizes.metas]}))


def on_one_table(
    cut: StageRecords,
    assumed: Sequence[Assumption],
    given: Any,
    words: KeptSymbols,
) -> tuple[StageRecords, EntrySymbols]:
    """The records with their graphs on one table, and its symbols. Raises FormatError for parts of
    several compilations."""
    metas, numbers, inner = given
    table = table_in([each for _, each in (*metas, *numbers)])
    if table is None or len(assumed) != len(words.places):
        raise _wrong("no symbol, or other assumptions", "those of one capture")
    log = [attrs.evolve(a, location=at) for a, at in zip(assumed, words.places, strict=True)]
    table.log[:] = log
    partition = cut.partition
    by_text = {table.expression(each): each for each in inner}
    halves = cut.joint.graph, partition.forward, partition.backward
    both, forward, backward = (_on(table, by_text, each) for each in halves)
    if len(table.log) != len(log):
        raise _wrong("a size assumes more than the guards", "sizes of this capture")
    partition = attrs.evolve(partition, forward=forward, backward=backward)
    sizes = _sizes(table, metas, numbers, words)
    _check_inputs(cut, sizes, forward)
    table.closed = True
    guards = tuple([log[number] for number in words.guards])
    cut = attrs.evolve(cut, partition=partition, joint=attrs.evolve(cut.joint, graph=both))
    return cut, EntrySymbols(sizes, guards, words)


def _on(table: SymbolTable, by_text: Mapping[str, SymInt], graph: Graph | None) -> Any:
    """The graph with sizes of this table, which has them `by_text`."""
    if graph is None:
        return None
    own = table_in([(node.meta, *node.args) for node in graph.nodes])
    if own is None or own is table:
        return graph
    known = {each.text for each in table.log}
    for each in own.log:
        if each.text not in known:
            raise _wrong(
                f"the graph {graph.name} assumes {each.text}"[:160], "a guard of the entry"
            )
    for name, symbol in own.symbols.items():
        if name not in table.symbols or table.symbols[name].room != symbol.room:
            raise _wrong(f"the graph {graph.name} has the symbol {name}", "one of the entry")

    def put(value: Any) -> Any:
        if type(value) is SymInt:
            return by_text[own.expression(value)]
        shape, stride = (
            tuple([put(x) if type(x) is SymInt else x for x in each])
            for each in (value.shape, value.stride)
        )
        return tensor_meta(shape, stride, value.dtype, value.device)

    try:
        return with_sizes(graph, put)
    except (KeyError, AttributeError):
        raise _wrong(f"the graph {graph.name} has another size", "those of the entry") from None


def _sizes(table: SymbolTable, metas: Any, numbers: Any, words: KeptSymbols) -> SymbolicSizes:
    if not words.sources.keys() <= table.symbols.keys():
        raise _wrong("a symbol has no size", "one that the graphs or inputs have")
    sizes = SymbolicSizes(
        words.requests,
        table,
        dict(words.sources),
        rooms=dict(words.rooms),
        metas=dict(metas),
        numbers=dict(numbers),
        proof=words.proof,
    )
    for name, source in words.sources.items():
        table.symbols[name].role = source.role
        sizes.asked[name] = words.requests[source]
    return sizes


def _check_inputs(cut: StageRecords, sizes: SymbolicSizes, forward: Graph) -> None:
    """Raises FormatError unless each symbol is where a call finds its value, and the metas of the
    inputs are those that calls are compared with."""
    given = {each.role: each.meta for each in cut.meta.inputs}
    for role, meta in sizes.metas.items():
        if type(role) is not Primal or type(meta) is not TensorMeta:
            raise _wrong(f"{role} has symbols", "an argument")
        if given.get(role, meta) is not meta:
            raise _wrong(f"{role} is {given[role]}", f"{meta}")
    for node in forward.placeholders:
        known = sizes.metas.get(node.role) if isinstance(node.role, Primal) else None
        if table_in((node.meta,)) is not None and known is not node.meta:
            raise _wrong(f"{node.role} of the graph is {node.meta}", "the meta of an argument")
    found = dict(_values(sizes))
    for name, source in sizes.sources.items():
        if found.get(source) is not sizes.table.named(name):
            raise _wrong(f"{name} is the {source}", "a symbol of that size")


def _values(sizes: SymbolicSizes) -> Iterator[tuple[Source, object]]:
    """Each size and number of the arguments, with its source."""
    for role, meta in sizes.metas.items():
        yield from zip(sources_of(role, meta), meta.shape, strict=True)
    for index, number in sizes.numbers.items():
        yield NumberSource(index), number


def check_is_kept(cut: StageRecords, sizes: SymbolicSizes) -> None:
    """Raises UnsupportedError for records with symbols of which a file would say too little."""
    reasons = {
        "a size depends on values of tensors": sizes.counts,
        "a float argument is an input": sizes.floats or tuple(sizes.floats.facts),
        "a hook holds a symbol": sizes.kept,
        "inputs are views of one base, and sizes are symbols": cut.convention.bases,
        "an input is read beyond its elements, and sizes are symbols": [
            each for each in cut.meta.inputs if each.extent is not None
        ],
    }
    for reason, found in reasons.items():
        if found:
            raise UnsupportedError(reason)


def values_of(symbols: EntrySymbols | None, leaves: Sequence[object]) -> Mapping[str, int]:
    """The values of the symbols in a call, by name; none of an entry of numbers."""
    return {} if symbols is None else symbols.sizes.values(leaves)


def _wrong(got: str, expected: str) -> FormatError:
    return FormatError(f"artifact: {got}, expected {expected}")
