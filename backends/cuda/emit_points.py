"""Kernels whose points are independent: a thread takes one after another.

Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aotlite.backends.c_family.emit_body import Body
from aotlite.backends.c_family.emit_geometry import Geometry
from aotlite.backends.c_family.emit_scalar import Scope
from aotlite.backends.cuda.emit_common import Code, constants_of, positions
from aotlite.backends.loops.program import Statement, Store

POINTS = 256
"""Threads of a block."""


def by_points(geometry: Geometry, body: Sequence[Statement], writer: Body) -> Code:
    """The loop of a thread over its points."""
    extents = geometry.extents
    axes = range(len(extents) if geometry.points else geometry.space)
    count = math.prod([extents[k] for k in axes])
    scope = Scope(writer.row, sum(1 << k for k in axes))
    writer.stores([each for each in body if type(each) is Store], scope)
    head = f"for (i64 point = blockIdx.x * {POINTS}ll + threadIdx.x; point < {count}; "
    head += f"point += gridDim.x * {POINTS}ll) {{"
    inside = [*positions(axes, extents, "point"), *writer.row.lines, *scope.lines]
    return Code([*constants_of(writer.row), head, *inside, "}"], -(-count // POINTS), POINTS)
