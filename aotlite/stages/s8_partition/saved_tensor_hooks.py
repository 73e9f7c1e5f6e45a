"""Inlines saved-tensor hooks into the graphs: `pack` in the forward, `unpack` in the backward.

    forward:   .., saved = pack(v)            backward:   v = unpack(saved), ..

After stage 8, with the option `saved_hooks`. Input: a partition, and two functions in operand
methods, as decompositions are. They are traced once, at compile time. Output: the partition that
saves what `pack` returns. Rule: SAV-7. Spec: `specs/rules/sav.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import attrs

from aotlite.eager.base.modes import modes_kept, recording
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.graph import Graph, Node, Phase, map_nodes
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.graph.role import Role, Saved, is_number
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, RandomOp
from aotlite.ir.ops.shape.copies import RESTRIDE
from aotlite.stages.records.backward.partition import Partition, SavedValue

Hooks = tuple[Callable[..., Any], Callable[..., Any]]
_NUMBERS = (int, float, complex, bool, str, type(None))


def with_inlined_hooks(
    partition: Partition, hooks: Hooks, mode: str, static: Collection[Role]
) -> Partition:
    """The partition that saves `pack(value)` for each chosen value.

    `mode`: 'donated' for values that no input or result shares, 'no_static' for all but those on
    the inputs `static`, or 'all'. Raises ArgumentError for a hook that raises, writes, or returns
    the wrong type or meta.
    """
    if partition.backward is None:
        return partition
    donated = set(partition.donated)
    chosen = {
        Saved(i)
        for i, value in enumerate(partition.saved)
        if mode == "all"
        or (mode == "no_static" and value.owner not in static)
        or (mode == "donated" and Saved(i) in donated)
    }
    chosen -= {Saved(i) for i, each in enumerate(partition.saved) if is_number(each.owner)}
    return _Inlining(partition, hooks, chosen).run()


@attrs.frozen(eq=False, repr=False)
class _Packed:
    """The packed form of one saved value."""

    parts: list[Any]
    """Forward nodes, and plain values, which the unpack hook gets as constants."""
    is_tuple: bool
    role: Saved
    meta: TensorMeta


class _Inlining:
    def __init__(self, partition: Partition, hooks: Hooks, chosen: set[Saved]) -> None:
        self.old = partition
        self.pack, self.unpack = hooks
        self.chosen = chosen
        self.saved: list[SavedValue] = []

    def run(self) -> Partition:
        forward, packed = self._forward()
        return Partition(forward, self._backward(packed), tuple(self.saved))

    # --- the forward
    def _forward(self) -> tuple[Graph, list[_Packed]]:
        graph = self.old.forward
        build = Builder(graph.name)
        build.nodes = list(graph.nodes[:-1])
        pairs = zip(graph.output_roles, graph.outputs, strict=True)
        outputs: list[tuple[Role, Any]] = []
        packed: list[_Packed] = []
        for role, value in pairs:
            if not isinstance(role, Saved):
                outputs.append((role, value))
                continue
            each = self._packed(build, role, value)
            packed.append(each)
            for place, part in enumerate(each.parts):
                if type(part) is Node:
                    outputs.append((self._note(each, place, part, value), part))
        build.source = None
        return build.finish([v for _, v in outputs], [r for r, _ in outputs]), packed

    def _packed(self, build: Builder, role: Saved, value: Node) -> _Packed:
        meta: TensorMeta = value.meta  # type: ignore[assignment]
        if role not in self.chosen:
            return _Packed([value], False, role, meta)
        build.source = value
        found = _called("pack", self.pack, build, Proxy(build, value))
        parts = list(found) if isinstance(found, (tuple, list)) else [found]
        for part in parts:
            is_ours = type(part) is Proxy and part.builder is build
            if not (is_ours or type(part) in _NUMBERS):
                raise _wrong("pack", f"it returned {part!r}", "tensors made of its argument")
        nodes = [part.node if type(part) is Proxy else part for part in parts]
        return _Packed(nodes, isinstance(found, (tuple, list)), role, meta)

    def _note(self, each: _Packed, place: int, part: Node, value: Node) -> Saved:
        """Records one part as a saved value; returns its role."""
        before = self.old.saved[each.role.index]
        name = before.name if len(each.parts) == 1 else f"{before.name}_{place}"
        is_there = storage_root(part) is storage_root(value)
        owner, copied = (before.owner, before.copied_on_write) if is_there else (None, False)
        checked = is_there and before.byte_checked
        self.saved.append(SavedValue(name, part.meta, owner, before.reason, copied, checked))  # type: ignore[arg-type]
        return Saved(len(self.saved) - 1, name, is_number(owner))

    # --- the backward
    def _backward(self, packed: list[_Packed]) -> Graph:
        graph = self.old.backward
        assert graph is not None
        build = Builder(graph.name)
        build.phase = Phase.BACKWARD
        given = [self._placeholders(build, each) for each in packed]
        build.nodes += [n for n in graph.placeholders if not isinstance(n.role, Saved)]
        new: dict[Node, Node] = {}
        originals = {n.role: n for n in graph.placeholders}
        for each, parts in zip(packed, given, strict=True):
            new[originals[each.role]] = self._unpacked(build, each, parts)
        for node in graph.nodes[len(graph.placeholders) : -1]:
            args = map_nodes(node.args, lambda value: new.get(value, value))
            if args is not node.args:
                new[node] = node.with_args(args, node.meta)
            build.add(new.get(node, node))
        values = [new.get(v, v) if type(v) is Node else v for v in graph.outputs]
        return build.finish(values, graph.output_roles)

    def _placeholders(self, build: Builder, each: _Packed) -> list[Any]:
        """The backward's placeholders for the parts of one value, and its constants."""
        found: list[Tensor | None] = []
        for part in each.parts:
            if type(part) is Node:
                index = sum(type(node.role) is Saved for node in build.nodes)
                role = Saved(index, self.saved[index].name, is_number(self.saved[index].owner))
                part = build.placeholder(part.meta, role)  # type: ignore[arg-type]
            found.append(part)
        return found

    def _unpacked(self, build: Builder, each: _Packed, parts: list[Any]) -> Node:
        if each.role not in self.chosen:
            kept: Node = parts[0].node
            return kept
        given = tuple(parts) if each.is_tuple else parts[0]
        value = _called("unpack", self.unpack, build, given)
        got = getattr(value, "meta", value)
        fits = type(value) is Proxy and value.builder is build
        if not fits or (got.shape, got.dtype) != (each.meta.shape, each.meta.dtype):
            raise _wrong("unpack", f"it returned {got}", f"{each.meta} as was packed")
        node: Node = value.node
        if got.stride != each.meta.stride:
            node = build.emit(RESTRIDE, (node, each.meta.stride))
        return node


def _called(name: str, hook: Callable[..., object], build: Builder, given: object) -> Any:
    """Calls a hook; it may have no effects, and use no other tensors (SAV-7)."""
    start = len(build.nodes)
    try:
        with modes_kept(), recording(None):
            found = hook(given)
    except AotliteError as error:
        error.add_note(f"raised by the {name} hook of saved_hooks")
        raise
    except Exception as error:
        raise noted(
            _wrong(name, f"it raised {type(error).__name__}", "a tensor"), str(error)
        ) from error
    for node in build.nodes[start:]:
        if isinstance(node.target, (InplaceOp, GeometryOp, RandomOp, EffectOp, TokenOp)):
            raise _wrong(name, f"it calls {node.target.name}", "ops without effects")
    return found


def _wrong(name: str, got: str, expected: str) -> ArgumentError:
    return noted(
        ArgumentError(f"saved_hooks: of the {name} hook: {got}, expected {expected}"),
        "A hook computes on its argument alone, in the methods of tensors. (SAV-7)",
    )
