"""The combination of a team's partial results: registers, shared memory, then warp shuffles.

Lane l of a reduction is partial (k, t, v): number k of thread t, neighbor v of its `width` ones,
with l = (k * workers + t) * width + v. The order of combination is the IR's:

    1. neighbors v within a thread, if `near` says so (with `near=1` they come last; neighbors
       that are rows of their own are never combined)
    2. halves over a thread's own k, in registers
    3. halves over threads t: through shared memory down to a warp, by shuffles within it

Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aotlite.backends.c_family.loop_body import Body, array_type
from aotlite.backends.c_family.scalar_text import CScope
from aotlite.backends.cuda.emit.reductions.thread_layout import WARP, ThreadLayout
from aotlite.backends.cuda.emit.reductions.vector_access import unrolled
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.program import Reduce

EVERY = "0xffffffffu"


class GroupReduction:
    """Prints the combination of a team's partial results."""

    def __init__(self, body: Body, layout: ThreadLayout, *, has_gaps: bool) -> None:
        self.body, self.layout, self.width = body, layout, layout.width
        every = EVERY if layout.threads >= WARP else f"{(1 << layout.threads) - 1:#x}u"
        self.mask = "lanes" if has_gaps and layout.along and layout.team < WARP else every
        """The mask of the threads of a warp that take part: all, or those whose team has a row."""
        self.shared: dict[str, str] = {}
        """The declarations of shared arrays, by name."""
        self.arrays: dict[int, str] = {}
        self.results: dict[int, str] = {}
        """The shared arrays of partial results and of results, by the reduction's names."""

    def lines(self, group: Sequence[Reduce], workers: int) -> list[str]:
        """Returns the lines that combine the reductions of one pass, which have equal lanes.

        `workers` threads of the team have partial results. All threads have the results afterwards.
        """
        layout = self.layout
        lanes = workers * layout.width if layout.along else workers
        (near,) = {each.near for each in group}
        assert near in (1, layout.width), "a thread has whole groups of neighbors"
        self.width = layout.width // near
        found = list[str]()
        for each in group:
            count = each.lanes // lanes
            found += self._neighbors(each, count) if near > 1 else []
            found += self._own(each, count, self.width, near)
        if layout.team * layout.side > layout.pitch:
            found += self._through_shared(group, workers)
        for each in group if layout.along else ():
            found += self._of_warp(each, workers)
            found += self._own(each, self.width, 1)
        return found

    def _neighbors(self, reduce: Reduce, count: int) -> Iterator[str]:
        """Combines, in halves, each of a thread's groups of neighbors."""
        width = self.layout.width
        half = width // 2
        while half:
            place = f"k / {half} * {width} + k % {half}"
            first = [f"a{number}[{place}]" for number in reduce.names]
            second = [f"a{number}[{place} + {half}]" for number in reduce.names]
            head = f"for (i32 k = 0; k < {count * half}; ++k)"
            yield from unrolled(head, self._joined(reduce, first, second))
            half //= 2

    def _own(self, reduce: Reduce, count: int, step: int, near: int = 1) -> Iterator[str]:
        """Combines a thread's own partial results in halves; only each `near`-th is one."""
        half = count // 2
        place = "k" if near == 1 else f"k * {near}"
        while half:
            first = [f"a{number}[{place}]" for number in reduce.names]
            second = [f"a{number}[{place} + {half * step * near}]" for number in reduce.names]
            head = f"for (i32 k = 0; k < {half * step}; ++k)"
            yield from unrolled(head, self._joined(reduce, first, second))
            half //= 2

    def _joined(self, reduce: Reduce, first: Sequence[str], second: Sequence[str]) -> list[str]:
        """The lines that combine partial results into the first of them."""
        scope, kinds = CScope(None), [value.dtype for value in reduce.values]
        results = self.body.combined(combiner(reduce.kind), kinds, first, second, scope)
        sets = [f"{state} = {result};" for state, result in zip(first, results, strict=True)]
        return [*scope.lines, *sets]

    # --- shared memory
    # Note [two barriers of a block's reduction]
    #     s[threadIdx.x] = a;  BARRIER  r[column] = halves of s;  BARRIER  a = r[column]
    # Arrays s and r are used again by the next reduction and the next row, without another barrier.
    # s: a thread reads it between the barriers, and the next write of s comes after the second.
    # r: it is read after the second barrier, and the next write of r comes after the first barrier
    # of the next reduction, which every thread reaches only when it has read r. With one array in
    # the place of two, a fast thread would overwrite what a slow one has yet to read.
    def _through_shared(self, group: Sequence[Reduce], workers: int) -> list[str]:
        """Combines threads of different warps through shared memory: each thread takes a column of
        their partial results."""
        layout = self.layout
        writing = max(workers * layout.side, layout.pitch)
        rows, columns = writing // layout.pitch, layout.pitch * self.width
        writes, reads = list[str](), list[str]()
        parts = [each for each in group for _ in each.names]
        numbers = [number for each in group for number in each.names]
        for k, (each, number) in enumerate(zip(parts, numbers, strict=True)):
            kind = array_type(each.values[each.names.index(number)].dtype)
            self.arrays[number] = self._declare(f"s{k}_{kind}", kind, layout.threads * self.width)
            result = self._declare(f"r{k}_{kind}", kind, columns)
            self.results[number] = result
            writes.append(f"{self.arrays[number]}[threadIdx.x * {self.width} + v] = a{number}[v];")
            near = f"threadIdx.x % {layout.pitch} * {self.width} + v"
            reads.append(f"a{number}[v] = {result}[{near}];")
        halves = [line for each in group for line in self._column(each, rows, columns)]
        each_v = f"for (i32 v = 0; v < {self.width}; ++v)"
        write = unrolled(each_v, writes)
        if writing < layout.threads:
            write = [f"if (threadIdx.x < {writing}) {{", *write, "}"]
        head = f"for (i32 column = threadIdx.x; column < {columns}; column += {layout.threads}) {{"
        barrier = "__syncthreads();"
        return [*write, barrier, head, *halves, "}", barrier, *unrolled(each_v, reads)]

    def _declare(self, name: str, kind: str, count: int) -> str:
        """Declares a shared array, which all passes share, and returns its name."""
        self.shared[name] = f"__shared__ {kind} {name}[{count}];"
        return name

    def _column(self, reduce: Reduce, rows: int, columns: int) -> list[str]:
        """Combines one column in halves, in registers."""
        lines = []
        for number, value in zip(reduce.names, reduce.values, strict=True):
            kind = array_type(value.dtype)
            lines.append(f"{kind} h{number}[{rows}];")
            read = f"h{number}[k] = {self.arrays[number]}[k * {columns} + column];"
            lines += unrolled(f"for (i32 k = 0; k < {rows}; ++k)", [read])
        half = rows // 2
        while half:
            first = [f"h{number}[k]" for number in reduce.names]
            second = [f"h{number}[k + {half}]" for number in reduce.names]
            lines += unrolled(
                f"for (i32 k = 0; k < {half}; ++k)", self._joined(reduce, first, second)
            )
            half //= 2
        return lines + [
            f"{self.results[number]}[column] = h{number}[0];" for number in reduce.names
        ]

    # --- a warp
    def _of_warp(self, reduce: Reduce, workers: int) -> list[str]:
        """Combines neighboring threads of a warp in halves; all of them have the result."""
        near = min(self.layout.team, WARP)
        half = min(workers, near) // 2
        lines = self._shuffled(reduce, half) if half else []
        if near > 1 and (workers < near or not combiner(reduce.kind).is_symmetric):
            lines += self._from_first(reduce, near)
        return lines

    def _shuffled(self, reduce: Reduce, half: int) -> list[str]:
        """Combines by shuffles: with the thread `half` away, then half as far, and so on."""
        # Of a xor shuffle all threads have the same result, if operands may change places.
        way = "xor" if combiner(reduce.kind).is_symmetric else "down"
        own = "half" if self.layout.team >= WARP else f"half, {self.layout.team}"
        far = []
        for number, value in zip(reduce.names, reduce.values, strict=True):
            kind = array_type(value.dtype)
            call = f"__shfl_{way}_sync({self.mask}, a{number}[v], {own})"
            far.append(f"const {kind} far{number} = ({kind}){call};")
        first = [f"a{number}[v]" for number in reduce.names]
        second = [f"far{number}" for number in reduce.names]
        lines = [*far, *self._joined(reduce, first, second)]
        lines = unrolled(f"for (i32 v = 0; v < {self.width}; ++v)", lines)
        return unrolled(f"for (i32 half = {half}; half; half /= 2)", lines)

    def _from_first(self, reduce: Reduce, near: int) -> list[str]:
        """Broadcasts the first thread's results to its `near` neighbors."""
        takes = []
        for number, value in zip(reduce.names, reduce.values, strict=True):
            kind, source = array_type(value.dtype), f"threadIdx.x & {WARP - near}"
            takes.append(
                f"a{number}[v] = ({kind})__shfl_sync({self.mask}, a{number}[v], {source});"
            )
        return unrolled(f"for (i32 v = 0; v < {self.width}; ++v)", takes)
