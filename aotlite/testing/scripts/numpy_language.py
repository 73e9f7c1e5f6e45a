"""Steps of programs as code of NumPy: views are views, writes are in place.

The NumPy engine runs the same code. Steps about history are comments.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

from aotlite.ir.errors import UnsupportedError
from aotlite.testing.programs.numbers import numbers
from aotlite.testing.programs.steps import Step
from aotlite.testing.programs.vocabulary import GEOMETRY, OPS
from aotlite.testing.scripts import numpy_ops
from aotlite.testing.scripts.language import Language, index_text, nested_text, text_of

HELPERS: dict[str, Any] = {
    name: function
    for name, function in vars(numpy_ops).items()
    if inspect.isfunction(function) and function.__module__ == numpy_ops.__name__
}
"""The functions of `numpy_ops`, which are named as ops are; that of `view` is not, as values are
called so."""

NO_MEANING = ("requires_grad_", "detach_")
REBINDS = (*GEOMETRY, "set_", "resize_", *NO_MEANING)


class NumPyLanguage(Language):
    """Arrays of NumPy."""

    module = "np"

    def __init__(self) -> None:
        self.used: dict[str, None] = {}
        """The helpers in use."""

    def prefix(self, *, no_grad: bool) -> str:
        return ""

    def comment(self, step: Step) -> str:
        """The comment of a line about an effect that NumPy lacks."""
        words = [step.op] if step.op in ("detach", "hidden_alias", *GEOMETRY, "set_") else []
        words += ["requires grad"] if step.op == "make" and step.args[3] else []
        words += ["under no_grad"] if step.no_grad else []
        return f"  # {', '.join(words)}" if words else ""

    def make(self, seed: int, shape: Sequence[int], dtype: str, grad: bool) -> str:
        count = math.prod(shape)
        kind = self.dtype(dtype)
        if not count:
            return f"np.zeros({text_of(tuple(shape))}, dtype={kind})"
        return f"np.array({nested_text(numbers(count, seed, dtype), shape)}, dtype={kind})"

    def ints(self, values: Sequence[int]) -> str:
        return f"np.array({list(values)}, dtype=np.int64)"

    def expression(self, op: str, args: Sequence[Any]) -> str:
        match op, *args:
            case (("make" | "ints" | "full" | "real" | "imag"), *_):
                return super().expression(op, args)
            case "getitem", x, index:
                return f"{x}[{_as_view(index)}]"
            case "setitem", x, index, value:
                return f"{x}[{index_text(index)}] = {text_of(value)}"
            case "select", x, dim, place:
                return f"{x}[{_at(dim, str(place), is_view=True)}]"
            case "narrow", x, dim, start, length:
                end = "" if start + length == 0 and start else start + length
                return f"{x}[{_at(dim, f'{start}:{end}')}]"
            case "view_dtype", x, dtype:
                return f"{x}.view({self.dtype(dtype)})"
            case "to", x, dtype:
                return f"{x}.astype({self.dtype(dtype)})"
            case "sum", x, *dims:
                return f"np.asarray({x}.sum({', '.join(map(text_of, dims))}))"
            case (("index_fill_" | "index_copy_"), x, dim, places, value):
                return f"{x}[{_at(dim, str(places))}] = {text_of(value)}"
            case "index_put_", x, places, value:
                return f"{x}[{', '.join(map(str, places))}] = {text_of(value)}"
            case "index_add_", x, dim, places, value:
                return f"np.add.at({x}, np.s_[{_at(dim, str(places))}], {text_of(value)})"
            case "squeeze", x:
                return f"{x}.squeeze()"
        helper = "as_view" if op == "view" else op
        if helper in HELPERS:
            return self._helper(helper, args)
        row = OPS.get(op)
        if row is None or row.numpy is None:
            raise unsupported(op, "NumPy has no such op")
        texts = [text_of(arg) for arg in args]
        if op == "tensor_split" and len(texts) == 2:
            texts.append("0")
        return row.numpy.format(*texts)

    def _helper(self, name: str, args: Sequence[object]) -> str:
        needed = {"unflatten": ["as_view"], "chunk": ["split"]}.get(name, [])
        self.used.update(dict.fromkeys([*needed, name]))
        return f"{name}({', '.join(map(text_of, args))})"

    def inplace(self, op: str, args: Sequence[object]) -> str:
        """The statement of an in-place op; a change of geometry binds the name to a view."""
        target = args[0]
        if op in NO_MEANING:
            return f"pass  # {target}.{op}({', '.join(map(text_of, args[1:]))})"
        if op == "resize_":
            raise unsupported("resize_", "arrays of NumPy that share memory do not grow")
        if op == "set_":
            return f"{target} = {args[1]}[...]"
        if op in GEOMETRY:
            return f"{target} = {self.expression(op[:-1], args)}"
        return self.expression(op, args)

    def imports(self) -> str:
        """The imports of the steps and of the functions in `sources`."""
        typed = any("Sequence" in source for source in self.sources())
        more = "from collections.abc import Sequence\n\n" if typed else ""
        return f"{more}import numpy as np"

    def sources(self) -> list[str]:
        """The functions that scripts must define."""
        return [inspect.getsource(HELPERS[name]).rstrip() for name in HELPERS if name in self.used]


def unsupported(op: str, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"to_numpy: a step is {op!r}, expected one that arrays can do: {reason}"
    )


def _as_view(items: Sequence[object]) -> str:
    """An index whose result is a view, even if it has ints alone."""
    has_int = any(isinstance(item, int) for item in items)
    return index_text((*items, "...") if has_int and "..." not in items else items)


def _at(dim: int, item: str, *, is_view: bool = False) -> str:
    """An index of one dimension."""
    if dim >= 0:
        return ", ".join([*[":"] * dim, item, *(["..."] if is_view else [])])
    return ", ".join(["...", item, *[":"] * (-dim - 1)])


def rebound(steps: Iterable[Step]) -> list[Step]:
    """The steps that bind an object's name to another array."""
    return [step for step in steps if step.op in REBINDS and step.op not in NO_MEANING]
