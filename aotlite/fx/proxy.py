"""`Proxy`: a value of an FX graph that computes as a tensor does; each op makes a node.

A proxy is a tensor without memory (a wrapper subclass), so that everything that takes tensors takes
it: functions, layers, indexing, writes. What needs its elements raises `TraceError`. Rules: FXG-10
to FXG-12. Spec: `specs/fx.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import getitem
from typing import Any, NoReturn

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.factories import zeros
from aotlite.fx.core.replaced import WithReplacedNames
from aotlite.fx.core.words import Args, Argument, Named, Target, Value
from aotlite.fx.gradient_flow import GradientFlow, flow_behind
from aotlite.fx.node import FxNode, map_aggregate
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.op import GeometryOp, Op

__all__ = [
    "FxProxy",
    "GraphAppendingTracer",
    "ProxyResults",
    "TraceError",
    "TracerBase",
    "tracer_among",
]


class TraceError(AotliteError, ValueError):
    """A traced function does what no graph holds: asks a proxy for its elements, for example."""


def _refuse(proxy: FxProxy, what: str, advice: str) -> NoReturn:
    raise noted(
        TraceError(f"{what}: {proxy.node} is a proxy, which stands for a tensor, expected one"),
        advice,
    )


def _written(name: str) -> Exception:
    return noted(
        TraceError(f"{name}: it writes a tensor that is no proxy, expected a proxy"),
        "Each call of the graph would write the same constant again. Make the tensor of an input "
        "(x.new_zeros(...), zeros_like(x)), or make it a buffer of the traced Module.",
    )


@cache
def _stand_in() -> Tensor:
    """What stands for the memory of all proxies: wrappers have parts."""
    return zeros(())


class _Dispatching(threading.local):
    """Whether an op runs on proxies in this thread. No gradients flow between proxies themselves,
    so that the eager engine is told that they require none."""

    active = False


_DISPATCHING = _Dispatching()


class FxProxy(Tensor):
    """The value of a node. Computing with it adds nodes where the graph's insertion point is.

    >>> from aotlite import fx
    >>> graph = fx.Graph()
    >>> x = fx.Proxy(graph.placeholder("x", "f32[2, 3]"))
    >>> (x.T @ x).relu().node
    relu
    >>> graph.output_node
    <bound method FxGraph.output_node of <fx.Graph forward: 4 nodes>>
    """

    node: FxNode
    tracer: TracerBase
    part: Tensor
    flow: GradientFlow

    def __new__(cls, node: FxNode, tracer: TracerBase | None = None) -> Any:
        if not isinstance(node, FxNode):
            raise noted(
                ArgumentError(f"Proxy: the node is {node!r}, expected a node of an fx.Graph"),
                "A proxy is made of a node: fx.Proxy(node); proxy.node is the way back.",
            )
        tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        meta = node.meta.get("val")
        if type(meta) is tuple:
            return ProxyResults(node, tracer)
        if meta is None:
            raise ArgumentError(f"Proxy: {node} has no value, expected a node that has one")
        made = Tensor._make_wrapper_subclass(
            cls, meta.shape, meta.stride, dtype=meta.dtype, device=meta.device
        )
        made.meta = meta
        made.node, made.tracer, made.part = node, tracer, _stand_in()
        made.flow = _flow_of(node)
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["part"], (self.node, self.tracer)

    @classmethod
    def __tensor_unflatten__(
        cls, inner: Mapping[str, Tensor], spec: Any, outer_size: object, outer_stride: object
    ) -> Any:
        if inner["part"] is not _stand_in():
            raise noted(
                TraceError(f"trace: a compiled function gets the proxy of {spec[0]}, expected ops"),
                "Trace the function that was compiled, or compile the traced one.",
            )
        return cls(*spec)

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: object, args: Argument, kwargs: Any) -> Any:
        tracer = tracer_among((args, kwargs))
        if tracer is None:
            return NotImplemented
        if func.op.writes and not isinstance(args[0], FxProxy):
            raise _written(func.op.name)
        found = tracer.create_proxy("call_function", func, args, kwargs)
        tracer.note_grad_mode(found.node, STATE.asked_in)
        flows = _flows_in((args, kwargs))
        if func.op.writes:
            flow_behind(func.op, flows, args[0].meta, STATE.asked_in)
            return args[0]
        results = tuple(found) if isinstance(found, ProxyResults) else (found,)
        for each in results:
            each.flow = flow_behind(func.op, flows, each.meta, STATE.asked_in)
        return results if isinstance(found, ProxyResults) else found

    def _apply(self, op: Op, args: tuple[object, ...]) -> Any:
        operands = op.operands(args)
        for each in operands:
            if isinstance(each, FxNode):
                each._apply(op, args)  # it raises: what to write instead
        if isinstance(op, GeometryOp) and op.operands(args)[0] is self:
            return self._move(op, args)
        if any(isinstance(each, FxProxy) for each in operands):
            before, _DISPATCHING.active = _DISPATCHING.active, True
            try:
                return super()._apply(op, args)
            finally:
                _DISPATCHING.active = before
        given, named = op.schema.given(args)  # a value of this one's size, such as zeros_like
        found = self.tracer.create_proxy("call_function", op, given, named)
        self.tracer.note_grad_mode(found.node, STATE.grad_mode)
        return found

    def _move(self, op: GeometryOp, args: tuple[object, ...]) -> Any:
        """`t_` and the like: from now on the proxy is of the node that does it (FXG-29)."""
        given, named = op.schema.given(args)
        found = self.tracer.create_proxy("call_function", op, given, named)
        self.tracer.note_grad_mode(found.node, STATE.grad_mode)
        self.node, self.meta, self.facts = found.node, found.meta, None
        return self

    @property
    def requires_grad(self) -> bool:
        """Whether the value would require a gradient: as an example that was given does, a
        parameter, and what is computed of them (FXG-29)."""
        return self.flow.requires and not _DISPATCHING.active

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    # --- what needs elements
    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def keys(self) -> Any:
        """What `**proxy` asks for. Raises TraceError."""
        return self.tracer.keys(self)

    def item(self) -> Any:
        """Raises TraceError."""
        _refuse(self, "item", "Keep the number in a tensor.")

    def tolist(self) -> Any:
        """Raises TraceError."""
        _refuse(self, "tolist", "Return the tensor and read it outside.")

    def numpy(self) -> Any:
        """Raises TraceError."""
        _refuse(self, "numpy", "Keep the computation in tensors.")

    # --- what the graph would not hold
    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Raises TraceError: a graph does not say which of its values require gradients."""
        _refuse(self, "requires_grad_", "Call it on the inputs, outside of the traced function.")

    def detach_(self) -> Any:
        """Raises TraceError: no op does it."""
        _refuse(self, "detach_", "Write y = y.detach().")

    def backward(self, *_: object, **__: object) -> Any:
        """Raises TraceError: the graph of a trace has no backward."""
        _refuse(self, "backward", "Call it on the result of the traced function, outside of it.")

    def register_hook(self, hook: object) -> Any:
        """Raises TraceError: a graph holds no hooks."""
        _refuse(self, "register_hook", "Register it on the result, outside of the function.")

    def __repr__(self) -> str:
        return f"Proxy({self.node})"

    def __deepcopy__(self, memo: object) -> FxProxy:
        return self


class ProxyResults(Sequence[Any]):
    """The several results of one node: indexing or unpacking gives a proxy for each."""

    def __init__(self, node: FxNode, tracer: TracerBase) -> None:
        self.node = node
        self.tracer = tracer

    def __len__(self) -> int:
        return len(self.node.meta["val"])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[k] for k in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.node}: the index is {index}, expected one of {len(self)}")
        return self.tracer.create_proxy("call_function", getitem, (self, index), {})

    def __repr__(self) -> str:
        return f"Proxy({self.node})"


def _flow_of(node: FxNode) -> GradientFlow:
    """The flow of a node that is not known: that of the tensor that it reads, or none."""
    if node.op == "get_attr":
        value = node.graph.value_of(node.target)
        return GradientFlow(isinstance(value, Tensor) and value.requires_grad_outside())
    return GradientFlow()


def _flows_in(values: object) -> list[GradientFlow]:
    """The flows of tensors among arguments, in order."""
    found: list[GradientFlow] = []

    def look(value: Value) -> Any:
        if isinstance(value, FxProxy):
            found.append(value.flow)
        elif isinstance(value, Tensor):
            found.append(GradientFlow(value.requires_grad_outside()))
        return value

    map_aggregate(values, look)
    return found


def tracer_among(values: object) -> TracerBase | None:
    found: list[TracerBase] = []

    def look(value: Value) -> Any:
        if isinstance(value, FxProxy):
            found.append(value.tracer)
        return value

    map_aggregate(values, look)
    return found[0] if found else None


class TracerBase(WithReplacedNames):
    """What makes nodes of ops on proxies; its methods are hooks."""

    _called = "Tracer"
    graph: Any
    record_stack_traces = False
    """Locations of the user's lines are recorded always; a `meta["stack_trace"]` follows."""

    starts_with_grad = True
    """Whether grad mode was on when the tracer was made: else `no_grad` inside is not seen."""

    def note_grad_mode(self, node: FxNode, grad_mode: bool | None) -> None:
        """Records that a node was made under `no_grad`."""
        if self.starts_with_grad and not grad_mode:
            node._node.grad_mode = False

    # --- hooks
    def create_node(
        self,
        kind: str,
        target: Target,
        args: Args,
        kwargs: Named,
        name: str | None = None,
        type_expr: object = None,
    ) -> FxNode:
        """The node of an op, in the graph; arguments are nodes and literals."""
        node: FxNode = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        return node

    def proxy(self, node: FxNode) -> Any:
        """The proxy of a node."""
        return FxProxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: Args,
        kwargs: Named,
        name: str | None = None,
        type_expr: object = None,
    ) -> Any:
        """The proxy of a new node; `args` and `kwargs` are those of the call, with proxies."""
        bare = self.create_arg((tuple(args), dict(kwargs)))
        return self.proxy(self.create_node(kind, target, bare[0], bare[1], name, type_expr))

    def create_arg(self, a: Argument) -> Any:
        """The argument of a node for one of a call: proxies become nodes, tensors constants."""
        return map_aggregate(a, self._argument)

    def _argument(self, value: Value) -> Any:
        if isinstance(value, (FxProxy, ProxyResults)):
            if value.node.graph is not self.graph:
                raise noted(
                    ArgumentError(f"Proxy: {value.node} is of another graph, expected one of this"),
                    "Proxies of two graphs do not mix: copy the node first, graph.node_copy(node).",
                )
            return value.node
        if isinstance(value, FxNode):
            raise noted(
                ArgumentError(f"Proxy: an operand is the node {value}, expected a proxy"),
                f"Write fx.Proxy({value}), or make the node: graph.call_function(op, (a, b)).",
            )
        return self._constant(value) if isinstance(value, Tensor) else value

    def _constant(self, value: Tensor) -> FxNode:
        """The constant node of a tensor that is no proxy."""
        graph = self.graph
        for node in graph.find_nodes(op="get_attr"):
            if graph.value_of(node.target) is value:
                found: FxNode = node
                return found
        count = 0
        while f"_tensor_constant{count}" in graph._constants:
            count += 1
        made: FxNode = graph.get_attr(f"_tensor_constant{count}", value)
        return made

    # --- what a proxy cannot answer
    def to_bool(self, obj: Value) -> bool:
        """The truth of a proxy. Raises TraceError; a subclass may know it."""
        _refuse(
            obj,
            "bool",
            "Choose between values with where. A flag of the function is bound by concrete_args.",
        )

    def iter(self, obj: Value) -> Iterator[Any]:
        """The rows of a proxy."""
        return Tensor.__iter__(obj)

    def keys(self, obj: Value) -> Any:
        """The keys of a proxy, for `**proxy`. Raises TraceError."""
        _refuse(obj, "keys", "Bind a dict of tensors by its nested example.")


class GraphAppendingTracer(TracerBase):
    """The tracer of `fx.Proxy(node)`: nodes go to the insertion point of the node's graph."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.starts_with_grad = bool(STATE.grad_mode)
