"""Attributes of custom functions' contexts, put back before a backward is recorded again.

    def backward(ctx, grad):
        if not hasattr(ctx, "factor"):
            ctx.factor = ctx.saved_tensors[0].cos()
        return grad * ctx.factor

The first recording leaves a fake of its own graph on the context. A second one, for other results
or for a derivative, would use that fake, which is no value of the second graph. Likewise a list on
the context that grows with each backward would be longer there. So every recording of a tape finds
the attributes as the first one found them: those that the forward, or a backward recorded before in
the same graph, has left. Lists, dicts, deques, sets and tuples are copied, at any depth; other
objects are not. Used by stage 4. Rules: TAN-8, DBL-1, DBL-2. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence

import attrs

from aotlite.eager.autograd.custom_function.context import FunctionCtx
from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.base.tape.node import Edge
from aotlite.stages.shared.tape_queries import passed_at_some_order

_COPIED = (list, deque, dict, OrderedDict, defaultdict)
_OWN = frozenset(vars(FunctionCtx("", ())))
"""The attributes that the engine keeps on a context."""


@attrs.define(eq=False, repr=False)
class ContextAttributes:
    """The users' attributes on the contexts of one tape, as its first recording finds them."""

    _found: list[tuple[FunctionCtx, dict[str, object]]] | None = None
    """Each context with its attributes; None before the first recording."""

    @classmethod
    def among(cls, *, user_code: bool) -> ContextAttributes:
        """The attributes of a tape; without users' code there are none to note."""
        return cls(None if user_code else [])

    def of_next_order(self) -> ContextAttributes:
        """The attributes of the tape that a recording of this one makes."""
        return ContextAttributes.among(user_code=bool(self._found))

    def put_back(self, edges: Sequence[Edge | None]) -> None:
        """Puts the attributes back; at the first call notes them, of the tape behind `edges`."""
        if self._found is None:
            nodes = passed_at_some_order(edges)
            contexts = [node.ctx for node in nodes if type(node) is CustomNode]
            self._found = [(ctx, _copies(_of_users(ctx))) for ctx in contexts]
            return
        for ctx, before in self._found:
            for name in _of_users(ctx):
                delattr(ctx, name)
            vars(ctx).update(_copies(before))


def _of_users(ctx: FunctionCtx) -> dict[str, object]:
    return {name: value for name, value in vars(ctx).items() if name not in _OWN}


def _copies(values: dict[str, object]) -> dict[str, object]:
    known: dict[int, object] = {}
    return {name: _copied(value, known) for name, value in values.items()}


def _copied(value: object, known: dict[int, object]) -> object:
    """The value with copies of its containers; a container that is met twice is copied once."""
    if id(value) in known:
        return known[id(value)]
    if type(value) is tuple:
        return tuple([_copied(item, known) for item in value])
    if type(value) is set:
        made = known[id(value)] = set(value)
        return made
    if isinstance(value, (list, deque)) and type(value) in _COPIED:
        items = known[id(value)] = copy.copy(value)  # a deque keeps its length, a defaultdict its
        items.clear()  # factory
        items.extend([_copied(item, known) for item in value])
        return items
    if isinstance(value, dict) and type(value) in _COPIED:
        pairs = known[id(value)] = copy.copy(value)
        pairs.update({key: _copied(item, known) for key, item in value.items()})
        return pairs
    return value
