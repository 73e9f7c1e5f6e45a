"""A list of steps as lines of Python, and the names of values in them.

Values are named by kind: arguments x, y, z; in a setup `leaf` and `base`; else `view`, `parts`,
`new`; with numbers if there are several. The result of an in-place op has its target's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.ir.errors import ArgumentError
from aotlite.testing.programs.steps import ProgramData, Step, is_inplace, is_name
from aotlite.testing.programs.vocabulary import MULTI, VIEWS
from aotlite.testing.scripts.language import Language, Name, text_of

LETTERS = "xyzw"


def parameters(program: ProgramData) -> list[str]:
    """The names of the body's arguments."""
    few = program.arity <= len(LETTERS)
    return [LETTERS[i] if few else f"x{i}" for i in range(program.arity)]


@attrs.define
class Block:
    """Steps as lines, and the expression of each value."""

    language: Language
    values: list[str] = attrs.field(factory=list)
    lines: list[str] = attrs.field(factory=list)
    taken: set[str] = attrs.field(factory=set)
    """The names in use."""

    def add(self, step: Step, wanted: str | None = None) -> None:
        """Adds the line of a step; a new value gets the name `wanted`."""
        args = tuple(map(self.resolved, step.args))
        if is_inplace(step):
            text = self.language.inplace(step.op, args)
            self.values.append(str(args[0]))
        else:
            text = self.language.expression(step.op, args)
            self.values.append(wanted or self.fresh(_kind(step)))
            text = f"{self.values[-1]} = {text}"
        prefix = self.language.prefix(no_grad=step.no_grad)
        self.lines.append(prefix + text + self.language.comment(step))

    def fresh(self, word: str) -> str:
        """The word, with a number if it is in use."""
        name, number = word, 1
        while name in self.taken:
            number += 1
            name = f"{word}{number}"
        self.taken.add(name)
        return name

    def resolved(self, value: Any) -> Any:
        """An argument with expressions in place of names of values."""
        if isinstance(value, tuple):
            return tuple(map(self.resolved, value))
        if not is_name(value):
            return value
        place, _, part = value[1:].partition(".")
        if not place.isdecimal() or int(place) >= len(self.values):
            known = len(self.values)
            raise ArgumentError(
                f"script: a name is {value!r}, expected one of the {known} values before it"
            )
        return Name(self.values[int(place)] + (f"[{part}]" if part else ""))

    def text(self, value: object) -> str:
        return text_of(self.resolved(value))


def _kind(step: Step) -> str:
    """Returns the word for a step's result."""
    if step.op == "make":
        return "leaf" if step.args[3] else "base"
    if step.op in MULTI:
        return "parts"
    if step.op in VIEWS or step.op == "getitem":
        return "view"
    return {"ints": "places", "ne": "mask", "full": "number"}.get(step.op, "new")


def setup_block(program: ProgramData, number: int, language: Language) -> Block:
    """The setup of a call; arguments have the names of the body's parameters."""
    call = program.calls[number]
    names = parameters(program)
    block = Block(language, taken={*names, "f", "inputs"})
    wanted = {}
    for name, arg in reversed(list(zip(names, call.args, strict=True))):
        wanted[origin(call.setup, arg)] = name
    for place, step in enumerate(call.setup):
        block.add(step, wanted.get(f"${place}"))
    return block


def origin(setup: Sequence[Step], name: Any) -> object:
    """The name of the step that made the object of a name."""
    place = name[1:] if is_name(name) else ""
    if place.isdecimal() and int(place) < len(setup):
        step = setup[int(place)]
        if is_inplace(step) and step.args and is_name(step.args[0]):
            return origin(setup, step.args[0])
    return name


def body_block(program: ProgramData, language: Language) -> Block:
    """The body."""
    names = parameters(program)
    block = Block(language, values=list(names), taken={*names, "f", "inputs"})
    for step in program.body:
        block.add(step)
    return block
