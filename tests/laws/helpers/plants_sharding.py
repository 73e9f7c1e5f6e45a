"""Mistakes planted in what declarations claim: `linear` and `dims` (L13, L14)."""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.op import PureOp
from aotlite.ir.op.dims import along, elementwise, reduced_over, spelled
from tests.laws.helpers.planting import Change, plant


def _linear_in(*names: str) -> Change:
    return lambda op: attrs.evolve(op, linear=(names,))


def _linear_in_the_first_two(op: PureOp) -> PureOp:
    return attrs.evolve(op, linear=(tuple([p.name for p in op.schema.parameters[:2]]),))


def _with_dims(dims: Any) -> Change:
    return lambda op: attrs.evolve(op, dims=dims)


# -------------------------------------------------------------------- L13: f(a + a') = f(a) + f(a')
plant("L13", "it is bilinear", _linear_in_the_first_two, "mul", "matmul")
plant("L13", "it is not linear", _linear_in_the_first_two, "exp", "maximum")
plant("L13", "it is affine", _linear_in("self"), "addcmul", "addmm", "index_fill")
plant("L13", "it is the largest, no sum", _linear_in("self"), "amax")
plant("L13", "it divides by a sum", _linear_in("self"), "softmax")

# ------------------------------------------------------------------------- L14: parts and whole
plant("L14", "it sums along a dimension", _with_dims(elementwise), "softmax")
plant("L14", "it joins by another reduction", _with_dims(reduced_over("sum")), "amax")
plant("L14", "it counts an operand in each part", _with_dims(spelled("mk,kn->mn")), "addmm")
plant("L14", "it sums over other labels", _with_dims(spelled("noij,ocij->ncij")), "conv2d_input")
plant("L14", "it reads another dimension", _with_dims(along()), "gather")
plant("L14", "it turns a matrix over", _with_dims(spelled("mn->nm")), "fill")
