"""Attributes of custom functions' contexts, put back before a backward is recorded again.

    def backward(ctx, grad):
        if not hasattr(ctx, "factor"):
            ctx.factor = ctx.saved_tensors[0].cos()
        return grad * ctx.factor

The first recording leaves a fake of its own graph on the context. A second one, for other results
or for a derivative, would use that fake, which is no value of the second graph. Likewise a list on
the context that grows with each backward would be longer there. So every recording of a tape finds
the attributes as the first one found them: those that the forward, or a backward recorded before in
the same graph, has left. Lists, dicts, sets and tuples are copied, at any depth; other objects are
not. Used by stage 4. Rules: TAN-8, DBL-1, DBL-2. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.custom_function.context import FunctionCtx
from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.base.tape.node import Edge
from aotlite.stages.shared.tape_queries import passed_at_some_order

_OWN = frozenset(vars(FunctionCtx("", ())))
"""The attributes that the engine keeps on a context."""


@attrs.define(eq=False, repr=False)
class ContextAttributes:
    """The users' attributes on the contexts of one tape, as its first recording finds them."""

    _found: list[tuple[FunctionCtx, dict[str, Any]]] | None = None
    """Each context with its attributes; None before the first recording."""

    @classmethod
    def among(cls, *, user_code: bool) -> ContextAttributes:
        """The attributes of a tape; without users' code there are none to note."""
        return cls(None if user_code else [])

    def of_next_order(self) -> ContextAttributes:
        """The attributes of the tape that a recording of this one makes."""
        return ContextAttributes.among(user_code=bool(self._found))

    def hold(self, edges: Sequence[Edge | None]) -> None:
        """Puts the attributes back; at the first call notes them, of the tape behind `edges`."""
        if self._found is None:
            nodes = passed_at_some_order(edges)
            contexts = [node.ctx for node in nodes if type(node) is CustomNode]
            self._found = [(ctx, _copied(_of_users(ctx), {})) for ctx in contexts]
            return
        for ctx, before in self._found:
            for name in _of_users(ctx):
                delattr(ctx, name)
            for name, value in _copied(before, {}).items():
                setattr(ctx, name, value)


def _of_users(ctx: FunctionCtx) -> dict[str, Any]:
    return {name: value for name, value in vars(ctx).items() if name not in _OWN}


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """The value with copies of its containers; a container that is met twice is copied once."""
    kind = type(value)
    if kind not in (list, dict, set, tuple):
        return value
    if id(value) in known:
        return known[id(value)]
    if kind is tuple:
        return tuple([_copied(item, known) for item in value])
    made = known[id(value)] = kind()
    if kind is list:
        made.extend([_copied(item, known) for item in value])
    elif kind is set:
        made.update(value)
    else:
        made.update({key: _copied(item, known) for key, item in value.items()})
    return made
