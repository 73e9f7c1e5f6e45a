"""`Tracer` and `symbolic_trace`: the graph of a function or Module, by running it on proxies.

Graphs are typed, so every tensor argument has a type: an example, a text such as "f32[4, 3]", or an
annotation of the function. Rules: FXG-10 to FXG-13. Spec: `specs/fx.md`.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from aotlite.eager.autograd.custom_function.function import Function
from aotlite.eager.base.modes import STATE, enable_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedCallable, own_attributes, substituting
from aotlite.fx.core.codegen import CodeGen, InputTemplate
from aotlite.fx.core.structure import flattened
from aotlite.fx.core.words import Args, Argument, Kwargs, Named, Target, Value
from aotlite.fx.graph import FxGraph
from aotlite.fx.graph_module import GraphModule
from aotlite.fx.node import FxNode, map_aggregate
from aotlite.fx.proxy import FxProxy, TraceError, TracerBase, tracer_among
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.forks import Blocks
from aotlite.ir.meta import TensorMeta
from aotlite.ir.provenance.scope import Scope
from aotlite.nn.module import Module, state_places
from aotlite.stages.shared.user_frames import user_location

__all__ = ["Tracer", "annotated_type", "symbolic_trace"]

F = TypeVar("F", bound=Callable[..., Any])
_META = re.compile(r"\w+\[[^\]]*\](\[[^\]]*\])?(@\S+)?")


class _Running(threading.local):
    """The tracer of this thread that calls of Modules are told to."""

    tracer: Tracer | None = None


_RUNNING = _Running()


def _called(self: Module, *args: Argument, **kwargs: Any) -> Any:
    tracer = _RUNNING.tracer
    if tracer is None:
        return TrackedCallable.__call__(self, *args, **kwargs)
    return tracer.call_module(self, self.forward, args, kwargs)


def _assigned(self: Module, name: str, value: object) -> None:
    tracer = _RUNNING.tracer
    if tracer is not None and id(self) in tracer._paths:
        raise noted(
            TraceError(
                f"trace: attribute {name!r} of {type(self).__name__} is set, expected reads"
            ),
            "Only the trace would set it. Keep what changes in a buffer, and write it in place.",
        )
    _SETATTR(self, name, value)


def _applied(cls: type[Function], *args: Value, **kwargs: Value) -> Value:
    if _RUNNING.tracer is not None and tracer_among((args, kwargs)) is not None:
        raise noted(
            TraceError(f"trace: {cls.__name__}.apply gets a proxy, expected ops of aotlite"),
            "A graph has no place for its backward. Declare it as an op: al.register_op(schema, "
            "kernel=, vjp=).",
        )
    return _APPLY.__func__(cls, *args, **kwargs)


_SETATTR: Any = Module.__setattr__
_APPLY: Any = vars(Function)["apply"]


def _watch_calls() -> None:
    Module.__call__ = _called  # type: ignore[method-assign, assignment]
    Module.__setattr__ = _assigned  # type: ignore[method-assign]
    Function.apply = classmethod(_applied)  # type: ignore[method-assign, assignment]


def _watch_no_more() -> None:
    del Module.__call__
    Module.__setattr__ = _SETATTR  # type: ignore[method-assign]
    Function.apply = _APPLY  # type: ignore[method-assign]


_watching = Blocks(_watch_calls, _watch_no_more).entered


class _NoDraws:
    """Stands for generators while a function is traced."""

    def of(self, generator: Any) -> NoReturn:
        """Raises TraceError: numbers drawn now would be constants of the graph."""
        raise noted(
            TraceError("trace: the function draws random numbers, expected draws from proxies"),
            "The graph would hold them as constants. Draw in the graph (x.bernoulli(0.5)), take "
            "them as an input, or call eval() on Modules with dropout.",
        )


class Tracer(TracerBase):
    """Traces functions and Modules; a subclass changes its hooks.

    >>> from aotlite import fx
    >>> class NoCosine(fx.Tracer):
    ...     def create_node(self, kind, target, *rest):
    ...         target = fx.ops.sin if target is fx.ops.cos else target
    ...         return super().create_node(kind, target, *rest)
    >>> graph = NoCosine().trace(lambda x: x.cos() + 1, inputs=("f32[2]",))
    >>> [node.name for node in graph.nodes]
    ['x', 'sin', 'add', 'output']
    """

    def __init__(self, *_: object, **__: object) -> None:
        self.root: Any = Module()
        self._paths: dict[int, str] = {}
        self._scopes: list[str] = []
        self._tensors: dict[int, str] = {}
        """`id` of a tensor that is a plain attribute of the traced Module -> its dotted name."""

        self._versions: dict[int, tuple[Tensor, object]] = {}
        """`id` of a constant of the graph -> the constant, and its version at its first use."""

    def trace(
        self,
        root: Any,
        concrete_args: Named | None = None,
        inputs: Sequence[Any] = (),
        named: Named | None = None,
    ) -> FxGraph:
        """The graph of a function or a Module.

        `inputs` and `named` are types or examples of its arguments; an argument without one has the
        type of its annotation. `concrete_args` are arguments that are not traced but fixed, as
        defaults are that hold no tensor. Raises TraceError where the function asks for elements.
        """
        is_module = isinstance(root, Module)
        function = root.forward if is_module else root
        if not callable(function):
            raise ArgumentError(f"trace: it is {root!r}, expected a function or a Module")
        self.root = root if is_module else Module()
        self._paths = {id(each): name for name, each in self.root.named_modules()}
        self._tensors = {
            id(value): f"{path}.{name}" if path else name
            for path, module in self.root.named_modules()
            for name, value in own_attributes(module).items()
            if type(value) is Tensor
        }
        self._versions = {}
        self.graph = FxGraph(tracer_cls=type(self))
        self.graph._edit.name = "forward"
        arguments = _Arguments(function, inputs, named or {}, concrete_args or {})
        given = self.create_args_for_root(arguments)
        with enable_grad(), self._attributes(), self._calls():
            result = function(*given.args, **given.kwargs)
        self.graph.output(self.create_arg(result))
        self._check_constants()
        self.graph.set_codegen(CodeGen(arguments.templates))
        for node in self.graph.find_nodes(op="get_attr"):
            if not node.users:
                self.graph.erase_node(node)
        return self.graph

    # --- hooks
    def create_args_for_root(self, arguments: Any) -> Any:
        """The arguments of the traced call: placeholders where a type is known."""
        return arguments.bound(self)

    def create_node(
        self,
        kind: str,
        target: Target,
        args: Args,
        kwargs: Named,
        name: str | None = None,
        type_expr: object = None,
    ) -> FxNode:
        """The node of an op, with the user's line and the Module around it."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        made, path = node._node, self._scopes[-1] if self._scopes else ""
        made.location = user_location()
        made.scope = Scope(path) if path else None
        made.grad_mode = True
        return node

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of a Module should stay calls: none should, since every node is an op."""
        return False

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: Args, kwargs: Kwargs
    ) -> Any:
        """The result of a Module's call: traces through it. Raises ReplacedNameError for a leaf."""
        path = self._paths.get(id(m), "")
        if self.is_leaf_module(m, path):
            self.graph.call_module(path)
        self._scopes.append(path)
        try:
            return forward(*args, **kwargs)
        finally:
            self._scopes.pop()

    def path_of_module(self, mod: Module) -> str:
        """The dotted name of a Module in the traced one. Raises ArgumentError for another."""
        if id(mod) not in self._paths:
            raise ArgumentError(f"path_of_module: {mod!r} is no part of the traced Module")
        return self._paths[id(mod)]

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name for a constant that neither the graph nor the Module has yet."""
        count = 0
        while f"{prefix}{count}" in self.graph._constants or hasattr(self.root, f"{prefix}{count}"):
            count += 1
        return f"{prefix}{count}"

    def _constant(self, value: Tensor) -> FxNode:
        """The node of a tensor that is no proxy: under the name that the Module has for it."""
        self._versions.setdefault(id(value), (value, value.storage.version))
        path = self._tensors.get(id(value))
        if path is None or path in self.graph._constants:
            return super()._constant(value)
        return self.graph.get_attr(path, value)

    def _check_constants(self) -> None:
        """Raises TraceError if a constant of the graph was written behind its first use."""
        for value, version in self._versions.values():
            if value.storage.version != version:
                raise noted(
                    TraceError(
                        f"trace: a constant of {value.meta} is written, expected reads alone"
                    ),
                    "The graph would have the written values from the start. Make the tensor of an "
                    "input (x.new_zeros(...)), or clone it before the write.",
                )

    # --- what is read and called meanwhile
    @contextmanager
    def _attributes(self) -> Iterator[None]:
        """A block in which reads of parameters and buffers of the Module give proxies."""
        places: dict[tuple[int, str], object] = {}
        held: dict[int, FxProxy] = {}
        for place in state_places(self.root):
            value = getattr(place.owner, place.name)
            if id(value) not in held:
                node = self.graph.get_attr(place.path, value)
                held[id(value)] = self.proxy(node)
            places[id(place.owner), place.name] = held[id(value)]
        with substituting(places):
            yield

    @contextmanager
    def _calls(self) -> Iterator[None]:
        tracer, draws = _RUNNING.tracer, STATE.draws
        with _watching():
            _RUNNING.tracer, STATE.draws = self, _NoDraws()
            try:
                yield
            finally:
                _RUNNING.tracer, STATE.draws = tracer, draws


class _Given(NamedTuple):
    args: list[Any]
    kwargs: Kwargs


class _Arguments:
    """The types, examples and fixed values of the parameters of a function."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        named: Named,
        concrete: Named,
    ) -> None:
        self.templates: list[InputTemplate] = []
        self._rest, self._named, self._concrete = list(inputs), dict(named), dict(concrete)
        try:
            self._parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"trace: {function!r} has no signature, expected one") from error

    def bound(self, tracer: Tracer) -> _Given:
        """The arguments of the traced call."""
        given = _Given([], {})
        for each in self._parameters:
            if each.kind is each.VAR_POSITIONAL:
                for index, value in enumerate(self._rest):
                    given.args.append(self._argument(tracer, f"{each.name}_{index}", value))
                self._rest = []
            elif each.kind is each.VAR_KEYWORD:
                for name in list(self._named):
                    given.kwargs[name] = self._argument(tracer, name, self._named.pop(name))
            elif each.kind is each.KEYWORD_ONLY:
                given.kwargs[each.name] = self._parameter(tracer, each)
            else:
                given.args.append(self._parameter(tracer, each))
        surplus = [*self._rest, *self._named, *self._concrete]
        if surplus:
            names = ", ".join(each.name for each in self._parameters)
            raise ArgumentError(f"trace: {surplus[0]!r} is surplus, expected types of {names}")
        return given

    def _parameter(self, tracer: Tracer, each: inspect.Parameter) -> Any:
        name = each.name
        if name in self._concrete:
            return self._argument(tracer, name, self._concrete.pop(name), is_fixed=True)
        if name in self._named:
            return self._argument(tracer, name, self._named.pop(name))
        if self._rest and each.kind is not each.KEYWORD_ONLY:
            return self._argument(tracer, name, self._rest.pop(0))
        annotation = annotated_type(each)
        if annotation is not None:
            return self._argument(tracer, name, annotation)
        if each.default is not each.empty and not _has_tensor(each.default):
            return self._argument(tracer, name, each.default, is_fixed=True)
        raise noted(
            ArgumentError(f"trace: argument {name!r} has no type, expected one: graphs are typed"),
            f'Write symbolic_trace(f, {name}="f32[4, 3]"), or an example tensor, or annotate the '
            f'parameter: {name}: "f32[4, 3]". A flag is bound by concrete_args={{"{name}": True}}.',
        )

    def _argument(self, tracer: Tracer, name: str, value: Value, *, is_fixed: bool = False) -> Any:
        """The argument with a placeholder for each tensor in it; adds its template."""
        template, leaves = flattened(value, lambda each: not is_fixed and _is_type(each))
        single = "leaf" in template
        names = [name] if single else [f"{name}_{index}" for index in range(len(leaves))]
        made = [
            tracer.proxy(tracer.create_node("placeholder", each, (), {}, None, leaf))
            for each, leaf in zip(names, leaves, strict=True)
        ]
        for proxy, leaf in zip(made, leaves, strict=True):
            proxy.flow.requires = isinstance(leaf, Tensor) and leaf.requires_grad
        proxies = iter(made)
        default = value if is_fixed else inspect.Parameter.empty
        self.templates.append(InputTemplate(name, template, default))
        is_type = _is_type if not is_fixed else _is_no_type
        return map_aggregate(value, lambda each: next(proxies) if is_type(each) else each)


def annotated_type(parameter: inspect.Parameter) -> str | None:
    """The type in the annotation of a parameter; None for another annotation."""
    text = parameter.annotation
    if not isinstance(text, str):
        return None
    text = text.strip("\"'")  # in quotes also where annotations are postponed
    return text if _META.fullmatch(text) else None


def _is_type(value: object) -> bool:
    """Whether it stands for a tensor: a tensor, an array, a meta, or the text of one."""
    if isinstance(value, str):
        return _META.fullmatch(value) is not None
    return isinstance(value, (Tensor, np.ndarray, TensorMeta))


def _is_no_type(value: object) -> bool:
    return False


def _has_tensor(value: object) -> bool:
    return bool(flattened(value, _is_type)[1])


def symbolic_trace(
    root: Any,
    *inputs: Any,
    concrete_args: Named | None = None,
    **named: Any,
) -> GraphModule:
    """The GraphModule of a function or Module, by running it on proxies.

    `inputs` and `named` are types or examples of its arguments: tensors, arrays, metas, texts such
    as "f32[4, 3]", nested in tuples, lists and dicts as the arguments are. An annotation that is
    such a text serves, too. `concrete_args` fixes arguments; a call then has to give the same.

    >>> from aotlite import fx, ones
    >>> def scaled(x, factor):
    ...     return {"out": x * factor}
    >>> traced = fx.symbolic_trace(scaled, "f32[2]", concrete_args={"factor": 3.0})
    >>> print(traced.code)
    def forward(self, x: "f32[2]"):
        mul = ops.mul(x, 3.0);  x = None
        return {'out': mul}
    >>> traced(ones(2), 3.0)
    {'out': tensor([3., 3.])}
    """
    if len(inputs) == 1 and concrete_args is None and _is_concrete(inputs[0]):
        concrete_args, inputs = inputs[0], ()
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args, inputs, named)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "")
    return GraphModule(tracer.root, graph, name if name.isidentifier() else "GraphModule")


def _is_concrete(value: object) -> bool:
    """Whether the second argument is torch.fx's `concrete_args`: a dict without types in it."""
    return isinstance(value, dict) and bool(value) and not _has_tensor(value)
