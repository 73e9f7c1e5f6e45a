"""One kernel as the body of a CUDA C++ function: the choice among three templates.

*By points* if all points are independent (`pointwise_kernels.py`), *by stripes* if it only scatters
(`owner_scatter.py`), else *by rows*, each reduced by a team of threads (`reduction_kernels.py`).
Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from aotlite.backends.c_family.axis_passes import of_no_points
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import FunctionTexts, KernelFacts
from aotlite.backends.cuda.emit.kernel_code import IndexTypes, KernelCode, apart, is_sized
from aotlite.backends.cuda.emit.memory_accesses import of_passes
from aotlite.backends.cuda.emit.owner_scatter import OwnerScatter, is_by_stripes
from aotlite.backends.cuda.emit.pointwise.pointwise_kernels import PointwiseKernel
from aotlite.backends.cuda.emit.reductions.reduction_kernels import ReductionKernel
from aotlite.backends.cuda.emit.reductions.thread_layout import ThreadLayout, hands_over, layout_of
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.analysis.affine import unit
from aotlite.backends.loops.program import Kernel, ProgramBuffer, Statement, Store, in_order
from aotlite.backends.loops.rewrite import marked, moved_body, without_lets


def body_of(
    kernel: Kernel,
    buffers: Mapping[int, ProgramBuffer],
    library: FunctionTexts,
    target: Target,
    *,
    wide: bool = False,
) -> KernelCode:
    """Returns the body of a kernel, which must have at least one row. `wide`: one for all sizes
    counts its points in 64 bits."""
    kernel = _with_inner_axis(without_lets(kernel))
    body, extents = list(kernel.body), kernel.extents
    geometry = LoopGeometry(extents, kernel.space, None, 1, ordered=in_order(kernel))
    if geometry.points == 0:
        body = of_no_points(body)
    index = IndexTypes.of(extents, body, wide=wide)
    sizes = {number: buffer.size for number, buffer in buffers.items()}
    facts = KernelFacts(extents, kernel.space, sizes, {}, kernel.space == len(extents))
    kinds = {number: buffer.dtype for number, buffer in buffers.items()}
    if _is_by_points(body, geometry):
        stores = [each for each in body if type(each) is Store]
        facts = attrs.evolve(facts, extents=tuple([n if n else 1 for n in facts.extents]))
        points = PointwiseKernel(geometry, facts, stores, buffers, library, target, index)
        return points.printed()
    if is_by_stripes(body, geometry) and isinstance(body[0], Store):
        return OwnerScatter(geometry, facts, body[0], buffers, library, index).printed(target)
    layout, axis = layout_of(kernel, target.multiprocessors)
    given = (geometry, body, hands_over(kernel, layout), layout, axis, index)
    rows = ReductionKernel(*given)
    code = rows.printed(facts, kinds, library, target)
    if is_sized(extents, body):
        most = None if type(geometry.points) is int else layout.most_points(geometry.points)
        if most is None:
            return code
        facts = attrs.evolve(facts, name_axes={}, axes={}, safe={})
        bounded = ReductionKernel(*given, most)
        short = bounded.printed(facts, kinds, library, target)
        if not bounded.steps.keeping.is_any:
            return code
        return attrs.evolve(code, short=(geometry.points, most, short))
    keeping, fast = rows.steps.keeping, _fast(kernel, layout, axis)
    fresh = [each for each in keeping.sums if each.from_identity]
    sweeps = of_passes(rows.passes, rows.body.facts, keeping.loads, fast, fresh)
    return attrs.evolve(code, sweeps=tuple(sweeps))


def _fast(kernel: Kernel, layout: ThreadLayout, axis: int) -> int | None:
    """Returns the axis along which neighboring threads compute neighboring points: of teams of
    one thread the last space axis, since each thread has a row."""
    if layout.along and layout.team == 1:
        return kernel.space - 1 if kernel.space else None
    return axis


def _with_inner_axis(kernel: Kernel) -> Kernel:
    """Returns the kernel with an inner axis of one point if it reduces and has no inner axis."""
    count = len(kernel.extents) + 1
    if kernel.space < count - 1 or all(type(each) is Store for each in kernel.body):
        return kernel
    body = moved_body(kernel.body, tuple([unit(k, count) for k in range(count - 1)]), count)
    body = tuple([marked(each, True) if type(each) is Store else each for each in body])
    return attrs.evolve(kernel, extents=(*kernel.extents, 1), body=body)


def _is_by_points(body: Sequence[Statement], geometry: LoopGeometry) -> bool:
    """Whether all points, also those of inner axes, are independent."""
    stores = [each for each in body if type(each) is Store]
    if geometry.ordered or len(stores) < len(body):
        return False
    every = range(len(geometry.extents))
    if not geometry.inner or not geometry.points:
        return True
    if len({store.buffer for store in stores}) < len(stores):
        return False
    ordered = [store for store in stores if not store.unordered]
    return apart(ordered, geometry.extents, every)
