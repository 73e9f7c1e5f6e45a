"""The data of all checks: the product's sources and imports, under their names."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.house.imports import Edge, edges, is_within
from tests.house.moves import moved
from tests.house.plan import plan
from tests.house.sources import Source, Tree


@dataclass(frozen=True)
class Finding:
    """One counted place, with the key of its allowance."""

    key: str
    text: str
    """Its location and description."""
    amount: int = 1
    module: str = ""
    """The module that it is about, if any."""


@dataclass(frozen=True)
class House:
    """A tree, now or after moves."""

    tree: Tree
    moves: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def sources(self) -> dict[str, Source]:
        """The product's files by module."""
        return {self.name(name): source for name, source in sorted(self.tree.product.items())}

    @functools.cached_property
    def edges(self) -> list[Edge]:
        return moved(edges(self.tree.product, plan()["tables"]), self.moves)

    def name(self, module: str) -> str:
        return self.moves.get(module, module)

    @functools.cached_property
    def library(self) -> dict[str, Source]:
        """The product without what tests it."""
        testing = ("aotlite.testing", "aotlite.conformance")
        return {
            name: source
            for name, source in self.sources.items()
            if not any(is_within(name, package) for package in testing)
        }

    @functools.cached_property
    def packages(self) -> dict[str, dict[str, Source]]:
        """Package -> its files, without those of subpackages."""
        parents = {name.rpartition(".")[0] for name in self.sources}
        found: dict[str, dict[str, Source]] = {}
        for name, source in self.sources.items():
            package = name if name in parents else name.rpartition(".")[0]
            found.setdefault(package, {})[name] = source
        return found


def short(name: str) -> str:
    """A module's name without `aotlite.`: what a codemod of names leaves alone."""
    return name.removeprefix("aotlite.")
