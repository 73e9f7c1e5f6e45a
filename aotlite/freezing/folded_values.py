"""The values of a fold graph: computed op by op, kept, and computed again where content changed.

Each value has a key: a digest of its op, its literals and the keys of its operands, down to the
content of frozen tensors. A change of one tensor changes the keys of its cone and no others, so
that the ops with new keys are those to run. Beside the results, values are kept that meet a frozen
tensor that they do not depend on: the op where they meet is refolded alone. Rules: FRZ-6, FRZ-7.
Spec: `specs/freezing.md`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from itertools import takewhile
from typing import Any
from weakref import WeakValueDictionary

import attrs

from aotlite.freezing.fold_graph import computes, thrifty_order
from aotlite.freezing.frozen_content import digest_of_array
from aotlite.ir.arrays import NUMPY
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import ArrayValue, array_value, call_arrays, explain
from aotlite.ir.run.row_blocks import call_in_blocks

Read = Callable[[Any], ArrayValue]
"""The value of the frozen input with a role."""


class FoldedValue:
    """A value of a fold graph. It is read-only, and several functions may hold it."""

    __slots__ = ("__weakref__", "key", "value")

    def __init__(self, key: str, value: Any) -> None:
        self.key = key
        self.value = value


_LIVE: WeakValueDictionary[str, FoldedValue] = WeakValueDictionary()
"""FRZ-7: the values that some function of this process holds, by their keys."""


@attrs.define(eq=False, repr=False)
class FoldCounts:
    """What one function has folded so far."""

    run: int = 0
    """Ops that were run, of all calls."""
    shared: int = 0
    """Values that were taken over, as another function or entry had them."""
    last: int = 0
    """Ops whose results are others since the newest call, run or taken over."""


class FoldedValues:
    """The values of one fold graph."""

    def __init__(self, graph: Graph, counts: FoldCounts) -> None:
        self.graph = graph
        self.counts = counts
        self.roles = tuple([node.role for node in graph.placeholders])
        self.results: tuple[Node, ...] = graph.outputs
        self._held: dict[Node, FoldedValue] = {}
        self._kept = _kept(graph)

    def compute(
        self, digests: Mapping[Any, str], read: Read, done: Callable[[Any], None] | None = None
    ) -> list[ArrayValue]:
        """The results, for frozen inputs with these contents; only ops with new keys run.

        `done(role)` is called when an input is read no more: it may be freed then, and no value is
        kept for a later change.
        """
        keys = self._keys(digests)
        kept = set(self.results) if done else self._kept
        found = {node: value for node in kept if (value := self._known(node, keys[node]))}
        own = {node: value for node, value in found.items() if self._held.get(node) is value}
        changed = len([node for node in self._needed(own) if computes(node)])
        computed = self._needed(found)
        self._held = {n: v for n, v in self._held.items() if n in found}  # frees outdated values
        ran = NUMPY.quiet(self._run, computed, found, keys, kept, read, done)
        self.counts.run += ran
        self.counts.last += changed
        return [self._held[node].value for node in self.results]

    def structure(self) -> tuple[str, ...]:
        """The key of each result by the roles of inputs: equal for graphs that compute the same."""
        keys = self._keys({role: str(role) for role in self.roles})
        return tuple([keys[node] for node in self.results])

    def missing(self, digests: Mapping[Any, str], erased: Collection[Any]) -> list[Node]:
        """The results for these contents that cannot be computed without the inputs `erased`."""
        keys = self._keys(digests)
        found = {node: value for node in self._kept if (value := self._known(node, keys[node]))}
        needed = self._needed(found)
        lost: set[Node] = set()
        for node in self.graph.nodes[:-1]:
            if node in needed and (node.role in erased or not lost.isdisjoint(node.inputs())):
                lost.add(node)
        return [node for node in self.results if node in lost]

    def _known(self, node: Node, key: str) -> FoldedValue | None:
        held = self._held.get(node)
        return held if held is not None and held.key == key else _LIVE.get(key)

    def _needed(self, found: Mapping[Node, FoldedValue]) -> set[Node]:
        """The nodes that results without a value depend on, and these."""
        needed = {node for node in self.results if node not in found}
        for node in reversed(self.graph.nodes):
            if node in needed:
                needed.update([each for each in node.inputs() if each not in found])
        return needed

    def _run(
        self,
        computed: set[Node],
        found: Mapping[Node, FoldedValue],
        keys: Mapping[Node, str],
        kept: set[Node],
        read: Read,
        done: Callable[[Any], None] | None,
    ) -> int:
        """Computes these nodes; returns the number of ops."""
        env: dict[Node, Any] = {}
        uses = {node: sum(n in computed for n in self.graph.users[node]) for node in self.graph}
        ran = 0
        for node, value in found.items():
            self.counts.shared += self._held.get(node) is not value
            self._held[node] = value
            env[node] = value.value
        for node in self.graph.placeholders if done else ():
            if not uses[node]:
                done(node.role)  # type: ignore[misc]
        order = [node for node in self.graph.nodes[:-1] if node in computed]
        for node in thrifty_order(self.graph, order) if done else order:
            try:
                value = self._value(node, env, read, is_thrifty=done is not None)
            except Exception:
                self._raise_first(order, node, env, read)
                raise
            env[node] = value
            ran += computes(node)
            if node in kept:
                made = self._held[node] = FoldedValue(keys[node], _frozen(value))
                _LIVE[keys[node]] = made
            del value
            for each in {*node.inputs()}:
                uses[each] -= 1
                if not uses[each]:
                    env.pop(each, None)
                    if done and each.op == "placeholder":
                        done(each.role)
        return ran

    def _raise_first(
        self, order: list[Node], failed: Node, env: dict[Node, Any], read: Read
    ) -> None:
        """Raises the error of the first op in the order of the function, as eager does: of what
        was put off. `env` still has its operands."""
        for node in takewhile(lambda node: node is not failed, order):
            if node not in env and all(each in env for each in node.inputs()):
                env[node] = self._value(node, env, read, is_thrifty=True)

    def _value(self, node: Node, env: Mapping[Node, Any], read: Read, *, is_thrifty: bool) -> Any:
        """The value of a node; `is_thrifty`: with few temporary arrays."""
        if node.op == "placeholder":
            return read(node.role)
        if node.op == "get_attr":
            return array_value(node.target.value, node.meta)  # type: ignore[arg-type]
        args = map_nodes(node.args, env.__getitem__)
        try:
            if node.target is GETITEM:
                return args[0][args[1]]
            call = call_in_blocks if is_thrifty else call_arrays
            return call(node.target, args)
        except Exception as error:
            explain(error, node, self.graph)
            raise

    def _keys(self, digests: Mapping[Any, str]) -> dict[Node, str]:
        """The key of each node for these contents."""
        keys: dict[Node, str] = {}
        for node in self.graph.nodes[:-1]:
            if node.op == "placeholder":
                keys[node] = digests[node.role]
            elif node.op == "get_attr":
                keys[node] = digest_of_array(node.meta, node.target.value)  # type: ignore[arg-type]
            else:
                args = map_nodes(node.args, lambda each: _Key(keys[each]))
                text = f"{node.target.name} {id(node.target)} {args!r} {node.meta}"
                keys[node] = hashlib.sha256(text.encode()).hexdigest()
        return keys


class _Key(str):
    """The key of an operand, told from a literal text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self}>"


def _kept(graph: Graph) -> set[Node]:
    """The results, and the values that meet a frozen tensor that they do not depend on."""
    depends: dict[Node, frozenset[Any]] = {}
    kept = set(graph.outputs)
    for node in graph.nodes[:-1]:
        if node.op == "placeholder":
            depends[node] = frozenset((node.role,))
            continue
        operands = node.inputs()
        depends[node] = frozenset[Any]().union(*[depends[each] for each in operands])
        meeting = [each for each in operands if depends[each] < depends[node]]
        kept.update(map(storage_root, meeting))  # not views: those of inputs show memory of users
    return {node for node in kept if node.op == "call"}


def _frozen(value: Any) -> Any:
    """The value, whose memory nobody may write any more, where the library can say so."""
    for each in value if type(value) is tuple else (value,):
        flags = getattr(each.buffer, "flags", None)
        if flags is not None and getattr(flags, "owndata", False):
            flags.writeable = False
    return value
