"""`Node`: a step of an `aotlite.fx.Graph`, which knows its graph, its users and its neighbors.

It stands for a node of the IR in a `LinkedEdit`, and shows it in FX's words: the target is a
function of `aotlite.ops`, arguments hold nodes of this class, and `meta` is a dict. Rules: FXG-1 to
FXG-5. Spec: `specs/fx.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.fx.core.replaced import WithReplacedNames
from aotlite.fx.core.words import Args, Argument, Kwargs, Named, Value
from aotlite.ir.errors import AbsentError, ArgumentError, noted
from aotlite.ir.graph import Node as IrNode
from aotlite.ir.graph.builder import Proxy as IrProxy
from aotlite.ir.meta.text import meta_text
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES
from aotlite.ir.op.schema import REQUIRED
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.provenance.location import place_of

__all__ = ["ArgsKwargsPair", "FxNode", "has_side_effect", "map_aggregate", "map_arg"]


def map_arg(a: Argument, fn: Callable[[FxNode], Any]) -> Any:
    """`a` with `fn` applied to its nodes; tuples, lists, dicts and slices are looked into."""
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, FxNode) else value)


def map_aggregate(a: Argument, fn: Callable[[Any], Any]) -> Any:
    """`a` with `fn` applied to what is in its tuples, lists, dicts and slices."""
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return [map_aggregate(item, fn) for item in a]
    if isinstance(a, dict):
        return {key: map_aggregate(item, fn) for key, item in a.items()}
    if isinstance(a, slice):
        return slice(*[map_aggregate(item, fn) for item in (a.start, a.stop, a.step)])
    return fn(a)


class NodeMeta(Kwargs):
    """The dict of a node. Ops look up the metas of their operands: for a node, that is refused."""

    def __init__(self, name: str, held: Named = MappingProxyType({})) -> None:
        super().__init__(held)
        self._name = name

    def __hash__(self) -> int:  # type: ignore[override]
        raise _computed_with(self._name)

    def copy(self) -> Kwargs:
        """A plain dict with the same keys."""
        return dict(self)


def _computed_with(name: str, kind: type[Exception] = ArgumentError) -> Exception:
    return noted(
        kind(f"fx: an operand is the node {name}, expected a proxy"),
        f"Compute with fx.Proxy({name}), whose result's node is .node; or make the node: "
        "graph.call_function(op, (a, b)).",
    )


class ArgsKwargsPair(NamedTuple):
    """What `normalized_arguments` returns."""

    args: Args
    kwargs: Kwargs


_IMPURE: set[Any] = set()
"""Ops that `has_side_effect` named: dead code elimination keeps them."""


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function of `aotlite.ops`: dead code elimination keeps its calls. Returns it."""
    op = getattr(fn, "op", None)
    if op is None:
        raise ArgumentError(f"has_side_effect: {fn!r} is no op, expected a function of aotlite.ops")
    _IMPURE.add(op)
    return fn


_COMPUTED = ("val", "tensor_meta", "seq_nr", "nn_module_stack", "custom", "recompute")
"""Keys of `meta` that show what the graph itself knows of a node."""


class FxNode(WithReplacedNames):
    """One step of a graph: `op`, `target`, `args`, `kwargs`, `users`, and FX's ways to change it.

    Graphs make nodes (`graph.call_function`). Setting `target`, `args` or `kwargs` binds the call
    to the op's schema anew, so that what does not fit is refused at once. `args` has every
    positional parameter, defaults filled in; `kwargs` the keyword-only ones that differ from their
    default. `meta["val"]` is always current (FXG-5).

    >>> from aotlite import fx, ops
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x", "f32[2]")
    >>> y = graph.call_function(ops.mul, (x, 2.0))
    >>> y.target = ops.add
    >>> y.args, y.meta["val"], list(x.users)
    ((x, 2.0), f32[2], [mul])
    """

    _called = "Node"
    __slots__ = ("__weakref__", "_free", "_gone", "_name", "_node", "graph", "type")

    def __init__(self, graph: Any, node: IrNode, name: str, type_expr: object = None) -> None:
        self.graph = graph
        self.type = type_expr
        """An expression of the type, for printing alone."""
        self._node = node
        self._name = name
        self._free: Kwargs = NodeMeta(name)
        self._gone: tuple[FxNode | None, FxNode | None] | None = None
        """The neighbors that it had when it was erased; None while it is in the graph."""

    # --- what it is
    @property
    def op(self) -> str:
        """'placeholder', 'get_attr', 'call_function' or 'output'."""
        return "call_function" if self._node.op == "call" else self._node.op

    @property
    def name(self) -> str:
        """Its name in printed code, unique in the graph; it stays when other nodes come and go."""
        return self._name

    @name.setter
    def name(self, candidate: str) -> None:
        self._name = self.graph._names.renamed(self._name, candidate)

    @property
    def target(self) -> Any:
        """The function of `aotlite.ops` (`operator.getitem` for a result of several), or a name."""
        return self.graph._target_of(self)

    @target.setter
    def target(self, value: Value) -> None:
        self._must_be_call("target")
        self.graph._set_call(self, value, self.args, self.kwargs)

    @property
    def args(self) -> Args:
        """The positional arguments. Assigning them keeps the users of all nodes current."""
        node = self._node
        if node.op == "output":
            return (self.graph._results(),)
        bound = node.args
        if node.op == "call" and node.target is not GETITEM:
            bound = node.target.schema.given(bound)[0]
        shown: Args = self.graph._shown(bound)
        return shown

    @args.setter
    def args(self, args: Args) -> None:
        if type(args) is not tuple:
            raise ArgumentError(f"{self._name}.args: it is {args!r}, expected a tuple")
        if self.op == "output":
            self.graph._set_results(args)
            return
        if not args and self.op != "call_function":
            return
        self._must_be_call("args")
        self.graph._set_call(self, self.target, args, self.kwargs)

    @property
    def kwargs(self) -> Kwargs:
        """The keyword-only arguments that differ from their default."""
        node = self._node
        if node.op != "call" or node.target is GETITEM:
            return {}
        named = node.target.schema.given(node.args)[1]
        return {name: self.graph._shown(value) for name, value in named.items()}

    @kwargs.setter
    def kwargs(self, kwargs: Named) -> None:
        if not kwargs and self.op != "call_function":
            return
        self._must_be_call("kwargs")
        taken = dict(kwargs)
        args = self._args_without(taken)
        self.graph._set_call(self, self.target, args, taken)

    def _args_without(self, named: Kwargs) -> Args:
        """The positional arguments, with those that are named put into their places."""
        args = list(self.args)
        if self._node.target is not GETITEM:
            for place, parameter in enumerate(self._node.target.schema.parameters[: len(args)]):
                if parameter.name in named:
                    args[place] = named.pop(parameter.name)
        return tuple(args)

    def _must_be_call(self, what: str) -> None:
        self.graph._must_own(self, "change")
        if self.op != "call_function":
            raise ArgumentError(
                f"{self._name}.{what}: the node is a {self.op}, expected a call or an output"
            )

    # --- what stands around it
    @property
    def users(self) -> dict[FxNode, None]:
        """The nodes that take it as an argument, in the order in which they came to."""
        graph = self.graph
        if self._gone is not None:
            return {}
        return {graph._fx(user): None for user in graph._edit.users[self._node]}

    @property
    def all_input_nodes(self) -> list[FxNode]:
        """The nodes among the arguments, each once."""
        return [self.graph._fx(value) for value in dict.fromkeys(self._node.inputs())]

    @property
    def next(self) -> Any:
        """The node behind it; behind the last one, the graph's root (`op` is "root")."""
        return self.graph._neighbor(self, later=True)

    @property
    def prev(self) -> Any:
        """The node before it; before the first one, the graph's root (`op` is "root")."""
        return self.graph._neighbor(self, later=False)

    def __lt__(self, other: FxNode) -> bool:
        return self.graph._label(self) < self.graph._label(other)

    def __gt__(self, other: FxNode) -> bool:
        return other < self

    def __le__(self, other: FxNode) -> bool:
        return self is other or self < other

    def __ge__(self, other: FxNode) -> bool:
        return other <= self

    # --- mistakes
    def _operator(self, *_: object) -> NoReturn:
        raise _computed_with(self._name)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = _operator
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __neg__ = __getitem__ = _operator

    _apply = _do = _run = _operator  # what functions of tensors ask operands for

    def __getattr__(self, name: str) -> Any:
        if name in OPS or name in COMPOSITES:
            raise _computed_with(self._name, AbsentError)
        return super().__getattr__(name)

    # --- moving
    def prepend(self, x: FxNode) -> None:
        """Moves `x` directly before this node."""
        self.graph._move(x, self, later=False)

    def append(self, x: FxNode) -> None:
        """Moves `x` directly behind this node."""
        self.graph._move(x, self, later=True)

    # --- changing arguments
    def update_arg(self, idx: int, arg: Argument) -> None:
        """Puts `arg` in the place of positional argument `idx`."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Puts `arg` before positional argument `idx`; defaults at the end make room for it."""
        args = list(self.args)
        if not 0 <= idx <= len(args):
            raise ArgumentError(f"insert_arg: the index is {idx}, expected 0 to {len(args)}")
        tail = len(args)
        if self._node.op == "call" and self._node.target is not GETITEM:
            parameters = self._node.target.schema.parameters
            while tail > idx and _is_default(args[tail - 1], parameters[tail - 1].default):
                tail -= 1
        self.args = (*args[:idx], arg, *args[idx:tail])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Puts `arg` in the place of the parameter of this name, positional or keyword-only."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: FxNode, new_input: FxNode) -> None:
        """Puts `new_input` wherever `old_input` is an argument of this node."""
        self.graph._replace_input(self, old_input, new_input)

    def replace_all_uses_with(
        self,
        replace_with: FxNode,
        delete_user_cb: Callable[[FxNode], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[FxNode]:
        """Puts `replace_with` wherever this node is an argument; returns the nodes that changed.

        `delete_user_cb(user)` decides whether a user changes. `replace_with` itself keeps this node
        as its operand: torch.fx would make it its own operand. `propagate_meta` also copies this
        node's meta to it.
        """
        changed: list[FxNode] = self.graph._replace_uses(
            self, replace_with, delete_user_cb, propagate_meta
        )
        return changed

    # --- meta
    @property
    def meta(self) -> Kwargs:
        """What is known of the node, and what passes put there.

        'val' and 'tensor_meta' are the `TensorMeta` of its value, a tuple of them for several
        results; 'stack_trace' the user's line; 'nn_module_stack' the modules around it; 'seq_nr'
        the number of its tape node; 'custom' the user's tags. The graph keeps these current, other
        keys are the passes' own (FXG-5).
        """
        known = self._known()
        for key in _COMPUTED:
            self._free.pop(key, None)
        if "stack_trace" not in self._free and self._node.location is not None:
            known["stack_trace"] = place_of(self._node.location).note()
        self._free.update(known)
        return self._free

    @meta.setter
    def meta(self, meta: Named) -> None:
        self._free = NodeMeta(self._name, meta)

    def _known(self) -> Kwargs:
        node = self._node
        self.graph._edit.refresh()
        known: Kwargs = {}
        if node.meta is not None:
            known["val"] = known["tensor_meta"] = node.meta
        if node.sequence >= 0:
            known["seq_nr"] = node.sequence
        if node.module:
            known["nn_module_stack"] = {node.module: (node.module, None)}
        if node.tags:
            known["custom"] = dict(node.tags)
        if node.recompute is not None:
            known["recompute"] = node.recompute
        return known

    @property
    def stack_trace(self) -> str | None:
        """The user's line that made the node; None if it is not known. It can be set."""
        found: str | None = self.meta.get("stack_trace")
        return found

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self._free["stack_trace"] = trace

    # --- questions
    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it has to stay without users: an input, an output, a write, a draw, an effect."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op != "call_function":
            return False
        op = self._node.target
        return op in _IMPURE or not op.pure

    def normalized_arguments(
        self,
        root: object = None,
        arg_types: object = None,
        kwarg_types: object = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> ArgsKwargsPair | None:
        """The arguments with all defaults; by name alone if `normalize_to_only_use_kwargs`.

        None for a node that calls nothing. `root` and the types are not needed: each op has one
        schema.
        """
        node = self._node
        if node.op != "call" or node.target is GETITEM:
            return None if node.op != "call" else ArgsKwargsPair(self.args, {})
        shown = self.graph._shown(node.args)
        parameters = node.target.schema.parameters
        named = {p.name: v for p, v in zip(parameters, shown, strict=True)}
        if normalize_to_only_use_kwargs:
            return ArgsKwargsPair((), named)
        count = sum(not p.keyword_only for p in parameters)
        rest = {p.name: named[p.name] for p in parameters[count:]}
        return ArgsKwargsPair(tuple(shown[:count]), rest)

    # --- text
    def format_node(
        self, placeholder_names: object = None, maybe_return_typename: object = None, **_: object
    ) -> str:
        """The node as FX prints it: `%neg : f32[2] [num_users=1] = call_function[target=ops.neg]`,
        and its arguments."""
        if self.op == "output":
            return f"return {self.args[0]}"
        users = f"[num_users={len(self.users)}]"
        head = f"%{self._name} : {meta_text(self._node.meta)} {users} = {self.op}"
        if self.op != "call_function":
            return f"{head}[target={self.target}]"
        args = _percented(self.args)
        named = ", ".join(f"{key}: {_percented(value)}" for key, value in self.kwargs.items())
        name = self._node.target.name
        target = "operator.getitem" if self._node.target is GETITEM else f"ops.{name}"
        return f"{head}[target={target}](args = {args}, kwargs = {{{named}}})"

    def __repr__(self) -> str:
        return self._name


def _is_default(value: object, default: object) -> bool:
    return default is not REQUIRED and type(value) is type(default) and value == default


def _percented(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_percented, value))}{',' if len(value) == 1 else ''})"
    return f"%{value}" if isinstance(value, FxNode) else repr(value)


# ------------------------------------------------------------------------- mistakes, where made
def refuse_argument(value: Value, graph: str) -> None:
    """Raises ArgumentError for a value that no node can have as an argument (FXG-4)."""
    if isinstance(getattr(value, "node", None), FxNode):
        raise noted(
            ArgumentError(f"fx: an argument is the proxy of {value.node}, expected a node"),
            "Write proxy.node for an argument of a node; compute with proxies, or make nodes, but "
            "not both in one call.",
        )
    if isinstance(value, (IrNode, IrProxy)):
        raise noted(
            ArgumentError(
                f"fx: an argument is a node of an aotlite.ir graph, expected one of {graph}"
            ),
            "fx.Graph(graph) is an editable copy; its nodes are those of its .nodes, in the same "
            "order.",
        )
    if isinstance(value, (Tensor, np.ndarray)):
        raise noted(
            ArgumentError(
                f"fx: an argument is a {type(value).__name__}, expected a node or a literal"
            ),
            'Make it a constant of the graph: graph.get_attr("name", value).',
        )
