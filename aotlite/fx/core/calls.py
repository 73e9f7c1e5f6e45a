"""Calls in FX's words as calls of ops: `bound_call` finds the op of a function, and binds.

A function that is no op by itself, such as Python's `add`, is run on proxies of a
graph of its own; it has to make one node there. Rule: FXG-2. Spec: `specs/fx.md`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.op_functions import function_of
from aotlite.fx.core.words import Args, Argument, Named, Target, Value
from aotlite.fx.node import FxNode, map_aggregate, map_arg, refuse_argument
from aotlite.fx.proxy import FxProxy
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.op import OPS, Op
from aotlite.ir.op.composite import COMPOSITES
from aotlite.ir.ops.structure import GETITEM

__all__ = ["bound_call", "shown_target"]


def shown_target(target: Target) -> Any:
    """The target of a node as FX shows it: the function of an op, or `operator.getitem`."""
    op = target if isinstance(target, Op) else getattr(target, "op", None)
    if op is GETITEM:
        return operator.getitem
    return function_of(op) if isinstance(op, Op) else target


def bound_call(kind: type, target: Target, args: Args, kwargs: Named) -> tuple[Op, Args]:
    """The op of a call, and its canonical arguments, which hold FX nodes.

    `kind` is the class of graphs. Raises ArgumentError for what is not one op for these arguments.
    """
    if not isinstance(args, (tuple, list)):
        raise ArgumentError(f"fx: the arguments are {args!r}, expected a tuple")
    op = _op_of(target, args)
    if op is GETITEM:
        return op, _item(args)
    if op is not None:
        _check_arguments(args, kwargs)
        return op, op.bind(tuple(args), kwargs)
    if isinstance(target, str):
        if not hasattr(Tensor, target):
            raise ArgumentError(
                f"fx: the target is {target!r}, expected an op of aotlite.ops, or the name of one "
                "or of a method of tensors"
            )
        return _traced(kind, _method(target), target, args, kwargs)
    if not callable(target):
        raise ArgumentError(f"fx: the target is {target!r}, expected a function of aotlite.ops")
    return _traced(kind, target, getattr(target, "__name__", repr(target)), args, kwargs)


def _op_of(target: Target, args: Argument) -> Op | None:
    if isinstance(target, Op):
        return target
    if target is operator.getitem and args and isinstance(args[0], FxNode):
        if type(args[0].meta.get("val")) is tuple:
            return GETITEM
    if isinstance(target, str):
        return OPS.get(target) if target not in COMPOSITES else None
    op = getattr(target, "op", None)
    return op if isinstance(op, Op) else None


def _item(args: Argument) -> Args:
    if len(args) != 2 or type(args[1]) is not int:
        raise ArgumentError(f"getitem: the arguments are {args!r}, expected a node and an int")
    count = len(args[0].meta["val"])
    if not -count <= args[1] < count:
        raise ArgumentError(f"getitem: the index is {args[1]}, expected one of {count} results")
    return args[0], args[1] % count


def _check_arguments(args: Argument, kwargs: Named) -> None:
    def check(value: Value) -> Any:
        if not isinstance(value, FxNode):
            refuse_argument(value, "this")
        return value

    map_aggregate((tuple(args), dict(kwargs)), check)


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: getattr(self, name)(*args, **kwargs)


def _traced(
    kind: Any, function: Callable[..., Any], name: str, args: Argument, kwargs: Named
) -> tuple[Op, Args]:
    """The one op that a function runs on these arguments."""
    _check_arguments(args, kwargs)
    graph: Any = kind()
    stands: dict[FxNode, FxNode] = {}
    inner: dict[FxNode, Any] = {}

    def stand_in(node: FxNode) -> Any:
        meta = node.meta["val"]
        if type(meta) is tuple:
            raise ArgumentError(f"{name}: {node} has several results, expected one of them")
        if node not in inner:
            placed = graph.placeholder(node.name, meta)
            inner[node] = FxProxy(placed)
            stands[placed] = node
        return inner[node]

    given, named = map_arg((tuple(args), dict(kwargs)), stand_in)
    function(*given, **named)
    calls = graph.find_nodes(op="call_function")
    own = [node for node in calls if node.target is not operator.getitem]
    if len(own) != 1 or graph.find_nodes(op="get_attr"):
        made = ", ".join(f"ops.{node._node.target.name}" for node in own) or "no op"
        raise noted(
            ArgumentError(f"fx: {name} is {made} for these arguments, expected one op"),
            "Write it with proxies: fx.Proxy(node) computes as a tensor does, and its nodes go to "
            "the insertion point; result.node is the last one.",
        )
    op: Op = own[0]._node.target
    back = graph._shown(own[0]._node.args)
    return op, map_arg(back, stands.__getitem__)
