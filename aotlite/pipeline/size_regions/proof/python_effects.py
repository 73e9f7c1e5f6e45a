"""What code of a user's does to Python's objects while it is traced: writes, and calls of C code.

Two traces that are one graph may differ in this: one prints, or appends to a list. Used by
`dead_guards`. Rule: DYN-24.
"""

from __future__ import annotations

import builtins
import opcode
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import TypeAlias

Tracer: TypeAlias = "Callable[[FrameType, str, object], Tracer | None]"
_LIBRARIES = frozenset((*sys.stdlib_module_names, "attr", "numpy", "optree"))
_WRITES = frozenset(
    number
    for name, number in opcode.opmap.items()
    if name.startswith(("STORE_", "DELETE_", "INPLACE_", "IMPORT_", "YIELD_"))
    and not name.endswith("_FAST")
)
"""Instructions that write more than a variable of the function itself."""
_BINARY = opcode.opmap.get("BINARY_OP")
_FIRST_INPLACE = 13
"""The operand of `BINARY_OP` from which on it works in place (PEP 659's list of operators)."""
_TELLING = frozenset(
    ("__import__", "breakpoint", "compile", "delattr", "eval", "exec", "input", "next", "open")
    + ("print", "setattr")
)
"""Built-in functions that do more than to return a value."""
_CONSTANT = (str, bytes, int, float, complex, tuple, frozenset, range)
"""Whose methods change nothing."""


class PythonEffects:
    """A block, with each such instruction and call in it, in order, by its place in the code."""

    def __init__(self) -> None:
        self.seen: list[tuple[CodeType, int]] = []
        self._codes: dict[CodeType, bytes] = {}
        self._outer = sys.gettrace(), sys.getprofile()

    def __enter__(self) -> PythonEffects:
        self._outer = sys.gettrace(), sys.getprofile()
        sys.settrace(self._call)
        sys.setprofile(self._c_call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.setprofile(self._outer[1])
        sys.settrace(self._outer[0])

    def _call(self, frame: FrameType, event: str, _: object) -> Tracer | None:
        """Python asks at each call whether to trace the function."""
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        before = frame.f_back
        if package == "aotlite" or package in _LIBRARIES and not self._is_seen(before):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._opcode

    def _is_seen(self, frame: FrameType | None) -> bool:
        return frame is not None and frame.f_trace == self._opcode

    def _opcode(self, frame: FrameType, event: str, _: object) -> Tracer:
        if event == "opcode":
            code, at = frame.f_code, frame.f_lasti
            if code not in self._codes:
                self._codes[code] = code.co_code
            number, operand = self._codes[code][at : at + 2]
            if number in _WRITES or number == _BINARY and operand >= _FIRST_INPLACE:
                self.seen.append((code, at))
        return self._opcode

    def _c_call(self, frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and self._is_seen(frame):
            owner = getattr(called, "__self__", None)
            is_quiet = owner is builtins and getattr(called, "__name__", "") not in _TELLING
            if not is_quiet and not isinstance(owner, _CONSTANT):
                self.seen.append((frame.f_code, frame.f_lasti))
