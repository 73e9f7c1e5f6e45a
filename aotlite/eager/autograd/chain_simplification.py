"""`shorter`: merges steps of a view chain.

The gradient of a write passes through each view of its chain. If chains grew with the program
(`x = x.view(...)` in a loop), its cost would grow quadratically. So the history of a write and
stage 6 use the shorter chain; a tensor's own chain is not changed. Rules: FUN-3, FUN-7, TEN-17.
Spec: `specs/rules/fun.md`.
"""

from __future__ import annotations

from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, ViewStep
from aotlite.ir.geometry.layout import view_strides
from aotlite.ir.geometry.sizes import is_symbolic, slice_bounds, wrap_dim
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED, PERMUTE, SLICE, TRANSPOSE, VIEW, T


def shorter(chain: ViewChain) -> ViewChain:
    """An equivalent chain with fewer steps; computed once for each chain."""
    waiting = []
    at = chain
    while at and at.shorter is None:
        waiting.append(at)
        at = at.before
    found = at.shorter or EMPTY_CHAIN
    for each in reversed(waiting):
        found = each.shorter = further(found, each[-1])
    return found


def further(chain: ViewChain, step: ViewStep) -> ViewChain:
    """The chain with one more step, merged where possible.

    A step that changes nothing is left out. One that undoes the last step removes it. One of the
    same kind as the last is merged with it.
    """
    if step.result is step.operand and step.op is not AS_STRIDED and not _is_symbolic(step):
        return chain  # only as_strided has the same geometry at another offset
    if chain is EMPTY_CHAIN:
        return chain.then(step)
    last = chain[-1]
    if last.op.recasts or step.op.recasts or _is_symbolic(last) or _is_symbolic(step):
        return chain.then(step)
    if last.op.keeps_all and step.op.keeps_all:
        # Both start at their operand's first element: equal geometries are the same view there.
        if step.result is last.operand:
            return chain.before
        joined = _joined(last, step)
        if joined is not None:
            return chain.before.then(joined)
    elif last.op is step.op is SLICE and last.args[0] == step.args[0] and step.result.numel:
        return chain.before.then(_slice_of_slice(last, step))
    return chain.then(step)


def _is_symbolic(step: ViewStep) -> bool:
    return is_symbolic((*step.operand.shape, *step.operand.stride, *step.result.shape))


def _joined(last: ViewStep, step: ViewStep) -> ViewStep | None:
    """Two permutations, reshapes or slices as one view; None if they cannot be merged."""
    if last.op in _ORDERS and step.op in _ORDERS:
        first, second = _order(last), _order(step)
        order = tuple(first[i] for i in second)
        return ViewStep(PERMUTE, (order,), last.operand, step.result)
    if last.op is VIEW and step.op is VIEW:
        return _view_of_view(last, step)
    return None


_ORDERS: tuple[ViewOp, ...] = (T, TRANSPOSE, PERMUTE)


def _order(step: ViewStep) -> tuple[int, ...]:
    """The permutation: for each dimension of the result, that of the operand."""
    ndim = step.operand.ndim
    order = list(range(ndim))
    if step.op is PERMUTE:
        return tuple(wrap_dim(dim, ndim, op="permute") for dim in step.args[0])
    if step.op is T:
        return tuple(reversed(order))
    if ndim:
        a, b = (wrap_dim(dim, ndim, op="transpose") for dim in step.args)
        order[a], order[b] = order[b], order[a]
    return tuple(order)


def _view_of_view(last: ViewStep, step: ViewStep) -> ViewStep | None:
    shape, operand = step.result.shape, last.operand
    if view_strides(operand.shape, operand.stride, shape) != step.result.stride:
        return None
    return ViewStep(VIEW, (shape,), operand, step.result)


def _slice_of_slice(last: ViewStep, step: ViewStep) -> ViewStep:
    """A slice of a slice of the same dimension, merged; neither is empty."""
    dim, start, end, by = last.args
    size = last.operand.shape[wrap_dim(dim, last.operand.ndim, op="slice")]
    first, _ = slice_bounds(start, end, size)
    inner = step.operand.shape[wrap_dim(dim, step.operand.ndim, op="slice")]
    begin, _ = slice_bounds(step.args[1], step.args[2], inner)
    count = step.result.shape[wrap_dim(dim, step.result.ndim, op="slice")]
    by *= step.args[3]
    at = first + begin * last.args[3]
    return ViewStep(SLICE, (dim, at, at + (count - 1) * by + 1, by), last.operand, step.result)
