"""Backends by name, and from what else users give for one.

Input: the value of an option such as `backend`; output: a `Backend`. The top floor: it knows all
backends, and none of them knows it. Spec: `specs/s9_lower.md` (LOW-5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aotlite.backends.functions import ArrayFunctionBackend
from aotlite.backends.protocol import Backend
from aotlite.backends.reference import REFERENCE
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import ArgumentError

if TYPE_CHECKING:
    from aotlite.backends import auto
    from aotlite.backends.cpu import backend as cpu
    from aotlite.backends.cuda import backend as cuda
    from aotlite.backends.loops import backend as loops
else:  # who asks for one backend waits for no other
    auto = deferred("aotlite.backends.auto")
    cpu = deferred("aotlite.backends.cpu.backend")
    cuda = deferred("aotlite.backends.cuda.backend")
    loops = deferred("aotlite.backends.loops.backend")

_NAMED: dict[str, Callable[[], Backend]] = {
    "auto": lambda: auto.AUTO,
    "cpu": lambda: cpu.CPU,
    "cuda": lambda: cuda.CUDA,
    "loops": lambda: loops.LOOPS,
    "reference": lambda: REFERENCE,
}


def backend_from(given: Any, option: str = "backend") -> Backend:
    """The backend of a name, a backend, or a function that compiles for arrays (LOW-5)."""
    if isinstance(given, str) and given in _NAMED:
        return _NAMED[given]()
    if isinstance(given, str):
        names = ", ".join(map(repr, _NAMED))
        raise ArgumentError(
            f"compile: {option} is {given!r}, expected {names}, a Backend or a function"
        )
    if isinstance(given, Backend) and not isinstance(given, type):
        return given
    stands_for = getattr(given, "backend", None)
    if isinstance(stands_for, Backend):  # a compiler that is also a backend, such as `nop`
        return stands_for
    if callable(given):
        return ArrayFunctionBackend(given, option)
    raise ArgumentError(f"compile: {option} is {given!r}, expected a name, a Backend or a function")
