"""L11: an op whose result's shape depends on values is no part of a captured program (GEN-8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.op import Op
from aotlite.testing.compiled import compile_by_reference
from aotlite.testing.laws.ops.forward import proxied
from aotlite.testing.laws.ops.runs import bound, elements, same_bits, tensors_in
from aotlite.testing.laws.samples.sample import Sample

PLACE = "<law L11>"
"""The file name that the program of the law has in tracebacks."""


def captures_refuse_it_by_name(op: Op, samples: Sequence[Sample]) -> None:
    """L11: the refusal names the op, the line and an alternative; no operand changes."""
    for sample in samples[:3]:
        args = bound(op, sample)
        tensors = tensors_in(args)
        before = [elements(tensor) for tensor in tensors]
        error = _refusal(op, sample, args)
        assert op.name in str(error), f"{op.name}{sample}: the refusal does not name it: {error}"
        notes = getattr(error, "__notes__", [])
        assert any(PLACE in note for note in notes), (
            f"{op.name}{sample}: the refusal does not name the line: {notes}"
        )
        advice = [note.removeprefix("Instead:").strip(" .") for note in notes if "Instead" in note]
        assert any(advice), f"{op.name}{sample}: the refusal names no alternative: {notes}"
        for tensor, image in zip(tensors, before, strict=True):
            assert same_bits(tensor.array, image), f"{op.name}{sample}: an operand changed"


def _program(called: Callable[..., object]) -> Callable[..., object]:
    """A function in a file of its own, as errors name the innermost line outside aotlite."""
    scope = {"called": called}
    exec(compile("def program(*tensors):\n    return called(*tensors)\n", PLACE, "exec"), scope)
    return scope["program"]


def _refusal(op: Op, sample: Sample, args: tuple[object, ...]) -> UnsupportedError:
    def called(*tensors: Tensor) -> object:
        return dispatch(op, proxied(args, iter(tensors)))

    try:
        compile_by_reference(_program(called))(*tensors_in(args))
    except UnsupportedError as error:
        return error
    raise AssertionError(f"{op.name}{sample}: it is captured, expected a refusal")
