"""Random programs after all passes, printed as C: the bits of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.passes import split_reductions as splitting
from aotlite.backends.loops.passes.fusion import row_column_reduction
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import LoopProgram
from tests.backends.cpu.helpers.printing import Compiled
from tests.backends.loops.helpers.drawn_programs import drawn


def test_improved_programs_printed_give_the_interpreters_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small reductions are divided too, as if they were long."""
    monkeypatch.setattr(splitting, "SMALL", 32)
    monkeypatch.setattr(splitting, "SHORTEST", 1)
    monkeypatch.setattr(row_column_reduction, "SMALL", 32)
    programs: dict[str, LoopProgram] = {}
    inputs: dict[str, list[np.ndarray]] = {}
    for seed in range(40):
        program, inputs[f"s{seed}"] = drawn(seed, 14)
        programs[f"s{seed}"] = improved(program, 2)
    compiled = Compiled(programs, contract=False)
    for name, program in programs.items():
        expected = run_program(program, [array.copy() for array in inputs[name]])
        found = compiled.run(name, [array.copy() for array in inputs[name]])
        numbers = [number for number in program.inputs if number is not None]
        numbers += [placed.buffer for placed in program.outputs if placed is not None]
        for number in numbers:
            assert expected[number].tobytes() == found[number].tobytes(), f"{name}: {program}"
