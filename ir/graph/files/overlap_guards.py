"""Guards of files that are no comparisons: that a function of sizes has this result.

Ground floor, for both sides. Whether windows of one memory overlap is found by a search, so that no
comparison of sizes says it. The functions are a closed list. Spec: `specs/serialize.md`, SER-18.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aotlite.ir.errors import UnsupportedError
from aotlite.ir.geometry.overlap import has_internal_overlap, overlaps
from aotlite.ir.graph.files.limits import INTEGER, RANK, WORK, overlap_steps
from aotlite.ir.graph.files.values import Read, Said, Unread, bool_from, each, field
from aotlite.ir.symbols.assumption import Answer, concrete
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable

__all__ = ["answer_entry", "answer_from"]

FUNCTIONS: Final[dict[str, Callable[..., bool]]] = {
    "overlaps": overlaps,
    "has_internal_overlap": has_internal_overlap,
}
"""By name: of two geometries (shape, stride, offset), or of a shape and strides."""


def answer_entry(answer: Answer, size: Callable[[int], object]) -> dict[str, object]:
    """The entry of an answer; `size` writes a size. UnsupportedError for other functions."""
    name = answer.function.__name__
    if FUNCTIONS.get(name) is not answer.function:
        raise UnsupportedError(
            f"serialize: a guard is {answer}, expected a comparison of sizes, or whether tensors "
            "overlap"
        )

    def written(value: Any) -> Any:
        return [written(item) for item in value] if isinstance(value, tuple) else size(value)

    return {"function": name, "operands": written(answer.operands), "value": bool(answer.value)}


def answer_from(entry: dict[str, Any], size: Read, table: SymbolTable) -> Answer:
    """The answer of an entry; `size` reads a size. Raises Unread for another entry, for one that is
    false for the hints, and for one that takes long."""
    name = entry["function"]
    function = FUNCTIONS.get(name) if type(name) is str else None
    if function is None:
        raise Unread(name, f"one of {', '.join(FUNCTIONS)}", ".function")
    geometry = _Geometry(size)
    if function is overlaps:
        operands = _list(entry["operands"], 2, ".operands", geometry.whole)
        shapes, strides, _ = zip(*concrete(operands, table.hints), strict=True)
    else:
        operands = _list(entry["operands"], 2, ".operands", geometry.sizes)
        shapes, strides = ((each,) for each in concrete(operands, table.hints))
        _check_ranks(*operands)
    steps = overlap_steps(sum(shapes, ()), sum(strides, ()))
    if steps > WORK:
        raise Unread(Said("one that takes long"), f"at most {WORK} steps", ".operands")
    if any(number < 0 or number > INTEGER for each in (*shapes, *strides) for number in each):
        got = Said("sizes and strides beyond 0 to 2**63 - 1")
        raise Unread(got, "those of tensors", ".operands")
    if not any(type(each) is SymInt for each in _flat(operands)):
        raise Unread(entry["operands"], "a size with a symbol", ".operands")
    value = field(entry, "value", bool_from)
    if function(*concrete(operands, table.hints)) is not value:
        raise Unread(value, "an answer that holds for the hints", ".value")
    return Answer(function, operands, value)


class _Geometry:
    """Reads shapes and geometries."""

    def __init__(self, size: Read) -> None:
        self._size = size

    def sizes(self, value: object) -> tuple[int, ...]:
        """Sizes or strides."""
        if type(value) is list and len(value) > RANK:
            raise Unread(value, f"at most {RANK} numbers")
        return tuple(each(self._size, value, ""))

    def whole(self, value: object) -> tuple[Any, ...]:
        """Shape, strides, offset."""
        if type(value) is not list or len(value) != 3:
            raise Unread(value, "a list of shape, strides and offset")
        shape, stride = (self.sizes(item) for item in value[:2])
        _check_ranks(shape, stride)
        return shape, stride, self._size(value[2])


def _check_ranks(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    if len(shape) != len(stride):
        raise Unread(Said(f"{len(shape)} sizes and {len(stride)} strides"), "as many of both")


def _list(value: object, count: int, at: str, read: Read) -> tuple[Any, ...]:
    if type(value) is not list or len(value) != count:
        raise Unread(value, f"a list of {count}", at)
    return tuple(each(read, value, at))


def _flat(value: object) -> list[object]:
    if isinstance(value, tuple):
        return [found for item in value for found in _flat(item)]
    return [value]
