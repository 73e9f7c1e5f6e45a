"""Fusion: a program of many small kernels becomes one of few large ones, bit for bit the same.

Pointwise values are inlined into their users (`inline`). Then kernels are merged (`merge`):
producers with consumers first, then kernels that load the same buffers. A dependence graph of the
steps says which merges keep the order of reads and writes. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import attrs

from aotlite.backends.loops.analysis.cost import KEPT_BYTES
from aotlite.backends.loops.passes.dead_code import with_stores, without_dead
from aotlite.backends.loops.passes.fusion.inline import inlined
from aotlite.backends.loops.passes.fusion.merge import merged, name_of_both
from aotlite.backends.loops.passes.vectorization import vector_axis
from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    Kernel,
    LoopProgram,
    Step,
    ValueCheck,
    happens,
    loaded,
    reads,
    writes,
)
from aotlite.backends.loops.templates.shared_templates import about, combined


def fused(program: LoopProgram, kept_bytes: int = KEPT_BYTES) -> LoopProgram:
    """Returns the program after all merges that the cost model calls worth it.

    A merge is refused if it would go several times over rows that load and store more than
    `kept_bytes`: they would come from memory each time.
    """
    program = without_dead(inlined(program))
    steps = StepOrder(program, kept_bytes)
    steps.merge_producers(of_columns=False)
    steps.merge_producers(of_columns=True)
    steps.merge_neighbors()
    return without_dead(attrs.evolve(program, steps=steps.in_order()))


@attrs.frozen
class Replacement:
    """The kernels that replace two: those that compute, and one that runs after them."""

    kernels: tuple[Kernel, ...]
    after: Kernel


class StepOrder:
    """The dependence graph of a program's steps, which merges change.

    `before` and `after` are its edges. `below[k]` is its transitive closure, the steps that must
    run after step k, as the bits of an int: whether a merge would make a circle is then one `&`.
    Bits of steps that are gone stay; numbers are not used again.
    """

    def __init__(self, program: LoopProgram, kept_bytes: int = KEPT_BYTES) -> None:
        self.kept_bytes = kept_bytes
        self.temporaries = {b.number for b in program.buffers if b.kind is BufferKind.TEMPORARY}
        self.temporaries -= {placed.buffer for placed in program.outputs if placed is not None}
        self.inputs = {b.number for b in program.buffers if b.kind is BufferKind.INPUT}
        self.steps: dict[int, Step] = dict(enumerate(program.steps))
        self.count = len(program.steps)
        self.reads = {k: reads(step) for k, step in self.steps.items()}
        self.writes = {k: writes(step) for k, step in self.steps.items()}
        self.after: dict[int, set[int]] = {k: set() for k in self.steps}
        self.before: dict[int, set[int]] = {k: set() for k in self.steps}
        self.readers: dict[int, set[int]] = {}
        self.columns: dict[int, bool] = {}
        self._connect()
        self.below = self._reached()

    def _connect(self) -> None:
        """Adds the edges: from writers to readers, from readers to later writers, and from writers
        to later writers; from steps that may raise to steps that write inputs (K-11); and between
        effects and all steps that may raise, in their order (TOK-6)."""
        writers: dict[int, list[int]] = {}
        raising: list[int] = []
        happened: list[int] = []
        for k, step in self.steps.items():
            if type(step) is ValueCheck or type(step) is Extern:
                self._edges(raising if happens(step) else happened, k)
                happened = [k] if happens(step) else happened
                raising.append(k)
            elif self.writes[k] & self.inputs:
                self._edges(raising, k)
            for number in self.reads[k]:
                self._edges(writers.get(number, ()), k)
                self.readers.setdefault(number, set()).add(k)
            for number in self.writes[k]:
                self._edges(writers.get(number, ()), k)
                self._edges(self.readers.get(number, ()), k)
                writers.setdefault(number, []).append(k)

    def _edges(self, sources: Iterable[int], k: int) -> None:
        for source in sources:
            if source != k:
                self.after[source].add(k)
                self.before[k].add(source)

    def _reached(self) -> dict[int, int]:
        """Returns, for each step, the steps that must run after it, as bits."""
        found: dict[int, int] = {}
        for k in sorted(self.steps, reverse=True):
            found[k] = 0
            for each in self.after[k]:
                found[k] |= found[each] | 1 << each
        return found

    # --- merging
    def merge_producers(self, *, of_columns: bool) -> None:
        """Merges kernels with those whose results they load, the nearest first.

        Kernels that reduce columns wait for the second round (`of_columns=True`). Pointwise work
        then belongs to kernels of rows, which `row_column_reduction` lets columns join.
        """
        for k in list(self.steps):
            while k in self.steps and self._with_producer(k, of_columns=of_columns):
                pass

    def _with_producer(self, k: int, *, of_columns: bool) -> bool:
        if not of_columns and self._is_of_columns(k):
            return False
        for source in sorted(self.before[k], reverse=True):
            if not self.writes[source] & self.reads[k]:
                continue
            waits = not of_columns and self._is_of_columns(source)
            if not waits and self._merge(source, k):
                return True
        return False

    def _is_of_columns(self, k: int) -> bool:
        if k not in self.columns:
            step = self.steps[k]
            self.columns[k] = type(step) is Kernel and about(step, _reduces_columns)
        return self.columns[k]

    def merge_neighbors(self) -> None:
        """Merges kernels that load the same and do not depend on each other."""
        for k, other in self._neighbors():
            if k in self.steps and other in self.steps:
                # One may overwrite a buffer that the other reads: that one comes first.
                self._merge(*((other, k) if self.below[other] >> k & 1 else (k, other)))

    def _neighbors(self) -> Iterator[tuple[int, int]]:
        loading: dict[int, list[int]] = {}
        for k, step in list(self.steps.items()):
            if type(step) is Kernel:
                found = {place for number in loaded(step) for place in loading.get(number, ())}
                for place in sorted(found, reverse=True):
                    yield place, k
                for number in self.reads[k]:
                    loading.setdefault(number, []).append(k)

    def _merge(self, first: int, second: int) -> bool:
        """Merges two steps if both are kernels that may become one, and no step must run between
        them. Returns whether it did."""
        one, two = self.steps[first], self.steps[second]
        if not (type(one) is Kernel and type(two) is Kernel and self.may_be_one(first, second)):
            return False
        kernel = combined(merged, (one, two), name_of_both(one, two), self.kept_bytes)
        if kernel is None:
            return False
        self.put(first, second, self._without_dead(kernel, first, second))
        return True

    def may_be_one(self, first: int, second: int) -> bool:
        """Whether no step must run after the first and before the second, and the second need not
        run before the first."""
        if self.below[second] >> first & 1:
            return False
        return not any(self.below[k] >> second & 1 for k in self.after[first] if k != second)

    def replace(self, first: int, second: int, parts: Replacement) -> None:
        """Replaces two kernels. The first of `parts.kernels` takes the place of the second."""
        users = set(self.after[second])
        self.put(first, second, parts.kernels[0])
        sources = set(self.before[second])
        after = self._added(parts.after, (second,), users)
        for kernel in parts.kernels[1:]:
            self._added(kernel, sources, (after, *self.after[second]))

    def _added(self, step: Kernel, sources: Iterable[int], users: Iterable[int]) -> int:
        k = self.count
        self.count += 1
        self.steps[k], self.after[k], self.before[k] = step, set(), set()
        self._edges(list(sources), k)
        for each in list(users):
            self._edges([k], each)
        self.below[k] = self._behind(k)
        for each, found in self.below.items():
            if each in self.before[k] or any(found >> source & 1 for source in self.before[k]):
                self.below[each] = found | self.below[k] | 1 << k
        return k

    def _behind(self, k: int) -> int:
        """Returns the steps that must run after step k, as bits."""
        found = 0
        for each in self.after[k]:
            found |= self.below[each] | 1 << each
        return found

    def _without_dead(self, kernel: Kernel, first: int, second: int) -> Kernel:
        """Returns the merged kernel without stores that only the kernel itself has loaded."""
        for number in self.reads[first] | self.reads[second]:
            self.readers[number] -= {first, second}
        for number in reads(kernel):
            self.readers[number].add(second)
        own = writes(kernel)
        alive = {n for n in own if n not in self.temporaries or self.readers.get(n)}
        return kernel if alive == own else with_stores(kernel, alive)

    def put(self, first: int, second: int, kernel: Kernel) -> None:
        """Puts the kernel in the place of the second step and removes the first."""
        for k in self.after.pop(first):
            self.before[k].discard(first)
            self._edges([second], k)
        for k in self.before.pop(first):
            self.after[k].discard(first)
            self._edges([k], second)
        del self.steps[first]
        self.steps[second] = kernel
        self.columns.pop(second, None)
        self.reads[second], self.writes[second] = reads(kernel), writes(kernel)
        self.below[second] = (self.below[second] | self.below.pop(first)) & ~(1 << second)
        self._reach(second)

    def _reach(self, k: int) -> None:
        """Adds step k, and all that must run after it, to what must run after the steps before it.
        The closure of a step that knows all of it is as it was, and so is that of those before."""
        new = self.below[k] | 1 << k
        changed = list(self.before[k])
        while changed:
            each = changed.pop()
            found = self.below[each]
            if found | new != found:
                self.below[each] = found | new
                changed += self.before[each]

    def in_order(self) -> tuple[Step, ...]:
        """Returns the steps in topological order; of steps that are ready the first one comes."""
        waiting = {k: len(self.before[k]) for k in self.steps}
        ready = sorted([k for k, count in waiting.items() if not count])
        result: list[Step] = []
        while ready:
            k = heappop(ready)
            result.append(self.steps[k])
            for each in self.after[k]:
                waiting[each] -= 1
                if not waiting[each]:
                    heappush(ready, each)
        assert len(result) == len(self.steps)
        return tuple(result)


def _reduces_columns(kernel: Kernel) -> bool:
    """Whether a kernel reduces columns: it has inner axes, and its vector axis is a space axis."""
    if kernel.space in (0, len(kernel.extents)):
        return False
    return vector_axis(kernel) < kernel.space
