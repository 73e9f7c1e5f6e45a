"""Placements: how the parts that ranks hold make up one tensor.

Plain data, compared by value: they are in the spec of a `ShardedTensor`. Rules: SHD-2, SHD-6.
Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.collectives import LINEAR, NONLINEAR
from aotlite.ir.ops.kinds import kind_of


@attrs.frozen
class Replicate:
    """Every rank holds all of it: equal copies, in memory of their own."""


@attrs.frozen
class Shard:
    """Rank r holds part r of so many equal ones, along a dimension.

    >>> Shard(1)
    Shard(dim=1)
    """

    dim: int


@attrs.frozen
class Partial:
    """It is the sum, or another reduction, of what ranks hold, in the order of the ranks.

    >>> Partial(), Partial("max")
    (Partial(reduce_op='sum'), Partial(reduce_op='max'))
    """

    reduce_op: str = "sum"


@attrs.frozen
class PlacedView:
    """What views show of a tensor that is placed: none of them is a view of each rank's part.

    Ranks hold the parts of that tensor, `base` is its meta, `chain` are the views, as op names and
    arguments, `dtype` is that of what they show. A write goes through them (SHD-6).
    """

    placement: Replicate | Shard | Partial
    base: TensorMeta
    chain: tuple[tuple[str, tuple[Any, ...]], ...]
    dtype: DType


Placed = Replicate | Shard | Partial
"""What a user may ask for."""
Placement = Replicate | Shard | Partial | PlacedView

REDUCTIONS = {**LINEAR, **NONLINEAR}
"""What `Partial` may name, and of which kinds of dtype it is not formed."""


def is_formed(reduce_op: str, dtype: DType) -> bool:
    """Whether ranks can hold parts of such a reduction: COL-4."""
    return kind_of(dtype) not in REDUCTIONS[reduce_op]
