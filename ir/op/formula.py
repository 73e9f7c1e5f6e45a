"""`Vjp` and `Formula`: the gradient formulas of an op, and the values that they need saved (OPS-4).

Ground floor. A formula is a function in operand methods. The names of its parameters declare what
it reads, so that a tape saves exactly that. For `mul(Tensor self, Tensor|Scalar other)`:

    self=lambda grad, other: grad * conj(other)     reads the cotangent; saves `other`
    other=lambda grad, self: grad * conj(self)      reads the cotangent; saves `self`

Of an op with several results, a cotangent that does not arrive is zeros, or None for a formula
whose parameter has a default: `grad_var=None`.

Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

import attrs

from aotlite.ir.errors import ArgumentError
from aotlite.ir.op.schema import Schema


class Source(enum.Enum):
    """The kinds of values that a gradient formula can read."""

    GRAD = "grad"
    GRAD_OR_NONE = "grad or None"
    """The gradient of a result; None if it is absent, where `GRAD` gives zeros."""
    GRADS = "grads"
    GRADS_OR_NONE = "grads or None"
    """The list of the gradients of results, with None for absent ones, where `GRADS` has zeros."""
    OPERAND = "operand"
    OPERAND_META = "operand meta"
    RESULT = "result"
    RESULT_META = "result meta"
    CONSTANT = "constant"


@attrs.frozen
class Formula:
    """The gradient formula of one operand. Its parameter names say what it reads (OPS-4)."""

    function: Callable[..., Any]
    sources: tuple[tuple[Source, int], ...]

    def reads(self, source: Source) -> tuple[int, ...]:
        """The positions that the formula reads of `source`."""
        return tuple(index for kind, index in self.sources if kind is source)


@attrs.frozen(eq=False)
class Vjp:
    """The gradient formulas of an op, by operand position."""

    formulas: Mapping[int, Formula]
    positions: tuple[int, ...] = attrs.field(init=False)
    """The operands that have a formula."""
    plans: dict[tuple[int, ...], Any] = attrs.field(init=False, factory=dict, repr=False)
    """Set of operands that need gradients -> what the tape has prepared for it."""

    @positions.default
    def _positions(self) -> tuple[int, ...]:
        return tuple(self.formulas)

    def reads(self, source: Source, needed: tuple[int, ...]) -> tuple[int, ...]:
        """The positions that the formulas of the `needed` operands read of `source`."""
        found = {index for position in needed for index in self.formulas[position].reads(source)}
        return tuple(sorted(found))

    def saves(self, needed: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(operand positions, result positions) to save for the gradients of `needed` operands."""
        return self.reads(Source.OPERAND, needed), self.reads(Source.RESULT, needed)


def parse_vjp(schema: Schema, formulas: Mapping[str, Callable[..., object]] | None) -> Vjp | None:
    """The `Vjp` of formulas given by operand name; None for an op without gradient."""
    if formulas is None:
        return None
    positions = {parameter.name: i for i, parameter in enumerate(schema.parameters)}
    return Vjp({positions[name]: _parse_formula(schema, f) for name, f in formulas.items()})


def _parse_formula(schema: Schema, function: Callable[..., object]) -> Formula:
    names = _formula_names(schema)
    optional = _optional_names(function)
    sources = []
    for name in _parameter_names(function):
        if name not in names:
            raise ArgumentError(
                f"{schema.name}: a gradient formula has the parameter {name!r}, expected one of "
                f"{', '.join(sorted(names))}"
            )
        source, index = names[name]
        sources.append((_OR_NONE.get(source, source) if name in optional else source, index))
    return Formula(function, tuple(sources))


_OR_NONE = {Source.GRAD: Source.GRAD_OR_NONE, Source.GRADS: Source.GRADS_OR_NONE}


def _parameter_names(function: Callable[..., object]) -> Iterable[str]:
    if type(function) is FunctionType and not vars(function):  # not decorated: ten times as fast
        code = function.__code__
        return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return inspect.signature(function).parameters


def _optional_names(function: Callable[..., object]) -> Iterable[str]:
    """The parameters with a default: of such a gradient the formula is told that it is absent."""
    if type(function) is FunctionType and function.__defaults__ is None and not vars(function):
        return ()
    parameters = inspect.signature(function).parameters
    return [name for name, each in parameters.items() if each.default is not each.empty]


def _formula_names(schema: Schema) -> dict[str, tuple[Source, int]]:
    names: dict[str, tuple[Source, int]] = {}
    for i, parameter in enumerate(schema.parameters):
        if parameter.type.holds_tensor:
            names[parameter.name] = (Source.OPERAND, i)
            names[parameter.name + "_meta"] = (Source.OPERAND_META, i)
        else:
            names[parameter.name] = (Source.CONSTANT, i)
    if schema.returns[0].is_list:  # as many as there are: their gradients come as one list
        return {**names, "grads": (Source.GRADS, 0)}
    single = len(schema.returns) == 1
    for k, returned in enumerate(schema.returns):
        name = "result" if single else returned.name
        own = {
            "grad" if single else f"grad_{name}": (Source.GRAD, k),
            name: (Source.RESULT, k),
            name + "_meta": (Source.RESULT_META, k),
        }
        for taken in own.keys() & names.keys():
            raise ArgumentError(
                f"{schema.name}: {taken!r} is the name of a parameter, and in gradient formulas "
                "that of a result or its gradient, expected different names"
            )
        names.update(own)
    return names
