"""L4: a view and its inverse write obey the laws of a lens; parts of a view tile its operand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AliasError
from aotlite.ir.op import OPS, MultiViewOp, Op, ViewOp
from aotlite.testing.laws.ops.runs import addresses, bound, elements, run, same_bits, tensor_of
from aotlite.testing.laws.samples.sample import Sample


def views_are_lenses(op: Op, samples: Sequence[Sample]) -> None:
    """L4: get after put gives the value; put after get changes nothing; the last put counts."""
    for sample in samples:
        if isinstance(op, MultiViewOp):
            _check_parts(op, sample)
        else:
            assert isinstance(op, ViewOp)
            _check_lens(op, sample)


def _check_lens(op: ViewOp, sample: Sample) -> None:
    parent, *rest = bound(op, sample)
    if _has_copies(parent) or _reads_gaps(op, parent, tuple(rest)):
        return  # a gap, or an element of several indices, has no such inverse
    other, third = _changed(parent, 1), _changed(parent, 2)
    seen, value, last = (run(op, (t, *rest))[0] for t in (parent, other, third))
    try:
        same = op.put(parent, seen, *rest)
    except AliasError:
        assert _has_copies(seen), f"{op.name}{sample}: put refuses a view that repeats nothing"
        return
    _check(op, sample, "put after get", same, parent)
    changed = op.put(parent, value, *rest)
    _check(op, sample, "get after put", run(op, (changed, *rest))[0], value)
    _check(op, sample, "put twice", op.put(changed, last, *rest), op.put(parent, last, *rest))
    _check_outside(op, sample, parent, seen, changed)
    if op.keeps_all:
        _check(op, sample, "put into any parent", op.put(third, value, *rest), changed)
    _check_scatter(op, sample, parent, value, rest, changed)


def _check(op: Op, sample: Sample, what: str, got: Tensor, expected: Tensor) -> None:
    assert same_bits(got.array, expected.array), (
        f"{op.name}{sample}: {what} gives {elements(got).tolist()}, expected "
        f"{elements(expected).tolist()}"
    )


def _has_copies(tensor: Tensor) -> bool:
    """Whether two elements have one address."""
    places = addresses(tensor).ravel()
    return len(set(places.tolist())) < len(places)


def _reads_gaps(op: ViewOp, parent: Tensor, rest: tuple[object, ...]) -> bool:
    """Whether the view shows memory between the parent's elements, as only `as_strided` may."""
    if op.name != "as_strided":
        return False
    seen = set(addresses(run(op, (parent, *rest))[0]).ravel().tolist())
    return not seen <= set(addresses(parent).ravel().tolist())


def _changed(parent: Tensor, times: int) -> Tensor:
    """A tensor of the same layout with other values everywhere."""
    array = np.array(parent.array, order="K")
    twin = tensor_of(parent.array)
    twin.array[...] = (
        np.logical_xor(array, times % 2) if array.dtype == bool else array + 100 * times
    )
    return twin


def _check_outside(op: Op, sample: Sample, parent: Tensor, seen: Tensor, changed: Tensor) -> None:
    shown = addresses(seen).reshape(-1, 1) * seen.itemsize + np.arange(seen.itemsize)
    outside = ~np.isin(addresses(parent) * parent.itemsize, shown)
    assert same_bits(parent.array[outside], changed.array[outside]), (
        f"{op.name}{sample}: put changes elements that the view does not show"
    )


def _check_scatter(
    op: Op, sample: Sample, parent: Tensor, value: Tensor, rest: Sequence[object], changed: Tensor
) -> None:
    scatter = OPS.get(f"{op.name}_scatter")
    if scatter is not None and not _has_copies(value):
        got = run(scatter, (parent, value, *rest))[0]
        _check(op, sample, f"{scatter.name} instead of put", got, changed)


def _check_parts(op: MultiViewOp, sample: Sample) -> None:
    args = bound(op, sample)
    outs = run(op, args)
    singles = [run(view, (args[0], *rest))[0] for view, rest in op.parts(args)]
    for k, (out, single) in enumerate(zip(outs, singles, strict=True)):
        assert (out.meta, out.offset) == (single.meta, single.offset), (
            f"{op.name}{sample}: part {k} is {out.meta} at {out.offset}, expected {single.meta} at "
            f"{single.offset}, its single view"
        )
    shown = sorted(place for out in outs for place in addresses(out).ravel().tolist())
    every = sorted(addresses(args[0]).ravel().tolist())
    assert shown == every, (
        f"{op.name}{sample}: the parts show {len(shown)} elements, expected each of "
        f"{len(every)} once"
    )
