"""`StageRecords`: the records from which stages 9 and 10 make an entry, with symbols or numbers.

Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.ir.graph import Graph
from aotlite.pipeline.derivatives import Derivable
from aotlite.pipeline.size_regions.kernels import Instance, SizedKernels
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture import Containers
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.shared.size_values import AtSizes


@attrs.frozen(eq=False, repr=False)
class StageRecords(Record):
    """The records of stages 2 to 8, from which stages 9 and 10 make an entry."""

    meta: FunctionMeta
    convention: Convention
    joint: Joint
    partition: Partition
    derivable: Derivable
    containers: Containers
    values: dict[str, int] | None = None
    """The numbers that stand for symbols, by name; None where there were none."""
    kernels: tuple[SizedKernels | None, ...] = (None, None)
    """The kernels for all sizes of forward and backward."""
    handed: Graph | None = None
    """The forward that takes what earlier segments have computed; None if it is whole."""

    run: Run | None = None
    """The forward as it was lowered already; None if it was not."""

    def instances(self) -> tuple[Instance | None, ...]:
        """Forward and backward with the kernels for all sizes; None without any."""
        if self.values is None:
            return None, None
        halves = self.partition.forward, self.partition.backward
        inner = self.handed, None
        found: list[Instance | None] = []
        for kernels, graph, handed in zip(self.kernels, halves, inner, strict=True):
            if graph is None or (kernels is None and handed is None):
                found.append(None)
            else:
                found.append(Instance(kernels, graph, self.values, handed))
        return tuple(found)

    def at(self, values: dict[str, int]) -> StageRecords:
        """The records with numbers for symbols, given by name."""
        at = AtSizes(values)
        return attrs.evolve(
            self,
            meta=at.put(self.meta),
            convention=at.put(self.convention),
            joint=at.put(self.joint),
            partition=at.put(self.partition),
            values=values,
            handed=at.put(self.handed),
        )
