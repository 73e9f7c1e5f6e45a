"""The plan of a campaign: its programs, oracle, duration and ledger."""

from __future__ import annotations

import ast
import math
import os
from functools import cache
from pathlib import Path

import attrs

import aotlite
from aotlite.ir.errors import ArgumentError
from aotlite.testing.coverage.counts import ALIASING
from aotlite.testing.engines import ENGINES
from aotlite.testing.fuzzing.user_functions import demand_place

EAGER = "eager"
IN_TURN = "in turn"
VERSION = 1
"""The version of the ledger's format."""


def _jobs() -> int:
    if hasattr(os, "sched_getaffinity"):  # the processors that this process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def wrong(what: str, got: object, expected: str) -> ArgumentError:
    """The error for an argument of a plan."""
    return ArgumentError(f"fuzz: {what} is {got!r}, expected {expected}")


@attrs.frozen(kw_only=True)
class Plan:
    """The arguments of `fuzz`.

    >>> Plan(minutes=0)
    Traceback (most recent call last):
    ...
    aotlite.ir.errors.ArgumentError: fuzz: minutes is 0, expected a number above 0
    """

    minutes: float | None = None
    """The minutes in which programs may begin; 1 if neither this nor `count` is given."""
    count: int | None = None
    """The number of programs in the finished ledger."""
    seed: int = 0
    """The seed of the first program."""
    engine: str = "aotlite"
    """The library: a name of `engines.ENGINES`, or "module:Class" of an `Engine`."""
    against: str = EAGER
    """"eager": the library's compiled functions are compared with its own eager ones. The name of
    another library: both eager."""
    function: str | None = None
    """"module:name" or "file.py:name" of what compiles instead of `aotlite.compile`: it takes a
    function, and the options that are given."""
    options: str = IN_TURN
    """"name=value,name=value" for what compiles. "in turn": most programs with none, others with
    one of those that `aotlite.compile` has."""
    cell: str = "any,any,any,any"
    """The view, write, output and relation of the cells that programs aim at."""
    seconds: float = 20.0
    """The seconds after which a program counts as a hang."""
    jobs: int = attrs.field(factory=_jobs)
    """The number of processes; None: one for each core."""
    shrink: int = 10
    """The most failures that are shrunk, two of a kind."""
    ledger: Path | None = attrs.field(default=None, converter=_path)
    """The file to which a run is written, and from which it continues."""

    def __attrs_post_init__(self) -> None:
        for name in ("minutes", "seconds"):
            _check_positive(name, getattr(self, name))
        for name, least in (("count", 1), ("jobs", 1), ("seed", 0), ("shrink", 0)):
            _check_whole(name, getattr(self, name), least)
        _check_library("engine", self.engine)
        if self.against != EAGER:
            _check_library("against", self.against)
        self._check_sides()
        if not self.targets():
            raise wrong("cell", self.cell, "one that a program can hit")
        self.fixed_options()

    def _check_sides(self) -> None:
        if self.against == self.engine:
            raise wrong("against", self.against, "'eager', or another library than the engine")
        if self.against != EAGER and self.function:
            raise wrong("function", self.function, "none where two libraries' eager are compared")
        if self.against == EAGER and self.engine not in ENGINES and not self.function:
            demand_place(self.engine, "engine")
            raise wrong("function", None, f"what compiles functions of {self.engine}")
        if self.function is not None and ":" not in self.function:
            raise wrong("function", self.function, "module:name or file.py:name")

    @property
    def is_endless(self) -> bool:
        """Whether neither a time nor a count is given."""
        return self.minutes is None and self.count is None

    def targets(self) -> tuple[int, ...]:
        """The numbers of the cells that programs aim at."""
        return _matching(self.cell)

    def fixed_options(self) -> dict[str, object] | None:
        """The options of every program; None if programs have options in turn."""
        if self.options == IN_TURN:
            return {} if self.function or self.engine != "aotlite" else None
        pairs = [text.partition("=") for text in self.options.split(",") if text.strip()]
        if any(not name.strip().isidentifier() or not equals for name, equals, _ in pairs):
            raise wrong("options", self.options, "name=value,name=value or 'in turn'")
        return {name.strip(): _literal(text.strip()) for name, _, text in pairs}

    def identity(self) -> dict[str, object]:
        """The identity of a ledger: runs with another identity cannot be added to it."""
        names = ("seed", "engine", "against", "function", "options", "cell")
        return {
            "format": "aotlite fuzz",
            "version": VERSION,
            "aotlite": aotlite.__version__,
            "table": ALIASING.mark,
            **{name: getattr(self, name) for name in names},
        }


@cache
def _matching(cell: str) -> tuple[int, ...]:
    return ALIASING.matching(*(name.strip() for name in cell.split(",")))


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not (0 < value < math.inf):
        raise wrong(name, value, "a number above 0")


def _check_whole(name: str, value: int | None, least: int) -> None:
    if value is not None and (not isinstance(value, int) or value < least):
        raise wrong(name, value, f"a whole number of at least {least}")


def _check_library(what: str, name: str) -> None:
    if name not in ENGINES and ":" not in name:
        known = ", ".join(map(repr, ENGINES))
        raise wrong(what, name, f"one of {known}, or module:Class")
