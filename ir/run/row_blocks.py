"""`call_in_blocks`: an op on blocks of rows, whose temporary arrays are those of one block.

    gelu of f32[4096, 4096], 64 MB      its kernel has five more arrays of 64 MB; of blocks, 64 KB

Ground floor. The declaration says which ops may be cut along the first dimension (`dims`, OPS-23).
Each block is contiguous and has whole rows, and no sum goes over a cut: so the bits are those of
the whole. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import attrs

from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, Op, PureOp
from aotlite.ir.op.dims import Dims, Label
from aotlite.ir.run.interpreter import ArrayValue, call_arrays

BLOCK = 1 << 16
"""The bytes of the largest array of a block."""
_LEAST_ROWS = 4
_COSTS = Cost.POINTWISE, Cost.REDUCTION
"""Of ops whose kernels compute each row in the same way. Products leave the order to BLAS."""


@attrs.frozen
class _Cut:
    """How a call is cut."""

    metas: tuple[TensorMeta, ...]
    """The results as a whole."""
    cut: tuple[int, ...]
    """The operands that are cut, by their places among the arguments."""
    rows: int
    count: int
    """How many blocks there are."""

    def blocks(self) -> Iterator[tuple[int, int]]:
        """The first row of each block, and the one behind it."""
        ends = [self.rows * number // self.count for number in range(self.count + 1)]
        yield from pairwise(ends)


def call_in_blocks(op: Op, args: tuple[Any, ...], most: int = BLOCK) -> Any:
    """`call_arrays`, in blocks of rows of which no array has much more than `most` bytes, where the
    op and the layout of its operands allow it."""
    cut = _cut_of(op, args, most)
    if cut is None:
        return call_arrays(op, args)
    made = [_empty(meta) for meta in cut.metas]
    for first, end in cut.blocks():
        part = [_rows(x, first, end) if i in cut.cut else x for i, x in enumerate(args)]
        try:
            found = call_arrays(op, tuple(part))
        except Exception:
            return call_arrays(op, args)  # which raises the error of the whole
        for whole, value in zip(made, found if type(found) is tuple else (found,), strict=True):
            arrays = whole.meta.device.arrays
            arrays.copy(_rows(whole, first, end).array, value.array)
        del found, value
    return made[0] if type(op.infer(args)) is not tuple else tuple(made)


def _cut_of(op: Op, args: tuple[Any, ...], most: int) -> _Cut | None:
    if not isinstance(op, PureOp) or op.dims is None or op.lists or op.cost not in _COSTS:
        return None
    results: Any = op.infer(args)
    metas: tuple[TensorMeta, ...] = results if type(results) is tuple else (results,)
    if not all(meta.shape and meta.contiguous for meta in metas):
        return None
    names = [parameter.name for parameter in op.schema.parameters]
    dims = op.dims(dict(zip(names, op.key(args), strict=True)), metas)
    label = None if dims is None else _label(dims)
    if dims is None or label is None:
        return None
    rows, cut, largest = metas[0].shape[0], [], max(map(_bytes_of, metas))
    for place, value in enumerate(args):
        labels = dims.operands.get(names[place], ()) if type(value) is ArrayValue else ()
        if label in labels:
            meta: TensorMeta = value.meta
            if labels.index(label) != 0 or meta.shape[0] != rows or not meta.contiguous:
                return None
            cut.append(place)
            largest = max(largest, _bytes_of(meta))
    count = min(-(-largest // most), rows // _LEAST_ROWS)
    return _Cut(metas, tuple(cut), rows, count) if cut and count > 1 else None


def _label(dims: Dims) -> Label | None:
    """The label of the first dimension of all results, if nothing is summed over a label."""
    first = {labels[0] for labels in dims.results}
    if len(first) != 1 or None in first or dims.blocks or dims.sizes:
        return None
    shown = {label for labels in dims.results for label in labels}
    lost = any(each is not None and each not in shown for x in dims.operands.values() for each in x)
    return None if lost else first.pop()


def _bytes_of(meta: TensorMeta) -> int:
    return meta.span * meta.dtype.itemsize


def _rows(value: ArrayValue, first: int, end: int) -> ArrayValue:
    meta = value.meta
    of = tensor_meta((end - first, *meta.shape[1:]), meta.stride, meta.dtype, meta.device)
    return value.window(of, first * meta.stride[0])


def _empty(meta: TensorMeta) -> ArrayValue:
    return ArrayValue(meta.device.arrays.allocate(meta.span, meta.dtype), meta)
