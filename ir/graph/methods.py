"""The methods of `Graph` that need other modules of the package: printing, editing, checking.

Ground floor. Those modules import `ir/graph/graph.py`, so that it cannot import them. There `Graph`
declares the methods for type checkers only; `install_methods` adds the functions below to the
class, as `ir/op/operand.py` adds a method for each op to `Operand`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from aotlite.ir.deferred import deferred
from aotlite.ir.graph.edit import GraphEdit
from aotlite.ir.graph.graph import Graph, Node
from aotlite.ir.graph.node_text import node_names
from aotlite.ir.graph.role import Role
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.graph.symbolic.binding import names_among
from aotlite.ir.graph.text.printer import code, readable, tabular
from aotlite.ir.graph.text.sequence_table import sequence_table
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import TensorMeta

if TYPE_CHECKING:
    from aotlite.ir.graph import files
else:  # few graphs are pickled
    files = deferred("aotlite.ir.graph.files")

__all__ = ["install_methods"]


def _edit(self: Graph) -> GraphEdit:
    """A `GraphEdit`: an editable copy with FX's editing methods (`ir/graph/edit.py`)."""
    return GraphEdit(self)


def _print_readable(self: Graph, *, print_output: bool = True) -> str:
    """The graph as runnable Python with metas and source lines; printed and returned."""
    return _printed(readable(self), print_output)


def _print_tabular(self: Graph, *, print_output: bool = True) -> str:
    """The graph as a table, one row a node; printed and returned."""
    return _printed(tabular(self), print_output)


def _sequence_table(self: Graph, *, print_output: bool = True) -> str:
    """The user's op that each call belongs to, one row a call; printed and returned (SEQ-2).

    Rows of the backward have the number of the forward op that they differentiate.
    """
    return _printed(sequence_table(self), print_output)


def _printed(text: str, print_output: bool) -> str:
    if print_output:
        print(text)
    return text


def _code(self: Graph) -> str:
    """The graph as plain runnable Python, without comments."""
    return code(self)


def _names(self: Graph) -> dict[Node, str]:
    """Each node -> its printed name: its role or op, numbered from the second on."""
    if self._names is None:
        self._names = node_names(self.nodes)
    return self._names


def _symbols(self: Graph) -> tuple[str, ...]:
    """The names of the symbols in its sizes; computed on first use."""
    if self._symbols is None:
        self._symbols = tuple(sorted(names_among(_sized(self.nodes))))
    return self._symbols


def _sized(nodes: Iterable[Node]) -> list[object]:
    """What may have sizes, each meta once."""
    metas = {id(node.meta): node.meta for node in nodes}.values()
    found: list[object] = [x for x in metas if type(x) is not TensorMeta or x.table is not None]
    return found + [x for node in nodes for x in node.args if type(x) not in _WITHOUT_SIZES]


_WITHOUT_SIZES = {Node, int, float, bool, str, type(None)}


def _lint(self: Graph) -> None:
    """Raises GraphError where the graph breaks an invariant (`ir/graph/verify.py`)."""
    verify(self)


def _str(self: Graph) -> str:
    """`print_readable`'s text."""
    return readable(self)


def _reduce(self: Graph) -> tuple[object, ...]:
    """Pickles the graph as the text of its file (SER-1): no code objects, no earlier graphs."""
    return files.loads, (files.dumps(self),)


def _output_metas(self: Graph) -> tuple[Any, ...]:
    """The meta of each output that is a node; None for another one."""
    if self.header is not None:
        found: tuple[Any, ...] = self.header.output_metas
        return found
    return tuple([value.meta if type(value) is Node else None for value in self.outputs])


def _output_metas_with(self: Graph, kind: type | tuple[type, ...]) -> list[tuple[Any, Any]]:
    """(role, meta) of the outputs whose role is of this class, in order (`output_metas`)."""
    pairs = zip(self.output_roles, self.output_metas, strict=True)
    return [(role, meta) for role, meta in pairs if isinstance(role, kind)]


def _output_roots(self: Graph) -> tuple[int | None, ...]:
    """For each output the number of its `storage_root` among the nodes; -1 minus that for an input
    or a constant, None for what is no node."""
    if self.header is not None:
        found: tuple[int | None, ...] = self.header.roots
        return found
    numbers = {node: k if node.op == "call" else -1 - k for k, node in enumerate(self.nodes)}
    return tuple([numbers[storage_root(v)] if type(v) is Node else None for v in self.outputs])


def _returns_input(self: Graph, output: Role, role: Role) -> bool:
    """Whether the output of a role is the input of another one."""
    at = self.output_roles.index(output)
    if self.header is not None and (self.header.roots[at] or 0) >= 0:
        return False  # a call has made it: its nodes need not be read
    value = self.outputs[at]
    return type(value) is Node and value.op == "placeholder" and value.role == role


def _repr_pretty(self: Graph, printer: Any, cycle: bool) -> None:
    """Prints the graph's text: IPython calls this, and Hypothesis for a failing example."""
    printer.text(str(self))


def _getattr(self: Graph, name: str) -> Any:
    """The nodes of a graph that is not read yet: only a slot without a value gets here."""
    if name != "nodes" or self.header is None:
        raise AttributeError(f"'Graph' object has no attribute {name!r}", name=name, obj=self)
    self.nodes = nodes = self.header.nodes()
    return nodes


_PRINTS = (_print_readable, _print_tabular, _sequence_table)
_PROPERTIES = (_names, _symbols, _code, _output_metas, _output_roots)
_NAMED: tuple[Callable[..., object], ...] = (
    *(_edit, _output_metas_with, _returns_input),
    *(*_PRINTS, *_PROPERTIES, _lint),
)


def _methods() -> Iterator[tuple[str, Any]]:
    """(name, function) of each method."""
    for function in _NAMED:
        yield function.__name__.removeprefix("_"), function
    yield "__str__", _str
    yield "__getattr__", _getattr
    yield "_repr_pretty_", _repr_pretty
    yield "__reduce__", _reduce


def install_methods() -> None:
    """Gives `Graph` its methods, under their names, for `help(Graph)` too."""
    for name, function in _methods():
        function.__name__, function.__qualname__ = name, f"Graph.{name}"
        setattr(Graph, name, property(function) if function in _PROPERTIES else function)
