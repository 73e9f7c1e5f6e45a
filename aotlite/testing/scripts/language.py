"""Steps of programs as code of a library: `Language`, and those of aotlite and PyTorch.

Place: below `block`, which gives values their names. Tensors have PyTorch's methods in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aotlite.testing.programs.numbers import numbers
from aotlite.testing.programs.steps import Step


class Name(str):
    """An expression among a step's arguments: the name of a value."""

    __slots__ = ()


def text_of(value: object) -> str:
    """An argument as an expression; shapes are tuples."""
    match value:
        case str() if not isinstance(value, Name):
            return f'"{value}"' if value.isidentifier() else repr(value)
        case Name():
            return str(value)
        case tuple():
            inner = ", ".join(map(text_of, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case float() if not math.isfinite(value):
            return f'float("{value}")'
    return repr(value)


def index_text(items: Sequence[object]) -> str:
    """The index of a list in programs, as text between brackets."""
    if not items:
        return "()"
    return ", ".join("None" if item == "none" else _index_item(item) for item in items)


def _index_item(item: object) -> str:
    plain = isinstance(item, str) and not isinstance(item, Name)
    return str(item) if plain else text_of(item)


def nested_text(values: Sequence[object], shape: Sequence[int]) -> str:
    """Values in row-major order as nested lists."""
    if not shape:
        return text_of(values[0])
    size = len(values) // shape[0] if shape[0] else 0
    rows = [values[i * size : (i + 1) * size] for i in range(shape[0])]
    return "[" + ", ".join(nested_text(row, shape[1:]) for row in rows) + "]"


class Language:
    """A library whose tensors have PyTorch's methods."""

    module: str
    """The name of the library in scripts."""
    bool_name = "bool"

    def dtype(self, name: str) -> str:
        return f"{self.module}.{self.bool_name if name == 'bool' else name}"

    def prefix(self, *, no_grad: bool) -> str:
        """The text before a statement under `no_grad`."""
        return f"with {self.module}.no_grad(): " if no_grad else ""

    def comment(self, step: Step) -> str:
        """Returns the comment behind a statement."""
        return ""

    def inplace(self, op: str, args: Sequence[object]) -> str:
        """The statement of an op that returns its first operand."""
        return self.expression(op, args)

    def make(self, seed: int, shape: Sequence[int], dtype: str, grad: bool) -> str:
        """The expression of the leaf of a `make` step."""
        more = f"dtype={self.dtype(dtype)}" + (", requires_grad=True" if grad else "")
        count = math.prod(shape)
        if not count:
            return f"{self.module}.zeros({text_of(tuple(shape))}, {more})"
        return f"{self.module}.tensor({nested_text(numbers(count, seed, dtype), shape)}, {more})"

    def ints(self, values: Sequence[int]) -> str:
        return f"{self.module}.tensor({list(values)}, dtype={self.dtype('int64')})"

    def full(self, shape: Sequence[int], number: float, dtype: str) -> str:
        words = f"{text_of(tuple(shape))}, {text_of(number)}, dtype={self.dtype(dtype)}"
        return f"{self.module}.full({words})"

    def alias(self, x: str) -> str:
        return f"{x}.alias()"

    def hidden_alias(self, x: str) -> str:
        return f"{x}.hidden_alias()"

    def expression(self, op: str, args: Sequence[Any]) -> str:
        """The expression of a step's value; for `setitem`, a statement."""
        match op, *args:
            case "make", *given:
                return self.make(*given)
            case "ints", values:
                return self.ints(values)
            case "full", shape, number, dtype:
                return self.full(shape, number, dtype)
            case "getitem", x, index:
                return f"{x}[{index_text(index)}]"
            case "setitem", x, index, value:
                return f"{x}[{index_text(index)}] = {text_of(value)}"
            case (("real" | "imag"), x):
                return f"{x}.{op}"
            case (("view_as_real" | "view_as_complex"), x):
                return f"{self.module}.{op}({x})"
            case (("view_dtype" | "to"), x, dtype):
                return f"{x}.{'to' if op == 'to' else 'view'}({self.dtype(dtype)})"
            case "alias", x:
                return self.alias(x)
            case "hidden_alias", x:
                return self.hidden_alias(x)
        return f"{args[0]}.{op}({', '.join(map(text_of, args[1:]))})"


class AotliteLanguage(Language):
    """aotlite's eager library."""

    module = "al"
    bool_name = "bool_"


class TorchLanguage(Language):
    """PyTorch's eager library."""

    module = "torch"

    def alias(self, x: str) -> str:
        return f"torch.ops.aten.alias({x})"

    def hidden_alias(self, x: str) -> str:
        return f"{x}.data"
