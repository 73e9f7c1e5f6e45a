"""Sums of wrapper gradients, some of which may not arrive (TAN-8).

A dense gradient that does not arrive counts as zeros in a sum. A wrapper of zeros is no zero: what
would its mask, its scale, its zero point be? So the sum of two wrapper gradients is recorded as
where(first arrived, where(second arrived, a + b, a), b), part by part. The flags become constants
when a backward is specialized for the tangents that arrive. Used by stage 4 alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.eager.subclass.protocol import flatten, inner_tensors, is_wrapper, same_spec
from aotlite.ir.dtypes import bool_
from aotlite.ir.graph.role import Role
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.stages.records.backward.required_tangents import RequiredArrivals
from aotlite.stages.records.trace import Trace
from aotlite.stages.shared.subclass_rebuild import rebuilt_wrapper

WHERE = OPS["where"]

Given = tuple[Tensor, int]
"""A gradient, and the results, as bits, from whose tangents it comes."""


def joined(recorder: Trace, results: Sequence[Role], before: Given, after: Given) -> Any:
    """The sum of two gradients, or the one that arrives.

    If the two cannot be selected part by part, being of other forms, both have to arrive.
    """
    (one, ones), (other, others) = before, after
    total = one + other
    if not is_wrapper(total):
        recorder.wrapped.unlike |= is_wrapper(one) or is_wrapper(other)
        return total  # a dense gradient that does not arrive counts as zeros
    one, other = (_as(each, total) for each in (one, other))
    if not all(_is_like(each, total) for each in (one, other)):
        recorder.wrapped.unlike = True
        sets = _roles(results, ones), _roles(results, others)
        # A tensor that does not arrive is zero, and adds nothing to the sum.
        pairs = (one, sets), (other, sets[::-1])
        recorder.wrapped.required_arrivals += [
            RequiredArrivals(*each) for grad, each in pairs if not _is_linear(grad)
        ]
        return total
    first, second = (_flag(recorder, results, bits) for bits in (ones, others))
    return _chosen(recorder, first, second, (one, other, total))


def note_required_arrivals(
    recorder: Trace, results: Sequence[Role], node: TapeNode, given: tuple[int, int]
) -> None:
    """Notes that a custom function can see which of its gradients arrive: it gets None for others.

    `given`: the bits of all its gradients, and the bits of one of them.
    """
    every, some = given
    recorder.wrapped.unlike = True
    needed, others = _roles(results, some), _roles(results, every)
    recorder.wrapped.required_arrivals.append(RequiredArrivals(needed, others, node.name()))


def _is_like(a: Any, b: Any) -> bool:
    """Whether two gradients have one class, spec, shape and dtype, at every level."""
    if type(a) is not type(b) or a.shape != b.shape or a.dtype is not b.dtype:
        return False
    if not is_wrapper(a):
        return True
    if not same_spec(flatten(a)[1], flatten(b)[1]):
        return False
    pairs = zip(inner_tensors(a).items(), inner_tensors(b).items(), strict=False)
    return all(name == other and _is_like(x, y) for (name, x), (other, y) in pairs)


def _is_linear(grad: Tensor) -> bool:
    """Whether a wrapper of zeros surely is a zero: all parts are floats, and it has no spec."""
    if not is_wrapper(grad):
        return bool(grad.dtype.is_differentiable)
    return flatten(grad)[1] is None and all(map(_is_linear, inner_tensors(grad).values()))


def _as(grad: object, total: Any) -> Any:
    """The gradient converted to the form of the sum, if its class can convert it (TAN-5)."""
    method = getattr(grad, "__coerce_same_metadata_as_tangent__", None)
    if method is None or _is_like(grad, total):
        return grad
    found = method(flatten(total)[1], type(total))
    return grad if found is None else found


def _roles(results: Sequence[Role], bits: int) -> frozenset[Role]:
    return frozenset([role for k, role in enumerate(results) if bits >> k & 1])


def _flag(recorder: Trace, results: Sequence[Any], bits: int) -> Tensor:
    """The bool input that says whether a tangent of one of these results arrived."""
    flag = Tensor(Storage(None, capture=recorder), tensor_meta((), None, bool_))
    flag.value = recorder.streams.flag(_roles(results, bits))
    return flag


def _chosen(recorder: Trace, first: Tensor, second: Tensor, of: tuple[Any, Any, Any]) -> Any:
    one, other, total = of
    if not is_wrapper(total):
        if recorder.here(one).value is recorder.here(other).value is recorder.here(total).value:
            return total
        chosen: Tensor = dispatch(WHERE, (first, dispatch(WHERE, (second, total, one)), other))
        return chosen if chosen.meta is total.meta else chosen.restride(total.meta.stride)
    inner = dict(_inner(recorder, first, second, of))
    return rebuilt_wrapper(recorder, total, inner)


def _inner(
    recorder: Trace, first: Tensor, second: Tensor, of: tuple[Any, Any, Any]
) -> Iterator[tuple[str, Any]]:
    for name in inner_tensors(of[2]):
        one, other, total = (getattr(each, name) for each in of)
        yield name, _chosen(recorder, first, second, (one, other, total))
