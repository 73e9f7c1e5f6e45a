"""`recorded`: the kernel of an op, on operands like those of one call, as lines of NumPy.

The kernel runs once on traced arrays (`traced_arrays.py`); this module prints what it called. An
expression that is used once stands where it is used, as far as no write lies between. Where a
kernel asks for the truth of an array, it runs a second time with the other answer: if it raises
then, the question is a check, and the file has it (PYX-5). Otherwise the kernel depends on values,
and needs a form of its own (`op_text.py`). Input: an op, metas and constants. Output: a
`KernelText`. Rules: PYX-4, PYX-5. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.ir.errors import AotliteError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op
from aotlite.python_export.kernels.argument_text import literal
from aotlite.python_export.kernels.call_records import ATOM, Bracketed, Line, Variable, variables
from aotlite.python_export.kernels.traced_arrays import (
    CallNotes,
    DataDependentError,
    TracedArray,
    TracedNamespace,
)

WIDTH = 72
"""The longest line into which other lines are folded."""


@attrs.frozen
class KernelText:
    """A kernel as text."""

    parameters: tuple[str, ...]
    """The names of the operands that it reads, in order."""
    lines: tuple[str, ...]
    """The lines before the result."""
    results: tuple[str, ...]
    """The expressions of the results: one, or one for each result of an op with several."""
    weight: int
    """How tightly the only result's expression binds."""
    shares: bool
    """Whether a result may be a view of an operand."""


class TracedArrays:
    """NumPy as an array library whose functions note their calls."""

    name = "numpy"

    def __init__(self, notes: CallNotes) -> None:
        self.namespace: Any = TracedNamespace(notes)

    def quiet(self, function: Callable[..., Any], *args: object) -> Any:
        """`function(*args)`; warnings are off for the whole kernel."""
        return function(*args)

    def quieted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself."""
        return function


KINDS = 4
"""The kinds of sample values, which are tried in order."""


def sample(meta: TensorMeta, kind: int = 0) -> np.ndarray:
    """An array of this geometry with values that kernels take.

    Floats are a positive definite matrix, or below 1; integers are 0, or 1; truths are True.
    """
    dtype, size = meta.dtype.numpy, meta.dtype.itemsize
    memory = np.zeros(max(meta.span, 1), dtype)
    array = np.ndarray(meta.shape, dtype, memory, 0, [step * size for step in meta.stride])
    if dtype.kind in "fcV" and array.size:
        values = 0.25 + 0.01 * (np.arange(array.size, dtype=np.float64) % 7).reshape(array.shape)
        if array.ndim > 1 and array.shape[-1] == array.shape[-2] and kind < 2:
            values = 0.01 * values + np.eye(array.shape[-1])
        array[...] = values.astype(dtype)
    elif dtype.kind == "b" or kind % 2:
        array[...] = 1
    return array


def recorded(op: Op, names: Sequence[str | None], args: Sequence[Any], meta: Any) -> KernelText:
    """The kernel on `args`, in which operands are `TensorMeta`s.

    `names` has the name of each operand, also of those in lists, in order. Raises
    DataDependentError where the calls depend on values.
    """
    notes, results, kind = _passing(op, names, args, meta)
    refusals = []
    for number in range(notes.questions):
        try:
            _run(op, names, args, meta, kind, flipped=number)
        except DataDependentError:
            raise
        except (AotliteError, ValueError) as error:
            refusals.append(error)
            continue
        raise DataDependentError(
            f"to_python: {op.name}: what its kernel computes depends on values"
        )
    return _printed(op.name, notes, results, refusals)


def _passing(
    op: Any, names: Sequence[str | None], args: Sequence[Any], meta: Any
) -> tuple[CallNotes, list[TracedArray], int]:
    """The notes of a run on sample values that the kernel does not refuse, and their kind."""
    for kind in range(KINDS - 1):
        try:
            return *_run(op, names, args, meta, kind, flipped=None), kind
        except DataDependentError:
            raise
        except (AotliteError, ValueError):
            continue
    return *_run(op, names, args, meta, KINDS - 1, flipped=None), KINDS - 1


def _run(
    op: Any, names: Sequence[str | None], args: Sequence[Any], meta: Any, kind: int, *, flipped: Any
) -> tuple[CallNotes, list[TracedArray]]:
    notes = CallNotes(flipped=flipped)
    rest = iter(names)

    def traced(value: Any) -> Any:
        if isinstance(value, TensorMeta):
            return notes.operand(next(rest) or "", sample(value, kind))
        if type(value) is tuple and any(isinstance(item, TensorMeta) for item in value):
            return tuple([traced(item) for item in value])
        return value

    given = [traced(value) for value in args]
    with np.errstate(all="ignore"):
        found = op.kernel(TracedArrays(notes), meta, *given)
    results = found if type(meta) is tuple else (found,)
    metas = meta if type(meta) is tuple else (meta,)
    return notes, [_fitted(notes, *each) for each in zip(results, metas, strict=True)]


def _fitted(notes: CallNotes, result: Any, meta: TensorMeta) -> TracedArray:
    """The result with the dtype and shape of the meta, which the backend would give it."""
    if not isinstance(result, TracedArray):
        result = notes.made(np.asarray(result), (literal(result),))
    if result.dtype != meta.dtype.numpy:
        result = result.astype(meta.dtype.numpy)
    if result.shape != meta.shape:
        parts = ("np.broadcast_to(", result.variable, f", {literal(tuple(meta.shape))}).copy()")
        result = notes.made(np.broadcast_to(result.value, meta.shape).copy(), parts)
    return result


# --------------------------------------------------------------------------------------- printing
def _printed(
    op: str, notes: CallNotes, results: Sequence[TracedArray], refusals: Sequence[Exception]
) -> KernelText:
    operands = notes.operands
    shares = any(np.may_share_memory(r.value, o.value) for r in results for o in operands)
    lines = _alive(notes.lines, [each.variable for each in results])
    folded = _folded(lines, [each.variable for each in results])
    printer = _Printer(op, refusals)
    for line in lines:
        if line.makes is None or line.makes not in folded:
            printer.line(line)
    read = {v for line in lines for v in variables(line.parts)}
    read |= {each.variable for each in results}
    used = tuple([o.variable.name or "" for o in operands if o.variable in read])
    texts = tuple([printer.text(each.variable) for each in results])
    weight = results[0].variable.weight if results[0].variable.name is None else ATOM
    return KernelText(used, tuple(printer.lines), texts, weight, shares)


def _alive(lines: Sequence[Line], results: Sequence[Variable]) -> list[Line]:
    """The lines without those whose value nothing reads."""
    kept: list[Line] = []
    needed = set(results)
    for line in reversed(lines):
        if line.makes is None or line.makes in needed:
            kept.append(line)
            needed.update(variables(line.parts))
    kept.reverse()
    for line in kept:
        if line.makes is not None:
            line.makes.uses = 0
    for line in kept:
        for each in variables(line.parts):
            each.uses += 1
    for each in results:
        each.uses += 1
    return kept


def _folded(lines: Sequence[Line], results: Sequence[Variable]) -> set[Variable]:
    """The variables whose expressions stand where they are used: once, in a line that stays short,
    and with no write between."""
    writes = [place for place, line in enumerate(lines) if line.is_write]
    reader = {each: place for place, line in enumerate(lines) for each in variables(line.parts)}
    reader |= dict.fromkeys(results, len(lines))
    at: dict[int, int] = {len(lines): len(lines)}
    """The line in which the expression of each line stands."""
    length: dict[object, int] = {}
    folded: set[Variable] = set()
    for place in range(len(lines) - 1, -1, -1):
        made, own = lines[place].makes, _length(lines[place])
        end = place if made is None else at[reader[made]]
        goal: object = made if end == len(lines) and made in results else end
        together = own + length.get(goal, 0)
        is_apart = any(place < w < end for w in writes)
        if made is None or made.uses != 1 or together > WIDTH or is_apart:
            at[place], length[place] = place, own
        else:
            folded.add(made)
            at[place], length[goal] = end, together
    return folded


def _length(line: Line) -> int:
    """About as many characters as the line has."""
    return sum([len(part) if isinstance(part, str) else 2 for part in line.parts])


def refusal(op: str, error: Exception) -> str:
    """The line that raises what the kernel raises for such values, without the sample's value."""
    kind = next(k for k in type(error).__mro__ if k.__module__ == "builtins").__name__
    _, _, expected = str(error).splitlines()[0].partition(", expected ")
    text = f"{op}: a value is refused"
    if isinstance(error, AotliteError) and expected:
        text = f"{text}, expected {expected}"
    return f"raise {kind}({literal(text)})"


class _Printer:
    """Prints lines, and names their variables."""

    def __init__(self, op: str, refusals: Sequence[Exception]) -> None:
        self.op, self.refusals = op, iter(refusals)
        self.lines: list[str] = []
        self.count = 0

    def line(self, line: Line) -> None:
        """Adds a line, or two for a check."""
        text = "".join([self.part(part) for part in line.parts])
        if line.makes is not None:
            line.makes.name = f"t{self.count}"
            self.count += 1
            self.lines.append(f"{line.makes.name} = {text}")
        elif line.is_write:
            self.lines.append(text)
        else:
            self.lines.append(f"{text}:")
            self.lines.append(f"    {refusal(self.op, next(self.refusals))}")

    def part(self, part: object) -> str:
        if isinstance(part, str):
            return part
        if isinstance(part, Bracketed):
            text = self.text(part.variable)
            whole = part.variable.name is not None or part.variable.weight >= part.weight
            return text if whole else f"({text})"
        assert isinstance(part, Variable)
        return self.text(part)

    def text(self, variable: Variable) -> str:
        """The name of a variable, or its expression."""
        if variable.name is not None:
            return variable.name
        return "".join([self.part(part) for part in variable.parts])
