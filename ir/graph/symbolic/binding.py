"""`bindings_in`: where a graph finds the values of its symbols.

    def f(x: "f32[s0, s1]", y: "f32[2*s2 + 1]", s3: "int = primals_2"):
        s0, s1 = x.shape
        s2 = (y.shape[0] - 1) // 2
        nonzero_count = ops.nonzero_count(x)
        u0 = ops.sym_item(nonzero_count, "u0")

A size of an input that is a symbol gives its value. A size that is a multiple of one unknown
symbol, plus sizes that are known, gives it too. A number that depends on values is computed: it is
an output with the name of the symbol. Every other symbol is a parameter of the graph. Ground floor.
Spec: `specs/graph.md`, GRA-16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from aotlite.ir.dtypes import int64
from aotlite.ir.graph.graph import Graph, Node
from aotlite.ir.graph.role import Output, Role, SavedSize
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.ir.symbols.floats.size_float import SizeFloat, sizes_in
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import table_of

__all__ = [
    "Binding",
    "Bindings",
    "ComputedSize",
    "bindings_in",
    "bindings_of",
    "computed_in",
    "is_number",
    "late_use",
    "names_among",
    "parameters_of",
    "sizes_among",
]


@attrs.frozen
class Binding:
    """A symbol that a size of an input gives: `size == times * symbol + rest`."""

    symbol: str
    source: Node
    """The input."""
    dim: int
    times: int = 1
    rest: int | SymInt = 0

    def value(self, size: int, known: Mapping[str, int]) -> int:
        """The value of the symbol for this size, and these values of earlier ones."""
        found: int = (size - concrete(self.rest, known)) // self.times
        return found


@attrs.frozen
class ComputedSize:
    """A symbol whose value is that of a node: a 0-d tensor of int64 (DYN-5)."""

    symbol: str
    node: Node


@attrs.frozen
class Bindings:
    """The symbols that a graph needs."""

    given: tuple[Binding, ...]
    """Those that sizes of inputs give; each needs earlier ones only."""
    free: tuple[str, ...]
    """Those that nothing gives, in the order of their names."""
    computed: tuple[ComputedSize, ...] = ()
    """Those that the graph computes, in the order of the nodes; an input may give one, too."""


def sizes_among(values: Iterable[object]) -> Iterator[SymInt]:
    """The symbolic sizes among arguments and metas, in tuples of them too."""
    for value in values:
        kind = type(value)
        if kind is SymInt:
            yield value  # type: ignore[misc]
        elif kind is SizeFloat:
            yield from sizes_in(value)  # type: ignore[arg-type]
        elif kind is tuple:
            yield from sizes_among(value)  # type: ignore[arg-type]
        elif kind is TensorMeta:
            yield from sizes_among(value.shape)  # type: ignore[attr-defined]
            yield from sizes_among(value.stride)  # type: ignore[attr-defined]


def names_among(values: Iterable[object]) -> set[str]:
    """The names of the symbols among arguments and metas."""
    sizes = {id(size): size for size in sizes_among(values)}
    return set().union(*map(names_in, sizes.values()))


def bindings_of(inputs: Iterable[Node], wanted: Iterable[str]) -> Bindings:
    """Where the symbols of these names get their values, in a graph with these inputs."""
    solver = _Solver(inputs)
    found, needed = solver.found, set(wanted)
    for name in reversed(found):  # what a binding needs was found before it
        if name in needed:
            needed |= names_in(found[name].rest)
    given = tuple([each for name, each in found.items() if name in needed])
    return Bindings(given, tuple(sorted(needed - found.keys(), key=_by_number)))


def bindings_in(graph: Graph, wanted: Iterable[str] | None = None) -> Bindings:
    """Where a graph gets the values of its symbols, or of those of these names."""
    names = set(graph.symbols if wanted is None else wanted)
    inputs = bindings_of(graph.placeholders, names)
    computed = computed_in(graph) if graph.symbols else ()
    free = tuple([name for name in inputs.free if all(name != each.symbol for each in computed)])
    return Bindings(inputs.given, free, tuple([each for each in computed if each.symbol in names]))


def computed_in(graph: Graph) -> tuple[ComputedSize, ...]:
    """The symbols that a graph computes, in the order of the nodes: an output may be a view."""
    pairs = zip(graph.output_roles, graph.outputs, strict=False)  # a broken graph is printed, too
    named = [pair for pair in pairs if type(pair[0]) is Output and pair[0].symbol]
    roots = [(r, storage_root(v)) for r, v in named if r.symbol in graph.symbols]  # type: ignore[union-attr]
    found = {node: ComputedSize(r.symbol, node) for r, node in roots if is_number(node)}  # type: ignore[union-attr]
    return tuple([found[node] for node in graph.nodes if node in found])


def late_use(graph: Graph, computed: ComputedSize) -> Node | None:
    """The first node that needs the symbol before it is computed: it, or an operand, has it."""
    for node in graph.nodes:
        metas = [each.meta for each in node.inputs()]
        if node.op != "placeholder" and computed.symbol in names_among([node.args, *metas]):
            return node
        if node is computed.node:
            return None
    return None


def is_number(node: Node) -> bool:
    """Whether a node may be the value of a symbol."""
    meta = node.meta
    return type(meta) is TensorMeta and not meta.shape and meta.dtype is int64


def parameters_of(graph: Graph) -> dict[str, Role | None]:
    """The symbols that nothing gives, in the order of the printed parameters, with their roles."""
    free = bindings_in(graph).free
    if not free:
        return {}
    saved: dict[str, Role] = {name: SavedSize(k) for k, name in enumerate(graph.saved_sizes)}
    table = table_of(sizes_among([(node.args, node.meta) for node in graph.nodes]))
    assert table is not None
    return {name: saved.get(name) or table.symbols[name].role for name in free}  # type: ignore[misc]


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


class _Solver:
    """Finds the symbols that inputs give, each size looked at when one unknown is left in it."""

    def __init__(self, inputs: Iterable[Node]) -> None:
        self.found: dict[str, Binding] = {}
        self.sizes: list[tuple[Node, int, SymInt]] = []
        self.unknown: list[set[str]] = []
        """By size: the names in it that are not found yet."""
        self.uses: dict[str, list[int]] = {}
        seen = set[int]()
        for node in inputs:
            meta = node.meta
            shape: tuple[object, ...] = meta.shape if type(meta) is TensorMeta else ()
            for dim, size in enumerate(shape):
                if type(size) is SymInt and id(size) not in seen:  # a second one gives no more
                    seen.add(id(size))
                    self._add(node, dim, size)
        new = list(self.found)
        for index in range(len(self.sizes)):
            new += self._solve(index)
        while new:
            name = new.pop()
            for index in self.uses.get(name, ()):
                self.unknown[index].discard(name)
                new += self._solve(index)

    def _add(self, node: Node, dim: int, size: SymInt) -> None:
        names = names_in(size)
        (monomial, factor), *others = size.terms.items()
        name = str(monomial[0]) if len(monomial) == factor == 1 and not others else None
        if name in names:
            self.found.setdefault(name, Binding(name, node, dim))
            return
        for name in names:
            self.uses.setdefault(name, []).append(len(self.sizes))
        self.sizes.append((node, dim, size))
        self.unknown.append(names)

    def _solve(self, index: int) -> list[str]:
        """The name that a size gives now, if it gives one."""
        unknown = self.unknown[index] - self.found.keys()
        if len(unknown) != 1:
            return []
        (name,) = unknown
        node, dim, size = self.sizes[index]
        table = table_of([size])
        assert table is not None
        symbol = (table.symbols[name],)
        times = size.terms.get(symbol, 0)
        rest = table.of({m: c for m, c in size.terms.items() if m != symbol})
        if not times or name in names_in(rest):
            return []
        self.found[name] = Binding(name, node, dim, times, rest)
        return [name]
