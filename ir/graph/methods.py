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


_PRINTS = (_print_readable, _print_tabular, _sequence_table)
_PROPERTIES = (_names, _symbols, _code)
_NAMED: tuple[Callable[..., object], ...] = (_edit, *_PRINTS, *_PROPERTIES, _lint)


def _methods() -> Iterator[tuple[str, Any]]:
    """(name, function) of each method."""
    for function in _NAMED:
        yield function.__name__.removeprefix("_"), function
    yield "__str__", _str
    yield "__reduce__", _reduce


def install_methods() -> None:
    """Gives `Graph` its methods, under their names, for `help(Graph)` too."""
    for name, function in _methods():
        function.__name__, function.__qualname__ = name, f"Graph.{name}"
        setattr(Graph, name, property(function) if function in _PROPERTIES else function)
