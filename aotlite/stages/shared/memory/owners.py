"""The owner of each storage after the call: the input, result or base that keeps it alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aotlite.eager.base.storage import Storage
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import IntermediateBase
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    AliasOfBase,
    InputMeta,
    MemoryStep,
    Plain,
)
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.trace import MetadataTrace


def windows_of(captured: Captured, inputs: Sequence[InputMeta]) -> Iterator[tuple[Alias, Storage]]:
    """The aliases that inputs are after `set_`, each with its storage in the capture."""
    changes: MetadataTrace = captured.recorder.changes
    for each in inputs:
        puts = [c.step for c in changes.of.get(each.role, ()) if isinstance(c.step, Node)]
        steps = [step for step in each.changes if isinstance(step, MemoryStep)]
        for put, step in zip(puts, steps, strict=True):
            yield step.window, changes.puts[put].storage


def owners_of(captured: Captured, meta: FunctionMeta) -> dict[Storage, Any]:
    """The role that owns each storage after the call."""
    owners: dict[Storage, Any] = {}
    for given in captured.inputs:
        owners.setdefault(given.storage, given.role)
    for index, output in enumerate(meta.outputs):
        result = captured.results[index]
        if isinstance(output, Plain):
            owners.setdefault(result.storage, meta.role_of(index))
        elif isinstance(output, AliasOfBase):
            owners.setdefault(result.storage, IntermediateBase(output.base))
        elif isinstance(output, Alias) and output.view.version is not None:
            owners.setdefault(result.storage, meta.role_of(index))
    for window, storage in windows_of(captured, meta.inputs):
        if isinstance(window, AliasOfBase):
            owners.setdefault(storage, IntermediateBase(window.base))
    return owners
