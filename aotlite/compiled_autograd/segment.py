"""A segment: consecutive open nodes as one compiled graph, the sources of its inputs, and the
destinations of its results.

Rules: CAG-1, CAG-2, CAG-10, CAG-14. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from aotlite.backends.calling_convention import Run, Value, as_value, window_of
from aotlite.compiled_autograd.node_signatures import is_released, records_of, saver_of
from aotlite.compiled_autograd.recorder import Place, note_forward
from aotlite.eager.autograd.nodes.op_nodes import replay
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.new_tensors import tensors_over
from aotlite.eager.base.tape.node import TapeNode, released
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.run.interpreter import ArrayValue, array_value
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.size_regions.kernels import Instance, SizedKernels
from aotlite.stages.s10_runtime.backward.node import CompiledBackward


class State(Protocol):
    """The gradients in flight between two segments."""

    gradients: dict[TapeNode, list[Tensor | None]]
    """The gradients that have arrived at nodes that have not run."""
    collected: list[Tensor | None]
    """The gradients that have arrived at the sinks."""
    retain: bool

    def at(self, place: Place) -> Any:
        """The gradient at ("at", number of a node, index of its result) or ("sink", index)."""


class SegmentCompiler(Protocol):
    """Makes kernels of recorded graphs: `compiler.CompiledAutograd`."""

    def pure(self, graph: Graph) -> Graph:
        """Stages 6 and 7, and the user's passes."""

    def lowered(self, graph: Graph, sized: Instance | None) -> Run:
        """Stage 9; `sized` has the kernels for all sizes, if there are any."""

    def prove(self, table: SymbolTable) -> None:
        """Raises GuardError if a fact that was used does not follow from what was assumed."""

    def sized(self, graph: Graph, table: SymbolTable) -> SizedKernels | None:
        """The kernels of a graph for all sizes of its symbols; None if the backend makes none."""


class RecordingRun(State, Protocol):
    """The interface of `execution.TapeRun` for recordings."""

    nodes: Any
    number: dict[TapeNode, int]
    is_recorded: bool
    recorder: Recorder | None
    compiler: SegmentCompiler
    tape: Any
    outlines: Any

    @property
    def arrivals(self) -> Callable[[], tuple[Hashable, tuple[Any, ...]]]: ...
    @property
    def on_their_way(self) -> Callable[[], list[Tensor | None]]: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def places(self) -> Callable[[], dict[int, Place]]: ...
    @property
    def _step(self) -> Callable[[TapeNode], None]: ...


@attrs.frozen(eq=False)
class SegmentRecording:
    """A recorded segment.

    A value is the place of an input, the index of a graph result, or ("view", value, chain).
    """

    numbers: tuple[int, ...]
    """The nodes, in the order in which the engine runs them."""
    graph: Graph | None
    """The ops of the nodes; None if gradients only pass through."""
    places: tuple[Place, ...]
    """The sources of the graph's inputs."""
    kept: tuple[tuple[int, frozenset[int]], ...]
    """The nodes that release saved values; for compiled calls also their absent tangents."""
    leaves: tuple[tuple[int, Any], ...]
    """(node of a leaf, value of its gradient), in the order of accumulation."""
    leaving: tuple[tuple[int, tuple[Any, ...]], ...]
    """(node, values of its gradients) for gradients in flight after the segment."""
    collected: tuple[Any, ...]
    """The values for the sinks; Ellipsis for a sink that the segment does not change."""

    def at(self, values: Mapping[str, int]) -> SegmentRecording:
        """The recording with numbers in place of its symbols, given by name."""
        graph = None if self.graph is None else at_sizes(self.graph, values)
        seen = _ValuesAt(values)
        leaving = tuple([(number, tuple(map(seen.at, row))) for number, row in self.leaving])
        collected = tuple(map(seen.at, self.collected))
        parts = self.numbers, graph, self.places, self.kept, self.leaves
        return SegmentRecording(*parts, leaving, collected)

    def compiled(self, compiler: SegmentCompiler) -> Segment:
        """Compiles the graph; the segment that runs it."""
        if self.graph is None:
            return self.of(None, None)
        pure = compiler.pure(self.graph)
        return self.of(pure, compiler.lowered(pure, None))

    def of(self, graph: Graph | None, run: Run | None) -> Segment:
        """The segment that runs this pure graph of it."""
        shared = graph is not None and may_share(graph)
        parts = self.numbers, graph, self.places, self.kept, self.leaves, self.leaving
        return Segment(*parts, self.collected, run, shared)


@attrs.frozen(eq=False)
class Segment(SegmentRecording):
    """A recording whose graph is pure and compiled."""

    run: Run | None
    shared: bool
    """Whether a result may be on memory of an input."""

    def execute(self, nodes: Sequence[TapeNode], state: State) -> None:
        """Runs the segment on the gradients in flight, and replaces them by its results.

        Raises AutogradError, before anything has changed, for a saved value that was written.
        """
        values = self._values(nodes, state)
        metas = [value.meta for value in self.graph.outputs] if self.graph is not None else []
        if not state.retain:
            for number, _ in self.kept:
                nodes[number].release()
        found: list[Tensor | None] = []
        if self.run is not None:
            buffers = {id(window_of(value)[0]) for value in values} if self.shared else ()
            try:
                results = self.run.called(values)
            except Exception as error:
                note_forward(error, [(number, nodes[number]) for number in self.numbers])
                raise
            if buffers:
                results = [apart(r, m, buffers) for r, m in zip(results, metas, strict=True)]
            found = tensors_over(results, metas)
            del results
        self._deliver(nodes, state, found)

    def _values(self, nodes: Sequence[TapeNode], state: State) -> list[Value]:
        """The values of the graph's inputs that are read (`backends.calling_convention`).

        The versions of all saved values are checked, also of those that nothing computes with.
        """
        for number, absent in self.kept:
            node = nodes[number]
            if is_released(node):
                raise released(node.name())
            if type(node) is CompiledBackward:
                node.check(absent)
        # The placeholder of each place whose value is read.
        inputs: Sequence[Node | None] = [None] * len(self.places)
        if self.run is not None and self.graph is not None:
            pairs = zip(self.graph.placeholders, self.run.reads, strict=True)
            inputs = [node if is_read else None for node, is_read in pairs]
        saved: dict[int, Any] = {}
        values = []
        for place, read_as in zip(self.places, inputs, strict=True):
            if place[0] != "saved":
                tensor = state.at(place)
                value = tensor.storage.buffer, tensor.offset
            else:
                number = place[1]
                if number not in saved:
                    saved[number] = saved_by(nodes[number])
                value = saved[number][place[2]]
                if type(value) is SavedTensor:
                    tensor = value.unpack(nodes[number])
                    value = tensor.storage.buffer, tensor.offset
            if read_as is not None:
                values.append(as_value(value, read_as.meta))
        return values

    def _deliver(self, nodes: Sequence[TapeNode], state: State, found: list[Tensor | None]) -> None:
        values = Delivered(found, state)
        leaving = {nodes[number]: [values.at(of) for of in row] for number, row in self.leaving}
        collected = [
            old if of is Ellipsis else values.at(of)
            for of, old in zip(self.collected, state.collected, strict=True)
        ]
        leaves = [(number, values.at(of)) for number, of in self.leaves]
        state.gradients, state.collected = leaving, collected
        del leaving, collected, values
        found.clear()
        leaves.reverse()
        while leaves:
            number, grad = leaves.pop()
            given = [grad]
            del grad
            nodes[number].run(given)


class _ValuesAt:
    """Values that leave a segment, with symbols replaced; one object stays one object."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = numbers
        self.views: dict[int, Any] = {}

    def at(self, of: object) -> Any:
        if type(of) is not tuple or of[0] != "view":
            return of
        if id(of) not in self.views:
            self.views[id(of)] = ("view", self.at(of[1]), of[2].at(self.numbers))
        return self.views[id(of)]


class Delivered:
    """The tensors of the values that leave a segment, each made once."""

    def __init__(self, found: list[Tensor | None], state: State) -> None:
        self.found = found
        self.state = state
        self.views: dict[int, Any] = {}

    def at(self, of: Any) -> Any:
        if of is None:
            return None
        if type(of) is int:
            return self.found[of]
        if of[0] != "view":
            return self.state.at(of)
        if id(of) not in self.views:
            self.views[id(of)] = replay(of[2], self.at(of[1]))
        return self.views[id(of)]


def saved_by(node: TapeNode) -> Sequence[object]:
    """The saved values of an open node, by slot: saved tensors, or windows of a compiled call."""
    saver = saver_of(node)
    if saver is not None:
        return list(records_of(saver))
    compiled: Any = node
    saved: Sequence[Any] = compiled.saved
    return saved


def apart(window: Any, meta: Any, buffers: Any) -> object:
    """The window of a result, copied if it is on memory of an input."""
    if window is None or id(window[0]) not in buffers:
        return window
    return array_value(ArrayValue(window[0], meta, window[1]).array, meta).buffer, 0


def may_share(graph: Graph) -> bool:
    """Whether a result of the graph may be an input of it, or a view of one."""
    values = [value for value in graph.outputs if type(value) is Node]
    return any(storage_root(value).op != "call" for value in values)
