"""The registry of backends: the value of an option such as `backend=` becomes a `Backend`.

The top floor of this package: it imports all backends, and no backend imports it. Spec:
`specs/s9_lower.md` (LOW-5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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
else:  # imported at first use: a user of `reference` does not wait for the code of `cuda`
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


def backend_from(given: object, option: str = "backend") -> Backend:
    """Returns the backend that a user's option means (LOW-5).

    A name is looked up, a `Backend` is returned as it is, and a function from a graph to a function
    of arrays is wrapped. `option` is the option's name for error messages.
    """
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
    if isinstance(stands_for, Backend):  # a compiler that has a faster form, such as `nop`
        return stands_for
    if callable(given):
        return ArrayFunctionBackend(given, option)
    raise ArgumentError(f"compile: {option} is {given!r}, expected a name, a Backend or a function")
