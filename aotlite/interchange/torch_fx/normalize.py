"""The normal form of a graph for torch.fx: ops that PyTorch lacks, in ops that it has.

    t_(x)                 t(x): a graph's value has one geometry
    hidden_alias(x)       alias(x): version counters are not part of a graph
    real(x)               clone(select(view_as_real(x), -1, 0))
    batch_norm_train      its `expands`
    unfold_scatter        a slice_scatter for each window
    strided_accumulate    index_add at the places of the view
    where(mask, x, y)     where(cast(mask, bool), x, y), of a mask of bytes
    restride(x, (0, 1))   expand(restride(slice(x, 0, 0, 1), (1, 1)), shape)

It is the fixed point of crossing: `from_fx(to_fx(graph))` is `normal_form(graph)`, node by node.
Spec: `specs/torch_fx.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aotlite.ir.dtypes import bool_, int64, uint8
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Proxy
from aotlite.ir.op import OPS, GeometryOp, Op
from aotlite.ir.run.transform import Transformer


def normal_form(graph: Graph) -> Graph:
    """The graph in ops that `to_fx` writes, as far as there are such ops.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("turned")
    >>> turned = build.finish([build.placeholder(tensor_meta((2, 3))).t_()])
    >>> [node.target.name for node in normal_form(turned).calls]
    ['t']
    """
    if not any(is_rewritten(node.target) for node in graph.calls):
        return graph
    return _Normalization(graph).transform()


def is_rewritten(op: Op) -> bool:
    """Whether the normal form has other ops in the place of this one."""
    return isinstance(op, GeometryOp) or op.name in _SIMPLER


class _Normalization(Transformer):
    """Rebuilds a graph in the ops of the normal form."""

    def call(self, target: Op, args: tuple[Any, ...]) -> Any:
        if isinstance(target, GeometryOp):
            return super().call(target.view, args)
        simpler = _SIMPLER.get(target.name)
        return super().call(target, args) if simpler is None else simpler(*args)


def _real(self: Proxy) -> Any:
    if not self.meta.dtype.is_complex:
        return self.clone()
    wide = self._do("view_as_real")
    return wide._do("select", len(wide.meta.shape) - 1, 0).clone()


def _expanded(name: str) -> Callable[..., Any]:
    op: Any = OPS[name]
    parameters = op.schema.parameters

    def function(*args: Any) -> Any:
        positional = [v for p, v in zip(parameters, args, strict=True) if not p.keyword_only]
        named = {p.name: v for p, v in zip(parameters, args, strict=True) if p.keyword_only}
        return op.expands(*positional, **named)

    return function


def _where(self: Proxy, value: Any, other: Any) -> Any:
    return _as_mask(self)._do("where", value, other)


def _masked_fill(self: Proxy, mask: Proxy, value: Any) -> Any:
    return self._do("masked_fill", _as_mask(mask), value)


def _as_mask(mask: Proxy) -> Proxy:
    """The mask as bools, which PyTorch wants."""
    return mask if mask.meta.dtype is bool_ else mask._do("cast", bool_)


def _place_of(name: str) -> Callable[..., Any]:
    def function(self: Proxy, dim: Any, keepdim: bool) -> Any:
        given = self._do("cast", uint8) if self.meta.dtype is bool_ else self
        return given._do(name, dim, keepdim)

    return function


def _nansum(self: Proxy, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return self._do("nansum", dim or None, keepdim, dtype=dtype)


# ------------------------------------------------------------------------ elements of one address
def _spread(size: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    """The dimensions along which all elements have one address."""
    pairs = enumerate(zip(size, stride, strict=True))
    return [dim for dim, (length, step) in pairs if length > 1 and not step]


def _restride(self: Proxy, stride: tuple[int, ...]) -> Any:
    """Elements of one address have one value: the first of them is copied, and expanded."""
    shape = self.meta.shape
    for dim in (spread := _spread(shape, stride)):
        self = self._do("slice", dim, 0, 1, 1)
    steps = tuple([1 if dim in spread else step for dim, step in enumerate(stride)])
    copied = self._do("restride", steps)
    return copied._do("expand", shape) if spread else copied


def _as_strided_scatter(self: Proxy, src: Proxy, size: Any, stride: Any, offset: int) -> Any:
    """Of elements of one address the last one is written."""
    kept = [dim for dim in range(len(size)) if dim not in _spread(size, stride)]
    for dim in reversed(_spread(size, stride)):
        src = src._do("select", dim, size[dim] - 1)
    window = tuple([size[dim] for dim in kept]), tuple([stride[dim] for dim in kept])
    return self._do("as_strided_scatter", src, *window, offset)


def _with_pairs(name: str) -> Callable[..., Any]:
    """The op with each tuple of one number from the second on as a pair."""

    def function(self: Proxy, *args: Any) -> Any:
        return self._do(name, *[_pair(each) for each in args])

    return function


def _pair(value: Any) -> Any:
    return value * 2 if type(value) is tuple and len(value) == 1 else value


# ------------------------------------------------------------------------------ adjoints of views
def _places(self: Proxy, size: tuple[int, ...]) -> Proxy:
    """The position of each element of a row-major tensor of this size."""
    count = math.prod(size)
    return self._apply(OPS["arange_of"], (count, 0, 1, int64, self.meta.device))._do("view", size)


def _added_at(grad: Proxy, size: tuple[int, ...], places: Proxy) -> Proxy:
    """Zeros of `size`, with each element of `grad` added at its place."""
    room = grad._filled((math.prod(size),), 0.0, grad.meta.dtype, grad.meta.device)
    numbers = (grad.meta.numel,)
    source, index = grad._do("reshape_copy", numbers), places._do("reshape_copy", numbers)
    return room._do("index_add", 0, index, source)._do("view", size)


def _strided_accumulate(self: Proxy, size: Any, stride: Any, offset: int) -> Any:
    flat = _places(self, (math.prod(size),))
    return _added_at(self, size, flat._do("as_strided", self.meta.shape, stride, offset))


def _circular_pad_backward(self: Proxy, size: Any, padding: Any) -> Any:
    return _added_at(self, size, _places(self, size)._do("circular_pad", padding))


def _unfold_scatter(self: Proxy, src: Proxy, dimension: int, size: int, step: int) -> Any:
    result, rank = self, len(self.meta.shape)
    dim = dimension % rank if rank else 0
    order = (*range(dim), rank - 1, *range(dim, rank - 1))
    for k in range(src.meta.shape[dim] if rank else 0):
        part = src._do("select", dim, k)._do("permute", order)
        result = result._do("slice_scatter", part, dim, k * step, k * step + size, 1)
    return result if rank else self._do("copy", src._do("view", ()))


_SIMPLER: dict[str, Callable[..., Any]] = {
    "hidden_alias": lambda self: self._do("alias"),
    "real": _real,
    "batch_norm_train": _expanded("batch_norm_train"),
    "where": _where,
    "masked_fill": _masked_fill,
    "argmax": _place_of("argmax"),
    "argmin": _place_of("argmin"),
    "nansum": _nansum,
    "amax": lambda self, dim, keepdim: self._do("amax", dim or None, keepdim),
    "amin": lambda self, dim, keepdim: self._do("amin", dim or None, keepdim),
    "conv2d_input": _with_pairs("conv2d_input"),
    "conv2d_weight": _with_pairs("conv2d_weight"),
    "adaptive_avg_pool2d": _with_pairs("adaptive_avg_pool2d"),
    "adaptive_max_pool2d": _with_pairs("adaptive_max_pool2d"),
    "restride": _restride,
    "as_strided_scatter": _as_strided_scatter,
    "strided_accumulate": _strided_accumulate,
    "circular_pad_backward": _circular_pad_backward,
    "unfold_scatter": _unfold_scatter,
}
"""Op -> its form in ops and arguments that PyTorch has."""
