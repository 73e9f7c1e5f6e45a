"""Programs about aliasing and mutation as plain data, which run on any engine.

    Program(body=(step, ...), results=(value, ...), calls=(call, ...))
    Call(setup=(step, ...), args=(value, ...), grad=True, write=(place, "mul_"))
    Step(op, (argument, ...), no_grad=False)

One function, the body, is called once for each of `calls`, with other arguments. Each step has one
value. In a setup, `"$3"` is the value of its step 3. In a body, `"$0"` to `"$n-1"` are the n
arguments, and the values of its steps follow. The value of a write is the written object, that of
an op with several results a tuple, of which `"$3.1"` is part 1. `results` holds such strings,
numbers and None; the body returns the list of them. `grad=False` is a call under `no_grad`. After
the call and a backward from all results that require grad, `write` writes the result at a place
under `no_grad`.

`op` is a method of tensors that all libraries have (`add_`, `select`, `sum`, ...), or one of

    make(seed, shape, dtype, requires_grad)   a leaf of small whole numbers, none of them 0
    full(shape, number, dtype)                a tensor of one number
    ints(list)                                an int64 tensor
    getitem(x, index), setitem(x, index, value)   index: a list of ints, "1:3", "...", "none", "$k"
    index_put_(x, index, value)               index: a list of "$k" of int64 or bool tensors
    real(x), imag(x)                          the attributes
    view_as_real(x), view_as_complex(x)       functions
    view_dtype(x, dtype), to(x, dtype)        dtypes are names: "float64"
    resize_(x, shape)                         new memory is zeros
    alias(x), hidden_alias(x)                 aliases with and without history

The `Engine` of a library has everything that depends on the library. Numbers are small and whole,
so that arithmetic is exact. `eval(repr(program), vars(aotlite.testing))` is the program.

Spec: specs/testing.md. Rules: GEN-11, GEN-12, GEN-13.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.ir.errors import ArgumentError


def frozen(value: object) -> object:
    """A value of programs with tuples in place of lists."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


@attrs.frozen(repr=False)
class Step:
    """One op on earlier values."""

    op: str
    args: tuple[Any, ...] = attrs.field(default=(), converter=frozen)
    no_grad: bool = attrs.field(default=False, converter=bool)
    """Whether it runs under `no_grad`."""

    def __repr__(self) -> str:
        more = ", no_grad=True" if self.no_grad else ""
        return f"Step({self.op!r}, {self.args!r}{more})"


def _steps(given: Sequence[Any]) -> tuple[Step, ...]:
    return tuple(each if isinstance(each, Step) else Step(*each) for each in given)


@attrs.frozen(repr=False)
class Call:
    """One call of a program's body, and the actions around it."""

    setup: tuple[Step, ...] = attrs.field(converter=_steps)
    """The steps that make the arguments."""
    args: tuple[Any, ...] = attrs.field(converter=frozen)
    grad: bool = attrs.field(default=True, kw_only=True)
    """Whether grad mode is on in the call."""
    write: tuple[int, str] | None = attrs.field(default=None, converter=frozen, kw_only=True)
    """The index of the result that is written after the backward, and the op."""

    def __repr__(self) -> str:
        more = ("" if self.grad else ", grad=False") + (
            f", write={self.write!r}" if self.write else ""
        )
        return f"Call({self.setup!r}, {self.args!r}{more})"


def _calls(given: Sequence[Call]) -> tuple[Call, ...]:
    return tuple(given)


@attrs.frozen(repr=False)
class ProgramData:
    """The fields of a `Program`, which engines and printers read."""

    body: tuple[Step, ...] = attrs.field(converter=_steps)
    results: tuple[Any, ...] = attrs.field(converter=frozen)
    calls: tuple[Call, ...] = attrs.field(converter=_calls)

    def __repr__(self) -> str:
        return f"Program({self.body!r}, {self.results!r}, {self.calls!r})"

    @property
    def arity(self) -> int:
        """The number of the body's arguments."""
        return len(self.calls[0].args) if self.calls else 0

    def to_json(self) -> str:
        """One line of JSON, which `Program.from_json` reads."""
        return json.dumps(_plain(self), separators=(",", ":"))


def _plain(program: ProgramData) -> dict[str, object]:
    calls = [
        {"setup": list(map(_row, c.setup)), "args": c.args, "grad": c.grad, "write": c.write}
        for c in program.calls
    ]
    return {"body": list(map(_row, program.body)), "results": program.results, "calls": calls}


def _row(step: Step) -> list[object]:
    return [step.op, step.args, *([True] if step.no_grad else [])]


def is_inplace(step: Step) -> bool:
    """Whether a step returns its first operand."""
    return step.op == "setitem" or (step.op.endswith("_") and not step.op.endswith("__"))


def is_name(value: object) -> bool:
    """Whether an argument is the name of a value: "$3" or "$3.1"."""
    return isinstance(value, str) and value[:1] == "$"


def resolved(value: Any, values: Sequence[Any]) -> Any:
    """An argument with values in place of their names. Names of dtypes and indices stay."""
    if is_name(value):
        place, _, part = value[1:].partition(".")
        if not place.isdecimal() or int(place) >= len(values):
            raise ArgumentError(
                f"program: a name is {value!r}, expected one of the {len(values)} values before it"
            )
        found = values[int(place)]
        return found[int(part)] if part else found
    if isinstance(value, tuple):
        return tuple(resolved(item, values) for item in value)
    return value


def returned(program: ProgramData, values: Sequence[object]) -> list[Any]:
    """The values that the body returns."""
    return [resolved(value, values) for value in program.results]
