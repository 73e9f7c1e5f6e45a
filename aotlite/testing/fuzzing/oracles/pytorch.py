"""The judges with PyTorch: its eager mode against aotlite's, and its compiled functions.

A difference that a rule demands is counted under the rule's name (`aotlite.testing.pytorch`).
PyTorch's compiled functions are compiled anew for each call, since they have no guards; any error
of theirs is a refusal.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import attrs

from aotlite.testing.engines import engine
from aotlite.testing.engines.pytorch import TorchEngine
from aotlite.testing.fuzzing.oracles import Compiled, Judge, Sides, Verdict
from aotlite.testing.fuzzing.oracles.libraries import Across
from aotlite.testing.observe.observation import Observation
from aotlite.testing.programs.program import Program
from aotlite.testing.pytorch.comparison import compared, unsigned
from aotlite.testing.pytorch.expected_differences import excuse


def quiet_torch() -> TorchEngine:
    """PyTorch's engine: one thread, and none of its warnings."""
    found = engine("torch")
    assert isinstance(found, TorchEngine)
    found.torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return found


def across() -> Judge:
    """Returns the judge of aotlite's eager mode against PyTorch's."""
    return AgainstTorch(engine("aotlite"), quiet_torch())


def compiled(compile: Callable[..., Any] | None) -> Judge:
    """Returns the judge of PyTorch's `aot_function` or another compiler against its eager mode."""
    return CompiledTorch(quiet_torch(), compile or _aot, refusals=(Exception,))


@attrs.frozen
class AgainstTorch(Across):
    """Compares with PyTorch; the differences that a rule demands are allowed."""

    def verdict(self, program: Program, number: int, sides: Sides) -> Verdict:
        assert isinstance(self.other, TorchEngine)
        found = compared(sides.mine, sides.its)
        reason = excuse(self.other.torch, program, number) if found else None
        if reason is not None:
            return Verdict(reason=f"excused: {reason}")
        return Verdict([line.replace(", eager ", ", PyTorch ") for line in found])

    def plain(self, world: Observation) -> Observation:
        return unsigned(world)


class CompiledTorch(Compiled):
    """Compares PyTorch with itself, but for signs of zeros, which depend on their address."""

    def left_out(self, program: Program) -> str | None:
        resizes = any(step.op == "resize_" for step in program.body)
        return "left out: new memory is undefined" if resizes else None

    def verdict(self, program: Program, number: int, sides: Sides) -> Verdict:
        mine, its = sides.mine, sides.its
        if mine.error is not None and its.error is None:
            return Verdict(reason=f"refused: {type(mine.error).__name__}")
        if its.error is not None:
            return Verdict([] if mine.error is not None else ["error: None, eager raises"])
        plain = Sides(unsigned(mine), unsigned(its), sides.cells)
        return super().verdict(program, number, plain)

    def plain(self, world: Observation) -> Observation:
        return unsigned(world)


def _aot(function: Callable[..., object], **_: object) -> Callable[..., object]:
    """Returns a function that PyTorch compiles anew for each call."""
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.compilers import nop

    def call(*args: object) -> Any:
        return aot_function(function, nop)(*args)

    return call
