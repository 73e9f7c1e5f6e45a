"""Rewrites a backward for the strides that the compiled forward gives to saved values.

A backend's callable may have `output_strides`: for each output its actual strides, or None for
those of the graph. Only saved values may have other strides; the backward's placeholders then get
them. Runs after the forward is lowered, before the backward is. Rule: SAV-6.
Spec: `specs/rules/sav.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.ir.errors import BackendError
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Saved
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import PureOp
from aotlite.ir.ops.shape.copies import RESTRIDE
from aotlite.stages.records.backward.partition import Partition

Strides = tuple[int, ...]


def with_reported_strides(name: str, partition: Partition, run: object) -> Partition:
    """The partition whose backward takes saved values in the strides that `run` reports.

    `name` is the backend's. Raises BackendError for strides that a saved value cannot have.
    """
    reported = getattr(run, "output_strides", None)
    if reported is None or partition.backward is None:
        return partition
    metas = _reported(name, partition, list(reported))
    if not metas:
        return partition
    backward = _Relaid(partition.backward, metas).graph()
    saved = [
        attrs.evolve(value, meta=metas.get(Saved(i), value.meta))
        for i, value in enumerate(partition.saved)
    ]
    return attrs.evolve(partition, backward=backward, saved=tuple(saved))


def _reported(name: str, partition: Partition, strides: Sequence[Any]) -> dict[object, TensorMeta]:
    """The new metas of the saved values with other strides, by role."""
    forward = partition.forward
    if len(strides) != len(forward.outputs):
        raise BackendError(
            f"backend: {name!r} reports strides of {len(strides)} outputs of graph {forward.name}, "
            f"expected {len(forward.outputs)}"
        )
    metas: dict[Any, TensorMeta] = {}
    for role, value, given in zip(forward.output_roles, forward.outputs, strides, strict=True):
        meta: Any = value.meta if type(value) is Node else None
        if given is None or meta is None or tuple(given) == meta.stride:
            continue
        owned = isinstance(role, Saved) and partition.saved[role.index].owner is not None
        if not isinstance(role, Saved) or owned or not _fits(meta, given):
            raise BackendError(
                f"backend: {name!r} reports strides {given!r} of output {role} of graph "
                f"{forward.name}, expected {meta.stride}: only values that are saved in memory of "
                "their own may be laid out otherwise, each element in a place of its own"
            )
        metas[role] = tensor_meta(meta.shape, tuple(given), meta.dtype, meta.device)
    return metas


def _fits(meta: TensorMeta, given: Any) -> bool:
    whole = isinstance(given, (tuple, list)) and all(type(s) is int and s >= 0 for s in given)
    return (
        whole
        and len(given) == len(meta.shape)
        and not has_internal_overlap(meta.shape, tuple(given))
    )


class _Relaid:
    """A backward graph rebuilt for saved values with other strides.

    Ops that compute take any strides. Views and outputs get a copy with the old strides.
    """

    def __init__(self, graph: Graph, metas: dict[Any, TensorMeta]) -> None:
        self.old = graph
        self.metas = metas
        self.build = Builder(graph.name)
        self.new: dict[Node, Node] = {}
        self.restored: dict[Node, Node] = {}

    def graph(self) -> Graph:
        for node in self.old.nodes[:-1]:
            self._add(node)
        self.build.source = None
        values = [self._as_it_was(v) if type(v) is Node else v for v in self.old.outputs]
        return self.build.finish(values, self.old.output_roles)

    def _add(self, node: Node) -> None:
        meta = self.metas.get(node.role) if node.op == "placeholder" else None
        if meta is not None:
            self.new[node] = self.build.add(attrs.evolve(node, meta=meta))
            return
        computes = type(node.target) is PureOp and type(node.meta) is TensorMeta
        args = map_nodes(node.args, self._raw if computes else self._as_it_was)
        if all(a is b for a, b in zip(args, node.args, strict=True)):
            self.build.add(node)
        elif computes:
            self.build.source = node
            self.new[node] = self.build.emit(node.target, args)
        else:
            self.new[node] = self.build.add(node.with_args(args, node.meta))

    def _raw(self, value: Node) -> Node:
        return self.new.get(value, value)

    def _as_it_was(self, value: Node) -> Node:
        """The value in the strides that it had before."""
        found, meta = self._raw(value), value.meta
        if type(meta) is not TensorMeta or found.meta.stride == meta.stride:  # type: ignore[union-attr]
            return found
        if value not in self.restored:
            self.build.source = value
            self.restored[value] = self.build.emit(RESTRIDE, (found, meta.stride))
        return self.restored[value]
