"""The reference backend: runs each op of a graph by the op's own kernel.

Its results are, bit for bit, those of the eager engine, so that other backends are compared with
it. `return x.t() + 1` of x: f32[2, 3] takes two steps:

    t: a view moves a window and computes nothing
    add(array of t, 1): the kernel; its result is brought into the strides of its meta

The interpreter takes the steps of the first two calls. From the third call on the graph runs as
straight-line Python (`generated_python`), which costs more to make than some calls save. Spec:
`specs/s9_lower.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.backends.calling_convention import Run, Value, returned_as_arrays, window_of
from aotlite.backends.closing_copies import compiled_with_copies, has_copies
from aotlite.backends.generated_python import straight
from aotlite.ir.effects import TokenOp
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph
from aotlite.ir.op import PureOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import ArrayValue, Interpreter, computed


class ReferenceBackend:
    """Runs graphs op by op, each by its own kernel.

    After `interpreted_calls` calls a graph becomes straight-line Python.
    """

    name = "reference"

    def __init__(self, interpreted_calls: int = 2) -> None:
        self.interpreted_calls = interpreted_calls

    def __repr__(self) -> str:
        return f"ReferenceBackend({self.interpreted_calls})"

    def compile(self, graph: Graph) -> Run:
        """Returns the callable of a pure graph, which may end with copies into inputs."""
        if has_copies(graph):
            return compiled_with_copies(graph, self.compile)
        _check_pure(graph)
        return ReferenceRun(graph, self.interpreted_calls)


REFERENCE = ReferenceBackend()


def _check_pure(graph: Graph) -> None:
    """Raises BackendError at an op that writes."""
    for node in graph.calls:
        if not isinstance(node.target, (PureOp, ViewOp, TokenOp)) and node.target is not GETITEM:
            raise BackendError(
                f"reference: the graph calls {node.target.name}, expected pure ops and views only; "
                "functionalize the graph first (stage 6)"
            )


class ReferenceRun(Run):
    """A graph that is interpreted at first, and runs as straight-line Python later."""

    def __init__(self, graph: Graph, interpreted_calls: int) -> None:
        super().__init__(graph)
        self.source: str | None = None
        """The text of the straight-line form, once there is one."""
        self.call: Callable[[list[Value]], list[Value]] = self._interpreted
        self._calls_left = interpreted_calls

    def _interpreted(self, values: list[Value]) -> list[Value]:
        """`call` of the first calls: interprets the graph, and replaces itself by straight-line
        Python when the graph has been called often enough to pay for compiling that."""
        self._calls_left -= 1
        if self._calls_left < 0:
            self.call, self.source = straight(self.graph)
            return self.call(values)
        found = _KernelInterpreter(self.graph).results(values, self.reads)
        return [
            None if value is None else value.array if as_array else (value.buffer, value.start)
            for value, as_array in zip(found, returned_as_arrays(self.graph), strict=True)
        ]


class _KernelInterpreter(Interpreter):
    """Runs a pure graph by the ops' kernels. Results have the metas of the graph's nodes, which
    need not be those that ops infer: stage 9 chooses strides."""

    def results(self, values: list[Value], reads: list[bool]) -> list[ArrayValue | None]:
        """Returns the graph's outputs for the values of the inputs that are read. Empties the list
        (BOX-1)."""
        rest = iter(values)
        self._inputs = [next(rest) if read else None for read in reads][::-1]
        values.clear()
        found: list[ArrayValue | None] = self._run_nodes()
        return found

    def placeholder(self, target: object, args: tuple[object, ...]) -> object:
        """The next input. One that nothing reads has no memory."""
        buffer, start = window_of(self._inputs.pop())
        return ArrayValue(buffer, self.node.meta, start)  # type: ignore[arg-type]

    def call(self, target: Any, args: tuple[Any, ...]) -> Any:
        """The result of an op, with the meta of its node."""
        node = self.node
        meta: Any = node.meta
        if target is GETITEM:
            return args[0][args[1]]
        if isinstance(target, ViewOp):
            return ArrayValue(args[0].buffer, meta, target.at(node.args, args[0].start))
        return computed(target, args, meta)

    def output(self, target: object, args: tuple[object, ...]) -> Any:
        """The outputs, as windows."""
        return args[0]
