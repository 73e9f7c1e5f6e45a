"""Arguments as text on a command line: `f32[4,3] requires_grad`, `f32[4,3] dynamic=0`, `2.0`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import full
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, ShapeError, noted
from aotlite.ir.meta import tensor_meta
from aotlite.pipeline.size_regions.tensor_marks import mark_dynamic

_TENSOR = re.compile(r"(\w+)\[")
_LIST = re.compile(r"\[([^][]*)\]")
_DTYPES = {name: dtype for dtype in dtypes.DTYPES for name in (dtype.short, dtype.name)}
_MOST_DIGITS = 100
"""The most digits of a size that are parsed, so that messages show sizes that are too large."""


def value_from_text(text: str, option: str = "--arg") -> object:
    """Returns a tensor of ones for a dtype and a shape, or the value of a Python literal.

    A tensor is a dtype (`f32` or `float32`), sizes in brackets, optionally strides in brackets, and
    optionally the words `requires_grad` and `dynamic=0,1`: these sizes are marked as symbols
    (`mark_dynamic`), all of them with `dynamic` alone. Raises ArgumentError with `option` and a
    caret below the text that cannot be parsed.

    >>> value_from_text("f32[2,3][1,2]").meta, value_from_text("2.0")
    (f32[2, 3][1, 2], 2.0)
    """
    text = text.strip()
    if _TENSOR.match(text):
        return _Reader(text, option).tensor()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        expected = "a tensor such as 'f32[4,3]' or a Python literal"
        raise _Reader(text, option).error(0, f"is {text!r}", expected) from None


class _Reader:
    """The parser of one tensor."""

    def __init__(self, text: str, option: str) -> None:
        self.text = text
        self.option = option

    def tensor(self) -> Tensor:
        dtype, at = self._dtype()
        sizes_at = at
        shape, at = self._sizes(at)
        stride = None
        if self.text[at : at + 1] == "[":
            begin = at
            stride, at = self._sizes(at)
            if len(stride) != len(shape):
                got = f"has {len(stride)} strides for {len(shape)} sizes"
                raise self.error(begin, got, "a stride for each size")
        # Ones over the span, seen in the wanted geometry; detached, so that it is nobody's view.
        try:
            meta = tensor_meta(shape, stride, dtype)
            memory = full((meta.span,), 1, dtype=dtype)
        except (ShapeError, MemoryError) as error:
            got = f"is too large ({error})"
            raise self.error(sizes_at, got, "a tensor that fits into memory") from None
        tensor: Tensor = memory.as_strided(meta.shape, meta.stride, 0).detach()
        for word, start in self._words(at):
            name, equals, dims = word.partition("=")
            if name == "dynamic":
                self._mark(tensor, dims if equals else None, start + len(name) + len(equals))
                continue
            if word != "requires_grad":
                raise self.error(start, f"has {word!r}", "requires_grad, dynamic=0 or nothing")
            if not dtype.is_differentiable:
                raise self.error(0, f"wants a gradient of {dtype}", "a floating or complex dtype")
            tensor.requires_grad_()
        return tensor

    def _mark(self, tensor: Tensor, dims: str | None, at: int) -> None:
        """Marks sizes of the tensor as symbols: those listed at this position, or all of them."""
        for word in map(str, range(tensor.ndim)) if dims is None else dims.split(","):
            if not word.isdecimal() or len(word) > _MOST_DIGITS or int(word) >= tensor.ndim:
                room = f"one of 0 to {tensor.ndim - 1}" if tensor.ndim else "a tensor with sizes"
                raise self.error(at, f"marks dimension {word!r}", room)
            mark_dynamic(tensor, int(word))
            at += len(word) + 1

    def _dtype(self) -> tuple[DType, int]:
        name = self.text[: self.text.index("[")]
        if name not in _DTYPES:
            known = ", ".join(sorted(dtype.short for dtype in dtypes.DTYPES))
            raise self.error(0, f"has the dtype {name!r}", f"one of {known}")
        return _DTYPES[name], len(name)

    def _sizes(self, at: int) -> tuple[tuple[int, ...], int]:
        found = _LIST.match(self.text, at)
        if found is None:
            raise self.error(len(self.text), "ends inside of brackets", "']' after the last size")
        sizes = []
        for part in re.finditer(r"[^,]+", found[1]):
            word = part[0].strip()
            begin = found.start(1) + part.start() + len(part[0]) - len(part[0].lstrip())
            if not word.isdecimal():
                raise self.error(begin, f"has {word!r} in brackets", "numbers from 0 on")
            if len(word) > _MOST_DIGITS:  # Python reads at most 4300
                raise self.error(begin, f"has a number of {len(word)} digits", "one below 2**63")
            sizes.append(int(word))
        return tuple(sizes), found.end()

    def _words(self, at: int) -> Iterator[tuple[str, int]]:
        for word in re.compile(r"\S+").finditer(self.text, at):
            yield word[0], word.start()

    def error(self, at: int, got: str, expected: str) -> ArgumentError:
        """Returns an error with the text and a caret below position `at`."""
        message = f"explain: {self.option} {got}, expected {expected}"
        return noted(ArgumentError(message), f"  {self.text}\n  {' ' * at}^")
