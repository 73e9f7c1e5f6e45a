"""`ModuleScopes`: the Module path and the tags of each recorded node (`Node.scope`).

Part of the recorder. The path of a Module (`encoder.layers.0`) is looked up by its id in a table
that is made when the outermost Module is called. Rules: SEQ-2, SEQ-5. Spec: `specs/rules/seq.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import attrs

from aotlite.eager.tracked_objects import TrackedCallable
from aotlite.ir.graph import Node
from aotlite.ir.provenance.scope import INNER, NO_TAGS, REGION, SUM, Scope
from aotlite.stages.s1_capture.capture_trace import CaptureTrace

Table = dict[int, Scope]
"""The scope of each Module below the outermost one, by its id."""
State = tuple[Scope | None, Table | None]


@attrs.define(eq=False, repr=False)
class ModuleScopes:
    """The scope of the ops that are recorded now."""

    now: Scope | None = None
    _region_calls: Counter[str] = attrs.field(factory=Counter)
    """By the name of a marked region: its calls so far."""
    _table: Table | None = None
    """None outside of all Modules."""
    is_backward: bool = False
    """Whether the function runs a backward now."""
    _inner: dict[Scope, Scope] = attrs.field(factory=dict)

    @property
    def state(self) -> State:
        """The current scope and table, for `leave`."""
        return self.now, self._table

    def leave(self, before: State) -> None:
        """Restores a state that `enter` or `tag` returned."""
        self.now, self._table = before

    def enter(self, module: TrackedCallable) -> State:
        """Enters the scope of a called Module; returns the state before.

        A Module that is no attribute below the outermost one keeps the scope of its caller.
        """
        before = now, table = self.now, self._table
        found = None if table is None else table.get(id(module))
        if found is None:
            path = "" if now is None else now.module
            inside = {each: Scope(at) for each, at in _paths(module, path)}
            self._table = inside if table is None else {**inside, **table}
        elif now is None or not now.tags:
            self.now = found
        else:
            self.now = Scope(found.module, now.tags)
        return before

    def region(self, name: str) -> State:
        """Marks the ops from here on as those of the next call of a region (REG-21); returns the
        state before."""
        within = "" if self.now is None else self.now.tags.get(REGION, "")
        mark = f"{name}[{self._region_calls[name]}]"
        self._region_calls[name] += 1
        return self.tag({REGION: f"{within}/{mark}" if within else mark})

    def tag(self, tags: Mapping[str, object]) -> State:
        """Adds tags to the current scope; returns the state before."""
        before = now, _ = self.state
        path, around = ("", NO_TAGS) if now is None else (now.module, now.tags)
        self.now = Scope(path, MappingProxyType({**around, **tags}))
        return before

    def around(self, scope: Scope | None) -> Scope | None:
        """The scope of a backward node: its forward op's, with the tags that are set now."""
        if scope is None or self.now is None:
            return scope or self.now
        return Scope(scope.module, MappingProxyType({**self.now.tags, **scope.tags}))

    def inner(self, scope: Scope | None) -> Scope:
        """The scope of a node of a backward that the function runs itself (SEQ-1)."""
        if scope is None:
            return INNER
        found = self._inner.get(scope)
        if found is None:
            found = self._inner[scope] = Scope(scope.module, scope.tags, is_backward=True)
        return found


@contextmanager
def backward_in(recorder: CaptureTrace) -> Iterator[None]:
    """A block in which the captured function runs a backward itself (SEQ-1).

    Its nodes take the location and scope of the ops that they differentiate, and no sequence
    numbers.
    """
    scopes: Any = recorder.scopes
    before = recorder.origin, recorder.sequence, recorder.counts, scopes.is_backward
    recorder.counts, scopes.is_backward = False, True
    try:
        yield
    finally:
        recorder.origin, recorder.sequence, recorder.counts, scopes.is_backward = before


def sum_in(nodes: list[Node], add: Callable[..., object], args: tuple[object, ...]) -> object:
    """Calls `add`; the nodes that it records get the scope of gradient sums (SEQ-5)."""
    start = len(nodes)
    total = add(*args)
    for node in nodes[start:]:
        node.scope = SUM
    return total


def _paths(module: TrackedCallable, path: str) -> Iterator[tuple[int, str]]:
    """(id, path) of a Module and of those below it, each by the first path found.

    Reads `__dict__` directly, so that no guard is added.
    """
    seen: set[int] = set()
    stack: list[tuple[Any, str]] = [(module, path)]
    while stack:
        held, at = stack.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        if isinstance(held, TrackedCallable):
            yield id(held), at
        below = [(value, name) for name, value in _inside(held) if _may_hold(value)]
        stack += [(v, f"{at}.{name}" if at else str(name)) for v, name in reversed(below)]


def _inside(held: Any) -> Iterable[tuple[object, object]]:
    """(name, value) of the attributes of a Module or the items of a container."""
    if type(held) is dict:
        return held.items()
    if isinstance(held, TrackedCallable):
        return object.__getattribute__(held, "__dict__").items()
    return enumerate(held)


def _may_hold(value: object) -> bool:
    return isinstance(value, TrackedCallable) or type(value) in (list, tuple, dict)
