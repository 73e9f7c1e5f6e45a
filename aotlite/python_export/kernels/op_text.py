"""The forms of ops that their kernels' calls cannot give: one function for each.

They are ops whose kernels read values (sizes of results, offsets of the random stream), factories,
and reductions whose kernels hold a size as a number. All other ops are printed from their kernels
(`kernel_text.py`). Input: a `CallFacts`. Output: an expression, or lines and an expression.
Rules: PYX-4, PYX-7. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, Op, PureOp, ViewOp
from aotlite.ir.ops.creation.factories import fitted
from aotlite.ir.ops.random.philox import DRAWS, PhiloxStream, words
from aotlite.python_export.kernels.argument_text import inside, literal, notes_of
from aotlite.python_export.kernels.call_records import SUM
from aotlite.python_export.view_text import view_text, window_text


@attrs.frozen(eq=False)
class CallFacts:
    """One call of an op, with the texts of its operands."""

    op: str
    name: str
    """The variable of the result."""
    args: tuple[Any, ...]
    """The arguments: `OperandText`s, tuples of these, and constants."""
    meta: Any
    use: Callable[[str], str]
    """Adds a helper function to the file; returns its name."""


@attrs.frozen(eq=False)
class OperandText:
    """An operand: its text and its meta."""

    text: str
    meta: TensorMeta

    def __str__(self) -> str:
        return self.text


@attrs.frozen(eq=False)
class CallText:
    """A call as text: the lines before, and the expression of the result."""

    text: str
    lines: tuple[str, ...] = ()


def text_of(value: Any) -> str:
    """The text of an argument: the operand's, or a literal."""
    return value.text if isinstance(value, OperandText) else literal(value)


def dtype_of(meta: TensorMeta) -> str:
    """The dtype of a meta as text."""
    return literal(meta.dtype.numpy)


FORMS: dict[str, Callable[[CallFacts], CallText]] = {}
"""The forms by the op's name."""


CallForm = Callable[[CallFacts], CallText]


def form(name: str) -> Callable[[CallForm], CallForm]:
    """Registers the form of an op."""

    def note(function: CallForm) -> CallForm:
        FORMS[name] = function
        return function

    return note


# ------------------------------------------------------------------------------------- factories
SIZED_FORMS: dict[str, Callable[[CallFacts], CallText]] = {}
"""Forms for operands whose sizes are symbols, of ops whose kernels hold a size as a number."""


def _mean(call: CallFacts) -> CallText:
    a, dim, keepdim = call.args[:3]
    axes = range(a.meta.ndim) if dim in (None, ()) else dim
    count: Any = 1
    for axis in axes:
        count = count * a.meta.shape[axis]
    total = f"np.sum({a}, axis={literal(tuple(axes))}, keepdims={keepdim})"
    return CallText(f"{total} / float({literal(count)})")


SIZED_FORMS["mean"] = _mean


@form("full")
def _full(call: CallFacts) -> CallText:
    shape, value = call.args[0], call.args[1]
    number = literal(fitted("full", value, call.meta.dtype))
    return CallText(f"np.full({literal(tuple(shape))}, {number}, {dtype_of(call.meta)})")


@form("clone")
@form("restride")
@form("to_device")
def _copied(call: CallFacts) -> CallText:
    """A copy in row-major order; the strides that eager has are given to what leaves the file."""
    return CallText(f'np.array({call.args[0]}, order="C")')


# --------------------------------------------------------------------- sizes that depend on values
def _count(expression: str) -> Callable[[CallFacts], CallText]:
    def form(call: CallFacts) -> CallText:
        return CallText(f"np.asarray({expression.format(*map(text_of, call.args))}, np.int64)")

    return form


def _helped(helper: str, expression: str, *others: str) -> Callable[[CallFacts], CallText]:
    """A form by an expression with the arguments' numbers in braces; `H` is the helper's name."""

    def form(call: CallFacts) -> CallText:
        for each in others:
            call.use(each)
        text = expression.replace("H(", f"{call.use(helper)}(")
        made = text.format(*map(text_of, call.args))
        dtype = f".astype({dtype_of(call.meta)})" if type(call.meta) is TensorMeta else ""
        return CallText(f"{made}{dtype}")

    return form


form("advance_offset")(_helped("_advanced", "H({0}, {1})"))
form("nonzero_count")(_count("np.count_nonzero({0})"))
form("nonzero_fitted")(_helped("_padded", "H(np.argwhere({0}), {1})"))
form("masked_select_count")(_count("np.count_nonzero(np.broadcast_arrays({0}, {1})[1])"))
form("masked_select_fitted")(_helped("_selected", "H({0}, {1}, {2})"))
form("masked_scatter")(_helped("_masked_scatter", "H({0}, {1}, {2})"))
form("repeat_interleave_count")(_count("np.sum({0})"))
form("repeat_interleave_fitted")(_helped("_padded", "H(_repeated({0}), {1})", "_repeated"))
form("repeat_interleave_sized")(_helped("_repeated_to", "H({0}, {1})"))
form("bincount_count")(_helped("_bincount", "np.asarray(len(H({0}, None, {2})))"))
form("bincount_fitted")(_helped("_padded", "H(_bincount({0}, {1}, {2}), {3})", "_bincount"))
form("unique_slices_fitted")(_helped("_unique", "H({0}, {1}, {2}, {3})"))


@form("masked_take")
def _masked_take(call: CallFacts) -> CallText:
    a, mask, size = call.args
    count = 1
    for each in size:
        count = count * each
    found = f"{call.use('_selected')}({a}, {mask}, {literal(count)})"
    return CallText(f"np.reshape({found}, {literal(tuple(size))})")


@form("searchsorted")
def _searchsorted(call: CallFacts) -> CallText:
    sequence, values, _, right, side, sorter = call.args
    line = text_of(sequence)
    if sorter is not None:
        line = f"np.take_along_axis({line}, {sorter}, axis=-1)"
    at_right = bool(right or side == "right")
    found = f"{call.use('_bisected')}({line}, {text_of(values)}, {at_right})"
    return CallText(f"{found}.astype({dtype_of(call.meta)})")


@form("histc")
def _histc(call: CallFacts) -> CallText:
    a, bins, low, high = call.args
    wide = "np.float64" if a.meta.dtype.itemsize == 8 else "np.float32"
    found = f"{call.use('_histogram')}({a}.reshape(-1).astype({wide}), {bins}, {low}, {high})"
    return CallText(f"{found}.astype({dtype_of(call.meta)})")


@form("linalg_matrix_exp")
def _matrix_exp(call: CallFacts) -> CallText:
    wide = "np.complex128" if call.meta.dtype.is_complex else "np.float64"
    if not call.meta.numel:
        return CallText(f"np.zeros({literal(tuple(call.meta.shape))}, {dtype_of(call.meta)})")
    found = f"{call.use('_matrix_exp')}({call.args[0]}.astype({wide}))"
    return CallText(f"{found}.astype({dtype_of(call.meta)})")


# --------------------------------------------------------------------------------------- scatters
def scattered(viewed: ViewOp, call: CallFacts) -> CallText:
    """The form of `<view>_scatter`: a copy, and a line that writes into what the view shows."""
    whole, part, *args = call.args
    if viewed.name in ("select", "slice") and whole.meta.numel:
        copy = f'np.array({whole}, order="C")'
        target = f"{view_text(viewed, call.name, whole.meta, args)}"
    else:
        copy = f"{call.use('_strided')}({whole}, {literal(tuple(call.meta.stride))})"
        seen, start = viewed.rule(call.meta, *args)
        call.use("_window")
        target = f"{window_text(call.name, call.meta, seen, start)}[...]"
    return CallText(call.name, (f"{call.name} = {copy}", f"{target} = {part}"))


# ----------------------------------------------------------------------------------------- random
_NUMPY: Any = np


@attrs.frozen(eq=False)
class TracedStream(PhiloxStream):
    """The words of a stream whose seed and offset are operands: each draw of words is one call."""

    offset: Any = None
    """The operand to which `position` is added."""

    def words(self, count: int) -> Any:
        """The next `count` words: a call of the helper."""
        return self._called("_words", words(np, 0, 0, count), count)

    def grid(self, rows: int, columns: int) -> Any:
        """A number for each row and column: a call of the helper."""
        return self._called("_grid", PhiloxStream(_NUMPY, 0, 0).grid(rows, columns), rows, columns)

    def _called(self, helper: str, value: np.ndarray, *counts: int) -> Any:
        namespace: Any = self.xp
        start = notes_of(self.offset)
        if self.position:
            start = (*inside(self.offset, SUM), f" + {self.position}")
        rest = ", ".join(map(str, counts))
        parts = (f"{helper}(", *notes_of(self.seed), ", ", *start, f", {rest})")
        return namespace._notes.made(value, parts)


@attrs.frozen(eq=False)
class TracedDraw:
    """The pure form of a draw as an op whose kernel takes a traced seed and offset."""

    name: str
    draws: Callable[..., Any]

    def kernel(
        self, arrays: Any, meta: Any, seed: Any, offset: object, advance: int, *args: Any
    ) -> Any:
        """The numbers of the draw: its words are noted as calls of the helper."""
        return self.draws(TracedStream(arrays.namespace, seed, advance, offset), meta, *args)


def traced_draw(op: PureOp) -> TracedDraw | None:
    """The draw whose pure form is this op; None for an op that draws nothing."""
    draws = DRAWS.get(op)
    return None if draws is None else TracedDraw(op.name, draws)


def refusal_of(op: Op) -> str | None:
    """Why no file has the op; None for an op that files have."""
    return "joins the arrays of several devices" if op.cost is Cost.OPAQUE else None


def refuse(op: Op) -> None:
    """Raises UnsupportedError for an op that no file has (PYX-9)."""
    why = refusal_of(op)
    if why is not None:
        raise noted(
            UnsupportedError(f"to_python: {op.name} {why}, expected ops that NumPy can compute"),
            "Leave it outside of the compiled function. (PYX-9)",
        )
