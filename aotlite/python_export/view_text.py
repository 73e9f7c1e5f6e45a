"""Views as NumPy expressions: of a graph's values, and of arrays of the caller.

A value of a graph is read only, so any expression with the right elements will do. A result that
the caller gets must share memory with its source, and be writable where that is: `chain_text` takes
basic indexing and transposition, and else `_window`, which names strides. Input: a `ViewOp` with
its arguments, or a `ViewChain`. Output: an expression. Rules: PYX-6, PYX-8. Spec:
`specs/to_python.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp
from aotlite.python_export.kernels.argument_text import literal
from aotlite.stages.records.base import where_it_leads


def view_text(op: ViewOp, source: str, before: TensorMeta, args: Sequence[Any]) -> str | None:
    """The elements that a view of a value shows; None for a window by strides."""
    make = _VIEWS.get(op.name)
    return None if make is None else make(source, before, *args)


def window_text(source: str, before: TensorMeta, after: TensorMeta, start: int) -> str:
    """The window of this geometry on the memory of an array."""
    parts = [source, literal(tuple(after.shape)), literal(tuple(after.stride)), literal(start)]
    if after.dtype is not before.dtype:
        parts.append(literal(after.dtype.numpy))
    return f"_window({', '.join(parts)})"


def chain_text(source: str, chain: ViewChain) -> str:
    """The array that a chain of views shows of another one, on the same memory."""
    led = where_it_leads(chain)
    if led is None:
        return source if not chain else f"{source}[...]"
    text = source
    for step in chain:
        found = _shared(text, step)
        if found is None:
            return window_text(source, chain[0].operand, led[0], led[1])
        text = found
    return f"{source}[...]" if text == source else text


def _shared(source: str, step: ViewStep) -> str | None:
    """The view as an expression that shares memory for sure, and is writable; None for others."""
    if step.op.name in _SHARED and 0 not in step.operand.shape:
        return view_text(step.op, source, step.operand, step.args)
    is_flat = step.operand.contiguous and step.result.contiguous
    if step.op.name == "view" and is_flat:
        return view_text(step.op, source, step.operand, step.args)
    return None


# ----------------------------------------------------------------------------------- expressions
Shown = Callable[..., str]
_VIEWS: dict[str, Shown] = {}
"""The expression of a view by the op's name: a function of source, its meta, and the arguments."""
_SHARED: set[str] = set()
"""The views whose expressions share memory, and are writable."""


def _shows(name: str, *, shared: bool = True) -> Callable[[Shown], Shown]:
    """Registers the expression of a view."""

    def note(function: Shown) -> Shown:
        _VIEWS[name] = function
        if shared:
            _SHARED.add(name)
        return function

    return note


def _call(name: str, *args: object) -> str:
    return f"{name}({', '.join(map(str, args))})"


@_shows("alias")
@_shows("detach")
@_shows("hidden_alias")
def _same(source: str, before: TensorMeta) -> str:
    return source


@_shows("view", shared=False)
def _reshaped(source: str, before: TensorMeta, size: tuple[int, ...]) -> str:
    return _call("np.reshape", source, literal(tuple(size)))


@_shows("unsqueeze")
def _unsqueezed(source: str, before: TensorMeta, dim: int) -> str:
    return _call("np.expand_dims", source, literal(dim))


@_shows("squeeze")
def _squeezed(source: str, before: TensorMeta, dim: Any) -> str:
    wanted = range(before.ndim) if dim is None else sizes.wrap_dims(dim, before.ndim)
    axes = tuple([d for d in wanted if before.shape[d] == 1])
    return _call("np.squeeze", source, f"axis={literal(axes)}") if axes else source


@_shows("transpose")
def _swapped(source: str, before: TensorMeta, a: int, b: int) -> str:
    return _call("np.swapaxes", source, a, b) if before.shape else source


@_shows("t")
def _turned(source: str, before: TensorMeta) -> str:
    return f"{source}.T"


@_shows("permute")
def _permuted(source: str, before: TensorMeta, dims: tuple[int, ...]) -> str:
    return _call("np.transpose", source, literal(tuple(dims)))


@_shows("expand", shared=False)
def _expanded(source: str, before: TensorMeta, size: tuple[int, ...]) -> str:
    extra = len(size) - before.ndim
    shape = [before.shape[i - extra] if n == -1 else n for i, n in enumerate(size)]
    return _call("np.broadcast_to", source, literal(tuple(shape)))


def _subscript(source: str, before: TensorMeta, dim: int, key: str) -> str:
    return f"{source}[{':, ' * (dim % before.ndim)}{key}]"


@_shows("select")
def _selected(source: str, before: TensorMeta, dim: int, index: int) -> str:
    # With an ellipsis the result is an array also where it has no dimension.
    return _subscript(source, before, dim, f"{literal(index)}, ...")


@_shows("slice")
def _sliced(source: str, before: TensorMeta, dim: int, start: Any, end: Any, step: int) -> str:
    size = before.shape[dim % before.ndim]
    first, last = sizes.slice_bounds(start, end, size)
    if (first, last, step) == (0, size, 1):
        return f"{source}[...]"
    begin, stop = literal(first) if first else "", literal(last) if last != size else ""
    return _subscript(source, before, dim, f"{begin}:{stop}" + (f":{step}" if step != 1 else ""))


@_shows("diagonal", shared=False)
def _diagonal(source: str, before: TensorMeta, offset: int, dim1: int, dim2: int) -> str:
    return _call("np.diagonal", source, offset, dim1, dim2)
