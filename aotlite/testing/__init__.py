"""Tests of aliasing rules: random programs, an oracle, a fuzzer, laws, a conformance suite.

    programs     functions of views and writes as plain data: `Program`, `Call`, `Step`
    engines      the libraries that programs run on
    observe      what a user can observe of a call, and what differs between two
    cells        the table that random programs fill: of aliasing; `coverage` counts hits
    draws        random programs; `strategies`: the same for Hypothesis
    checking     assertions that compiled does what eager does
    scripts      programs as files of Python: for aotlite, pytest, NumPy, PyTorch
    shrinking    programs made small
    laws         what ops, passes, partitioners, backends and wrappers must keep
    emulation    CuPy without a GPU: devices to run CUDA's eager code on
    subclasses   what a wrapper subclass must keep: `subclass_laws`
    conformance  which aliasing rule which array library keeps

Nothing is imported before it is asked for, and nothing here needs an extra before it is used.
Spec: specs/testing.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotlite.testing.checking import Difference as Difference
    from aotlite.testing.checking import Inputs as Inputs
    from aotlite.testing.checking import ProgramError as ProgramError
    from aotlite.testing.checking import assert_same_effects as assert_same_effects
    from aotlite.testing.checking import check_program as check_program
    from aotlite.testing.compiled import differences_of as differences_of
    from aotlite.testing.coverage import Coverage as Coverage
    from aotlite.testing.draws.whole import draw as draw
    from aotlite.testing.emulation import emulated_cuda as emulated_cuda
    from aotlite.testing.emulation import emulating_cuda as emulating_cuda
    from aotlite.testing.engines import Engine as Engine
    from aotlite.testing.engines import engine as engine
    from aotlite.testing.fuzzing.campaign import fuzz as fuzz
    from aotlite.testing.observe.differences import differences as differences
    from aotlite.testing.observe.observation import World as World
    from aotlite.testing.programs.program import Program as Program
    from aotlite.testing.programs.steps import Call as Call
    from aotlite.testing.programs.steps import Step as Step
    from aotlite.testing.shrinking import shrunk as shrunk
    from aotlite.testing.shrinking import smallest as smallest
    from aotlite.testing.subclasses.api import subclass_laws as subclass_laws

_LAZY: dict[str, str] = {
    name: f"aotlite.testing.{module}"
    for module, names in {
        "coverage": "Coverage",
        "checking": "Difference Inputs ProgramError assert_same_effects check_program",
        "compiled": "differences_of",
        "draws.whole": "draw",
        "emulation": "emulated_cuda emulating_cuda",
        "engines": "Engine engine",
        "fuzzing.campaign": "fuzz",
        "programs.program": "Call Program Step",
        "shrinking": "shrunk smallest",
        "subclasses.api": "subclass_laws",
        "observe.observation": "World",
        "observe.differences": "differences",
    }.items()
    for name in names.split()
}
__all__ = sorted(_LAZY)
_SUBMODULES = frozenset(
    "cells checking compiled conformance coverage drawing draws emulation engines fuzzing laws "
    "machines memory observe plugin programs relations scripts shrinking strategies "
    "subclasses".split()
)


def __getattr__(name: str) -> Any:
    """The public object `name`, imported on first use and kept."""
    if name in _LAZY:
        module = importlib.import_module(_LAZY[name])
        # All that it has: `eval(repr(program), vars(aotlite.testing))` needs three names.
        for each in [each for each, place in _LAZY.items() if place == _LAZY[name]]:
            globals()[each] = getattr(module, each)
        return globals()[name]
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_LAZY, *_SUBMODULES})
