"""Shrinks a failing program: `shrunk`, and `smallest` for differences.

Each step of the search takes a candidate of `drop_parts`, `simplification` or `geometry` that costs
less (`costs`) and still fails; the search ends if there is none. It is deterministic.

Spec: specs/testing.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from aotlite.testing.compiled import Compile, differences_of, kind_of
from aotlite.testing.engines import Engine
from aotlite.testing.programs.program import Program
from aotlite.testing.shrinking.costs import cost
from aotlite.testing.shrinking.costs import lines as lines
from aotlite.testing.shrinking.drop_parts import (
    dropped_calls,
    dropped_steps,
    fewer_arguments,
    fewer_results,
    pairs_of_steps,
)
from aotlite.testing.shrinking.geometry import smaller_shapes
from aotlite.testing.shrinking.simplification import (
    dropped_and_changed,
    joined_views,
    joined_writes,
    made_at_once,
    simpler_calls,
    simpler_steps,
    written_in_bases,
)

PASSES: tuple[Callable[[Program], Iterator[Program]], ...] = (
    dropped_calls,
    fewer_results,
    dropped_steps,
    fewer_arguments,
    made_at_once,
    simpler_calls,
    simpler_steps,
    smaller_shapes,
    joined_writes,
    written_in_bases,
    joined_views,
    pairs_of_steps,
    dropped_and_changed,
)
"""The functions that yield smaller programs, the largest changes first."""


def shrunk(
    program: Program, fails: Callable[[Program], bool], *, seconds: float | None = None
) -> Program:
    """Returns the smallest program found that still fails, at the latest after `seconds`.

    `fails` is called with programs that may be invalid: it must return False for those, or raise.
    It is not called twice with one program.

    >>> from aotlite.testing import Call
    >>> call = Call([["make", [3, [2, 3], "float32", True]], ["t", ["$0"]]], ["$1"])
    >>> whole = Program([["neg", ["$0"]], ["unbind", ["$1", 0]], ["abs", ["$0"]]], ["$3"], [call])
    >>> def unbinds(program):
    ...     return "unbind" in repr(program.body) and program.run()[0].error is None
    >>> shrunk(whole, unbinds).body
    (Step('unbind', ('$0', 0)),)
    """
    search = _Search(fails, seconds)
    return search.fixed_point(program)


def smallest(
    program: Program,
    *,
    seconds: float | None = None,
    on: str | Engine = "aotlite",
    compile: Compile | None = None,
    **options: object,
) -> Program:
    """A small program of which compiled differs from eager as it does for this one.

    The kind of the difference stays the same, so that the result does not show another bug. Returns
    a program without a difference as it is. The arguments are those of `check_program`.
    """
    wanted = kind_of(differences_of(program, on=on, compile=compile, **options))

    def fails(smaller: Program) -> bool:
        return kind_of(differences_of(smaller, on=on, compile=compile, **options)) == wanted

    return shrunk(program, fails, seconds=seconds) if wanted else program


class _Search:
    """A search, and the programs that it has tried."""

    def __init__(self, fails: Callable[[Program], bool], seconds: float | None) -> None:
        self.fails = fails
        self.tried: set[Program] = set()
        self.end = None if seconds is None else time.monotonic() + seconds

    def is_over(self) -> bool:
        return self.end is not None and time.monotonic() > self.end

    def fixed_point(self, program: Program) -> Program:
        """Runs all passes until none makes the program smaller."""
        while True:
            before = program
            for each in PASSES:
                program = self.through(each, program)
            if program == before or self.is_over():
                return program

    def through(self, candidates: Callable[[Program], Iterator[Program]], it: Program) -> Program:
        """Applies one pass as long as it finds a smaller program that fails; returns the last."""
        found: Program | None = it
        while found is not None:
            it = found
            smaller = (each for each in candidates(it) if cost(each) < cost(it))
            found = next((each for each in smaller if self.still_fails(each)), None)
        return it

    def still_fails(self, program: Program) -> bool:
        if program in self.tried or self.is_over():
            return False
        self.tried.add(program)
        try:
            return self.fails(program)
        except Exception:  # an invalid program
            return False
