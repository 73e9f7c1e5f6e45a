"""The text of a run-time function while it is written, with the values that its names stand for.

Used by stage 10 alone. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable
from keyword import iskeyword
from typing import Any

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.arrays import QUIET, quiet_context

MANY = 16
"""So many inputs are handled by a loop, not a line each: Python takes long to compile lines."""

ORDER = "ORDER"
"""The name by which a function that runs a graph knows of which derivative that is: 0 of none."""


class FunctionSource:
    """Lines of one function of `leaves`, and the scope in which they run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self.notes: list[str] = []
        """What constants stand for, printed above the function."""
        self._names: dict[tuple[str, int], str] = {}
        self._counts: dict[str, int] = {}

    def add(self, *lines: str) -> None:
        """Appends lines of the body, not indented."""
        self.lines += lines

    def use(self, *things: Callable[..., Any]) -> None:
        """Makes functions and classes known by their own names."""
        for thing in things:
            self.scope[thing.__name__] = thing

    def constant(self, value: Any, kind: str, note: str | None = None) -> str:
        """A name for this very object: `kind` and a number."""
        key = (kind, id(value))
        name = self._names.get(key)
        if name is None:
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            name = self._names[key] = f"{kind}{number}"
            self.scope[name] = value
            if note is not None:
                self.notes.append(f"# {name}: {' '.join(note.split())[:80]}")
        return name

    def literal(self, value: Any) -> str:
        """A plain value, written out or as a constant."""
        exact = type(value) in (int, bool, type(None)) and abs(value or 0) < 1 << 64
        return repr(value) if exact else self.constant(value, "V", words(value))

    def add_quiet_call(self, line: str, *on_error: str) -> None:
        """Adds a line in which `quiet_call(function, *args)` calls without NumPy's warnings."""
        self.scope["QUIET"] = QUIET
        self.use(quiet_context)
        self.add("try:", "    quiet_call = QUIET.pop()")
        self.add("except IndexError:", "    quiet_call = quiet_context()")
        self.add("try:", f"    {line}", *on_error, "finally:", "    QUIET.append(quiet_call)")

    def text(self, name: str, parameters: str) -> str:
        """The function's source."""
        body = [f"    {line}" for line in self.lines]
        return "\n".join([*self.notes, f"def {name}({parameters}):", *body]) + "\n"

    def function(
        self, name: str, number: str, parameters: str = "leaves"
    ) -> tuple[Callable[..., Any], str]:
        """The function, made, and its source. Tracebacks show its lines, and say the number, which
        begins with that of the compilation and which no other function has (GEN-9).
        """
        name = name if _may_name_a_function(name) else "call"
        text = self.text(name, parameters)
        file = f"<aotlite {name} {number}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        made: dict[str, Any] = {}  # not the scope, where the name may stand for something else
        exec(compile(text, file, "exec"), self.scope, made)
        weakref.finalize(made[name], linecache.cache.pop, file, None)
        return made[name], text


def _may_name_a_function(name: str) -> bool:
    """Whether `def` takes this name and keeps it: Python folds letters such as ligatures."""
    return name.isascii() and name.isidentifier() and not iskeyword(name) and name != "__debug__"


def listed(names: list[str]) -> str:
    """The names as a tuple display."""
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def words(value: Any) -> str:
    """What a constant is, for a note."""
    return repr(value) if isinstance(value, (float, str, bytes)) else f"a {type(value).__name__}"


def chain_words(chain: ViewChain) -> str:
    """The views of a chain, for a note."""
    return f"views {', '.join(step.op.name for step in chain) or 'none'}"
