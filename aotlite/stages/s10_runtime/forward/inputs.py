"""Expressions that pass a call's inputs to the compiled forward: arrays, or windows on buffers.

Used by stage 10 alone. A synthetic base is made at each call: it is the member that covers all of
it, if there is one, or a window that starts at an offset from one of its members. Rules: SYN-2,
SYN-10. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from aotlite.backends.calling_convention import travels_as_array
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import NUMPY
from aotlite.ir.graph.role import Role
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s10_runtime.guards.guard_sources import name_of
from aotlite.stages.s10_runtime.source import FunctionSource


@attrs.define(eq=False, repr=False)
class InputTexts:
    """Makes the expressions for the inputs of a forward."""

    source: FunctionSource
    bases: Mapping[object, BaseInput]
    """By role."""
    tensors: Mapping[Any, Tensor]
    sized: Mapping[Any, TensorMeta | None]
    """Metas with symbols, of inputs whose sizes are others in other calls of the text."""
    _arrays: int = 0

    def is_array_of_tensor(self, role: Role) -> bool:
        """Whether the input's value is the array of one of the call's tensors."""
        base = self.bases.get(role)
        return (base is None or base.whole) and travels_as_array(self._meta(role))

    def tensor(self, role: Any) -> str:
        """The variable of an input's tensor; for a synthetic base, of the member it starts from."""
        base = self.bases.get(role)
        return name_of(role if base is None else base.anchor)

    def window(self, role: Role) -> str:
        """The window of an input: (buffer, first element)."""
        return f"({', '.join(self._place(role))})"

    def value(self, role: Role) -> str:
        """The value of an input: an array, or else a window."""
        if self.is_array_of_tensor(role):
            return self._array(self.tensor(role))
        meta = self._meta(role)
        if not travels_as_array(meta):
            return self.window(role)
        return self._window_array(meta, *self._place(role))

    def _window_array(self, meta: TensorMeta, buffer: str, start: str) -> str:
        """The call that makes an array from a window; for NumPy, without the call of `strided`."""
        arrays, dtype = meta.device.arrays, meta.dtype
        if arrays is NUMPY and meta.numel:
            self.source.use(np.ndarray)
            kind = self.source.constant(dtype.numpy, "D", str(dtype))
            strides = tuple([step * dtype.itemsize for step in meta.stride])
            first = f"({start}) * {dtype.itemsize}"
            return f"ndarray({meta.shape}, {kind}, {buffer}, {first}, {strides})"
        strided = self.source.constant(arrays.strided, "L", "a window as an array")
        kind = self.source.constant(dtype, "D", str(dtype))
        return f"{strided}({buffer}, {kind}, {meta.shape}, {meta.stride}, {start})"

    def _meta(self, role: Role) -> TensorMeta:
        base = self.bases.get(role)
        if base is not None:
            return base.meta
        return self.sized.get(role) or self.tensors[role].meta

    def _place(self, role: Role) -> tuple[str, str]:
        name, base = self.tensor(role), self.bases.get(role)
        buffer, start = f"{name}.storage.buffer", f"{name}.offset"
        if base is None or base.whole:
            return buffer, start
        size = base.meta.dtype.itemsize
        ratio = self.tensors[base.anchor].meta.dtype.itemsize // size
        if ratio > 1:  # the base has bytes as elements
            start = f"{start} * {ratio}"
        return buffer, f"{start} - {-base.start // size}" if base.start else start

    def _array(self, name: str) -> str:
        array = f"x{self._arrays}"
        self._arrays += 1
        self.source.add(f"{array} = {name}._array", f"if {array} is None:")
        self.source.add(f"    {array} = {name}._data")
        return array


def copy_line(source: FunctionSource, arrays: object, target: str, array: str) -> str:
    """The line that copies an array into another one of the same dtype."""
    if arrays is NUMPY:
        return f"{target}[...] = {array}"
    return f"{source.constant(arrays, 'L', 'the array library')}.copy({target}, {array})"
