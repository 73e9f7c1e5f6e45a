"""`FunctionSource`: the text of a generated call while it is written, and its names' values.

Every writer of stage 10 adds its lines to one. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable
from keyword import iskeyword
from typing import Any

from aotlite.backends.calling_convention import Run
from aotlite.backends.python_source import PythonSource
from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.arrays import QUIET, quiet_context
from aotlite.ir.source_cache import compiled

MANY = 16
"""More inputs than this are handled by a loop, not by a line each, which Python compiles slowly."""

ORDER = "ORDER"
"""The name of a constant in generated functions: the order of the derivative, 0 for a forward."""


class FunctionSource(PythonSource):
    """Lines of one function of `leaves`, and the scope in which they run."""

    def literal(self, value: Any) -> str:
        """A plain value as an expression: written out, or the name of a constant."""
        exact = type(value) in (int, bool, type(None)) and abs(value or 0) < 1 << 64
        return repr(value) if exact else self.record(value, "V", words(value))

    def add_call(self, run: Run, line: str, *on_error: str) -> None:
        """Adds the line in which a compiled graph is called, and lines for its errors.

        In aotlite's code `quiet_call(function, *args)` calls without NumPy's warnings.
        """
        if run.runs_user_code:
            self.add(*(["try:", f"    {line}", *on_error] if on_error else [line]))
            return
        self.scope["QUIET"] = QUIET
        self.use(quiet_context)
        self.add("try:", "    quiet_call = QUIET.pop()")
        self.add("except IndexError:", "    quiet_call = quiet_context()")
        self.add("try:", f"    {line}", *on_error, "finally:", "    QUIET.append(quiet_call)")

    def function(
        self, name: str, number: str, parameters: str = "leaves"
    ) -> tuple[Callable[..., Any], str]:
        """The compiled function, and its source.

        Tracebacks show its lines and its number, which starts with that of the compilation and is
        unique (GEN-9).
        """
        name = name if may_name_a_function(name) else "call"
        text = self.text(name, parameters)
        return self.executed(text, name, f"<aotlite {name} {number}>"), text

    def executed(self, text: str, name: str, file: str) -> Callable[..., Any]:
        """The function `name` of a text, whose lines tracebacks show."""
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        made: dict[str, Any] = {}  # not the scope, where the name may stand for something else
        exec(compiled(text, file), self.scope, made)
        weakref.finalize(made[name], linecache.cache.pop, file, None)
        found: Callable[..., Any] = made[name]
        return found


def may_name_a_function(name: str) -> bool:
    """Whether `def` takes this name and keeps it: Python folds letters such as ligatures."""
    return name.isascii() and name.isidentifier() and not iskeyword(name) and name != "__debug__"


def words(value: object) -> str:
    """A constant in words, for the comment about it."""
    return repr(value) if isinstance(value, (float, str, bytes)) else f"a {type(value).__name__}"


def chain_words(chain: ViewChain) -> str:
    """The views of a chain in words, for the comment about it."""
    return f"views {', '.join(step.op.name for step in chain) or 'none'}"
