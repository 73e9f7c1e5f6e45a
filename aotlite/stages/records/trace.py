"""Trace: what later stages may ask of the recorder that captured a function.

The recorder itself belongs to stage 1 (`s1_capture/recorder.py`). Stages 2 to 10 import these
protocols only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aotlite.eager.base.storage import Storage
from aotlite.ir.graph import Node
from aotlite.stages.records.metadata_mutation import (
    MemoryReplacement,
    MetadataMutation,
    StorageGrowth,
)
from aotlite.stages.records.version_counts import CountStep


class StorageCounts(Protocol):
    """How often storages were written between the steps that put tensors onto others."""

    storages: list[Storage]
    steps: list[CountStep]

    def rest(self) -> tuple[int, ...]:
        """The writes of each storage since the last step."""
        ...


class MetadataTrace(Protocol):
    """The changes of the inputs' geometry, memory and history, in order, by input."""

    of: Mapping[Any, list[MetadataMutation]]
    puts: dict[Node, MemoryReplacement]
    growths: list[StorageGrowth]

    @property
    def counts(self) -> StorageCounts: ...


class RngTrace(Protocol):
    """The states of the generator in the graph, and when the backward draws."""

    flags: Sequence[Any]

    def arrivals(self) -> tuple[Any, ...]:
        """The sets of gradients on which draws of the backward depend."""
        ...
