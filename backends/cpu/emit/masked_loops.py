"""Loops of unknown length whose last points are one masked vector.

    for (i64 i1 = 0; i1 < size0; ++i1) A(i1);

        ->  const i64 t1 = size0 & -16;                    whole vectors
            for (i64 i1 = 0; i1 < t1; ++i1) A(i1);
            const i32 t2 = size0 - t1;                     the rest, below 16
            UNORDERED
            for (i32 lane = 0; lane < MASKED(16, t2); ++lane)
                if (WITHIN(lane, t2)) A(t1 + lane);

gcc makes vectors of the first loop, without a remainder, and one vector with a mask of the second.
Else it takes the last points one by one, which is most of the time of short rows. Where processors
have no masks, the second loop has as many points as there are. Spec: `specs/c_printer.md`.
"""

# Note [masked loads]
# gcc 12 loads with a mask into a register whose other elements stay as they were, and computes with
# them: numbers below the normal ones, which integers look like, take ten times as long. So results
# count under another condition than loads, which is the same number and which gcc cannot know to be
# (`HIDDEN`): it clears the other elements then.

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from aotlite.backends.c_family.axis_passes import cost
from aotlite.backends.c_family.loop_body import VECTOR, Body, PointWork
from aotlite.backends.c_family.scalar_text import CScope
from aotlite.backends.cpu.emit.loop_text import FOURS, Range, for_loop, is_part
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.program import Kernel, Reduce
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.scalar.expression import Affine, Scalar
from aotlite.ir.symbols.proving import is_proved
from aotlite.ir.symbols.symint import SymInt

HEAVY = 8
"""The operations of a point above which a rest is taken vector by vector: to compute what is masked
out would take longer than to keep partial results in memory."""
IN_LINE = """\
#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif"""
"""The first lines of a text. Without them gcc calls memcpy for rows of unknown length, which takes
longer than a short row does."""
MASKS = """\
#if defined __AVX512BW__ && defined __AVX512VL__ && !defined __clang__
#define MASKED(lanes, rest) (lanes)
#define WITHIN(lane, rest) ((lane) < (rest))
#define UNORDERED _Pragma("GCC ivdep")
#define HAS_MASKS 1
#define HIDDEN(value) if (!__builtin_constant_p(value)) __asm__("" : "+r"(value))
#else
#define MASKED(lanes, rest) (rest)
#define WITHIN(lane, rest) 1
#define UNORDERED
#define HAS_MASKS 0
#define HIDDEN(value)
#endif
/* Before loops over vectors, of which whole rows have a multiple of four. */
#define WHOLE_FOURS _Pragma("GCC unroll 4")
#define FOURS
#define IS_POWER(size) (((size) & ((size) - 1)) == 0)
#define SURE(condition) do { if (!(condition)) __builtin_unreachable(); } while (0)
"""

Point = Callable[[CScope], None]
"""Prints a point of the innermost loop into a scope."""


class MaskedLoops:
    """Prints loops along symbolic axes with masks."""

    def __init__(self, body: Body, *, only: bool = False) -> None:
        """`only`: a row has at most the points of one vector, so that loops are nothing else."""
        self.body, self.facts, self.only = body, body.facts, only
        self.fits = True
        """Whether all loops so far are masked, as `only` asks for."""

    def lanes(self, work: PointWork, k: int) -> int:
        """Returns the points of a masked vector along an axis; 0 where work takes no masks: its
        values differ in size, or lie apart, or depend on the order of points."""
        stored = {each.buffer for each in work.stores}
        if type(self.facts.extents[k]) is int or work.scans or self.body.lines:
            return 0
        if any(each.unordered for each in work.stores):
            return 0
        if len(stored) < len(work.stores):
            return 0
        kinds = [self.body.kinds[each.buffer] for each in work.stores]
        kinds += [value.dtype for reduce in work.reduces for value in reduce.values]
        if any(kind is dtypes.bool_ for kind in kinds):
            return 0
        if not all(_step(each.address, k) == 1 for each in work.stores):
            return 0
        for scalar in self.facts.in_order(work.roots):
            if self.facts.is_lazy(scalar):
                return 0
            if not self.facts.axes(scalar) & 1 << k:
                continue
            if scalar.op == "load":
                buffer, address = scalar.args
                if buffer in stored or _step(address, k) not in (0, 1):
                    return 0
                kinds.append(scalar.dtype)
            if scalar.dtype is not dtypes.bool_:
                kinds.append(scalar.dtype)
        lanes, loops = _lanes_of(kinds), self.body.loops
        if loops.vector is not None and (work.reduces or work.saved):
            lanes = 0 if lanes and hint_of(loops.width) % lanes else lanes
        return lanes

    def is_heavy(self, work: PointWork) -> bool:
        """Whether points cost more than their partial results in memory. To compare and to choose
        costs more than to add."""
        chooses = any(combiner(each.kind).selects for each in work.reduces)
        return chooses or sum([cost(x) for x in self.facts.in_order(work.roots)]) > HEAVY

    def may_repeat(self, work: PointWork) -> bool:
        """Whether points may be computed twice: they only store what does not depend on stores."""
        combines = any(each.combine is not None for each in work.stores)
        return not (combines or work.reduces or work.saved or work.scans)

    def loop(
        self,
        k: int,
        place: Range,
        lanes: int,
        inside: Callable[[], CScope],
        point: Point,
        *,
        repeats: bool = False,
    ) -> list[str]:
        """Returns a loop over a range of the innermost axis; `inside` makes the scope of a loop,
        `lanes` are those of `MaskedLoops.lanes`. `repeats`: points may be computed twice, so that
        the last vector of a long range needs no mask."""
        begin, end = place
        if self.only:
            self.fits &= begin == 0 and lanes > 0
            return self.rest(k, "0", f"{end}", max(lanes, 1), inside, point)
        scope = inside()
        point(scope)
        count = None if isinstance(begin, str) or isinstance(end, str) else end - begin
        if type(count) is int and is_symbolic((begin,)):
            return for_loop(k, (begin, f"{begin} + {count}"), scope)
        if not lanes or type(count) is int:
            return for_loop(k, place, scope)
        whole = self.body.writer.fresh()
        points, left = _points(place, count)
        first = "" if begin == 0 else f"{begin} + "
        step = f"({points} & -{lanes})" if first else f"{points} & -{lanes}"
        lines = [f"const i64 {whole} = {first}{step};", FOURS, *for_loop(k, (begin, whole), scope)]
        left = left.format(whole)
        rest = self.rest(k, whole, left, lanes, inside, point)
        if not repeats:
            return lines + rest
        scope = inside()
        scope.lines.append(f"const i64 i{k} = {end} - {lanes} + lane;")
        point(scope)
        head = f"for (i64 lane = 0; lane < {lanes}; ++lane) {{"
        again = [f"if ({left} > 0) {{", "UNORDERED", head, *scope.lines, "}", "}"]
        return [*lines, f"if ({points} >= {lanes}) {{", *again, "} else {", *rest, "}"]

    def rest(
        self, k: int, base: str, points: str, lanes: int, inside: Callable[[], CScope], point: Point
    ) -> list[str]:
        """Returns a loop over fewer points than a vector has, or as many, from `base` on."""
        count, same = self.body.writer.fresh(), self.body.writer.fresh()
        integer = "i32" if lanes * 4 >= VECTOR else "i64"
        scope = inside()
        scope.within = f"WITHIN(lane, {count})", f"WITHIN(lane, {same})"
        scope.lines.append(f"const i64 i{k} = {base} + lane;")
        point(scope)
        # Arrays of a block have room for whole vectors, and none for one more.
        loops = self.body.loops
        head = f"if ({count} > 0)" if loops.vector is not None and loops.inner else ""
        return [
            f"const {integer} {count} = {points};",
            f"{integer} {same} = {count};",
            f"HIDDEN({same});",
            *([f"{head} {{"] if head else []),
            "UNORDERED",
            f"for ({integer} lane = 0; lane < MASKED({lanes}, {count}); ++lane) {{",
            *scope.lines,
            "}",
            *(["}"] if head else []),
        ]


def quotient_by_size(
    moves: Callable[[Scalar], bool], scalar: Scalar, texts: Sequence[str]
) -> str | None:
    """Returns the C text of a row's quotient by a size: a product, which takes less time, if that
    is a power of two. It has the same bits. None for other values; `moves` tells those of points.
    """
    size = scalar.args[1].args[0] if scalar.op == "div" and scalar.args[1].op == "cast" else None
    if size is None or size.op != "const" or type(size.args[0]) is not SymInt:
        return None
    if scalar.dtype not in (dtypes.float32, dtypes.float64) or moves(scalar):
        return None
    a, b = texts
    return f"IS_POWER({size.args[0]}) ? {a} * (1 / {b}) : {a} / {b}"


def narrowed(kernel: Kernel) -> Kernel | None:
    """Returns a kernel for rows that fit a masked vector, with the bits of the kernel for others:
    reductions have no more lanes. None where there are no such reductions.

    The lanes that are left out hold identities, which change nothing.
    """
    inner = kernel.extents[kernel.space :]
    reduces = [each for each in kernel.body if type(each) is Reduce]
    lanes = _lanes_of([value.dtype for each in reduces for value in each.values])
    if len(inner) != 1 or type(inner[0]) is int or not lanes:
        return None
    if any(each.near != 1 or each.lanes < lanes for each in reduces):
        return None
    body = [attrs.evolve(x, lanes=lanes) if type(x) is Reduce else x for x in kernel.body]
    return attrs.evolve(kernel, body=tuple(body))


def _points(place: Range, count: int | None) -> tuple[str, str]:
    """Returns the C texts of the points of a range, and of those behind whole vectors, with {} for
    the first of these. `count` is the number of points if it is an expression."""
    begin, end = place
    if begin == 0 or is_part(place):
        return f"{end}" if begin == 0 else f"({end} - {begin})", f"{end} - {{}}"
    if count is not None and is_proved(count >= 0):
        return f"{count}", f"{end} - {{}}"
    return f"most({end} - ({begin}), 0)", f"most({end} - {{}}, 0)"


def _step(address: Affine, k: int) -> int | None:
    """Returns the elements by which an address moves along an axis; None if they are no number."""
    step = address.coefficients[k]
    return step if type(step) is int and not address.dynamic else None


def _lanes_of(kinds: list[DType]) -> int:
    """Returns how many values of these dtypes a vector has; 0 if they differ in size."""
    sizes = {kind.itemsize for kind in kinds}
    if len(sizes) != 1 or not sizes <= {4, 8} or any(kind.is_complex for kind in kinds):
        return 0
    return VECTOR // sizes.pop()
