"""Draws of categories by their weights: multinomial."""

from __future__ import annotations

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.index.search import bisected
from aotlite.ir.ops.random.forms import drawn
from aotlite.ir.ops.random.philox import PhiloxStream, draw


def _multinomial_rule(self: TensorMeta, num_samples: int, replacement: bool) -> TensorMeta:
    op = "multinomial"
    if len(self.shape) not in (1, 2):
        raise ShapeError(
            f"{op}: argument 'self' has shape {self.shape}, expected 1 or 2 dimensions"
        )
    if not self.dtype.is_floating_point or self.dtype.itemsize < 2:
        raise DTypeError(f"{op}: dtype is {self.dtype}, expected a floating one of 16 bits or more")
    if num_samples < 1:
        raise ArgumentError(f"{op}: num_samples is {num_samples}, expected at least 1")
    if not replacement and num_samples > self.shape[-1]:
        raise ArgumentError(
            f"{op}: num_samples is {num_samples}, expected at most {self.shape[-1]}, the number of "
            "categories, without replacement"
        )
    shape = (*self.shape[:-1], num_samples)
    return tensor_meta(shape, None, dtypes.int64, self.device)


def _block_each(meta: TensorMeta) -> int:
    """A block of four words for each sample."""
    return 4 * meta.numel


def _multinomial_kernel(
    stream: PhiloxStream, meta: TensorMeta, weights: Array, count: int, replacement: bool
) -> Array:
    xp = stream.xp
    p = xp.reshape(xp.astype(weights, xp.float64), (-1, weights.shape[-1]))
    if not bool(xp.all(xp.isfinite(p) & (p >= 0))):
        raise ArgumentError(
            "multinomial: a weight is negative, infinite or nan, expected 0 or more"
        )
    least = 1 if replacement else count
    if bool(xp.any(xp.count_nonzero(p, axis=-1) < least)):
        raise ArgumentError(
            f"multinomial: fewer than {least} weights of a row are above 0, expected as many"
        )
    choose = _with_replacement if replacement else _without_replacement
    return xp.reshape(xp.astype(choose(stream, p, count), xp.int64), meta.shape)


def _without_replacement(stream: PhiloxStream, p: Array, count: int) -> Array:
    """The categories whose exponential times, of rates p, are the shortest.

    Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006).
    """
    xp = stream.xp
    times = -xp.log1p(-stream.grid(*p.shape))
    times = xp.where(p > 0, times / xp.where(p > 0, p, 1), xp.inf)
    return xp.argsort(times, axis=-1)[:, :count]


def _with_replacement(stream: PhiloxStream, p: Array, count: int) -> Array:
    """The category in whose part of the line from 0 to the sum of the weights a number lies."""
    xp = stream.xp
    ends = xp.cumulative_sum(p, axis=-1)
    numbers = stream.grid(p.shape[0], count) * ends[:, -1:]
    # Where the sum overflows a number may be nan, which is before every end.
    found = bisected(xp, ends, xp.where(xp.isnan(numbers), -1.0, numbers), right=True)
    # A number may be rounded up to the end of the line: to its last category that has a part.
    last = p.shape[-1] - 1 - xp.argmax(xp.flip(p > 0, axis=-1), axis=-1)
    return xp.minimum(found, last[:, None])


MULTINOMIAL = draw(
    "multinomial(Tensor self, int num_samples, bool replacement=False) -> Tensor",
    "multinomial_at",
    rule=_multinomial_rule,
    kernel=_multinomial_kernel,
    consumes=_block_each,
)
"""Categories, as often as their weights say: (n,) -> (k,), (m, n) -> (m, k)."""


@composite(
    "multinomial(Tensor self, int num_samples, bool replacement=False, *, "
    "generator? generator=None) -> Tensor"
)
def multinomial(self: Operand, num_samples: int, replacement: bool, generator: object) -> Operand:
    """`num_samples` categories of each row of weights, each at most once if not `replacement`."""
    return drawn(self, "multinomial", (self, num_samples, replacement), generator)
