"""Memory that a compiled backward reads as it then is, and writes: the run-time part.

Used by stage 10 alone. A call gives its tape node an alias of each such memory, in the geometry
that the graph uses. The backward reads the current bytes, and writes the new ones at its end.
Version counters move by the writes of the tape nodes that eager would run.
Rules: FUN-31, FUN-32, FUN-33, SAV-3, TAN-8. Spec: `specs/rules/fun.md`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.backends.calling_convention import travels_as_array
from aotlite.backends.python_source import listed
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, UnsupportedError, noted
from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import Current, IntermediateBase, Rewritten, Role, Saved, Tangent
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.backward.joint import BackwardMemory
from aotlite.stages.s10_runtime.source import FunctionSource
from aotlite.stages.s10_runtime.support import read_only, write_window

Absent = frozenset[Any]


def memory_alias(tensor: Tensor) -> Tensor:
    """An alias of the tensor's memory for the backward, without a history."""
    return Tensor(tensor.storage, tensor.meta, tensor.offset)


TensorForm = tuple[Any, TensorMeta, int, Storage]
"""A caller's tensor by a weak reference, and its meta, offset and storage when the call ended."""


def forms_of(*tensors: Tensor) -> tuple[TensorForm, ...]:
    """The forms that the tensors have now."""
    return tuple([(weakref.ref(t), t.meta, t.offset, t.storage) for t in tensors])


def check_forms(name: str, before: tuple[TensorForm, ...]) -> None:
    """Raises UnsupportedError if the form of a tensor that the backward reads has changed.

    Eager's backward reads the tensor in its form at that time. The compiled one was recorded for
    one form.
    """
    for reference, meta, offset, storage in before:
        tensor = reference()
        if tensor is None:
            continue
        if tensor.meta is not meta or tensor.offset != offset or tensor.storage is not storage:
            raise noted(
                UnsupportedError(
                    f"{name}: a tensor that the backward reads was {meta} when the call ended, and "
                    f"is {tensor.meta} or on other memory now, expected the same form"
                ),
                "Change the form after the backward, or keep a view of the tensor. (SAV-3)",
            )


def keep_memory(
    source: FunctionSource, memory: tuple[BackwardMemory, ...], names: dict[Role, str]
) -> None:
    """Adds the line of a call that gives its tape node the memory; `names` are those of owners."""
    if memory:
        source.use(memory_alias)
        source.add(f"node.memory = {listed([f'memory_alias({names[m.owner]})' for m in memory])}")


def versions_of(memory: Sequence[Tensor]) -> list[int]:
    """The versions that the memory has now."""
    return [each.storage.version for each in memory]


def keep_forms(
    source: FunctionSource, memory: tuple[BackwardMemory, ...], names: dict[Role, str]
) -> None:
    """Adds the lines at the end of a call that note the memory's forms and versions."""
    if memory:
        seen = [names[m.owner] for m in memory if not isinstance(m.owner, IntermediateBase)]
        source.use(forms_of, versions_of)
        source.add(f"node.memory_forms = forms_of({', '.join(seen)})")
        source.add("node.memory_versions = versions_of(node.memory)")


@attrs.frozen(eq=False, slots=False)
class BackwardMemoryWriter:
    """Adds to a backward's function the lines that read and write memory."""

    memory: tuple[BackwardMemory, ...]
    absent: Absent
    graph: Graph
    source: FunctionSource

    @cached_property
    def counts(self) -> list[int]:
        """How often each memory is written when these gradients are absent."""
        return [sum(bool(who - self.absent) for who in each.writes) for each in self.memory]

    @cached_property
    def final(self) -> dict[Role, Any]:
        """The final value of each memory that the backward writes, by its owner."""
        return {role.of: value for role, value in self.graph.outputs_with(Rewritten)}

    def values(self) -> list[str]:
        """Expressions for the current values of the memory, in the order of the graph's inputs."""
        if not self.memory:
            return []
        names = [f"m{i}" for i in range(len(self.memory))]
        self.source.use(check_forms)
        self.source.add("check_forms(node.name(), node.memory_forms)")
        self.source.add(f"{listed(names)} = node.memory")
        self._check(names)
        found = []
        for name, each in zip(names, self.memory, strict=True):
            if each.is_counted_alone:
                continue
            is_array = travels_as_array(each.meta)
            found.append(f"{name}._data" if is_array else f"({name}.storage.buffer, {name}.offset)")
        return found

    def _check(self, names: list[str]) -> None:
        """Adds the checks that memory can be written, before any is written (RT-10)."""
        self.source.use(read_only)
        for name, each, count in zip(names, self.memory, self.counts, strict=True):
            if count and not each.is_counted_alone:
                place = self.source.constant(each.place, "V", each.place)
                self.source.add(f"if not {name}.storage.writable:")
                self.source.add(f"    raise read_only({place})")
                self.source.add(f"{name}.storage.before_write()")

    def put_back(self, first: int) -> None:
        """Adds the lines that write the final values: the graph's results from `first` on."""
        place = first
        for number, each in enumerate(self.memory):
            if not each.writes:
                continue
            count = self.counts[number]
            if each.is_counted_alone:
                self.source.add(f"m{number}.storage.version += {count}")
                continue
            value = self.final[each.owner]
            if count:
                meta = self.source.record(value.meta, "M", str(value.meta))
                self.source.use(write_window)
                self.source.add(f"write_window(m{number}, found[{place}], {meta})")
                self.source.add(f"m{number}.storage.version += {count}")
            place += 1


def refuse_history(
    name: str, memory: tuple[BackwardMemory, ...], graph: Graph, absent: Absent
) -> None:
    """Raises if a backward's writes would get a history of their own (FUN-31).

    They would in grad mode (`create_graph`): eager refuses writes of leaves then, and other memory
    would depend on the history of the new values.
    """
    for each in memory:
        if not any(who - absent for who in each.writes):
            continue
        if each.requires_grad:
            raise noted(
                AutogradError(
                    f"{name}: the backward writes {each.place}, which requires grad, with grad "
                    "mode on, expected a backward without create_graph"
                ),
                "Write under no_grad in the backward of the eager function. (FUN-31)",
            )
        if _is_differentiable(graph, each):
            raise noted(
                UnsupportedError(
                    f"{name}: the backward writes values that have a history into {each.place}, "
                    "with grad mode on, expected a backward without create_graph"
                ),
                "Differentiate the eager function for derivatives of higher order. (FUN-31)",
            )


def _is_differentiable(graph: Graph, memory: BackwardMemory) -> bool:
    """Whether the new value depends on gradients or saved values."""
    values: list[Any] = [v for role, v in graph.outputs_with(Rewritten) if role.of == memory.owner]
    seen: set[Node] = set()
    while values:
        node = values.pop()
        if type(node) is not Node or node in seen:
            continue
        seen.add(node)
        if isinstance(node.role, (Tangent, Saved)):
            return True
        if isinstance(node.role, Current) and node.role.of != memory.owner:
            return True
        values += node.inputs()
    return False
