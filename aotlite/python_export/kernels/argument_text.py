"""The texts of arguments: literals, and the variables of traced arrays between brackets and commas.

Used by this package and by the writers of functions. Spec: `specs/to_python.md`. Rule: PYX-4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aotlite.ir.errors import UnsupportedError
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt
from aotlite.python_export.kernels.call_records import COMPARISON, Bracketed, TracedValue


def plain(value: Any) -> Any:
    """The argument with NumPy's arrays in place of traced ones."""
    if isinstance(value, TracedValue):
        return value.value
    if isinstance(value, (NamedInt, NamedFloat)):  # NumPy takes subclasses for its own numbers
        return int(value) if isinstance(value, int) else float(value)
    if type(value) in (tuple, list):
        return type(value)([plain(item) for item in value])
    if type(value) is slice:
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value


def notes_of(value: object) -> tuple[object, ...]:
    """The parts of an argument's text."""
    if isinstance(value, TracedValue):
        return (value.variable,)
    if isinstance(value, (tuple, list)) and any(_holds_array(item) for item in value):
        opening, closing = ("(", ")") if isinstance(value, tuple) else ("[", "]")
        items: list[object] = []
        for place, item in enumerate(value):
            items += [", "] * bool(place) + list(notes_of(item))
        comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return (opening, *items, f"{comma}{closing}")
    return (literal(value),)


def _holds_array(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_holds_array, value))
    return isinstance(value, TracedValue)


def inside(value: object, weight: int) -> tuple[object, ...]:
    """The parts of an operand of an operator of this weight."""
    if isinstance(value, TracedValue):
        return (Bracketed(value.variable, weight),)
    text = literal(value)
    return (f"({text})" if text.startswith("-") else text,)


def operator_parts(symbol: str, weight: int, a: object, b: object) -> tuple[object, ...]:
    """The parts of `a symbol b`. Python chains comparisons, so both sides get brackets there."""
    left = weight + 1 if weight == COMPARISON else weight
    return (*inside(a, left), f" {symbol} ", *inside(b, weight + 1))


def arguments_of(args: Sequence[object], kwargs: dict[str, object]) -> list[object]:
    parts: list[object] = []
    for place, value in enumerate(args):
        parts += [", "] * bool(place) + list(notes_of(value))
    for place, (name, value) in enumerate(kwargs.items()):
        comma = ", " if args or place else ""
        parts += [f"{comma}{name}=", *notes_of(value)]
    return parts


def key_parts(key: object) -> tuple[object, ...]:
    """The parts of a subscript's text."""
    if type(key) is tuple and key:
        parts: list[object] = []
        for place, item in enumerate(key):
            parts += [", "] * bool(place) + list(_key_item(item))
        return (*parts, ",") if len(key) == 1 else tuple(parts)
    return _key_item(key)


def _key_item(item: object) -> tuple[object, ...]:
    if type(item) is slice:
        ends = [() if end is None else notes_of(end) for end in (item.start, item.stop)]
        step = () if item.step is None else (":", *notes_of(item.step))
        return (*ends[0], ":", *ends[1], *step)
    return ("...",) if item is Ellipsis else notes_of(item)


class NamedInt(int):
    """A number made of sizes that are symbols: it has the value of a sample, and is printed as its
    expression."""

    text = ""


class NamedFloat(float):
    """A float made of such sizes."""

    text = ""


def named(value: int | float, text: str) -> NamedInt | NamedFloat:
    """The number, printed as this expression."""
    found = NamedInt(value) if isinstance(value, int) else NamedFloat(value)
    found.text = text if text.isidentifier() else f"({text})"
    return found


def literal(value: Any) -> str:
    """A Python literal for an argument that is no array. Raises UnsupportedError for others."""
    if isinstance(value, (NamedInt, NamedFloat)):
        return value.text
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, SymInt):
        return str(value)
    if isinstance(value, SizeFloat):
        return value.text
    if isinstance(value, float):
        return _float(float(value))
    if isinstance(value, complex):
        return f"complex({_float(value.real)}, {_float(value.imag)})"
    if isinstance(value, np.dtype):
        home = "ml_dtypes" if value.kind == "V" else "np"
        return f"{home}.{value.name}" if value.name != "bool" else "np.bool_"
    if isinstance(value, type) and issubclass(value, np.generic):
        return literal(np.dtype(value))
    if value in (bool, int, float, complex) if isinstance(value, type) else False:
        return str(value.__name__)
    if isinstance(value, np.generic):
        return f"{literal(value.dtype)}({literal(value.item())})"
    if type(value) is tuple:
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    if type(value) is list:
        return f"[{', '.join(map(literal, value))}]"
    if type(value) is slice:
        return f"slice({literal(value.start)}, {literal(value.stop)}, {literal(value.step)})"
    if isinstance(value, np.ndarray) and value.size <= 64:
        return f"np.array({literal(value.tolist())}, dtype={literal(value.dtype)})"
    raise UnsupportedError(
        f"to_python: {value!r} of type {type(value).__name__} has no literal, expected numbers, "
        "texts, dtypes and tuples of them"
    )


def quoted(text: str) -> str:
    """A Python string literal, in double quotes unless it holds some."""
    shown = repr(text)
    plain_text = shown[0] == "'" and '"' not in shown and "\\" not in shown
    return f'"{shown[1:-1]}"' if plain_text else shown


def _float(value: float) -> str:
    if value != value:
        return "np.nan"
    if value in (float("inf"), float("-inf")):
        return "np.inf" if value > 0 else "-np.inf"
    return repr(value)
