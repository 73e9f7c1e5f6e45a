"""Sample inputs of the two pure ops that graphs have for each op with a data-dependent shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np

from aotlite.eager.creation.from_data import tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir.op import OPS, DataOp
from aotlite.testing.laws.samples.sample import Sample
from tests.samples import register, samples_of

DATA_OPS = [op for op in OPS.values() if isinstance(op, DataOp)]


@register(*[op.number.name for op in DATA_OPS])
def _counted(name: str) -> Iterable[Sample]:
    yield from samples_of(name.removesuffix("_count"))


@register(*[op.fitted.name for op in DATA_OPS])
def _fitted(name: str) -> Iterable[Sample]:
    op: Any = OPS[name.removesuffix("_fitted")]
    for sample in samples_of(op.name):
        given = dict(zip([each.name for each in op.schema.parameters], sample.args, strict=False))
        given |= sample.kwargs
        args = [given.get(each.name, each.default) for each in op.schema.parameters]
        tensors = [tensor(a) if isinstance(a, np.ndarray) else a for a in args]
        found: Any = dispatch(op.number, op.bind(tuple(tensors), {}))
        count = int(found.item())
        counts = [count] if sample.smooth else [count, count + 2]
        for each in counts:
            yield attrs.evolve(sample, args=(*args, each), kwargs={})
