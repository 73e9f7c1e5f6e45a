"""`Interpreter` and `Transformer`: FX's, over an `aotlite.fx.GraphModule`.

Hooks get plain arrays by default, and tensors where the inputs are tensors; those of a Transformer
get proxies. Rules: FXG-17, FXG-18. Spec: `specs/fx.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from aotlite.eager.base.modes import STATE, no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.fx.core.replaced import WithReplacedNames
from aotlite.fx.core.values import constant_array, meta_of_array
from aotlite.fx.core.words import Args, Argument, Kwargs, Target, Value
from aotlite.fx.graph import FxGraph
from aotlite.fx.graph_module import GraphModule
from aotlite.fx.node import FxNode, map_aggregate, map_arg
from aotlite.fx.proxy import TracerBase
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph as IrGraph
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.provenance.location import place_of
from aotlite.ir.run.interpreter import ArrayValue, array_value, call_arrays

__all__ = ["FxInterpreter", "FxTransformer", "TransformerTracer"]


class FxInterpreter(WithReplacedNames):
    """Runs a graph node by node; a subclass overrides the hook of a kind of node.

    `run` of arrays gives hooks arrays, and copies the inputs first; `run` of tensors gives them
    tensors, so that results have history and writes reach the inputs. A graph with symbols for
    sizes runs on tensors alone.

    >>> import numpy as np
    >>> from aotlite import fx
    >>> class Counting(fx.Interpreter):
    ...     count = 0
    ...     def call_function(self, target, args, kwargs):
    ...         self.count += args[0].size
    ...         return super().call_function(target, args, kwargs)
    >>> counting = Counting(fx.symbolic_trace(lambda x: (x * 2).sum(), "f32[2, 3]"))
    >>> counting.run(np.ones((2, 3), np.float32)), counting.count
    (array(12., dtype=float32), 12)
    """

    _called = "Interpreter"

    def __init__(
        self,
        module: Any,
        garbage_collect_values: bool = True,
        graph: FxGraph | None = None,
    ) -> None:
        if isinstance(module, (FxGraph, IrGraph)):
            module = GraphModule(module)
        if not isinstance(module, GraphModule) and graph is None:
            raise ArgumentError(f"Interpreter: it is {module!r}, expected a GraphModule or a graph")
        self.module = module
        self.graph: FxGraph = module.graph if graph is None else graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.name = "Interpreter"
        self.env: dict[FxNode, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self.node: FxNode | None = None
        """The node that is running."""
        self.user_to_last_uses = _last_uses(self.graph) if garbage_collect_values else {}
        self._arrays = _Arrays()
        self._on_arrays = True

    def run(
        self,
        *args: Argument,
        initial_env: Mapping[FxNode, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """The result for these arguments. `initial_env` has values of nodes that then do not run.

        An error in a node gets the node and the user's line as notes.
        """
        self.graph.lint()
        self.env = dict(initial_env or {})
        if self.garbage_collect_values:
            self.user_to_last_uses = _last_uses(self.graph)
        self._arrays = _Arrays()
        inputs = self.graph.process_inputs(*args) if enable_io_processing else args
        self._on_arrays = not any(isinstance(each, Tensor) for each in inputs)
        if self._on_arrays and self.graph._live().symbols:
            raise ArgumentError("Interpreter: the graph has symbols for sizes, expected tensors")
        self.args_iter = iter(inputs)
        with np.errstate(all="ignore") if self._on_arrays else nullcontext():
            result = self._run_nodes()
        return self.graph.process_outputs(result) if enable_io_processing else result

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` for a list of arguments, which it empties, so that inputs are freed early."""
        args, args_list[:] = list(args_list), []
        return self.run(*args)

    def _run_nodes(self) -> Any:
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.node = node
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                error.add_note(f"while running: {node.format_node()}")
                if node._node.location is not None:
                    error.add_note(place_of(node._node.location).note())
                raise
            if node.op == "output":
                return self.env[node]
            for dead in self.user_to_last_uses.get(node, ()):
                self._arrays.drop(self.env.pop(dead, None), self.env)
        return None

    # --- hooks
    def run_node(self, n: FxNode) -> Any:
        """The value of a node: the hook of its kind, on its arguments' values."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        hook = getattr(self, n.op)
        if n._node.grad_mode:
            return hook(n.target, args, kwargs)
        with no_grad():
            return hook(n.target, args, kwargs)

    def placeholder(self, target: str, args: Args, kwargs: Kwargs) -> Any:
        """The next input."""
        try:
            value = next(self.args_iter)
        except StopIteration:
            raise ArgumentError(f"Interpreter: input {target} is missing, expected it") from None
        return self._arrays.input(value, self._meta()) if self._on_arrays else value

    def get_attr(self, target: str, args: Args, kwargs: Kwargs) -> Any:
        """The value of a constant."""
        value = self.fetch_attr(target)
        if not self._on_arrays:
            return value
        return self._arrays.input(constant_array(value, self._meta()), self._meta())

    def call_function(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        """The result of an op: by its kernel on arrays, by the eager op on tensors."""
        if not self._on_arrays or not _is_op(target):
            return target(*args, **kwargs)
        return self._arrays.call(target.op, args, kwargs)

    def call_method(self, target: str, args: Args, kwargs: Kwargs) -> Any:
        """The result of a method. No node of a graph is one; a subclass may call it."""
        self_obj, *rest = args
        return getattr(self_obj, target)(*rest, **kwargs)

    def output(self, target: str, args: Args, kwargs: Kwargs) -> Any:
        """The result of `run`."""
        return args[0]

    # --- what hooks need
    def fetch_attr(self, target: str) -> Any:
        """The attribute of the module of a dotted name."""
        return self.graph.value_of(target)

    def fetch_args_kwargs_from_env(self, n: FxNode) -> tuple[Args, Kwargs]:
        """(args, kwargs) of a node, with values for nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: FxNode) -> Any:
        """`args` with values for nodes. Raises ArgumentError for a node that has not run."""

        def load(each: FxNode) -> Any:
            if each not in self.env:
                raise ArgumentError(f"Interpreter: {n} needs {each}, which has no value yet")
            return self.env[each]

        return map_arg(args, load)

    def _meta(self) -> TensorMeta:
        assert self.node is not None
        meta: TensorMeta = self.node._node.meta  # type: ignore[assignment]
        return meta


def _is_op(target: Target) -> bool:
    return getattr(target, "op", None) is not None


def _last_uses(graph: FxGraph) -> dict[FxNode, list[FxNode]]:
    """Each node -> the values that no later one reads."""
    seen: set[FxNode] = set()
    found: dict[FxNode, list[FxNode]] = {}
    for node in reversed(graph.nodes):
        last = [each for each in node.all_input_nodes if each not in seen]
        found[node] = last if node.users else [*last, node]
        seen.update(last)
    return found


class _Arrays:
    """The arrays that hooks see, and the windows on memory that they are.

    A hook gets the plain array of a window (`ArrayValue`), so that `as_strided` and writes through
    views work where it passes that array on. An array that a hook made itself is a window of its
    own.
    """

    def __init__(self) -> None:
        self._windows: dict[int, ArrayValue] = {}

    def shown(self, value: Value) -> Any:
        """The arrays of a result."""
        if isinstance(value, tuple):
            return tuple([self.shown(each) for each in value])
        if isinstance(value, ArrayValue):
            self._windows[id(value.array)] = value
            return value.array
        return value

    def input(self, source: Value, meta: TensorMeta) -> Any:
        """A copy of an input, in the layout of its meta. Raises ArgumentError for another type."""
        given = source if isinstance(source, np.ndarray) else np.asarray(source)
        is_array = hasattr(source, "dtype")
        if given.shape != meta.shape or (is_array and given.dtype != meta.dtype.numpy):
            got = f"{given.dtype}{list(given.shape)}"
            raise ArgumentError(f"Interpreter: an input is {got}, expected {meta_text(meta)}")
        return self.shown(array_value(source, meta))

    def call(self, op: Any, args: Args, kwargs: Kwargs) -> Any:
        """The arrays of the result of an op."""
        given, named = map_aggregate((args, kwargs), self._window)
        return self.shown(call_arrays(op, op.bind(given, named)))

    def _window(self, value: Value) -> Any:
        if isinstance(value, np.generic):
            value = np.asarray(value)
        if not isinstance(value, np.ndarray):
            return value
        found = self._windows.get(id(value))
        if found is None:
            found = self._windows[id(value)] = _window_on(value)
        return found

    def drop(self, value: Value, env: Mapping[FxNode, Any]) -> None:
        """Forgets the window of an array that no value of `env` is any more."""
        if isinstance(value, tuple):
            for each in value:
                self.drop(each, env)
        elif id(value) in self._windows and not any(_holds(each, value) for each in env.values()):
            del self._windows[id(value)]


def _holds(value: Value, array: Value) -> bool:
    if isinstance(value, tuple):
        return any(_holds(each, array) for each in value)
    return value is array


def _window_on(array: np.ndarray) -> ArrayValue:
    """The window that an array is by itself: on its own memory if it is laid out row by row."""
    meta = meta_of_array(array)
    if not array.flags.c_contiguous or not array.flags.writeable:
        return array_value(array, meta.as_contiguous())
    made = ArrayValue(array.reshape(-1), meta)
    made._array = array
    return made


class TransformerTracer(TracerBase):
    """The tracer of a Transformer: nodes go to the end of the new graph."""

    def __init__(self, graph: FxGraph) -> None:
        self.graph = graph
        self.starts_with_grad = bool(STATE.grad_mode)


class FxTransformer(FxInterpreter):
    """Rebuilds a graph, by default an equal one: hooks get proxies, and return proxies.

    >>> from aotlite import fx
    >>> class Halved(fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(target, args, kwargs) * 0.5
    >>> print(Halved(fx.symbolic_trace(lambda x: x.exp(), "f32[2]")).transform().code)
    def forward(self, x: "f32[2]"):
        exp = ops.exp(x);  x = None
        mul = ops.mul(exp, 0.5);  exp = None
        return mul
    """

    _called = "Transformer"

    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.new_graph = FxGraph()
        self.tracer: Any = TransformerTracer(self.new_graph)

    def transform(self) -> GraphModule:
        """The GraphModule of the new graph, with the attributes of the old one."""
        self.new_graph = FxGraph()
        self.tracer.graph = self.new_graph
        self.new_graph._edit.name = self.graph._edit.name
        self.graph.lint()
        self.env, self._on_arrays = {}, False
        self._run_nodes()
        self.new_graph.set_codegen(self.graph._codegen)
        return GraphModule(self.module, self.new_graph, self.module._class_name)

    def run_node(self, n: FxNode) -> Any:
        """The hook's proxy; new nodes get the records of the node that runs."""
        self.new_graph._model = n._node
        try:
            return super().run_node(n)
        finally:
            self.new_graph._model = None

    # --- hooks
    def placeholder(self, target: str, args: Args, kwargs: Kwargs) -> Any:
        """The proxy of the same input."""
        return self._same()

    def get_attr(self, target: str, args: Args, kwargs: Kwargs) -> Any:
        """The proxy of the same constant."""
        return self._same()

    def call_function(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        """The proxy of a new node."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def output(self, target: str, args: Args, kwargs: Kwargs) -> Any:
        """Ends the new graph; the roles of results stay where their number does."""
        assert self.node is not None
        made = self.new_graph.output(self.tracer.create_arg(args[0]))
        roles: Any = self.node._node.role
        if len(roles) == len(made._node.role):  # type: ignore[arg-type]
            made._node.role = roles
        return args[0]

    def _same(self) -> Any:
        assert self.node is not None
        copied = self.new_graph.node_copy(self.node)
        return self.tracer.proxy(copied)
