"""`PythonSource`: the text of straight-line Python while it is written, and its names' values.

Backends and stage 10 write the functions that run at each call. A writer adds lines, and gets names
for its constants, which are globals of the function. Two further services are for graphs:

- a variable is deleted after its last use, so that memory is freed as soon as it can be (BOX-1);
- a line has an origin, such as its node, which an error in that line is about.

    source = PythonSource()
    source.step(f"v1 = {source.constant(np.sin)}(x0)", "v1")
    source.step(f"v2 = {source.constant(np.cos)}(v1)", "v2")
    source.with_drops({"v2"})               # v1 = C0(x0); del x0; v2 = C1(v1); del v1

Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any

import attrs

from aotlite.ir.graph.symbolic.size_code import SizeCode
from aotlite.ir.source_cache import compiled
from aotlite.ir.symbols.symint import SymInt

CodeOf = Callable[[str, str], CodeType]
"""Gives the code of a text that stands in a file."""
_CONSTANT = re.compile(r"\b[A-Za-z]+\d+\b")
"""A constant: its kind and its number."""
Making = Callable[..., Callable[..., Any]]
"""Makes a function of what its text has for each vector of sizes."""

_VARIABLE = re.compile(r"\b[a-z]\d+\b")
"""A variable of a step: a letter and the number of its value."""


@attrs.frozen(eq=False, repr=False)
class SourceLine:
    """A line of a function's body."""

    text: str
    origin: Any = None
    """What an error in this line is about, such as a node."""
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    """The variables that it assigns for the first time."""
    drops: tuple[str, ...] = ()
    """The variables that it deletes."""


@attrs.define(eq=False, repr=False)
class PythonSource:
    """Lines of one function, and the scope in which they run."""

    lines: list[str] = attrs.field(factory=list)
    scope: dict[str, Any] = attrs.field(factory=dict)
    notes: list[str] = attrs.field(factory=list)
    """Comments that explain the constants, printed above the function."""
    steps: list[SourceLine] = attrs.field(factory=list)
    """Lines whose variables are deleted after their last use."""
    sizes: SizeCode | None = None
    """Of a text for many sizes: computes what is another constant for each of them."""
    sized: dict[str, str] = attrs.field(factory=dict)
    """The names of these constants, with their expressions in `sizes`."""
    _alive: list[object] = attrs.field(factory=list)
    _names: dict[tuple[object, ...], str] = attrs.field(factory=dict)
    _counts: dict[str, int] = attrs.field(factory=dict)

    # --- lines
    def add(self, *lines: str) -> None:
        """Appends lines to the body, without its indentation."""
        self.lines += lines

    def step(self, text: str, *makes: str, origin: object = None) -> None:
        """Appends an assignment to these variables, which reads those of its right side."""
        reads = dict.fromkeys(_VARIABLE.findall(text.partition(" = ")[2]))
        self.steps.append(SourceLine(text, origin, tuple(reads), makes))

    def with_drops(self, kept: Collection[str]) -> list[SourceLine]:
        """Returns the steps, each followed by a `del` of the variables that it uses for the last
        time. Those that the function returns are `kept`."""
        needed = set(kept)
        found: list[SourceLine] = []
        for line in reversed(self.steps):
            names = dict.fromkeys((*line.makes, *line.reads))
            dying = tuple([name for name in names if name not in needed])
            needed.update(dying)
            if dying:
                found.append(SourceLine(f"del {', '.join(dying)}", drops=dying))
            found.append(line)
        return found[::-1]

    # --- names
    def use(self, *things: Callable[..., object]) -> None:
        """Puts functions and classes into the scope under their own names."""
        for thing in things:
            self.scope[thing.__name__] = thing

    def constant(self, value: object, kind: str = "C", note: str | None = None) -> str:
        """Returns the name in the scope of an object. Nothing looks into it: it may be a user's."""
        return self._named(value, kind, note, is_record=False)

    def record(self, value: object, kind: str = "C", note: str | None = None) -> str:
        """`constant` for what stages made of sizes, such as a meta. In a text for many sizes it is
        another object for each of them where symbols are in it."""
        return self._named(value, kind, note, is_record=True)

    def _named(self, value: object, kind: str, note: str | None, *, is_record: bool) -> str:
        """The name is `kind` and a number; one name an object."""
        key = (kind, id(value))
        if key not in self._names:
            self._counts[kind] = number = self._counts.get(kind, -1) + 1
            name = self._names[key] = f"{kind}{number}"
            if is_record and self.sizes is not None and self.sizes.has_sizes(value):
                self.sized[name] = self.sizes.text(value)
                self._alive.append(value)  # alive, for its id
            else:
                self.scope[name] = value
            if note is not None:
                self.notes.append(f"# {name}: {' '.join(note.split())[:80]}")
        return self._names[key]

    def made(self, kind: str, function: Callable[..., object], *args: object) -> str:
        """Returns the name of what a function returns, for each vector of sizes."""
        text = "" if self.sizes is None else self.sizes.text(args)
        key = f"{kind} {text}", id(function), None if text else args
        name = self._names.get(key)
        if name is None:
            self._counts[kind] = number = self._counts.get(kind, -1) + 1
            name = self._names[key] = f"{kind}{number}"
            if self.sizes is not None and self.sizes.has_sizes(args):
                self.sized[name] = self.sizes.call(function, *args)
            else:
                self.scope[name] = function(*args)
        return name

    def spelled(self, size: SymInt) -> str:
        """Returns the name of a size in the text, which stands where a number would."""
        return self.record(size, "size")

    # --- functions
    def text(self, name: str, parameters: str) -> str:
        """Returns the source of a function with these lines, under the notes."""
        body = [f"    {line}" for line in self.lines]
        return "\n".join([*self.notes, f"def {name}({parameters}):", *body]) + "\n"

    def compiled(
        self, text: str, name: str, file: str, code_of: CodeOf = compiled
    ) -> Callable[..., Any]:
        """Returns the function `name` of a source, which joins the scope as one of its globals.
        Tracebacks show that it stands in `file`."""
        exec(code_of(text, file), self.scope)
        found: Callable[..., Any] = self.scope[name]
        return found

    def making(self, text: str, name: str, file: str, first: Collection[str] = ()) -> Making:
        """Returns what makes the function `name` of a source for each vector of sizes, of the
        values of the names `first`, and then of `sized`. All of them have one code."""
        whole = self.wrapped(text, name, first)
        made: dict[str, Any] = {}
        exec(compiled(whole, file), self.scope, made)
        found: Making = made["making"]
        return found

    def wrapped(self, text: str, name: str, first: Collection[str]) -> str:
        """Returns the source of a function that makes the function `name`, of the values of the
        names `first` and `sized`. Names that the text does not use are dropped from `sized`."""
        used = set(_CONSTANT.findall("\n".join(self.lines)))
        self.sized = {each: made for each, made in self.sized.items() if each in used}
        inner = text.replace("\n", "\n    ").rstrip()
        names = ", ".join([*first, *self.sized])
        return f"def making({names}):\n    {inner}\n    return {name}\n"


def split(lines: Sequence[SourceLine], count: int) -> list[list[SourceLine]]:
    """Returns the lines in parts of at most `count` lines, without the `del`s among them. A part is
    the body of a function, for a text that is too long for one."""
    parts: list[list[SourceLine]] = [[]]
    size = 0
    for line in lines:
        if not line.drops:
            size += 1
            if size > count:
                parts.append([])
                size = 1
        parts[-1].append(line)
    return parts


def alive_after(given: Sequence[str], lines: Sequence[SourceLine]) -> list[str]:
    """Returns the variables that exist after these lines, of those before and those they make."""
    alive = dict.fromkeys(given)
    for line in lines:
        alive.update(dict.fromkeys(line.makes))
        for name in line.drops:
            del alive[name]
    return list(alive)


def listed(names: Sequence[str]) -> str:
    """Returns the names as a tuple display."""
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def unpacked(names: Sequence[str]) -> list[str]:
    """Returns the lines that take the values out of the list `box` and empty it (BOX-1)."""
    return [f"[{', '.join(names)}] = box", "box.clear()"] if names else []
