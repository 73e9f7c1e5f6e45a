"""`state_text`: the arrays of a state, which share memory as the tensors of the function do.

    _MEMORY_0 = np.array([1.0, 2.0, 3.0], np.float32)

    STATE = {
        "first": _MEMORY_0[:2],
        "last": _MEMORY_0[1:],
    }

Rules: PYX-2, PYX-8. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

from aotlite.python_export.file_parts import FileParts
from aotlite.python_export.kernels.argument_text import literal

_ALIGNED = 16
"""The bytes to which memory begins at a multiple: that of the widest dtype."""


@attrs.define(eq=False)
class StateText:
    """The lines that make a state."""

    items: list[str] = attrs.field(factory=list)
    """The items of the dict."""
    memories: list[str] = attrs.field(factory=list)
    """The lines in front of it, which make memory that several items share."""

    @property
    def text(self) -> str:
        """The lines."""
        if not self.items:
            return "STATE: dict = {}"
        rows = [f"    {item}" for item in self.items]
        gap = [""] if self.memories else []
        return "\n".join([*self.memories, *gap, "STATE = {", *rows, "}"])


def shared_copies(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Copies with the strides of the arrays, which share memory as these do."""
    copies: list[Any] = [None] * len(arrays)
    for group in _by_memory(arrays):
        if not arrays[group[0]].size:
            copies[group[0]] = arrays[group[0]]
            continue
        bounds = [byte_bounds(arrays[k]) for k in group]
        first = min(low for low, _ in bounds)
        count = max(high for _, high in bounds) - first
        ahead = first % _ALIGNED
        memory = np.zeros(ahead + count, np.uint8)
        for k, (low, high) in zip(group, bounds, strict=True):
            start = ahead + low - first
            memory[start : start + high - low] = _bytes_of(arrays[k], high - low)
            of = arrays[k]
            copies[k] = np.ndarray(of.shape, of.dtype, memory, start, of.strides)
    return copies


def _bytes_of(array: np.ndarray, count: int) -> np.ndarray:
    """So many bytes from an array's first one on."""
    first = as_strided(array, (1,), (array.itemsize,)).view(np.uint8)
    return as_strided(first, (count,), (1,))


def _by_memory(arrays: Sequence[np.ndarray]) -> list[list[int]]:
    """The numbers of arrays that lie in one stretch of memory, in the order of the first ones. An
    array without elements is alone."""
    full = [k for k, each in enumerate(arrays) if each.size]
    groups = [[k] for k, each in enumerate(arrays) if not each.size]
    end = 0
    for k in sorted(full, key=lambda k: byte_bounds(arrays[k])):
        low, high = byte_bounds(arrays[k])
        if low < end:
            groups[-1].append(k)
        else:
            groups.append([k])
        end = max(end, high)
    return sorted(map(sorted, groups))


def state_text(
    held: Mapping[str, np.ndarray], parts: FileParts, around: Sequence[np.ndarray] = ()
) -> StateText:
    """The lines of a state with these arrays by name. `around` are memory that they lie in, and
    that is part of the state where windows of them reach it."""
    names, arrays = list(held), [*held.values(), *around]
    items: dict[str, str] = {}
    text = StateText()
    for group in _by_memory(arrays):
        members = [arrays[k] for k in group]
        if group[0] >= len(names):
            continue
        if len(group) == 1 and members[0].flags.c_contiguous:
            items[names[group[0]]] = parts.array(members[0], "    ")
            continue
        name, memory = f"_MEMORY_{len(text.memories)}", _memory(members)
        text.memories.append(f"{name} = {parts.array(memory)}")
        begin = memory.__array_interface__["data"][0]
        for k in [each for each in group if each < len(names)]:
            start = arrays[k].__array_interface__["data"][0] - begin
            items[names[k]] = _part(name, memory, arrays[k], start, parts)
    text.items = [f"{literal(name)}: {items[name]}," for name in names]
    return text


def _memory(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The stretch of memory that the arrays lie in, of the dtype of the first; as bytes if others
    have another one."""
    bounds = [byte_bounds(each) for each in arrays]
    first = min(arrays, key=byte_bounds)
    count = max(high for _, high in bounds) - min(low for low, _ in bounds)
    memory = _bytes_of(first, count)
    wanted = arrays[0].dtype
    alike = {each.dtype for each in arrays} <= {
        wanted,
        memory.dtype,
    } and not count % wanted.itemsize
    return memory.view(wanted) if alike else memory


def _part(name: str, memory: np.ndarray, array: np.ndarray, start: int, parts: FileParts) -> str:
    """The expression of an array on the memory of this name, which begins `start` bytes in it."""
    size, count = array.itemsize, array.size
    if array.dtype == memory.dtype and not start % size and array.flags.c_contiguous:
        first, last = start // size, start // size + count
        begin, end = first or "", "" if last == memory.size else last
        shaped = "" if array.ndim == 1 else f".reshape({literal(array.shape)})"
        return f"{name}[{begin}:{end}]{shaped}"
    strides = tuple([step // size for step in array.strides])
    window = f"{name}, {literal(array.shape)}, {literal(strides)}, {start // size}"
    dtype = "" if array.dtype == memory.dtype else f", {literal(array.dtype)}"
    return f"{parts.use('_window')}({window}{dtype})"
