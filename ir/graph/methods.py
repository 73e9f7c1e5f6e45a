"""FX's methods of `Graph` that stand on modules above the graph: printing, editing, checking.

Ground floor. `Graph` declares them, so that readers and type checkers find them there;
`install_methods` puts these functions in their places, as that of the op table does for `Operand`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from aotlite.ir.deferred import deferred
from aotlite.ir.graph.edit import GraphEdit
from aotlite.ir.graph.graph import Graph
from aotlite.ir.graph.text.printer import code, readable, tabular
from aotlite.ir.graph.text.sequence_table import sequence_table
from aotlite.ir.graph.verify import verify

if TYPE_CHECKING:
    from aotlite.ir.graph import files
else:  # few graphs are pickled
    files = deferred("aotlite.ir.graph.files")

__all__ = ["install_methods"]


def _edit(self: Graph) -> GraphEdit:
    return GraphEdit(self)


def _print_readable(self: Graph, *, print_output: bool = True) -> str:
    return _printed(readable(self), print_output)


def _print_tabular(self: Graph, *, print_output: bool = True) -> str:
    return _printed(tabular(self), print_output)


def _sequence_table(self: Graph, *, print_output: bool = True) -> str:
    return _printed(sequence_table(self), print_output)


def _printed(text: str, print_output: bool) -> str:
    if print_output:
        print(text)
    return text


def _code(self: Graph) -> str:
    return code(self)


def _lint(self: Graph) -> None:
    verify(self)


def _str(self: Graph) -> str:
    return readable(self)


def _reduce(self: Graph) -> tuple[Any, ...]:
    """Pickled as the text of a file (SER-1): without code objects and nodes of other graphs."""
    return files.loads, (files.dumps(self),)


def _made() -> Iterator[tuple[str, Any]]:
    """(name, method) of all; those that `Graph` declares keep their names and docstrings."""
    for function in (_edit, _print_readable, _print_tabular, _sequence_table, _lint):
        name = function.__name__.removeprefix("_")
        yield name, update_wrapper(function, getattr(Graph, name))
    declared: Any = Graph.code
    yield "code", property(update_wrapper(_code, declared.fget))
    yield "__str__", _str
    yield "__reduce__", _reduce


def install_methods() -> None:
    """Gives `Graph` its methods."""
    for name, method in list(_made()):
        setattr(Graph, name, method)
