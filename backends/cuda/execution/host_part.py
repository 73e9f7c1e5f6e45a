"""A graph's part on the host: scalars of the CPU, such as where a generator goes on.

Input: a pure graph with values on a CUDA device; output: the graph of its values there, and what
computes the others as eager does, by NumPy. What the device reads of the host comes to it as an
input. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress, count
from typing import Any

import attrs

from aotlite.backends.calling_convention import Value, is_read, returned_as_arrays
from aotlite.backends.closing_copies import write
from aotlite.backends.protocol import Run, Window
from aotlite.backends.reference import REFERENCE
from aotlite.ir.arrays.device import CPU
from aotlite.ir.effects import TokenOp
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph, Node, map_nodes, output_node
from aotlite.ir.graph.role import Argument, Output
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.shape.copies import COPY_, RESTRIDE, TO_DEVICE


@attrs.frozen
class Parts:
    """A graph in two."""

    device: Graph
    """Its inputs are the graph's, and then values of the host; its outputs those on the device."""
    host: Graph
    """Its inputs are those of the graph that are on the host; its outputs come in this order."""
    given: tuple[Node, ...]
    """The first outputs of the host's part: what the device's part takes."""
    returned: tuple[Node, ...]
    """The next ones: results of the graph."""
    copies: tuple[Node, ...]
    """`copy_` nodes into inputs on the host, whose new values come last."""


def parts_of(graph: Graph) -> Parts | None:
    """The parts of a graph; None where nothing is computed on the host.

    Raises BackendError where the host's part would have to wait for the device.
    """
    host = [node for node in graph.nodes if _is_on_host(node)]
    if not any(node.op == "call" for node in host):
        return None
    known = set(host)
    for node in host:
        for value in node.inputs():
            if value not in known:
                raise BackendError(
                    f"cuda: {getattr(node.target, 'name', node.target)} gives a value on cpu of "
                    f"one on {_device(value)}, expected values that stay there: a call would wait "
                    "for the device; return the value, and move it outside"
                )
    return _split(graph, known)


def _split(graph: Graph, known: set[Node]) -> Parts:
    computed = {node for node in known if node.op == "call"}
    rest = [node for node in graph.nodes[:-1] if node not in computed]
    given = dict.fromkeys([v for node in rest for v in node.inputs() if v in computed])
    copies = tuple([node for node in graph.nodes if node in known and node.target is COPY_])
    returned = tuple([v for v in graph.outputs if type(v) is Node and v in computed])
    host = [node for node in graph.nodes if node in known and node.target is not COPY_]
    values = [*given, *returned, *[node.args[1] for node in copies]]
    closing = output_node(values, [Output(k) for k in range(len(values))])
    return Parts(
        _device_part(graph, rest, list(given), computed),
        Graph((*host, closing), f"{graph.name}_host"),
        tuple(given),
        returned,
        copies,
    )


def _device_part(
    graph: Graph, rest: Sequence[Node], given: Sequence[Node], computed: set[Node]
) -> Graph:
    """The rest of a graph, for which values of the host are inputs."""
    numbers = count(len(graph.placeholders))
    new: dict[Node, Node] = {}
    for node in given:
        role = Argument(next(numbers))
        new[node] = Node("placeholder", str(role), (), meta=node.meta, role=role)
    first = [node for node in rest if node.op == "placeholder"]
    nodes = [*first, *new.values()]
    for node in rest:
        if node.op != "placeholder":
            args = map_nodes(node.args, lambda value: new.get(value, value))
            made = node if args is node.args else node.with_args(args, node.meta)
            new[node] = made
            nodes.append(made)
    kept = [
        (value, role)
        for value, role in zip(graph.outputs, graph.output_roles, strict=True)
        if not (type(value) is Node and value in computed)
    ]
    outputs = [new.get(value, value) if type(value) is Node else value for value, _ in kept]
    closing = output_node(outputs, [role for _, role in kept])
    return Graph((*nodes, closing), graph.name)


def _is_on_host(node: Node) -> bool:
    metas = node.meta if type(node.meta) is tuple else (node.meta,)
    tensors = [meta for meta in metas if type(meta) is TensorMeta]
    if type(node.target) is TokenOp or not tensors or len(tensors) < len(metas):
        return False
    return all(meta.device is CPU and meta.numel for meta in tensors)


def _device(node: Node) -> Any:
    meta = node.meta[0] if type(node.meta) is tuple else node.meta
    return meta.device  # type: ignore[union-attr]


class PartsRun:
    """A graph in two parts, as one callable: the host's values, the device's, the host's writes."""

    def __init__(self, graph: Graph, parts: Parts, run: Any) -> None:
        self.graph = graph
        self.parts = parts
        self.run = run
        self.kernels = run.kernels
        self.source = run.source
        self.reads = is_read(graph)
        """Which inputs anything reads: `compact` takes these alone."""
        self.reads_all = all(self.reads)
        self.host: Run = REFERENCE.compile(parts.host)
        self._arrays = returned_as_arrays(graph)
        on_host = {node for node in graph.placeholders if _is_on_host(node)}
        self._on_host = [node in on_host for node in graph.placeholders]
        places = {node: k for k, node in enumerate(graph.placeholders)}
        self._targets = [places[node.args[0]] for node in parts.copies]

    def read_of(self, values: list[Value]) -> list[Value]:
        """Of the values of all inputs those that `compact` takes."""
        return list(compress(values, self.reads))

    def compact(self, box: list[Value]) -> list[Value]:
        """Values as they travel, in and out."""
        given = iter(box)
        windows = [_window(next(given)) if read else None for read in self.reads]
        box.clear()
        return [
            _array(window, node.meta) if as_array else window
            for window, node, as_array in zip(
                self(windows), self.graph.outputs, self._arrays, strict=True
            )
        ]

    def __call__(self, given: list[Any]) -> list[Any]:
        windows = list(given)
        given.clear()
        values = self.host(list(compress(windows, self._on_host)))
        first, own = len(self.parts.given), len(self.parts.returned)
        on_device = iter(self.run([*windows, *values[:first]]))
        on_host = iter(values[first : first + own])
        results = list(self._merged(on_device, on_host))
        for place, node, value in zip(
            self._targets, self.parts.copies, values[first + own :], strict=True
        ):
            write(windows[place], node.args[0].meta, value, node.args[1].meta)
        return results

    def _merged(self, device: Iterator[Any], host: Iterator[Any]) -> Iterator[Any]:
        returned = set(self.parts.returned)
        for value in self.graph.outputs:
            yield next(host if type(value) is Node and value in returned else device)


def with_copies(graph: Graph) -> Graph:
    """The graph in which moving a value of the host to the device is copying it.

    What the device reads of the host comes to it as an input anyhow; a copy fuses with what
    follows.
    """
    if not any(_is_upload(node) for node in graph.nodes):
        return graph
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        args = map_nodes(node.args, lambda value: new.get(value, value))
        made = node if args is node.args else node.with_args(args, node.meta)
        if _is_upload(node):
            meta: Any = node.meta
            made = Node("call", RESTRIDE, (args[0], meta.stride), meta=meta, origin=node)
        new[node] = made
    return Graph(tuple(new.values()), graph.name)


def _is_upload(node: Node) -> bool:
    return node.target is TO_DEVICE and _device(node.args[0]) is CPU and _device(node) is not CPU


def _window(value: Value) -> Window:
    return value if type(value) is tuple else (value, 0)


def _array(window: Window, meta: TensorMeta) -> Any:
    buffer, start = window
    return meta.device.arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, start)


def run_of(graph: Graph, compile_device: Callable[[Graph], Any]) -> Any:
    """The callable of a graph, whose part on the device somebody compiles."""
    parts = parts_of(graph)
    if parts is None:
        return compile_device(graph)
    return PartsRun(graph, parts, compile_device(parts.device))
