"""`PassBase` and `PassResult`: a pass over GraphModules as a class (FXG-24)."""

from __future__ import annotations

import abc
from typing import NamedTuple

from aotlite.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """What a pass returns."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass: `call` does it, between two checks that a subclass may have."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Checks, runs the pass, and checks again."""
        self.requires(graph_module)
        found = self.call(graph_module)
        self.ensures(graph_module)
        return found

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """The pass itself."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Checks what the pass needs; raises where it is not so."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Checks what the pass promises; raises where it is not so."""
