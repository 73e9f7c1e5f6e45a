"""Results of a functionalized graph: in eager's strides, each in memory of its own.

Used by stage 6 alone, after its last node. Rules: FUN-12, FUN-15.
Spec: `specs/s6_functionalize.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.geometry import sizes
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import IntermediateBase, MutatedInput, Output, Part, Role, SyntheticBase
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.stages.s6_functionalize.alias_values import AliasValues


def final_values(values: AliasValues, graph: Graph) -> list[object]:
    """The output values of the pure graph, in order."""
    outputs = [values.read(value) for value in graph.outputs]
    roles = graph.output_roles
    written = {role.of for role in roles if isinstance(role, MutatedInput)}
    owners: dict[Node, Role] = {}
    final = []
    for role, value, old in zip(roles, outputs, graph.outputs, strict=True):
        final.append(_escaping(values, role, value, old, written, owners))
    return final


def _escaping(
    values: AliasValues,
    role: Role,
    value: Any,
    old: Any,
    written: set[Any],
    owners: dict[Node, Role],
) -> object:
    """An output in eager's exact strides, on memory that no other output or input has.
    The final value of an input may be another input; it is copied if that one is written as well.
    """
    if value is None:
        return None
    values.build.source = value
    if isinstance(role, (Output, IntermediateBase, Part)):
        stride: tuple[int, ...] = old.meta.stride
        if not sizes.always_same(value.meta.stride, stride):  # a copy is right for all sizes
            value = values.copy(value, stride, "the result lies so in memory")
        root = storage_root(value)
        if root.op != "call":
            value = values.copy(value, stride, "the result is no memory of an input")
        elif root in owners:
            value = values.copy(value, stride, "two results are two memories")
        owners[storage_root(value)] = role
    elif isinstance(role, MutatedInput):
        root = storage_root(value)
        shared = root.role in written or isinstance(root.role, SyntheticBase)
        if root.op == "placeholder" and root.role != role.of and shared:
            value = values.copy(value, None, "its memory is written before it is read")
    values.build.source = None
    return value
