"""`to_fx`: a graph as a `torch.fx.GraphModule` of overloads of aten.

    mul = ops.mul(primals_0, 2.0)      mul = torch.ops.aten.mul.Tensor(primals_0, 2.0)

Each value is also computed on fake tensors, so that `meta["val"]` is what PyTorch says of it; where
PyTorch's strides differ from the graph's, a copy with the graph's strides follows.
Spec: `specs/torch_fx.md`. Rules: XFX-1 to XFX-6.
"""

from __future__ import annotations

import operator
from typing import Any

from aotlite.interchange.arrays.convention import HasForward, graph_of
from aotlite.interchange.torch_fx.matcher import call_form, the_table
from aotlite.interchange.torch_fx.normalize import normal_form
from aotlite.interchange.torch_fx.sizes import SizeWriter
from aotlite.interchange.torch_fx.special import WRITERS
from aotlite.interchange.torch_fx.values import (
    fake_of,
    is_same_layout,
    meta_of,
    quiet_log,
    real_tensors,
    tensor_from,
    the_torch,
    to_torch,
)
from aotlite.ir.arrays import host_array
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.graph import map_nodes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import DataOp, PureOp, RandomOp
from aotlite.ir.provenance.location import place_of

KEY = "aotlite"
"""The entry of a node's meta that holds the role of an input, and the roles of outputs."""


def to_fx(source: Graph | HasForward) -> Any:
    """A graph as a `torch.fx.GraphModule`: of a stage, of `aot_export_module`, of a compiled
    function that has run, or of a captured program.

    Inputs have the names of their roles, constants are buffers, and each node has `meta["val"]`, a
    fake tensor with the shape, the strides and the dtype of the graph's meta.
    Raises UnsupportedError that lists all ops without a counterpart in PyTorch, before anything is
    made, and MissingExtraError where PyTorch is not installed.

    >>> import aotlite as al
    >>> f = al.compile(lambda x: (x * 2.0).sum(0), backend="reference")
    >>> _ = f(al.ones(3, 2))
    >>> from aotlite.interchange.torch_fx.values import the_torch
    >>> module = to_fx(f)  # doctest: +SKIP
    """
    graph = graph_of(source)
    the_torch()
    writer = ModuleWriter(graph)
    with writer.sizes.proving():
        simple = normal_form(graph)
        _check_ops(simple, writer.sizes)
        return writer.module(simple)


def _check_ops(graph: Graph, sizes: SizeWriter) -> None:
    """Raises UnsupportedError that names every op which PyTorch lacks."""
    reasons = [(node, _lack(node, sizes)) for node in graph.calls]
    lines = [f"{graph.names[node]}: {reason}" for node, reason in reasons if reason is not None]
    if lines:
        places = [place_of(n.location).note() for n, why in reasons if why and n.location]
        raise noted(
            UnsupportedError(
                f"to_fx: graph {graph.name} has {len(lines)} calls that PyTorch has no op for, "
                f"expected none: {'; '.join(lines)}"
            ),
            *dict.fromkeys(places),
            "Instead: pass decompositions for these ops (`decompositions={...}`), or keep them out "
            "of what crosses. (XFX-2)",
        )


def _lack(node: Node, sizes: SizeWriter) -> str | None:
    """Why a call cannot be written; None if it can."""
    op = node.target
    if isinstance(op, (EffectOp, TokenOp)):
        return f"{op.name} has a side effect, whose order torch.fx does not keep"
    if isinstance(op, RandomOp) or (isinstance(op, PureOp) and op.cost.name == "RANDOM"):
        return (
            f"{op.name} draws by a seed and an offset (philox), which PyTorch's generator of the "
            "CPU does not"
        )
    if isinstance(op, DataOp):
        return f"{op.name} has a result whose shape depends on values"
    window = sizes.at_hints(_written_window(node))
    if window is not None and has_internal_overlap(*window):
        return (
            f"{op.name} writes a window of shape {window[0]} and strides {window[1]}, in which "
            "elements share memory, which PyTorch refuses to write"
        )
    if op.name in WRITERS:
        return None
    if the_table().written(op, node.args) is None:
        return f"{op.name} has no counterpart for these arguments"
    return None


def _written_window(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(shape, strides) of the memory that a call writes; None if it writes none of an operand."""
    op, args = node.target, node.args
    if op.name == "as_strided_scatter":
        return args[2], args[3]
    if op.name == "restride":
        return args[0].meta.shape, args[1]
    return (args[0].meta.shape, args[0].meta.stride) if op.writes else None


class ModuleWriter:
    """A torch.fx graph under construction."""

    def __init__(self, graph: Graph) -> None:
        torch = self.torch = the_torch()
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.aten = torch.ops.aten
        self.graph = graph
        self.sizes = SizeWriter(graph, self)
        self.fx = torch.fx.Graph()
        self.root = torch.nn.Module()
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.nodes: dict[Node, Any] = {}
        self.source: Node = graph.nodes[0]

    def module(self, graph: Graph) -> Any:
        """The module of a whole graph in normal form."""
        self.graph = graph
        with self.torch.no_grad(), self.mode:
            for node in self.graph.nodes:
                self.source = node
                self.nodes[node] = getattr(self, f"_{node.op}")(node)
            self.sizes.check()
        if self.sizes.has_symbols:
            for made in self.fx.nodes:
                made.meta.pop("val", None)  # it would be that of one size
        self.fx.lint()
        return self.torch.fx.GraphModule(self.root, self.fx, self.graph.name or "graph")

    # --- kinds of nodes
    def _placeholder(self, node: Node) -> Any:
        made = self.fx.placeholder(self.graph.names[node])
        meta: Any = self.sizes.at_hints(node.meta)
        made.meta.update({"val": fake_of(meta), KEY: {"role": node.role}})
        self.sizes.inputs[str(node.role)] = made
        self._describe(made)
        return made

    def _get_attr(self, node: Node) -> Any:
        name = self.graph.names[node]
        with real_tensors():
            tensor = tensor_from(host_array(node.target.value))
        self.root.register_buffer(name, tensor)
        made = self.fx.get_attr(name)
        made.meta.update({"val": fake_of(meta_of(tensor)), KEY: {"name": node.target.name}})
        self._describe(made)
        return self.fitted(made, node.meta)

    def _call(self, node: Node) -> Any:
        args = map_nodes(node.args, self.nodes.__getitem__)
        special = WRITERS.get(node.target.name)
        if special is not None:
            made = special(self, node, args)
        else:
            found = the_table().written(node.target, node.args)
            assert found is not None, node
            overload, given = found
            by_node = {name: self._fx_value(value) for name, value in given.items()}
            args, kwargs = call_form(overload, by_node)
            made = self.call(overload, *args, **kwargs)
        return self.fitted(made, node.meta)

    def _output(self, node: Node) -> Any:
        values = map_nodes(node.args[0], self.nodes.__getitem__)
        made = self.fx.output(tuple(self.sizes.nodes_in(values)))
        made.meta[KEY] = {"roles": node.role}
        return made

    def _fx_value(self, value: Any) -> Any:
        if type(value) is Node:
            return self.nodes[value]
        if type(value) is tuple:
            return tuple([self._fx_value(each) for each in value])
        return value

    # --- parts
    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds a call of a function of PyTorch's, and computes its value on fake tensors."""
        args = tuple([to_torch(self.sizes.nodes_in(each)) for each in args])
        kwargs = {name: to_torch(self.sizes.nodes_in(each)) for name, each in kwargs.items()}
        made = self.fx.call_function(target, args, kwargs)
        fakes = self.torch.fx.node.map_arg((args, kwargs), lambda each: each.meta["val"])
        try:
            with quiet_log():
                made.meta["val"] = target(*fakes[0], **fakes[1])
        except Exception as error:
            raise noted(
                UnsupportedError(
                    f"to_fx: {self.graph.names[self.source]} is {target} in PyTorch, which refuses "
                    f"it ({str(error).splitlines()[0]}), expected a call that PyTorch takes"
                ),
                "Instead: pass a decomposition for the op (`decompositions={...}`). (XFX-2)",
            ) from error
        self._describe(made)
        return made

    def _describe(self, made: Any) -> None:
        """The user's line, and the half of the joint graph."""
        if self.source.location is not None:
            made.meta["stack_trace"] = place_of(self.source.location).note()
        if self.source.phase is Phase.BACKWARD:
            made.meta["partitioner_tag"] = "is_backward"

    def fitted(self, made: Any, meta: Any) -> Any:
        """The node, or a copy of it with the strides of the meta. Raises GraphError for another
        shape or dtype."""
        if type(meta) is tuple or meta is None:
            return made
        got, meta, wanted = meta_of(made.meta["val"]), self.sizes.at_hints(meta), meta
        if got is meta:
            return made
        is_view = self.source.op == "call" and self.source.target.views
        is_value = (got.shape, got.dtype) == (meta.shape, meta.dtype)
        if not is_value or (is_view and not is_same_layout(got, meta)):
            raise noted(
                UnsupportedError(
                    f"to_fx: {self.graph.names[self.source]} is {got} in PyTorch, expected {meta}"
                ),
                "PyTorch's rule for this call has another result. (XFX-3)",
            )
        if is_view:
            place = self.place(made, 0)
            return self.call(self.aten.as_strided.default, made, wanted.shape, wanted.stride, place)
        return self.restrided(made, wanted)

    def restrided(self, made: Any, meta: TensorMeta) -> Any:
        """A copy of a node's value with the strides of the meta."""
        empty = self.call(self.aten.new_empty_strided.default, made, meta.shape, meta.stride)
        return self.call(self.aten.copy.default, empty, made) if meta.numel else empty

    def place(self, made: Any, offset: int) -> Any:
        """The storage offset that is `offset` elements after the first element of a value. It is
        computed: an input may begin anywhere in its memory, and so may a copy of one."""
        start = self.call(self.aten.sym_storage_offset.default, made)
        return self.call(operator.add, start, offset) if offset else start
