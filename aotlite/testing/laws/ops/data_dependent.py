"""L11: an op whose result's shape depends on values is captured with that size as a symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir.op import DataOp
from aotlite.testing.compiled import compile_by_reference
from aotlite.testing.laws.ops.forward import proxied
from aotlite.testing.laws.ops.runs import bound, elements, run, same_bits, tensors_in
from aotlite.testing.laws.samples.sample import Sample


def captures_its_size(op: Any, samples: Sequence[Sample]) -> None:
    """L11: `fitted` with the `number` that the op counts gives its results, and a compiled call
    gives them, too; with fewer, the first ones; no operand changes."""
    for sample in samples:
        _check_forms(op, sample)
    for sample in samples[:3]:
        _check_compiled(op, sample)


def _check_forms(op: DataOp, sample: Sample) -> None:
    args = bound(op, sample)
    expected = run(op, args)
    number = int(run(op.number, args)[0].item())
    fitted = run(op.fitted, (*args, number))
    _compare(op, sample, "its form with a count", expected, fitted)
    for wrong in (number + 2, number // 2):
        for whole, other in zip(expected, run(op.fitted, (*args, wrong)), strict=True):
            sizes = [min(a, b) for a, b in zip(whole.shape, other.shape, strict=True)]
            cut = tuple(map(slice, sizes))
            assert same_bits(whole.array[cut], other.array[cut]), (
                f"{op.name}{sample}: its form with the count {wrong} has other elements"
            )


def _check_compiled(op: DataOp, sample: Sample) -> None:
    args = bound(op, sample)
    tensors = tensors_in(args)
    before = [elements(tensor) for tensor in tensors]
    expected = run(op, args)

    def called(*given: Tensor) -> object:
        return dispatch(op, proxied(args, iter(given)))

    found = tensors_in((compile_by_reference(called)(*tensors),))
    _compare(op, sample, "a compiled call", expected, found)
    for tensor, image in zip(tensors, before, strict=True):
        assert same_bits(tensor.array, image), f"{op.name}{sample}: an operand changed"


def _compare(
    op: DataOp, sample: Sample, what: str, expected: Sequence[Tensor], found: Sequence[Tensor]
) -> None:
    for one, other in zip(expected, found, strict=True):
        assert one.meta is other.meta and same_bits(one.array, other.array), (
            f"{op.name}{sample}: {what} gives {other.meta} {other.tolist()}, expected {one.meta} "
            f"{one.tolist()}"
        )
