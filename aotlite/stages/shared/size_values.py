"""`AtSizes`: puts numbers in place of symbols, in records of stages and in graphs.

The stages 1 to 8 ran once, with symbols for sizes. The records that stages 9 and 10 take get the
sizes of one call here. What has no symbol stays the same object, and one object becomes one object.
Rules: DYN-1, DYN-8. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from aotlite.eager.base.tape.view_chain import PartStep, ViewChain, ViewStep
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import ROLES
from aotlite.ir.graph.symbolic.numbers import with_sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.symbols.assumption import at_places, concrete
from aotlite.ir.symbols.calls import settled
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.records.backward.gradient_reads import GradientReads, merged

_STEP = ("args", "operand", "result")
_ROOMS = ("aotlite.stages.records.", "aotlite.eager.base.")
"""Records of these packages are looked into."""
_PLAIN = frozenset((int, float, bool, type(None), type, DType, Device, *ROLES))
"""Classes of what has no sizes."""
_PRINTED = (str, SymInt, SizeFloat)
"""Classes of what an error may be given of sizes."""


class AtSizes:
    """Replaces symbols by numbers, given by name.

    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> s0 = SymbolTable().size(6, "x.shape[0]")
    >>> AtSizes({"s0": 9}).put({"a": (s0 // 2, 3)})
    {'a': (4, 3)}
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values
        self._nodes: dict[Node, Node] = {}
        self._made: dict[int, tuple[object, object]] = {}
        """By an object's id: the object, which is kept alive, and what it became."""

    def put(self, value: Any) -> Any:
        """The value with numbers in place of its symbols; itself where it has none."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is SymInt:
            return self._number(value)
        if kind is SizeFloat:
            return self._float(value)
        if kind is Node:
            return self._nodes.get(value, value)
        if kind is str:
            return at_places(value, self.values)
        if isinstance(value, ROLES):
            return value
        known = self._made.get(id(value))
        if known is None:
            known = self._made[id(value)] = value, self._put(value, kind)
        return known[1]

    def _put(self, value: Any, kind: type) -> Any:
        if kind is TensorMeta:
            return self._meta(value)
        if kind is Graph:
            return self.graph(value)
        if kind is ViewChain:
            return self._chain(value)
        if kind in (ViewStep, PartStep):
            return self._step(value)
        if kind in (tuple, list, frozenset, set):
            items = list(map(self.put, value))
            return value if _same(items, value) else kind(items)
        if kind is dict:
            return self._mapping(value)
        if kind is GradientReads:  # tensors of different symbols may be equal at these sizes
            after = list(map(self.put, value.saved))
            if _same(after, value.saved):
                return value
            pairs = zip(after, value.saved.values(), strict=True)
            return GradientReads(value.results, merged({}, pairs))
        if isinstance(value, BaseException):
            return self._error(value)
        if attrs.has(kind) and kind.__module__.startswith(_ROOMS):
            return self._record(value, kind)
        return value

    def _number(self, value: SymInt) -> Any:
        return concrete(value, self.values)

    def _float(self, value: SizeFloat) -> Any:
        return value.concrete(self.values)

    def _meta(self, meta: TensorMeta) -> TensorMeta:
        return meta.concrete(self.values)

    def _chain(self, chain: ViewChain) -> ViewChain:
        """The chain with its steps' symbols replaced: chains of one beginning share it, too."""
        shorter: list[ViewChain] = []
        at = chain
        while at and id(at) not in self._made:
            shorter.append(at)
            at = at.before
        found: Any = self._made[id(at)][1] if at else at
        for each in reversed(shorter):
            step = self.put(each[-1])
            is_same = step is each[-1] and found is each.before
            found = each if is_same else found.then(step)
            self._made[id(each)] = each, found
        chain = found
        return chain

    def _step(self, step: ViewStep) -> ViewStep:
        changes = {name: self.put(getattr(step, name)) for name in _STEP}
        if isinstance(step, PartStep):
            call = step.parts
            args = self.put(call.args)
            parts: Any = self._made.get(id(call))
            if parts is None:  # all results of the call have one record
                same = args is call.args
                made = call if same else attrs.evolve(call, args=args)
                parts = self._made[id(call)] = call, made
            changes["parts"] = parts[1]
        is_same = all(each is getattr(step, name) for name, each in changes.items())
        return step if is_same else attrs.evolve(step, **changes)

    def _error(self, error: BaseException) -> BaseException:
        """The error with numbers in its text: it is recorded once, and raised for many sizes.
        What else a user gave it is not looked into."""
        given, said = error.args, getattr(error, "__notes__", [])
        args, notes = (
            [self.put(each) if type(each) in _PRINTED else each for each in before]
            for before in (given, said)
        )
        if _same(args, given) and _same(notes, said):
            return error
        made = copy.copy(error)
        made.args = tuple(args)
        if notes:
            made.__notes__ = notes
        return made

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        keys, items = list(map(self.put, value)), list(map(self.put, value.values()))
        if _same(keys, value) and _same(items, value.values()):
            return value
        return dict(zip(keys, items, strict=True))

    def _record(self, value: Any, kind: type) -> Any:
        changes = {}
        for field in kind.__attrs_attrs__:  # type: ignore[attr-defined]
            if field.init:
                before = getattr(value, field.name)
                after = self.put(before)
                if after is not before:
                    changes[field.alias] = after
        return attrs.evolve(value, **changes) if changes else value

    def graph(self, graph: Graph) -> Graph:
        """The graph with numbers in place of symbols, in arguments and metas."""
        return with_sizes(graph, self.put, self._nodes)


def _same(after: Iterable[object], before: Iterable[object]) -> bool:
    return all(a is b for a, b in zip(after, before, strict=True))


class Settled(AtSizes):
    """Replaces symbols by what the guards say of them: a number that they equal, or one of several
    equal symbols. Texts stay as they are."""

    def __init__(self, table: SymbolTable) -> None:
        super().__init__({})
        self.table = table

    def _number(self, value: SymInt) -> Any:
        return settled(self.table, value)

    def _float(self, value: SizeFloat) -> Any:
        return value

    def _meta(self, meta: TensorMeta) -> TensorMeta:
        if not is_symbolic((*meta.shape, *meta.stride)):
            return meta
        shape, stride = (tuple(map(self.put, each)) for each in (meta.shape, meta.stride))
        return tensor_meta(shape, stride, meta.dtype, meta.device)
