"""How the buffers of a kernel lie in memory, as far as the text of the kernel depends on it.

Temporaries of one arena may share bytes: a result in place of a dying operand (`arena.py`). A
printer must know which pointers may meet. Spec: `specs/equal_regions.md`, REG-2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotlite.backends.loops.arena import ArenaPlan
from aotlite.backends.loops.program import Kernel, ProgramBuffer, loaded, stored
from aotlite.backends.loops.templates.shared_templates import known_instance


class KernelMemory:
    """Answers for the kernels of one program and one plan of its arena."""

    def __init__(self, buffers: Mapping[int, ProgramBuffer], plan: ArenaPlan) -> None:
        self.buffers, self.plan = buffers, plan
        self.numbers: dict[Kernel, int] = {}

    def key(self, kernel: Kernel) -> tuple[tuple[int, ...], object]:
        """Returns the buffers of a kernel in order of appearance, and all on which its text depends
        but their numbers: the template, and of each buffer dtype, size, and which other ones share
        its memory or begin at its address."""
        instance = known_instance(kernel)
        own = {number: place for place, number in enumerate(instance.buffers)}
        regions = self.regions(kernel)
        heirs = self.heirs(sorted(own), regions)
        first: dict[int, int] = {}
        memory = []
        for number, place in own.items():
            buffer = self.buffers[number]
            region = first.setdefault(regions.get(number, number), place)
            memory.append((buffer.dtype, buffer.size, region, own[heirs.get(number, number)]))
        number = self.numbers.setdefault(instance.template, len(self.numbers))
        return instance.buffers, (number, tuple(memory))

    def regions(self, kernel: Kernel) -> dict[int, int]:
        """Returns, for buffers of the kernel that share bytes of the arena, a number of these."""
        found: dict[int, int] = {}
        numbers = sorted({*loaded(kernel), *stored(kernel)} & self.plan.offsets.keys())
        for k, number in enumerate(numbers):
            for other in numbers[:k]:
                if self._share(number, other):
                    found[number] = found.setdefault(other, -1 - other)
                    break
        return found

    def heirs(self, numbers: Sequence[int], regions: Mapping[int, int]) -> dict[int, int]:
        """Returns, for each buffer at the address of another one of the kernel, that other buffer.

        Both become one pointer. With two pointers a compiler must assume that a store changes
        later loads, and does not vectorize.
        """
        found: dict[int, int] = {}
        leaders: dict[tuple[int, int], int] = {}
        for number in numbers:
            if number in regions:
                place = regions[number], self.plan.offsets[number]
                leader = leaders.setdefault(place, number)
                if leader != number:
                    found[number] = leader
        return found

    def _share(self, a: int, b: int) -> bool:
        first, second = self.plan.offsets[a], self.plan.offsets[b]
        return first < second + self._bytes(b) and second < first + self._bytes(a)

    def _bytes(self, number: int) -> int:
        buffer = self.buffers[number]
        return buffer.size * buffer.dtype.itemsize
