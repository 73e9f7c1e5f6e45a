"""The split of a graph into a host part and a device part.

A graph of a CUDA device may compute scalars on the CPU, such as a generator's next offset. The
reference backend computes them, before the device part, which gets values of the host as inputs.
The host part must not depend on the device: a call would wait for it. Spec:
`specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress, count
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run, Value, array_of, as_value, returned_as_arrays
from aotlite.backends.closing_copies import write
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
    """The two parts of a graph."""

    device: Graph
    """Takes the graph's inputs, then `given`; returns the outputs on the device."""
    host: Graph
    """Takes the graph's inputs on the host; returns `given`, `returned`, values of `copies`."""
    given: tuple[Node, ...]
    """Values of the host part that the device part reads."""
    returned: tuple[Node, ...]
    """Values of the host part that are outputs of the graph."""
    copies: tuple[Node, ...]
    """`copy_` nodes into inputs on the host."""


def parts_of(graph: Graph) -> Parts | None:
    """Returns the parts of a graph; None if nothing is computed on the host.

    Raises BackendError if the host part would have to wait for the device.
    """
    known = host_nodes(graph)
    return split(graph, known) if known else None


def host_nodes(graph: Graph) -> set[Node]:
    """Returns the nodes whose values lie on the host; none if nothing is computed there.

    Raises BackendError if one of them would have to wait for the device.
    """
    host = [node for node in graph.nodes if _is_on_host(node)]
    if not any(node.op == "call" for node in host):
        return set()
    known = set(host)
    for node in host:
        for value in node.inputs():
            if value not in known:
                raise BackendError(
                    f"cuda: {getattr(node.target, 'name', node.target)} gives a value on cpu of "
                    f"one on {_device(value)}, expected values that stay there: a call would wait "
                    "for the device; return the value, and move it outside"
                )
    return known


def split(graph: Graph, known: set[Node]) -> Parts:
    """Returns the parts of a graph of which these nodes are the host's."""
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
    """Returns the device part, in which values of the host are inputs."""
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


def _device(node: Node) -> object:
    meta = node.meta[0] if type(node.meta) is tuple else node.meta
    return meta.device  # type: ignore[union-attr]


class PartsRun(Run):
    """A graph in two parts: host values, device values, then writes of the host."""

    def __init__(self, graph: Graph, parts: Parts, run: Any) -> None:
        super().__init__(graph)
        self.parts = parts
        self.run = run
        self.kernels = run.kernels
        self.source = run.source
        self.host = REFERENCE.compile(parts.host)
        self._arrays = returned_as_arrays(graph)
        self._metas = [value.meta for value in parts.host.outputs]
        on_host = {node for node in graph.placeholders if _is_on_host(node)}
        self._on_host = [node in on_host for node in graph.placeholders]
        places = {node: k for k, node in enumerate(graph.placeholders)}
        self._targets = [places[node.args[0]] for node in parts.copies]

    def call(self, box: list[Value]) -> list[Value]:
        """Runs both parts."""
        given = iter(box)
        values = [next(given) if read else None for read in self.reads]
        box.clear()
        found = self.host.call(self.host.read_among(list(compress(values, self._on_host))))
        first, own = len(self.parts.given), len(self.parts.returned)
        moved = [as_value(*each) for each in zip(found[:first], self._metas[:first], strict=True)]
        on_device = iter(self.run.call(self.run.read_among([*values, *moved])))
        results = list(self._merged(on_device, iter(found[first : first + own])))
        for place, node, value in zip(
            self._targets, self.parts.copies, found[first + own :], strict=True
        ):
            write(values[place], node.args[0].meta, value, node.args[1].meta)
        return [
            array_of(value, node.meta) if as_array else value
            for value, node, as_array in zip(results, self.graph.outputs, self._arrays, strict=True)
        ]

    def _merged(self, device: Iterator[Any], host: Iterator[object]) -> Iterator[Any]:
        returned = set(self.parts.returned)
        for value in self.graph.outputs:
            yield next(host if type(value) is Node and value in returned else device)


def with_copies(graph: Graph) -> Graph:
    """Returns the graph with moves from host to device replaced by copies.

    The device part gets the host's value as an input anyway, and a copy fuses with its users.
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


def run_of(graph: Graph, compile_device: Callable[[Graph], object]) -> Any:
    """Returns the callable of a graph; `compile_device` compiles its part on the device."""
    parts = parts_of(graph)
    if parts is None:
        return compile_device(graph)
    return PartsRun(graph, parts, compile_device(parts.device))
