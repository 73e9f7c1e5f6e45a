"""Ops that are lowered again: the kernels of an equal op, on other buffers.

    exp of f32[4, 8] in b3    kernel exp_7[i0<32]:  b4[i0] = exp(b3[i0])
    exp of f32[4, 8] in b9    kernel exp_20[i0<32]: b21[i0] = exp(b9[i0])     copied, not made anew

An op's declaration sees metas, places and arguments alone, and not the program around it. So equal
ops become equal kernels. Input: a call with places for tensors; output: its places of results, or
None for a call that is the first of its kind. Spec: `specs/equal_regions.md`, REG-5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.backends.loops.lowering.builder import ProgramBuilder
from aotlite.backends.loops.program import (
    BufferKind,
    Gemm,
    Kernel,
    MatrixWindow,
    Placed,
    ProgramBuffer,
    Step,
)
from aotlite.backends.loops.templates.shared_templates import kernel_on, share
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp

_PLAIN = (int, bool, str, type(None))


class NotRepeatable(Exception):
    """Raised within this module for an argument that is not compared."""


@attrs.frozen
class LoweredCall:
    """A call of an op as far as its kernels depend on it, and the buffers of its operands."""

    key: tuple[object, ...]
    buffers: tuple[int, ...]
    """Each buffer once, in order of appearance."""


@attrs.frozen
class OpTemplate:
    """The first call of its kind: what it has added to the program, and its results."""

    buffers: tuple[int, ...]
    """Those of its operands, as in `LoweredCall`."""
    added: tuple[ProgramBuffer, ...]
    steps: tuple[tuple[str, Kernel | Gemm], ...]
    """Each with its name up to the number of the step."""
    result: Any
    """A Placed, or a tuple of them."""


class OpTemplates:
    """The ops that a program has lowered so far."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self.builder = builder
        self.found: dict[tuple[object, ...], OpTemplate] = {}

    def call(self, op: PureOp, meta: object, args: Sequence[object]) -> LoweredCall | None:
        """Returns the call to look for; None where sizes are symbols, or an argument is of a kind
        that is not compared."""
        numbers: dict[int, int] = {}
        try:
            key = op, _meta_key(meta), self._key(tuple(args), numbers)
        except NotRepeatable:
            return None
        return LoweredCall(key, tuple(numbers))

    def _key(self, value: object, numbers: dict[int, int]) -> object:
        """Returns what is compared of an argument. Numbers are compared with their types, and
        floats by their texts: 1 is not 1.0, and -0.0 not 0.0."""
        if type(value) is Placed:
            buffer = self.builder.buffers[value.buffer]
            number = numbers.setdefault(value.buffer, len(numbers))
            return number, value.start, _meta_key(value.meta), buffer.dtype, buffer.size
        if type(value) is tuple:
            return tuple([self._key(each, numbers) for each in value])
        if type(value) is float:
            return float, repr(value)
        if type(value) in _PLAIN or isinstance(value, DType):
            return type(value), value
        raise NotRepeatable

    def again(self, call: LoweredCall | None) -> Any:
        """Adds the kernels of an equal call before, on the buffers of this one, and returns its
        results' places; None where there is none."""
        found = None if call is None else self.found.get(call.key)
        if call is None or found is None:
            return None
        numbers = dict(zip(found.buffers, call.buffers, strict=True))
        buffers, steps = self.builder.buffers, self.builder.steps
        for each in found.added:
            number = numbers[each.number] = len(buffers)
            buffers.append(ProgramBuffer(number, each.dtype, each.size, each.kind))
        for stem, step in found.steps:
            steps.append(_moved(step, f"{stem}{len(steps)}", numbers))
        return _on(found.result, numbers)

    def keep(self, call: LoweredCall | None, mark: tuple[int, int], result: Any) -> None:
        """Remembers a call that has added these buffers and steps since the mark, if each step is
        a kernel or product that is named by its place."""
        buffers, steps = self.builder.buffers[mark[0] :], self.builder.steps[mark[1] :]
        own: list[tuple[str, Kernel | Gemm]] = []
        for k, step in enumerate(steps, mark[1]):
            if not isinstance(step, (Kernel, Gemm)) or not step.name.endswith(f"_{k}"):
                return
            own.append((step.name[: -len(str(k))], step))
        is_plain = all(each.kind is BufferKind.TEMPORARY for each in buffers)
        if call is not None and is_plain:
            template = OpTemplate(call.buffers, tuple(buffers), tuple(own), result)
            self.found[call.key] = template


def _meta_key(meta: object) -> object:
    """Returns a meta, or a tuple of them, of which no size is a symbol."""
    if type(meta) is TensorMeta and meta.table is None:
        return meta
    for each in meta if type(meta) is tuple else (meta,):
        if type(each) is not TensorMeta or each.table is not None:
            raise NotRepeatable
    return meta


def _moved(step: Kernel | Gemm, name: str, numbers: Mapping[int, int]) -> Step:
    if type(step) is Kernel:
        template, buffers = share(step)
        return kernel_on(template, tuple([numbers[each] for each in buffers]), name)
    assert type(step) is Gemm
    a, b, c = [_window(each, numbers) for each in (step.a, step.b, step.c)]
    return Gemm(name, step.batch, step.m, step.n, step.k, a, b, c)


def _window(window: MatrixWindow, numbers: Mapping[int, int]) -> MatrixWindow:
    return MatrixWindow(
        numbers[window.buffer], window.start, window.batch, window.row, window.column
    )


def _on(result: Any, numbers: Mapping[int, int]) -> Any:
    if type(result) is tuple:
        return tuple([_on(each, numbers) for each in result])
    return Placed(numbers[result.buffer], result.start, result.meta)
