"""Mistakes in gradient formulas, and in their saved values."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from aotlite import from_numpy
from aotlite.ir.op import Formula, Source, Vjp
from tests.laws.helpers.planting import Change, plant, with_formula, with_formulas, with_kernel


# ------------------------------------------------------------------------------- L2: the gradient
def _negated(formula: Formula) -> Formula:
    def function(*values: Any) -> Any:
        grad = formula.function(*values)
        return None if grad is None else -grad

    return Formula(function, formula.sources)


plant(
    "L2",
    "the sign is wrong",
    with_formula(_negated),
    *("mul", "sum", "matmul", "index_add", "select", "split", "mul_", "transpose_"),
)
plant("L2", "it gives overwritten values a gradient", with_formulas(self=lambda grad: grad), "fill")
plant(
    "L2",
    "the second order is cut off",
    with_formulas(self=lambda grad, result: grad * result.detach()),
    "exp",
)
plant(
    "L2",
    "an operand has no formula",
    lambda op: attrs.evolve(op, vjp=Vjp({0: op.vjp.formulas[0]})),
    "add",
)


# -------------------------------------------------------------------------------------- L7: saves
def _from_a_kept_operand(position: int, formula: Any) -> Change:
    """The kernel keeps an operand for the formula, past the table of what is saved."""
    kept: list[Any] = []

    def keep(result: Any, args: tuple[Any, ...]) -> Any:
        kept[:] = [args[position]]
        return result

    def changed(op: Any) -> Any:
        return with_formulas(self=formula(lambda: from_numpy(kept[0])))(with_kernel(keep)(op))

    return changed


def _from_a_kept_result(op: Any) -> Any:
    kept: list[Any] = []

    def keep(results: Any, args: tuple[Any, ...]) -> Any:
        # The array that the result adopts.
        kept[:] = [np.array(results[1])]
        return results[0], kept[0]

    def formula(grad_values: Any, self_meta: Any, dim: Any, keepdim: Any) -> Any:
        places = from_numpy(kept[0])
        if not keepdim:
            grad_values, places = grad_values.unsqueeze(dim), places.unsqueeze(dim)
        return grad_values.new_zeros(self_meta.shape).scatter_add(dim, places, grad_values)

    return with_formulas(self=formula)(with_kernel(keep)(op))


def _surplus(extra: Source, index: int = 0) -> Change:
    def changed(formula: Formula) -> Formula:
        count = len(formula.sources)
        return Formula(
            lambda *values: formula.function(*values[:count]), (*formula.sources, (extra, index))
        )

    return with_formula(changed)


SURPLUS = _surplus(Source.OPERAND)
plant(
    "L7",
    "an operand is saved for nothing",
    SURPLUS,
    "add",
    "sum",
    "matmul",
    "index_add",
    "fill",
    "add_",
)
plant("L7", "a result is saved for nothing", _surplus(Source.RESULT), "mul", "sum", "mul_")
# The history of a view is made without its operand: there is nothing to read in the backward.
plant("L7", "a view saves its operand", SURPLUS, "select", "transpose_", also=("L2", "L8"))
plant("L7", "a view of several results saves its operand", SURPLUS, "split")
plant(
    "L7",
    "the index is kept and not saved",
    _from_a_kept_operand(
        2,
        lambda index: (
            lambda grad, self_meta, dim: grad.new_zeros(self_meta.shape).scatter_add(
                dim, index(), grad
            )
        ),
    ),
    "gather",
)
plant(
    "L7",
    "the mask is kept and not saved",
    _from_a_kept_operand(1, lambda mask: lambda grad: grad.masked_fill(mask(), 0)),
    "masked_fill",
)
plant("L7", "the places are kept and not saved", _from_a_kept_result, "max_dim")


# ---------------------------------------------------------------------------------- L8: linearity
def _clipped(formula: Formula) -> Formula:
    def clipped(source: Source, value: Any) -> Any:
        match source:
            case Source.GRAD:
                return value.clamp(-8.0, 8.0)
            case Source.GRADS_OR_NONE:
                return [None if each is None else each.clamp(-8.0, 8.0) for each in value]
        return value

    def function(*values: Any) -> Any:
        pairs = zip(formula.sources, values, strict=True)
        return formula.function(*[clipped(source, value) for (source, *_), value in pairs])

    return Formula(function, formula.sources)


plant(
    "L8",
    "large gradients are clipped",
    with_formula(_clipped),
    *("mul", "sum", "matmul", "index_add", "select", "split", "mul_", "transpose_"),
)
plant("L8", "None stands for zeros", with_formulas(self=lambda grad: None), "fill", "floor")


# ----------------------------------------------------------------------------- data-dependent ops
plant("L2", "the sign is wrong", with_formula(_negated), "masked_select")
plant("L7", "a result is saved for nothing", _surplus(Source.RESULT), "masked_select")
plant("L8", "large gradients are clipped", with_formula(_clipped), "masked_select")
