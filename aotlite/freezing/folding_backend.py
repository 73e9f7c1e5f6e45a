"""`FoldingBackend`: a backend whose forwards are given folded values, and compute the rest.

It stands between stage 9 and the backend that the options name, which compiles the rest as it
compiles any graph. So guards, writes, results, gradients and their derivatives are those of a
compiled function, and freezing changes no stage. Rules: FRZ-1, FRZ-2, FRZ-6. Spec:
`specs/freezing.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import compress
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run, Value, as_value
from aotlite.backends.protocol import Backend, SizedRun, WindowFunction, as_run
from aotlite.freezing.fold_graph import Fold, is_forward, split
from aotlite.freezing.frozen_layouts import laid_out
from aotlite.freezing.frozen_tensors import FrozenTensors, KeptFold, number_of
from aotlite.freezing.report import fold_facts
from aotlite.ir.graph import Graph
from aotlite.ir.logs import emit


class FoldingBackend:
    """Wraps a backend: the values of frozen tensors alone are computed once."""

    def __init__(self, backend: Backend, frozen: FrozenTensors) -> None:
        self.backend = backend
        self.name = backend.name
        self.trusted = getattr(backend, "trusted", False)
        self.frozen = frozen
        if hasattr(backend, "of_size"):
            self.of_size = lambda size: FoldingBackend(backend.of_size(size), frozen)
        if hasattr(backend, "with_marked_inputs"):
            self.with_marked_inputs = self._marked
        if hasattr(backend, "compile_sized"):
            self.compile_sized = self._compiled_for_sizes

    def __getattr__(self, name: str) -> Any:
        """What else a backend says of itself, such as whether it `fuses`."""
        if name.startswith("__") or name == "backend":
            raise AttributeError(name)
        return getattr(self.backend, name)

    def compile(self, graph: Graph) -> Run | WindowFunction:
        """The run of a graph: of its rest, where some of it folds."""
        fold = self._fold(graph)
        if fold is None:
            return self.backend.compile(graph)
        made = self.backend.compile(fold.rest)
        if not callable(made):
            return made  # stage 9 raises for it
        rest = as_run(self.name, fold.rest, made, trusted=self.trusted)
        return FoldedRun(graph, rest, self.frozen.kept(fold))

    def _fold(self, graph: Graph) -> Fold | None:
        """The fold of a graph; None if it is compiled as it is."""
        if not is_forward(graph):
            return None
        frozen = self.frozen.foldable()
        if getattr(self.backend, "fuses", False):
            graph = laid_out(graph, frozen)
        fold = split(graph, frozen, always=self.frozen.discards)
        emit("fold", lambda: fold_facts(graph, fold, self.frozen))
        return fold

    def _marked(self, static: frozenset[Any], donated: frozenset[Any]) -> FoldingBackend:
        """This backend with static inputs marked. No saved value is donated: it may be a folded
        one, which later calls read."""
        inner: Any = self.backend
        return FoldingBackend(inner.with_marked_inputs(static, frozenset()), self.frozen)

    def _compiled_for_sizes(
        self, graph: Graph, refused: Callable[[str], object]
    ) -> SizedRun | None:
        """The kernels for all sizes of a graph, or of its rest; None after `refused(reason)`."""
        inner: Any = self.backend
        fold = self._fold(graph)
        if fold is None:
            found: SizedRun | None = inner.compile_sized(graph, refused)
            return found
        rest = inner.compile_sized(fold.rest, refused)
        return None if rest is None else SizedFold(graph, rest, self.frozen.kept(fold))


@attrs.define(eq=False, repr=False)
class SizedFold:
    """The kernels for all sizes of a rest, with the values that no size changes."""

    graph: Graph
    rest: SizedRun
    values: KeptFold

    def at(self, sizes: Mapping[str, int]) -> Run:
        """The run for these sizes."""
        return FoldedRun(self.graph, self.rest.at(sizes), self.values)


class FoldedRun(Run):
    """A compiled graph: the run of its rest, which gets folded values first.

    Where the function discards its frozen tensors, the rest gets these from here, too.
    """

    def __init__(self, graph: Graph, rest: Run, values: KeptFold) -> None:
        super().__init__(graph)
        self._rest = rest
        self._values = values
        count = len(values.fold.graph.outputs)
        self._chosen = list(compress(range(count), rest.reads[:count]))
        self._reads_all = len(self._chosen) == count
        pairs = zip(graph.placeholders, rest.reads[count:], strict=True)
        withheld = values.withheld
        self.reads = [read and node.role not in withheld for node, read in pairs]
        read = compress(graph.placeholders, rest.reads[count:])
        self._order = [number_of(n.role) if n.role in withheld else None for n in read]
        """For each input of the graph that the rest reads: the number of a frozen tensor that is
        given from here; None for one that the call gives."""
        self._is_plain = not any(each is not None for each in self._order)
        self.runs_user_code = rest.runs_user_code
        self.output_strides = rest.output_strides
        if hasattr(rest, "kernels"):
            self.kernels = rest.kernels

    def call(self, values: list[Value]) -> list[Value]:
        """The values of the outputs."""
        if not self._is_plain:
            given = iter(values[:])
            values[:] = [next(given) if n is None else self._own(n) for n in self._order]
        folded = self._values.current()
        values[:0] = folded if self._reads_all else [folded[i] for i in self._chosen]
        return self._rest.call(values)

    def _own(self, number: int) -> Value:
        found = self._values.frozen.value(number)
        return as_value((found.buffer, found.start), found.meta)
