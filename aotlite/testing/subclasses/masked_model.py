"""The meaning of a masked tensor without wrappers: `MaskedModel`, the reference of the laws.

A reduction is the op on the list of kept elements, for each result. A pointwise op is the op on the
data; it keeps the elements that all operands keep. An op that moves elements moves the mask. The
data is dense and has a history, so that gradients are those of dense tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.op import OPS, Cost, Op, PureOp


class MaskedModel:
    """Data, and the mask of the elements that count."""

    def __init__(self, data: Tensor, mask: Tensor) -> None:
        self.data = data
        self.mask = mask

    def filled(self, value: float = 0) -> Tensor:
        """The data, with a number in place of the elements that do not count."""
        return al.where(self.mask, self.data, value)

    def __repr__(self) -> str:
        return f"MaskedModel({self.data!r}, {self.mask!r})"


class NotSaid(Exception):
    """Raised if no rule defines the result of an op on models; wrappers have to refuse it."""


def models_in(value: object) -> Iterator[MaskedModel]:
    """The models among arguments."""
    if isinstance(value, MaskedModel):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from models_in(each)
    elif isinstance(value, dict):
        yield from models_in(tuple(value.values()))


def data_of(value: object) -> Any:
    """Arguments with the data in place of models."""
    return _mapped(value, lambda x: x.data if isinstance(x, MaskedModel) else x)


def mask_of(value: Any) -> Any:
    """Arguments with masks in place of tensors; a dense tensor counts everywhere."""
    return _mapped(
        value, lambda x: x.mask if isinstance(x, MaskedModel) else al.full(x.shape, True)
    )


def _mapped(value: Any, function: Callable[[Any], object]) -> object:
    if isinstance(value, (tuple, list)):
        return type(value)([_mapped(each, function) for each in value])
    return function(value) if isinstance(value, (MaskedModel, Tensor)) else value


def everywhere(values: object, shape: Iterable[int]) -> Tensor:
    """The mask of a result of a shape: the elements at which all values count."""
    mask = al.full(tuple(shape), True)
    for each in models_in(values):
        mask = mask.logical_and(each.mask)
    return mask


# --------------------------------------------------------------------------------- ops by name
def apply(name: str, args: Any, kwargs: Any) -> object:
    """The result of an op of the table; ArgumentError for one that no rule speaks of."""
    op = OPS[name]
    pure = op if isinstance(op, PureOp) else None
    if op.views or (pure and pure.moves):
        return _moved(op, args, kwargs)
    if pure and (pure.neutral or name in _MORE_REDUCTIONS):
        return (_along if _keeps_shape(pure) else _reduced)(name, args, kwargs)
    if pure and pure.cost is Cost.CONTRACTION and len(pure.linear) == 2:
        return _product(name, args, kwargs)
    if name == "strided_accumulate":  # a sum of kept elements counts
        found = call(name, args[0].filled(), *args[1:], **kwargs)
        return MaskedModel(found, al.full(found.shape, True))
    if op.cost is Cost.POINTWISE or name == "fill":
        found = call(name, *data_of(args), **kwargs)
        return MaskedModel(found, everywhere(args, found.shape))
    raise NotSaid(f"{name} of a masked tensor is not said, expected a SubclassError")


_MORE_REDUCTIONS = ("mean", "var", "std", "linalg_vector_norm")


def _keeps_shape(op: PureOp) -> bool:
    """Whether it is a scan, or a softmax: the dimension `dim` is not reduced."""
    return any(p.name == "dim" and p.type.text == "int" for p in op.schema.parameters)


def _moved(op: Op, args: Any, kwargs: Any) -> MaskedModel | tuple[MaskedModel, ...]:
    found = call(op.name, *data_of(args), **kwargs)
    masks = [mask_of(args[0]), *args[1:]]
    for k, parameter in enumerate(op.schema.parameters[: len(args)]):
        if k and isinstance(op, PureOp) and parameter.name in op.moves:
            masks[k] = mask_of(args[k]) if isinstance(args[k], (Tensor, MaskedModel)) else True
    moved = call(op.name, *masks, **kwargs)
    if isinstance(found, tuple):
        return tuple([MaskedModel(*pair) for pair in zip(found, moved, strict=True)])
    return MaskedModel(found, moved)


def _dims(name: str, args: Any, kwargs: Any) -> list[int]:
    """The dimensions of a reduction."""
    bound = OPS[name].bind(data_of(tuple(args)), kwargs)
    named = {p.name: v for p, v in zip(OPS[name].schema.parameters, bound, strict=True)}
    dim, ndim = named.get("dim"), args[0].data.dim()
    given = range(ndim) if dim in (None, ()) else (dim,) if isinstance(dim, int) else dim
    return sorted({d % ndim for d in given} if ndim else set())


def _reduced(name: str, args: Any, kwargs: Any) -> MaskedModel:
    """For each element of the result, the op on the list of kept elements."""
    x, shape = args[0], call(name, *data_of(args), **kwargs).shape
    gone = _dims(name, args, kwargs)
    stay = [d for d in range(x.data.dim()) if d not in gone]
    rows = x.data.permute([*stay, *gone]).reshape([*[x.data.shape[d] for d in stay], -1])
    masks = x.mask.permute([*stay, *gone]).reshape(rows.shape)
    rows, masks = rows.reshape(-1, rows.shape[-1]), masks.reshape(-1, masks.shape[-1])
    found = [_one(name, rows[i][masks[i]], args, kwargs) for i in range(rows.shape[0])]
    counts = al.tensor([bool(masks[i].any().item()) for i in range(masks.shape[0])])
    whole = al.stack(found) if found else call(name, *data_of(args), **kwargs)
    return MaskedModel(whole.reshape(shape), counts.to(al.bool_).reshape(shape))


def _one(name: str, kept: Tensor, args: Any, kwargs: Any) -> object:
    """The op on one list; any value for an empty list, as it does not count."""
    named = {k: v for k, v in kwargs.items() if k != "keepdim"}
    extra = [args[1]] if name == "linalg_vector_norm" and len(args) > 1 else []
    if not kept.numel():
        kept = kept.new_zeros([2])
    if name == "logsumexp":
        return call(name, kept, (0,))
    return call(name, kept, *extra, **{k: v for k, v in named.items() if k != "dim"})


def _along(name: str, args: Any, kwargs: Any) -> MaskedModel:
    """For each row, the op on the list of kept elements, put back at their indices."""
    x, dim = args[0], args[1] % max(args[0].data.dim(), 1)
    if not x.data.dim():
        found = call(name, *data_of(args), **kwargs)
        return MaskedModel(found, x.mask)
    data, mask = x.data.movedim(dim, -1), x.mask.movedim(dim, -1)
    shape = data.shape
    rows, masks = data.reshape(-1, shape[-1]), mask.reshape(-1, shape[-1])
    more = args[2:]
    found = []
    for i in range(rows.shape[0]):
        kept = call(name, rows[i][masks[i]], 0, *more, **kwargs)
        found.append(kept.new_zeros([shape[-1]]).masked_scatter(masks[i], kept))
    whole = al.stack(found) if found else call(name, data, -1, *more, **kwargs)
    return MaskedModel(whole.reshape(shape).movedim(-1, dim), x.mask)


def _product(name: str, args: Any, kwargs: Any) -> MaskedModel:
    """A sum of the products whose factors are kept."""
    dense = [x.filled(0) if isinstance(x, MaskedModel) else x for x in args]
    terms = call(name, *[mask_of(x).to(dense[0].dtype) for x in args])
    return MaskedModel(call(name, *dense, **kwargs), terms > 0)
