"""The table of methods and operators that mean the same for NumPy arrays and for tensors.

`tools/ndarray_table.py` makes `array_names.json` by comparing results on samples. It has a letter
for each form of a call and each class of operands: "." where all samples agree, else the letter of
the reason why not. A form that is not in the table is not known to agree. `array_stand_in` reads
it. Rules: NDA-2, NDA-3. Spec: `specs/ndarrays.md`.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.dtypes import DTYPES, INTEGER, DType, int64
from aotlite.ir.dtypes.limits import iinfo

TABLE = Path(__file__).parent / "array_names.json"
KINDS = tuple([dtype for dtype in DTYPES if dtype.numpy.isbuiltin == 1])
"""The dtypes that are NumPy's own."""
dtypes_by_name = {str(dtype): dtype for dtype in KINDS}
RANKS = ("n", "0", "s")
"""Arrays with dimensions, 0-d arrays, and NumPy scalars, which behave differently."""
NUMBERS = ("bool", "int", "int beyond", "float", "complex")
"""Python's numbers, integers apart that the array's dtype does not hold."""
RECEIVERS = tuple([f"{dtype}:{rank}" for dtype in KINDS for rank in RANKS])
OPERANDS = (*RECEIVERS, *[f"{dtype}:number" for dtype in KINDS], *NUMBERS)
"""What an operator's other operand can be; a `:number` is a NumPy scalar from outside."""
AGREES = "."
LETTERS = "".join(c for c in map(chr, range(33, 127)) if c not in '."\\')
UNKNOWN = "This form is not in the table of what was compared"
_EXACT = {"float16": 2**11, "float32": 2**24, "float64": 2**53}
_PLACES = {name: place for place, name in enumerate(RECEIVERS)}
_OTHERS = {name: place for place, name in enumerate(OPERANDS)}


@functools.cache
def table() -> dict[str, Any]:
    """The table: `calls` by form, `operators` by form and receiver, each with its reasons."""
    with open(TABLE, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def why_not(form: str, receiver: str) -> str | None:
    """Why a name or call differs between NumPy and tensors; None where it does not."""
    calls = table()["calls"]
    row = calls.get(form) or calls.get(f"{form.partition('(')[0]}(*)")
    place = _PLACES.get(receiver)
    return UNKNOWN if row is None or place is None else _reason(row, row["cells"][place])


def why_no_index(form: str, receiver: str) -> str | None:
    """Why an index, such as `a[IS]`, differs, for any dtype; None where it does not."""
    row = table()["indices"].get(form)
    if row is None or receiver not in _PLACES:
        return UNKNOWN
    return _reason(row, row["cells"][RANKS.index(receiver[-1])])


def why_no_operator(form: str, receiver: str, other: str) -> str | None:
    """Why an operator differs for two classes of operands; None where it does not."""
    row = table()["operators"].get(form)
    place, column = _PLACES.get(receiver), _OTHERS.get(other)
    if row is None or place is None or column is None:
        return UNKNOWN
    return _reason(row, row["cells"][row["rows"][place]][column])


def _reason(row: dict[str, Any], letter: str) -> str | None:
    if letter == AGREES:
        return None
    found: str = table()["reasons"][row["reasons"][LETTERS.index(letter)]]
    return found


# ------------------------------------------------------------------------------------------ classes
def receiver_class(tensor: Tensor, *, is_scalar: bool) -> str:
    """The class of a stand-in, such as `float32:n`."""
    rank = "n" if tensor.meta.shape else "s" if is_scalar else "0"
    return f"{tensor.dtype}:{rank}"


def number_class(value: object, dtype: DType) -> str:
    """The class of a number as the other operand of an array; "" where none was compared.

    Not compared are values that are not numbers, integers that no dtype holds, and floats beside an
    integer array that its dtype does not hold.
    """
    if isinstance(value, np.generic):
        return f"{value.dtype}:number"
    if type(value) is int:
        if not -(2**63) <= value < 2**63:
            return ""
        return "int" if _holds(dtype, value) else "int beyond"
    if type(value) is float and dtype.kind <= INTEGER:
        if not (math.isfinite(value) and _holds(dtype, int(value))):
            return ""
    return type(value).__name__ if type(value) in (bool, float, complex) else ""


def _holds(dtype: DType, value: int) -> bool:
    if dtype.kind <= INTEGER:
        limits = iinfo(dtype if dtype.kind == INTEGER else int64)
        return bool(limits.min <= value <= limits.max)
    return abs(value) <= _EXACT.get(str(dtype.to_real()), 0)


def call_form(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """The table's form of a call: `sum(int, keepdims=bool)`."""
    words = [_word(each) for each in args]
    words += [f"{key}={_word(kwargs[key])}" for key in sorted(kwargs)]
    return f"{name}({', '.join(words)})"


def _word(value: Any) -> str:
    kind = type(value)
    if kind in (tuple, list):
        inner = sorted({_word(item) for item in value})
        return f"{kind.__name__} of {'|'.join(inner)}" if value else f"empty {kind.__name__}"
    return "None" if value is None else kind.__name__


def index_form(index: object) -> str:
    """The table's form of an index: one letter for each item of a tuple."""
    items = index if type(index) is tuple else (index,)
    letters = "".join([_letter(item) for item in items])
    return letters if type(index) is tuple else f"={letters}"


def _letter(item: Any) -> str:
    """The letter for an item of an index; "?" for one that was not compared."""
    if item is None or item is Ellipsis:
        return "N" if item is None else "E"
    if type(item) is slice:
        parts = item.start, item.stop, item.step
        if any(part is not None and type(part) is not int for part in parts):
            return "?"
        return "S" if item.step is None or item.step > 0 else "R"
    if type(item) in (int, bool):
        return "I" if type(item) is int else "B"
    if type(item) is list and item:
        return {int: "L", bool: "M"}.get(type(item[0]), "?") if _is_uniform(item) else "?"
    meta = getattr(item, "dtype", None)
    if meta is None or not item.shape:
        return "?"
    return {"bool": "m", "int64": "a", "int32": "j", "uint8": "u"}.get(str(meta), "?")


def _is_uniform(items: list[object]) -> bool:
    return len({type(item) for item in items}) == 1
