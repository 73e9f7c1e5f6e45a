"""`RowTable`: the rows of `table` as patterns, looked up by op and by overload.

A pattern binds the arguments of one side by the names in it; the other side is made of what is
bound. Spec: `specs/torch_fx.md`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import attrs

import aotlite.ir.ops  # noqa: F401  (fills OPS)
from aotlite.interchange.torch_fx.table import BY_OTHER, ROWS, SAME
from aotlite.interchange.torch_fx.values import the_torch
from aotlite.ir.op import OPS, Op
from aotlite.ir.op.schema import REQUIRED

Arguments = dict[str, Any]
"""Arguments by name."""


@attrs.frozen
class Slot:
    """An argument that a row names: a variable, and a condition on it."""

    name: str
    condition: str = ""


@attrs.frozen
class Pattern:
    """One side of a row: a function, and a `Slot` or a literal for each argument that it names."""

    function: str
    slots: dict[str, Any]


@attrs.frozen
class Row:
    """An op and an overload with one meaning."""

    op: Op
    overload: Any
    left: Pattern
    right: Pattern
    is_read_only: bool


def bound(given: Arguments, defaults: Arguments, pattern: Pattern) -> Arguments | None:
    """The variables of a side for these arguments; None where they do not fit."""
    found: Arguments = {}
    for name, value in given.items():
        slot = pattern.slots.get(name, defaults.get(name, REQUIRED))
        if isinstance(slot, Slot):
            if not _CONDITIONS[slot.condition](value):
                return None
            found[slot.name] = value[0] if slot.condition == "One" else value
        elif slot is REQUIRED or not is_same(slot, value):
            return None
    return found


def fits(variables: Arguments, pattern: Pattern) -> bool:
    """Whether the variables meet the conditions of the other side."""
    slots = [slot for slot in pattern.slots.values() if isinstance(slot, Slot)]
    return all(_CONDITIONS[slot.condition](variables[slot.name]) for slot in slots)


def filled(variables: Arguments, pattern: Pattern) -> Arguments:
    """The arguments of the other side."""
    return {name: _filled(slot, variables) for name, slot in pattern.slots.items()}


def _filled(slot: object, variables: Arguments) -> Any:
    if not isinstance(slot, Slot):
        return slot
    value = variables[slot.name]
    return (value,) if slot.condition == "One" else value


def is_same(a: object, b: object) -> bool:
    """Whether two literals are equal and of one type, also inside of tuples."""
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(is_same, a, b))
    return type(a) is type(b) and (a is b or repr(a) == repr(b))


def is_tensor(value: object) -> bool:
    """Whether an argument is a value of a graph."""
    return hasattr(value, "meta")


def is_number(value: object) -> bool:
    """Whether an argument is a number, or left out."""
    return value is None or isinstance(value, (bool, int, float, complex))


_CONDITIONS: dict[str, Callable[[Any], bool]] = {
    "": lambda value: True,
    "One": lambda value: type(value) is not tuple or len(value) == 1,
    "Number": is_number,
    "Given": lambda value: value is not None,
    "Complex": lambda value: value.meta.dtype.is_complex,
    "Real": lambda value: not value.meta.dtype.is_complex,
}


# ---------------------------------------------------------------------------------------- the table
def _of_rows() -> Iterator[tuple[str, bool]]:
    """The text of each row, and whether it is only read."""
    for overload, names in SAME.items():
        for name in names.split():
            parameters = OPS[name].schema.parameters
            text = ", ".join([f"{p.name}={p.name}" for p in parameters])
            yield f"{name}({text}) = {name}.{overload}({text})", False
    for line in ROWS.replace("\n    ", " ").replace("=\n", "= ").strip().splitlines():
        yield line.replace(" <- ", " = "), " <- " in line
    for name in BY_OTHER.split():
        yield f"{name}(self, Number(other)) = {name}.Scalar(self, other)", False
        yield f"{name}(self, other) = {name}.Tensor(self, other)", False


def _pattern(node: Any, names: list[str]) -> Pattern:
    function = node.func
    name = function.id if isinstance(function, ast.Name) else f"{function.value.id}.{function.attr}"
    slots = dict(zip(names, map(_slot, node.args), strict=False))
    slots |= {each.arg: _slot(each.value) for each in node.keywords}
    return Pattern(name, slots)


def _slot(node: ast.expr) -> Any:
    match node:
        case ast.Name(id=name):
            return Slot(name)
        case ast.Call(func=ast.Name(id=condition), args=[ast.Name(id=name)]):
            return Slot(name, condition)
    return ast.literal_eval(node)


def _row(text: str, is_read_only: bool, ending: str = "") -> Row | None:
    """The row of a text, or of its in-place form; None where aten has no such overload."""
    aten = the_torch().ops.aten
    left, _, right = text.partition(") = ")
    ours: Any = ast.parse(left + ")", mode="eval").body
    theirs: Any = ast.parse(right, mode="eval").body
    op = OPS.get(ours.func.id + ending)
    packet = getattr(aten, theirs.func.value.id + ending, None)
    overload = getattr(packet, theirs.func.attr, None)
    if op is None or overload is None:
        return None
    return Row(
        op,
        overload,
        _pattern(ours, [parameter.name for parameter in op.schema.parameters]),
        _pattern(theirs, [argument.name for argument in overload._schema.arguments]),
        is_read_only,
    )


class RowTable:
    """The rows by op, and by overload, in their order."""

    def __init__(self) -> None:
        self.of_op: dict[Op, list[Row]] = {}
        self.of_overload: dict[Any, list[Row]] = {}
        for text, is_read_only in _of_rows():
            for ending in ("", "_"):
                row = _row(text, is_read_only, ending)
                if row is not None:
                    self.of_overload.setdefault(row.overload, []).append(row)
                    if not is_read_only:
                        self.of_op.setdefault(row.op, []).append(row)

    def written(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, Arguments] | None:
        """(overload, arguments by name) of a call of an op; None where no row fits."""
        defaults = {each.name: each.default for each in op.schema.parameters}
        given = dict(zip(defaults, args, strict=True))
        for row in self.of_op.get(op, ()):
            variables = bound(given, defaults, row.left)
            if variables is not None and fits(variables, row.right):
                return row.overload, filled(variables, row.right)
        return None

    def read(self, overload: Any, given: Arguments) -> tuple[Op, Arguments] | None:
        """(op, arguments by name) of a call of an overload with all its arguments."""
        defaults = defaults_of(overload)
        for row in self.of_overload.get(overload, ()):
            variables = bound(given, defaults, row.right)
            if variables is not None and fits(variables, row.left):
                return row.op, filled(variables, row.left)
        return None


@cache
def the_table() -> RowTable:
    """The table, for the PyTorch that is installed."""
    return RowTable()


@cache
def _defaults_of(overload: Any) -> Mapping[str, Any]:
    return {
        each.name: _canonical(each) if each.has_default_value() else REQUIRED
        for each in overload._schema.arguments
    }


def _canonical(argument: Any) -> Any:
    value = argument.default_value
    if isinstance(value, int) and "ScalarType" in str(argument.real_type):
        return None  # the number of a dtype, which the op has without one
    return tuple(value) if isinstance(value, list) else value


def defaults_of(overload: Any) -> Arguments:
    """The defaults of an overload by name; REQUIRED where there is none."""
    return dict(_defaults_of(overload))


def arguments_of(overload: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """All arguments of a call by name, defaults filled in."""
    found = defaults_of(overload)
    found |= dict(zip(found, args, strict=False)) | dict(kwargs)
    for name, usual in _USUAL.items():
        if name in found and str(found[name]) == usual:
            found[name] = None
    return found


_USUAL = {"layout": "torch.strided", "pin_memory": "False"}
"""What None stands for; graphs of make_fx have it."""


def call_form(overload: Any, given: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) of a call: trailing positional arguments that equal their defaults are left
    out, and so are such keywords."""
    positional: list[tuple[Any, Any]] = []
    kwargs: dict[str, Any] = {}
    for argument in overload._schema.arguments:
        default = _canonical(argument) if argument.has_default_value() else REQUIRED
        value = given.get(argument.name, default)
        if not argument.kwarg_only:
            positional.append((value, default))
        elif not is_same(value, default):
            kwargs[argument.name] = value
    while positional and is_same(*positional[-1]):
        positional.pop()
    return tuple([value for value, _ in positional]), kwargs
