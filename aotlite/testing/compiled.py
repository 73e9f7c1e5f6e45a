"""The differences between compiled and eager calls of a program, and its default compilation.

The default backend is the reference, which has eager's bits and compiles at once, as tests of
programs are about aliasing, writes, histories and errors. `backend="cpu"` tests kernels.

Place: above `Program` and `observe`, below `assertions` and `shrinking`. Rules: GEN-1, GEN-2,
GEN-11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aotlite
from aotlite.ir.errors import AliasError, UnsupportedError
from aotlite.testing.engines import Engine, engine
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program

REFUSED = (AliasError, UnsupportedError)
"""The errors that a compiled call may raise before any effect, although eager runs (GEN-2)."""

Compile = Callable[..., Callable[..., Any]]


def compile_by_reference(
    function: Callable[..., object], **options: object
) -> Callable[..., object]:
    """`aotlite.compile` with the reference backend by default."""
    compiled: Callable[..., Any] = aotlite.compile(function, **{"backend": "reference", **options})
    return compiled


def differences_of(
    program: Program,
    *,
    on: str | Engine = "aotlite",
    compile: Compile | None = None,
    **options: object,
) -> list[str]:
    """Returns the differences between compiled and eager calls, up to the first call with any."""
    library = engine(on)
    if compile is None:
        compile = compile_by_reference
    compiled = compile(program.function_of(library), **options)
    return next((found for found in _by_call(library, program, compiled) if found), [])


def _by_call(
    library: Engine, program: Program, compiled: Callable[..., Any]
) -> Iterator[list[str]]:
    eager = program.function_of(library)
    for number in range(len(program.calls)):
        its = observe_call(library, program, number, eager)
        mine = observe_call(library, program, number, compiled)
        refused = isinstance(mine.error, REFUSED) and type(mine.error) is not type(its.error)
        if not (refused and mine.untouched):
            yield [f"call {number}: {each}" for each in differences(mine, its)]


def kind_of(found: Sequence[str]) -> str:
    """Returns the kind of the first difference, without names and numbers.

    >>> kind_of(["call 0: values of object 3 after the call: [1.0], eager [2.0]"])
    'values of object  after the call: '
    """
    return re.sub(r"call \d+: |\[.*|\d+", "", found[0])[:60] if found else ""
