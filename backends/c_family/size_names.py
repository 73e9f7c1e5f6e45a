"""The names of sizes in a C text that serves all sizes of a program.

    kernel k[i0<s0*s1]: b1[i0] = b0[i0]       for (i64 i0 = 0; i0 < size0; ++i0) b1[i0] = b0[i0];

Each symbolic int of the text, the place of each temporary in the arena, and the most chunks of each
kernel is an entry of a table of int64, which Python computes for the sizes of a call. Spec:
`specs/sized_kernels.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from aotlite.ir.symbols.symint import SymInt

_NAME = re.compile(r"\bsize(\d+)\b")


@attrs.frozen
class ArenaPlace:
    """The offset of a temporary in the arena, in bytes."""

    buffer: int


@attrs.frozen
class MostChunks:
    """The most chunks of a kernel for the thread pool: 0 of none, 1 of a short one."""

    units: int
    picoseconds: int


@attrs.frozen
class SizeNames:
    """The entries of the table, in order; the k-th is called size`k` in C."""

    entries: dict[SymInt | ArenaPlace | MostChunks, str] = attrs.field(factory=dict)

    def spell(self, size: SymInt) -> str:
        """Returns the name of a size."""
        return self._named(size)

    def place(self, buffer: int) -> str:
        """Returns the name of a temporary's offset."""
        return self._named(ArenaPlace(buffer))

    def most_chunks(self, units: int, picoseconds: int) -> str:
        """Returns the name of the most chunks of a kernel with so many units and so much time."""
        return self._named(MostChunks(units, picoseconds))

    def _named(self, entry: SymInt | ArenaPlace | MostChunks) -> str:
        return self.entries.setdefault(entry, f"size{len(self.entries)}")

    @staticmethod
    def used(lines: Iterable[str]) -> dict[int, str]:
        """Returns the names that lines of C use, by their numbers."""
        numbers = {int(found) for line in lines for found in _NAME.findall(line)}
        return {k: f"size{k}" for k in sorted(numbers)}
