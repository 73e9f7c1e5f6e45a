"""`MaskedTensor`: a tensor with some elements masked out.

It stands for the elements that the mask keeps. Its `__tensor_function__` replaces each op by dense
ones (`masked_ops`) before autograd records it, so that gradients are those of the kept elements.
Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from string import Formatter
from typing import Any

from aotlite.eager.autograd.custom_function.function import Function
from aotlite.eager.base.modes import is_grad_enabled
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.op_functions import FUNCTIONS as ops
from aotlite.eager.subclass.op_functions import function_of
from aotlite.eager.subclass.protocol import GradientForm, gradient_form, tangent_form, whole
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.op import Op
from aotlite.ir.ops.effects import PRINT
from aotlite.subclasses.encoded import EncodedTensor
from aotlite.subclasses.masked_ops import MaskedData, check_parts, keeps_layout, listed, rule_of


class MaskedTensor(Tensor):
    """A tensor with a mask of its shape: True where an element is kept.

    A pointwise op keeps the elements that all operands keep; a dense operand keeps all. A reduction
    ignores masked elements, and keeps a result that has at least one element. An in-place op writes
    the elements that all operands keep, and leaves the rest and the mask unchanged. Gradients have
    the tensor's mask; those of dense operands are dense. A mask with other strides than the data is
    copied, unless the data repeats elements.

    >>> import aotlite as al
    >>> x = MaskedTensor(al.tensor([1.0, 2.0, 3.0]), al.tensor([True, False, True]))
    >>> x.mean().filled(0.0), (x * al.tensor([1.0, 1.0, 5.0])).tolist()
    (tensor(2.), [1.0, None, 15.0])
    >>> x.requires_grad_().square().sum().backward()
    >>> x.grad.tolist()
    [2.0, None, 6.0]
    """

    data: Tensor
    mask: Tensor

    def __new__(cls, data: Tensor, mask: Tensor, *, requires_grad: bool = False) -> MaskedTensor:
        check_parts(cls, data, mask)
        geometry: Any = {"dtype": data.dtype, "device": data.device}
        made: Any = Tensor._make_wrapper_subclass(cls, data.shape, data.stride(), **geometry)
        made.data = data.detach() if data.requires_grad_outside() else data
        made.mask = mask if keeps_layout(data, mask) else ops.restride(mask, data.stride())
        return made.requires_grad_() if requires_grad else made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["data", "mask"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, Tensor], spec: None, outer_size: object, outer_stride: object
    ) -> MaskedTensor:
        return cls(inner["data"], inner["mask"])

    def filled(self, value: float) -> Tensor:
        """A dense tensor with a number in place of masked elements; differentiable."""
        return _kept(self).filled(value)

    def tolist(self) -> object:
        """The elements as nested lists, None for masked ones."""
        return listed(self.data.tolist(), self.mask.tolist())

    def __coerce_tangent_metadata__(self) -> Tensor:
        return tangent_form(self.filled(0.0))  # an absent gradient is zeros, not masked

    def __coerce_same_metadata_as_tangent__(self, spec: object, kind: object = None) -> Tensor:
        """The gradient, dense, with zeros for masked elements, in the form of the data's class."""
        found = self.filled(0.0)
        method = getattr(found, "__coerce_same_metadata_as_tangent__", None)
        formed = None if method is None else method(spec, kind)
        return found if formed is None else formed

    def __tensor_gradient_form__(self) -> GradientForm:
        """Gradients have this mask, with 0 where they were masked and this tensor is not."""
        return partial(_masked, self.mask, gradient_form(self.data))

    def __tensor_coerce_gradient__(self, gradient: Tensor) -> Tensor:
        return _masked(self.mask, None, gradient)

    @classmethod
    def __tensor_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> object:
        op: Op = func.op  # type: ignore[attr-defined]
        inside = tuple({type(x.data) for x in args if isinstance(x, MaskedTensor)} - {Tensor})
        if not all(issubclass(kind, (MaskedTensor, EncodedTensor, *inside)) for kind in types):
            return NotImplemented
        if op.writes:
            return _write(op, args, kwargs)
        found = _computed(op, args, kwargs)
        return found if found is NotImplemented else masked_tensor(*found)

    @classmethod
    def __tensor_dispatch__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> object:
        x, rest = args[0], args[1:]
        if func.op.views:  # type: ignore[attr-defined]
            apart = func.__name__ == "as_strided" and x.data.stride() != x.mask.stride()
            if apart or getattr(func.op, "recasts", False):  # type: ignore[attr-defined]
                return NotImplemented
            data, mask = func(x.data, *rest), func(x.mask, *rest)
            if isinstance(data, tuple):
                return tuple([cls(*pair) for pair in zip(data, mask, strict=True)])
            return cls(data, mask)
        if func.op is PRINT:  # type: ignore[attr-defined]
            return func(*_printed(*args), **kwargs)
        if _is_own_write(func.op, args):  # type: ignore[attr-defined]
            func(x.data, *[each.data if isinstance(each, cls) else each for each in rest])
            return x
        return NotImplemented


def _printed(format: str, tensors: tuple[Tensor, ...]) -> tuple[str, tuple[Tensor, ...]]:
    """A format and its tensors, with data and mask in the place of each masked tensor."""
    text, count = "", 0
    shown: list[Tensor] = []
    for literal, name, how, conversion in Formatter().parse(format):
        text += literal.replace("{", "{{").replace("}", "}}")
        if name is None:
            continue
        tensor = tensors[int(name or count)]
        count += 1
        field = f"{'!' + conversion if conversion else ''}{':' + how if how else ''}"
        if isinstance(tensor, MaskedTensor):
            text += f"MaskedTensor(data={{{len(shown)}{field}}}, mask={{{len(shown) + 1}}})"
            shown += [tensor.data, tensor.mask]
        else:
            text += f"{{{len(shown)}{field}}}"
            shown.append(tensor)
    return text, tuple(shown)


def masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A masked tensor of data that may require grad; its gradient is 0 where the mask is False."""
    if is_grad_enabled() and data.requires_grad:
        return _Made.apply(data, mask)
    return MaskedTensor(data, mask)


class _Made(Function):
    """Builds a masked tensor from data and a mask."""

    _is_formula = True

    @staticmethod
    def forward(ctx: Any, data: Tensor, mask: Tensor) -> object:
        ctx.save_for_backward(mask)
        return MaskedTensor(data.detach(), mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        return ops.where(ctx.saved_tensors[0], _zeroed(grad), 0.0), None


class _Data(Function):
    """The data of a masked tensor. Its gradient is masked."""

    _is_formula = True

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x.mask)
        return x.data.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> object:
        (mask,) = ctx.saved_tensors
        return masked_tensor(ops.where(mask, _zeroed(grad), 0.0), mask)


def _masked(mask: Tensor, form: GradientForm | None, grad: Tensor | None) -> MaskedTensor:
    """A gradient with this mask, its data in the data's gradient form (SUB-24)."""
    if isinstance(grad, MaskedTensor) and grad.mask is mask:
        if form is None or form is whole and whole(grad.data) is grad.data:
            return grad
    data = ops.where(mask, _zeroed(grad), 0.0)
    return masked_tensor(data if form is None else form(data), mask)


def _zeroed(grad: Tensor | None) -> object:
    return grad.filled(0.0) if isinstance(grad, MaskedTensor) else grad


def _kept(value: object, written: object = None) -> Any:
    """The arguments with `MaskedData` in place of masked tensors; copies of those to be written."""
    if isinstance(value, MaskedTensor):
        tracked = is_grad_enabled() and value.requires_grad
        data = _Data.apply(value) if tracked else value.data
        return MaskedData(ops.clone(data) if value.storage is written else data, value.mask)
    if isinstance(value, tuple):
        return tuple([_kept(each, written) for each in value])
    return value


def _computed(op: Any, args: Any, kwargs: Any, written: Any = None) -> Any:
    """(data, mask) of an op's result, with the op's strides. Gradients use the old values of the
    storage `written`."""
    rule = rule_of(op)
    found = NotImplemented if rule is None else rule(function_of(op), _kept(args, written), kwargs)
    if found is NotImplemented:
        return found
    stride = op.infer(op.bind(args, kwargs)).stride
    same = found.data.stride() == stride
    return found if same else MaskedData(ops.restride(found.data, stride), found.mask)


def _is_own_write(op: Op, args: Any) -> bool:
    """Whether a write goes to the data directly: of a number, or of the result of `_write`."""
    target, *others = args
    if not isinstance(target, MaskedTensor):
        return False
    if op.name != "copy_":
        return op.name == "fill_"
    return others[0] is target or getattr(others[0], "made_for", None) is target


def _write(op: Any, args: Any, kwargs: object) -> object:
    """Writes the target by a copy of its new value; returns it."""
    target = args[0]
    if _is_own_write(op, args):
        return NotImplemented
    if not isinstance(target, MaskedTensor):
        raise noted(
            SubclassError(
                f"{op.name}: the tensor that is written is a {type(target).__name__}, expected a "
                "MaskedTensor, which a MaskedTensor is written to"
            ),
            "A plain tensor has no mask: write filled(value) to it. (SUB-15)",
        )
    found = _computed(op.functional, args, kwargs, target.storage)
    if found is NotImplemented:
        return found
    before = _kept(target)
    written = ops.logical_and(before.mask, found.mask)
    after = ops.where(written, found.data.to(target.dtype), before.data)
    made: Any = masked_tensor(after, target.mask)
    made.made_for = target
    return ops.copy_(target, made)
