"""Tests of aliasing rules: random programs, an oracle, a fuzzer, laws, a conformance suite.

    programs     functions of views and writes as plain data: `Program`, `Call`, `Step`
    engines      the libraries that programs run on
    observe      everything that a user can observe of a call; differences of two observations
    coverage     the cells that random programs fill, and counts of hits
    generate     random programs; `strategies`: the same for Hypothesis
    assertions   assertions that a compiled function has the effects of eager
    scripts      programs as files of Python: for aotlite, pytest, NumPy, PyTorch
    shrinking    smaller programs that still fail
    laws         laws of ops, passes, partitioners, backends and wrappers
    cuda         a CUDA device without a GPU: CuPy emulated, CUDA text run on the CPU
    subclasses   laws of wrapper subclasses: `subclass_laws`
    conformance  the aliasing rules that array libraries keep: `aotlite.conformance`
    compiled     differences between compiled and eager calls of a program

Names are imported on first use, so that no extra is needed before.
Spec: specs/testing.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotlite.testing.assertions import Difference as Difference
    from aotlite.testing.assertions import Inputs as Inputs
    from aotlite.testing.assertions import ProgramError as ProgramError
    from aotlite.testing.assertions import assert_same_effects as assert_same_effects
    from aotlite.testing.assertions import check_program as check_program
    from aotlite.testing.compiled import differences_of as differences_of
    from aotlite.testing.coverage.counts import Coverage as Coverage
    from aotlite.testing.cuda import emulated_cuda as emulated_cuda
    from aotlite.testing.cuda import emulating_cuda as emulating_cuda
    from aotlite.testing.engines import Engine as Engine
    from aotlite.testing.engines import engine as engine
    from aotlite.testing.fuzzing.campaign import fuzz as fuzz
    from aotlite.testing.generate.random_programs import draw as draw
    from aotlite.testing.observe.differences import differences as differences
    from aotlite.testing.observe.observation import Observation as Observation
    from aotlite.testing.programs.program import Program as Program
    from aotlite.testing.programs.steps import Call as Call
    from aotlite.testing.programs.steps import Step as Step
    from aotlite.testing.shrinking import shrunk as shrunk
    from aotlite.testing.shrinking import smallest as smallest
    from aotlite.testing.subclasses.api import subclass_laws as subclass_laws

_LAZY: dict[str, str] = {
    "assert_same_effects": "aotlite.testing.assertions.assert_same_effects",
    "Call": "aotlite.testing.programs.program.Call",
    "check_program": "aotlite.testing.assertions.check_program",
    "Coverage": "aotlite.testing.coverage.counts.Coverage",
    "Difference": "aotlite.testing.assertions.Difference",
    "differences": "aotlite.testing.observe.differences.differences",
    "differences_of": "aotlite.testing.compiled.differences_of",
    "draw": "aotlite.testing.generate.random_programs.draw",
    "emulated_cuda": "aotlite.testing.cuda.emulated_cuda",
    "emulating_cuda": "aotlite.testing.cuda.emulating_cuda",
    "Engine": "aotlite.testing.engines.Engine",
    "engine": "aotlite.testing.engines.engine",
    "fuzz": "aotlite.testing.fuzzing.campaign.fuzz",
    "Inputs": "aotlite.testing.assertions.Inputs",
    "Program": "aotlite.testing.programs.program.Program",
    "ProgramError": "aotlite.testing.assertions.ProgramError",
    "shrunk": "aotlite.testing.shrinking.shrunk",
    "smallest": "aotlite.testing.shrinking.smallest",
    "Step": "aotlite.testing.programs.program.Step",
    "subclass_laws": "aotlite.testing.subclasses.api.subclass_laws",
    "World": "aotlite.testing.observe.observation.Observation",
}
"""Public name -> the object's place."""
__all__ = sorted(_LAZY)
_SUBMODULES: dict[str, str] = {
    "cells": "aotlite.testing.coverage.cells",
    "checking": "aotlite.testing.assertions",
    "compiled": "aotlite.testing.compiled",
    "conformance": "aotlite.conformance",
    "coverage": "aotlite.testing.coverage.counts",
    "drawing": "aotlite.testing.alias_printer",
    "draws": "aotlite.testing.generate",
    "cuda": "aotlite.testing.cuda",
    "engines": "aotlite.testing.engines",
    "fuzzing": "aotlite.testing.fuzzing",
    "generate": "aotlite.testing.generate",
    "laws": "aotlite.testing.laws",
    "machines": "aotlite.testing.machines",
    "memory": "aotlite.testing.memory",
    "observe": "aotlite.testing.observe",
    "plugin": "aotlite.testing.plugin",
    "programs": "aotlite.testing.programs",
    "relations": "aotlite.testing.relations",
    "scripts": "aotlite.testing.scripts",
    "shrinking": "aotlite.testing.shrinking",
    "strategies": "aotlite.testing.strategies",
    "subclasses": "aotlite.testing.subclasses",
}
"""Public name of a module -> the module. `conformance` is documented here."""


def __getattr__(name: str) -> Any:
    """The public object `name`, imported on first use and kept."""
    if name in _LAZY:
        home = _LAZY[name].rpartition(".")[0]
        module = importlib.import_module(home)
        # All its names: `eval(repr(program), vars(aotlite.testing))` needs three of them.
        for each, place in _LAZY.items():
            if place.rpartition(".")[0] == home:
                globals()[each] = getattr(module, place.rpartition(".")[2])
        return globals()[name]
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_LAZY, *_SUBMODULES})
