"""Ops on masked tensors, written in dense ops that compute the result's data and its mask.

A `MaskedData` stands for a masked operand: (its data, differentiable; its mask). `rule_of(op)`
returns the rule of an op. A rule takes the op's function and its canonical arguments, and returns
the result as a `MaskedData`, or NotImplemented. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, NamedTuple

from aotlite.eager.autograd.custom_function.function import Function
from aotlite.eager.base.modes import is_grad_enabled
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.op_functions import FUNCTIONS as ops
from aotlite.eager.subclass.protocol import has_function
from aotlite.ir.dtypes import FLOATING, bool_
from aotlite.ir.errors import noted
from aotlite.ir.op import Cost, Op, PureOp
from aotlite.subclasses.encoded import wrong


class MaskedData(NamedTuple):
    """The data of a masked tensor, and its mask: True for kept elements."""

    data: Tensor
    mask: Tensor

    def filled(self, value: object) -> Tensor:
        """The data, with a number in place of masked elements."""
        return ops.where(self.mask, self.data, value)


Rule = Callable[..., Any]
_RULES: dict[str, Rule] = {}
"""Rules of ops whose declaration does not say what happens to a mask."""


def _rule_for(name: str) -> Callable[[Rule], Rule]:
    def keep(rule: Rule) -> Rule:
        _RULES[name] = rule
        return rule

    return keep


def listed(data: Any, mask: Any) -> Any:
    """Nested lists of the data, with None where the mask is False."""
    if isinstance(mask, list):
        return [listed(*pair) for pair in zip(data, mask, strict=True)]
    return data if mask else None


def keeps_layout(data: Tensor, mask: Tensor) -> bool:
    """Whether a mask need not be copied: it has the data's strides, or these repeat elements."""
    same = mask.stride() == data.stride()
    return same or any(n > 1 and not s for n, s in zip(data.shape, data.stride(), strict=True))


def check_parts(cls: type[Any], data: Any, mask: Any) -> None:
    """Raises SubclassError for an invalid pair of data and mask (SUB-1)."""
    for name, part in {"data": data, "mask": mask}.items():
        if not isinstance(part, Tensor):
            raise wrong(cls, name, f"a {type(part).__name__}", "a tensor")
        if has_function(part):
            raise noted(
                wrong(cls, name, f"a {type(part).__name__} with a mask", "a tensor without one"),
                "Combine the masks with logical_and.",
            )
    if mask.dtype is not bool_ or mask.shape != data.shape:
        raise wrong(cls, "mask", mask.meta, f"bool of shape {tuple(data.shape)}")


def pairs_in(value: object) -> Iterator[MaskedData]:
    """The masked operands, in order."""
    if isinstance(value, MaskedData):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from pairs_in(each)


def part_of(value: Any, part: Callable[[Any], object]) -> Any:
    """The arguments with each tensor, masked or dense, replaced by `part(tensor)`."""
    if isinstance(value, (MaskedData, Tensor)):
        return part(value)
    return tuple([part_of(each, part) for each in value]) if isinstance(value, tuple) else value


def _data(value: object) -> Any:
    return value.data if isinstance(value, MaskedData) else value


def _mask(value: Any) -> object:
    return value.mask if isinstance(value, MaskedData) else ops.full(value.shape, True)


# ------------------------------------------------------------------------------ between elements
class _Where(Function):
    """The tensor itself; its gradient is set to 0 where a mask is False."""

    _is_formula = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        return ops.where(ctx.saved_tensors[0], grad, 0.0), None


@_rule_for("fill")
def pointwise(func: Rule, args: object, kwargs: dict[str, object]) -> MaskedData:
    """The rule of pointwise ops: an element is kept where all its operands' elements are."""
    mask = reduce(ops.logical_and, [each.mask for each in pairs_in(args)])
    dense = part_of(args, _data)
    shape = func.op.infer(func.op.bind(dense, kwargs)).shape  # type: ignore[attr-defined]
    if mask.shape != shape:
        mask = ops.clone(ops.expand(mask, shape))
    if is_grad_enabled():
        dense = part_of(dense, lambda x: _guarded(x, mask))
    return MaskedData(func(*dense, **kwargs), mask)


def _guarded(x: Tensor, mask: Tensor) -> Tensor:
    """The operand, without gradients from masked elements: their data is arbitrary, and 0 times
    infinity would be nan."""
    if not x.requires_grad or (not x.dim() and mask.dim()):
        return x
    return _Where.apply(ops.expand(x, mask.shape) if x.shape != mask.shape else x, mask)


# ------------------------------------------------------------------------------------ reductions
def _any(mask: Tensor, dim: object = None, keepdim: bool = False) -> Tensor:
    return ops.any(mask, (dim,) if isinstance(dim, int) else dim, keepdim)


def _without(func: Rule, args: Any, kwargs: Any) -> object:
    """The rule of reductions and scans: masked elements are the one that changes nothing."""
    x = args[0]
    found = func(x.filled(func.op.neutral(x.data.dtype)), *args[1:], **kwargs)  # type: ignore[attr-defined]
    kept = x.mask if found.shape == x.mask.shape else _any(x.mask, *args[1:3])
    return MaskedData(found, kept)


@_rule_for("mean")
def _mean(func: Rule, args: Any, kwargs: Any) -> object:
    x, dims = args[0], args[1:3]
    if not kwargs and x.data.dtype.kind < FLOATING:
        return NotImplemented
    total = ops.sum(x.filled(0), *dims, **kwargs)
    return MaskedData(total / ops.sum(x.mask, *dims), _any(x.mask, *dims))


@_rule_for("var")
def _variance(func: Rule, args: Any, kwargs: Any) -> object:
    (x, dim), keepdim = args, kwargs.get("keepdim", False)
    correction = kwargs.get("correction")
    if x.data.dtype.kind != FLOATING:
        return NotImplemented
    center = ops.sum(x.filled(0), dim, True) / ops.sum(x.mask, dim, True)
    apart = MaskedData(x.data - center, x.mask).filled(0)
    count = ops.sum(x.mask, dim, keepdim) - (1 if correction is None else correction)
    found = ops.sum(apart * apart, dim, keepdim) / ops.clamp(count, min=0)
    return MaskedData(found, _any(x.mask, dim, keepdim))


@_rule_for("std")
def _deviation(func: Rule, args: object, kwargs: object) -> Any:
    found = _variance(func, args, kwargs)
    return found if found is NotImplemented else MaskedData(ops.sqrt(found.data), found.mask)


@_rule_for("linalg_vector_norm")
def _norm(func: Rule, args: Any, kwargs: Any) -> object:
    x, order = args[:2]
    value = x.filled(0.0 if order >= 0 else math.inf)
    return MaskedData(func(value, *args[1:], **kwargs), _any(x.mask, *args[2:4]))


def _product(func: Rule, args: object, kwargs: Any) -> Any:
    """The rule of matrix products: masked elements count as 0; a result is kept if any of its
    terms has kept factors only."""
    dense = part_of(args, lambda x: x.filled(0) if isinstance(x, MaskedData) else x)
    terms = func(*part_of(args, lambda x: ops.cast(_mask(x), dense[0].dtype)))
    return MaskedData(func(*dense, **kwargs), terms != 0)


# ---------------------------------------------------------------------------------------- moves
def moved(func: Rule, args: Any, kwargs: Any) -> Any:
    """The rule of ops that move elements, and the mask with them. Dense operands keep all."""
    op = func.op  # type: ignore[attr-defined]
    masks = []
    for k, (parameter, value) in enumerate(zip(op.schema.parameters, args, strict=False)):
        if parameter.name in op.moves if isinstance(op, PureOp) else not k:
            masks.append(part_of(value, _mask) if isinstance(value, _OPERANDS) else True)
        elif any(True for _ in pairs_in(value)) or (parameter.name == "accumulate" and value):
            return NotImplemented  # an index cannot be masked
        else:
            masks.append(value)
    return MaskedData(func(*part_of(args, _data), **kwargs), func(*masks, **kwargs))


_OPERANDS = (MaskedData, Tensor, tuple)


@_rule_for("strided_accumulate")
def _accumulated(func: Rule, args: Any, kwargs: Any) -> object:
    """The rule of accumulations: masked elements add nothing, and all sums are kept."""
    found = func(args[0].filled(0), *args[1:], **kwargs)
    return MaskedData(found, ops.full(found.shape, True))


def rule_of(op: Op) -> Rule | None:
    """The rule of an op on masked tensors; None if it has none."""
    if isinstance(op, PureOp):
        if op.cost is Cost.POINTWISE:
            return pointwise
        if op.moves:
            return moved
        if op.neutral is not None:
            return _without
        if op.cost is Cost.CONTRACTION and len(op.linear) == 2:  # linear in either factor
            return _product
    return _RULES.get(op.name)
