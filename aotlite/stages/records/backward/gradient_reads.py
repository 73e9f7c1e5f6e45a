"""`GradientReads`: saved tensors that gradients of results read, on memory others may write.

Sets of results are bits of an integer: if each of n results reads the same n tensors, sets of
objects would need memory in the square of the program. Made by stage 4, read by stage 10.
Rules: SAV-1, SAV-2.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

import attrs

from aotlite.ir.forks import cached_property
from aotlite.ir.graph.role import Result, Role
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture_inputs import OwnerRole


@attrs.frozen(repr=False)
class SavedOf(Record):
    """A tensor that eager's tape saves, on memory of an input or result: writes are an error."""

    owner: OwnerRole
    meta: TensorMeta


@attrs.frozen(repr=False)
class WrittenInside(Record):
    """A saved tensor that the function itself writes: every backward that reads it raises.

    The error's text has versions, which a call knows: those of the captured run count from 0."""

    owner: OwnerRole
    version: int
    """At the end of the captured run."""
    writes: int
    """The writes between the save and the end."""

    def at(self, text: str, now: int, end: int) -> str:
        """The text for a storage of this version now, and of that one at the end of the call."""
        return text.replace(
            f"is at version {self.version}, expected version {self.version - self.writes}:",
            f"is at version {now}, expected version {end - self.writes}:",
        )


@attrs.frozen(slots=False)
class GradientReads:
    """Tensors that eager's tape saves, each with the results whose gradients read it."""

    results: tuple[Result, ...]
    """Differentiable results in order: bit k stands for the k-th."""
    saved: Mapping[SavedOf, int]

    @cached_property
    def saved_tensors(self) -> tuple[SavedOf, ...]:
        """The saved tensors: those that the first result reads in order, then the next one's."""
        return tuple(sorted(self.saved, key=lambda each: self.saved[each] & -self.saved[each]))

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """The results that read each of `saved_tensors`, as bits."""
        return tuple([self.saved[each] for each in self.saved_tensors])

    def __len__(self) -> int:
        return len(self.saved)

    def __iter__(self) -> Iterator[SavedOf]:
        return iter(self.saved_tensors)

    def bits_among(self, some: Container[object]) -> int:
        """The results among `some`, as bits."""
        return sum([1 << k for k, result in enumerate(self.results) if result in some])

    def bits_without(self, absent: Container[Role]) -> int:
        """The results that are not in `absent`, as bits."""
        return (1 << len(self.results)) - 1 - (self.bits_among(absent) if absent else 0)

    def results_of(self, bits: int) -> frozenset[Result]:
        """The results of these bits."""
        return frozenset([result for k, result in enumerate(self.results) if bits >> k & 1])

    def with_late(self, more: Iterable[tuple[SavedOf, Container[object]]]) -> GradientReads:
        """These reads, and further tensors with the results that read each."""
        pairs = [(each, self.bits_among(results)) for each, results in more]
        return GradientReads(self.results, merged(dict(self.saved), pairs))

    def read_by(self, bits: int) -> list[bool]:
        """Whether the gradient of a result in `bits` reads each of `saved_tensors`."""
        return [each & bits != 0 for each in self.readers]


def merged(saved: dict[SavedOf, int], more: Iterable[tuple[SavedOf, int]]) -> dict[SavedOf, int]:
    """Adds further tensors and readers to `saved`, and returns it."""
    for each, bits in more:
        saved[each] = saved.get(each, 0) | bits
    return saved
