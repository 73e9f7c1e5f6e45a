"""The calling convention of compiled graphs: `run.call(values)` gives values (LOW-9).

A value whose memory is its elements in order travels as an array. Another one travels as a window,
(buffer, start): the buffer of a storage, and the element of it at which the value starts. Inputs
that nothing reads are left out. For y strided, and z a result:

    run.call([x, (y, 5)])                       ->  [saved, (z, 0)]

Making a window and taking it apart costs more than a small kernel. A backend may also give a
function on windows alone; stage 9 puts it into a `Run` (`protocol.WindowRun`). The other way round,
a `Run` that is called itself takes and returns windows, of all inputs:

    run([(x, 0), (unused, 0), (y, 5)])          ->  [(saved, 0), (z, 0)]

Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, TypeVar

from aotlite.ir.arrays import NUMPY, array_over
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import MutatedInput, Saved
from aotlite.ir.meta import TensorMeta

T = TypeVar("T")

Window = tuple[Any, int]
Value = Any
"""An array that has the meta's shape and strides, or a window."""


class Run:
    """A compiled graph, as aotlite's backends make them."""

    call: Callable[[list[Value]], list[Value]]
    """Computes the values of the outputs from those of the inputs that are read, and empties the
    list of these (BOX-1). It may be replaced between calls."""
    runs_user_code = False
    """Whether it calls a user's functions: then NumPy's warnings and grad mode are theirs."""
    output_strides: Sequence[object] | None = None
    """For each output its strides, or None for those of the graph (SAV-6)."""
    kernels: Any
    """What it is made of, for users who print it; some backends have none."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.reads = is_read(graph)
        """For each input whether `call` takes its value."""

    def __call__(self, windows: list[Window]) -> list[Window | None]:
        """Returns the results as windows, for a window on each input."""
        pairs = zip(self.graph.placeholders, windows, strict=True)
        values = [as_value(window, node.meta) for node, window in compress(pairs, self.reads)]
        windows.clear()
        return [None if value is None else window_of(value) for value in self.called(values)]

    def called(self, values: list[Value]) -> list[Value]:
        """Returns the results of `call`, without NumPy's warnings about numbers."""
        if self.runs_user_code:
            return self.call(values)
        found: list[Value] = NUMPY.quiet(self.call, values)
        return found

    def read_among(self, items: Sequence[T]) -> list[T]:
        """Returns, of an item for each input, those of the inputs that are read."""
        return list(compress(items, self.reads))


def travels_as_array(meta: TensorMeta) -> bool:
    """Whether a value of this meta is passed as an array. That array is its own buffer, start 0."""
    return (
        meta.contiguous
        and meta.numel > 0
        and meta.device.arrays is NUMPY
        and meta.dtype.numpy.kind != "V"  # an extension dtype exports no buffer
    )


def returned_as_arrays(graph: Graph) -> list[bool]:
    """Returns, for each output, whether it is returned as an array.

    These are saved values and new values of inputs, which stage 10 only reads. Another output
    becomes the storage of a tensor, for which stage 10 needs a window.
    """
    return [
        isinstance(role, (Saved, MutatedInput)) and meta is not None and travels_as_array(meta)
        for role, meta in zip(graph.output_roles, graph.output_metas, strict=True)
    ]


def is_read(graph: Graph) -> list[bool]:
    """Returns, for each placeholder, whether a node or an output reads it."""
    if graph.header is not None:
        return list(graph.header.reads)
    read = {value for node in graph.nodes for value in node.inputs()}
    read |= {value for value in graph.outputs if type(value) is Node}
    return [node in read for node in graph.placeholders]


# --------------------------------------------------------------------------------- arrays, windows
def window_of(value: Value) -> Window:
    """Returns a value as a window."""
    return value if type(value) is tuple else (value, 0)


def array_of(value: Value, meta: TensorMeta) -> Any:
    """Returns a value as an array with the shape and strides of its meta."""
    if type(value) is not tuple:
        return value
    return array_over(meta.device.arrays, value[0], meta, value[1])


def as_value(value: Value, meta: Any) -> Value:
    """Returns an array or window as the value of an input with this meta."""
    return array_of(value, meta) if travels_as_array(meta) else window_of(value)


__all__ = [
    "Run",
    "Value",
    "Window",
    "array_of",
    "as_value",
    "is_read",
    "returned_as_arrays",
    "travels_as_array",
    "window_of",
]
