"""Tensors repeated: `repeat`, `tile`."""

from __future__ import annotations

from typing import Any

from aotlite.ir.errors import ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.ops.declare import pure


def _repeat_rule(self: TensorMeta, repeats: tuple[int, ...]) -> TensorMeta:
    more = len(repeats) - len(self.shape)
    if more < 0:
        raise ShapeError(
            f"repeat: argument 'repeats' is {repeats}, expected at least {len(self.shape)} numbers "
            f"for shape {self.shape}"
        )
    if any(n < 0 for n in repeats):
        raise ShapeError(f"repeat: argument 'repeats' is {repeats}, expected no negative number")
    wide = (1,) * more + self.shape
    shape = tuple(n * times for n, times in zip(wide, repeats, strict=True))
    return tensor_meta(shape, None, self.dtype, self.device)


def _repeat_kernel(xp: Any, meta: TensorMeta, a: Any, repeats: tuple[int, ...]) -> Any:
    # NumPy tiles what is not to be repeated at all, too.
    return xp.tile(a, repeats) if meta.numel else xp.zeros(meta.shape, dtype=meta.dtype.numpy)


def _repeat_vjp(grad: Any, self_meta: TensorMeta, repeats: tuple[int, ...]) -> Any:
    shape = self_meta.shape
    more = len(repeats) - len(shape)
    if any(n == 0 for n in repeats):
        return grad.new_zeros(shape)
    split = list(repeats[:more])
    dims = list(range(more))
    for times, size in zip(repeats[more:], shape, strict=True):
        dims.append(len(split))
        split += [times, size]
    return grad.reshape(split).sum(dims) if dims else grad


def _repeat_loops(k: Any, meta: TensorMeta, a: Any, repeats: tuple[int, ...]) -> Any:
    out, more = k.new(meta), len(repeats) - a.ndim
    wide = (1,) * more + a.shape
    shape = [part for pair in zip(repeats, wide, strict=True) for part in pair]
    steps = zip(wide, meta.stride, strict=True)
    stride = [step for n, s in steps for step in (n * s, s)]  # from one copy to the next, inside
    k.store(out.view(shape, stride), lambda *i: a[i[1::2][more:]])
    return out


REPEAT: PureOp = pure(
    "repeat(Tensor self, int[] repeats) -> Tensor",
    meta=_repeat_rule,
    kernel=_repeat_kernel,
    loops=_repeat_loops,
    vjp={"self": _repeat_vjp},
    cost=Cost.INDEXING,
)
"""The tensor so many times along each dimension, and along new ones in front."""


@composite("repeat(Tensor self, int[] repeats) -> Tensor", spread=True)
def repeat(self: Any, repeats: tuple[int, ...]) -> Any:
    """The tensor so many times along each dimension, and along new ones in front."""
    return self._do("repeat", repeats)


@composite("tile(Tensor self, int[] dims) -> Tensor", spread=True)
def tile(self: Any, dims: tuple[int, ...]) -> Any:
    """`repeat`, with ones in front where there are fewer numbers than dimensions."""
    return self._do("repeat", (1,) * (len(self.shape) - len(dims)) + dims)
