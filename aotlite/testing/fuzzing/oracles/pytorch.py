"""The judges that PyTorch takes part in: aotlite's eager and its, its compiled and its eager.

What a rule demands to differ between aotlite and PyTorch is an excuse by name, which is counted
(`aotlite.testing.pytorch`). PyTorch's own compiled functions are made for each call anew, since
they have no guards; whatever they raise is a refusal.
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
    """aotlite's eager against PyTorch's."""
    return AgainstTorch(engine("aotlite"), quiet_torch())


def compiled(compile: Callable[..., Any] | None) -> Judge:
    """Functions that PyTorch's `aot_function`, or another compiler, compiled; against its eager."""
    return CompiledTorch(quiet_torch(), compile or _aot, refusals=(Exception,))


@attrs.frozen
class AgainstTorch(Across):
    """Differences that a rule demands are excused by its name."""

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
    """PyTorch's zeros have signs that depend on where they lie."""

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


def _aot(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """The function that PyTorch compiles anew when it is called."""
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.compilers import nop

    def call(*args: Any) -> Any:
        return aot_function(function, nop)(*args)

    return call
