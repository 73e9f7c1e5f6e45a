"""The nodes of an FX graph as a list, its ends, and the place where new nodes go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aotlite.fx.core.words import Target
from aotlite.fx.node import FxNode

__all__ = ["InsertPoint", "NodeList", "Root"]


class Root:
    """What stands before the first node and behind the last one; no node of the graph."""

    op = "root"
    name = ""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    @property
    def next(self) -> Any:
        """The first node."""
        return next(iter(NodeList(self.graph)), self)

    @property
    def prev(self) -> Any:
        """The last node."""
        return next(reversed(NodeList(self.graph)), self)


class NodeList:
    """The nodes of a graph in order, as they are now: a loop over them may insert, move, erase."""

    def __init__(self, graph: Any, *, later: bool = True) -> None:
        self._graph = graph
        self._later = later

    def __iter__(self) -> Iterator[FxNode]:
        node = self._graph._end(later=self._later)
        while node is not None:
            if node._gone is None:
                yield node
            node = self._graph._beside(node, later=self._later)

    def __reversed__(self) -> Iterator[FxNode]:
        return iter(NodeList(self._graph, later=not self._later))

    def __len__(self) -> int:
        return len(self._graph._edit) - (not self._graph._returns)

    def find_nodes(self, *, op: str, target: Target = None) -> list[FxNode]:
        """The nodes of this kind, and of this target if one is given, in order."""
        return self._graph.find_nodes(op=op, target=target)

    def __repr__(self) -> str:
        return repr(list(self))


class InsertPoint:
    """Where new nodes go, from now on, and until the end of the block if it is one."""

    def __init__(self, graph: Any, point: tuple[FxNode, bool] | None) -> None:
        self._graph = graph
        self._before = graph._point
        graph._point = point

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._graph._point = self._before
