"""`check_views`: compares views and geometries in records with the memory on which they lie.

At run time a view gets its meta and its first element from the record, and the memory is not asked.
Rule: REC-10. Spec: `specs/record_files.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotlite.ir.graph.files.values import Said, Unread
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    Fixed,
    FunctionFacts,
    InputMeta,
    IsInput,
    MemoryStep,
    Plain,
    Repeated,
)

Window = tuple[TensorMeta, int, int]
"""A meta, and the bytes from its first element that may be seen: the first, and the end."""
_DEEP = 64


def check_views(meta: FunctionFacts, values: Mapping[str, int]) -> None:
    """Raises Unread unless each view starts at its source, and lies in the memory of that."""
    check = _Views(meta, values)
    for index, output in enumerate(meta.outputs):
        if isinstance(output, Alias):
            seen = check.seen(check.source(output), output.view.chain)
            check.seen(seen, output.view.geometry_steps)
        elif isinstance(output, Plain):
            check.seen(check.whole(output.meta), output.geometry_steps)
        elif not isinstance(output, Fixed):
            check.of_output(index)
    for each in meta.inputs:
        check.seen(check.input(each, len(each.changes)), each.geometry_steps)
        for number, change in enumerate(each.changes):
            if isinstance(change, MemoryStep):
                check.input(each, number + 1)


class _Views:
    def __init__(self, meta: FunctionFacts, values: Mapping[str, int]) -> None:
        self.meta, self.values = meta, values

    def whole(self, meta: TensorMeta) -> Window:
        """The window of a tensor on memory of its own."""
        made = meta.concrete(self.values)
        return made, 0, made.span * made.dtype.itemsize

    def input(self, each: InputMeta, changes: int) -> Window:
        """The window of an input after so many changes."""
        moved = [x for x in each.changes[:changes] if isinstance(x, MemoryStep)]
        if moved:
            window = moved[-1].window
            return self.seen(self.source(window), window.view.chain)
        meta, least, end = self.whole(each.meta)
        if each.extent is not None:
            size = meta.dtype.itemsize
            least, end = each.extent[0] * size, each.extent[1] * size
        return meta, least, end

    def source(self, alias: Any, depth: int = 0) -> Window:
        """The window of the tensor from which an alias is rebuilt."""
        match alias:
            case AliasOfInput(role):
                return self.input(self._input(role), alias.changes_before)
            case AliasOfBase(base) if 0 <= base < len(self.meta.bases):
                return self.whole(self.meta.bases[base].meta)
            case AliasOfOutput(of):
                return self.of_output(of, depth + 1)
        raise Unread(Said("a view of no base"), "of one that there is", ".records.meta")

    def of_output(self, index: int, depth: int = 0) -> Window:
        """The window of a result."""
        if not 0 <= index < len(self.meta.outputs) or depth > _DEEP:
            raise Unread(Said(f"a result like {index}"), "an earlier result", ".records.meta")
        output: Any = self.meta.outputs[index]
        match output:
            case Plain():
                return self.whole(output.meta)
            case IsInput(role):
                each = self._input(role)
                return self.input(each, len(each.changes))
            case Repeated(of):
                return self.of_output(of, depth + 1)
            case AliasOfInput() | AliasOfBase() | AliasOfOutput():
                return self.seen(self.source(output, depth), output.view.chain)
        raise Unread(Said("a view of a value"), "of a tensor", ".records.meta")

    def _input(self, role: Any) -> InputMeta:
        found = next((each for each in self.meta.inputs if each.role == role), None)
        if found is None:
            raise Unread(Said(f"a view of {role}"), "of an input", ".records.meta")
        return found

    def seen(self, window: Window, chain: Any) -> Window:
        """The window of the last view of a chain."""
        meta, least, end = window
        for step in chain.at(self.values) if self.values else chain:
            # as_strided_ counts from the tensor itself, whatever the record says of its operand.
            if step.operand is not meta and step.op is not AS_STRIDED:
                raise Unread(
                    Said(f"a view of {step.operand}"[:100]), f"of {meta}"[:100], ".records.meta"
                )
            first = step.op.result_for((meta, *step.args))[1] * step.result.dtype.itemsize
            meta, least, end = step.result, least - first, end - first
            size = meta.span * meta.dtype.itemsize
            if size and (least > 0 or size > end):
                raise Unread(
                    Said(f"a view {meta} beyond its memory"[:100]), "one in it", ".records.meta"
                )
        return meta, least, end
