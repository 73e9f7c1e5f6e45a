"""Versions of a program for many sizes: one for each way in which orders of sizes turn out.

    made at s0 = 24, asked whether s0 > 2      ->  a version for all sizes with s0 > 2
    at(s0 = 1)                                 ->  another one, made then, for s0 <= 2

Most programs ask for no order that is not proved, and have one version. Spec:
`specs/sized_kernels.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.backends.loops.program import LoopProgram
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.ir.errors import IndexOutOfRangeError, ShapeError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.symbols.proving import Demands, Unproved
from aotlite.ir.symbols.table import SymbolTable

NO_VERSION = (Unproved, UnsupportedError, ShapeError, IndexOutOfRangeError)
"""What making a version raises for sizes that have none: an op may refuse sizes of 0 in a form that
its own kernel does not take there."""
MOST_VERSIONS = 8
"""Further sizes with other answers compile the graph of their own."""


class Version(Protocol):
    """A program for all sizes that meet some demands."""

    @property
    def program(self) -> LoopProgram:
        """The program with symbols."""

    def at(self, sizes: Mapping[str, int]) -> Run:
        """Returns the run for these sizes of the symbols."""


VersionT = TypeVar("VersionT", bound=Version)


@attrs.define(eq=False, repr=False)
class SizedVersions(Generic[VersionT]):
    """The run of a graph with symbolic sizes: that of the version for them."""

    graph: Graph
    make: Callable[[Demands], VersionT]
    """Makes a version, and adds what it demands. Raises Unproved if there is none."""
    compile_one: Callable[[Graph], Run]
    """Compiles a graph with numbers."""
    versions: list[tuple[Demands, VersionT | None]] = attrs.field(factory=list)
    """None: sizes that meet these demands compile the graph of their own."""

    @property
    def program(self) -> LoopProgram:
        """The program of the first version."""
        first = self.versions[0][1]
        assert first is not None
        return first.program

    def at(self, sizes: Mapping[str, int]) -> Run:
        """Returns the run for these sizes of the symbols; makes the version, if there is none."""
        version = self.version(sizes)
        if version is not None:
            with suppress(OverflowError):  # a number that no table of sizes holds
                return version.at(sizes)
        return self.compile_one(SizesAt(sizes).graph(self.graph))

    def version(self, sizes: Mapping[str, int]) -> VersionT | None:
        """Returns the version for these sizes; None if there is none."""
        for demands, version in self.versions:
            if demands.hold(sizes):
                return version
        if len(self.versions) == MOST_VERSIONS:
            return None
        demands, made = Demands(dict(sizes)), None
        with suppress(*NO_VERSION):
            made = self.make(demands)
        self.versions.append((demands, made))
        return made


def versions_of(
    graph: Graph,
    table: SymbolTable | None,
    make: Callable[[Demands], VersionT],
    compile_one: Callable[[Graph], Run],
    refused: Callable[[str], None],
) -> SizedVersions[VersionT] | None:
    """Returns the run of a graph with symbolic sizes, with its version for the hints. None, after
    `refused` got the reason, where no program is right for these and others."""
    demands = Demands({} if table is None else table.hints)
    try:
        first = make(demands)
    except NO_VERSION as problem:
        refused(f"{graph.name}: kernels for all sizes would have to know {problem}")
        return None
    return SizedVersions(graph, make, compile_one, [(demands, first)])
