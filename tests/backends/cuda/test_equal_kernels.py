"""Equal kernels are one function of a CUDA text, which each step launches on its own buffers."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotlite.backends.cuda.emit.cuda_program import print_program
from tests.backends.cpu.helpers.printing import interpreted, same_bits
from tests.backends.cuda.helpers import cuda_cases
from tests.backends.cuda.helpers.cuda_cases import written
from tests.backends.cuda.helpers.hosted import FORWARD, Hosted, compiler
from tests.backends.loops.helpers.repeated_programs import repeated


def test_a_kernel_is_printed_once_and_launched_for_each_of_its_steps() -> None:
    """The launches keep their steps and buffers, and the text of a single program is as it was."""
    for program, inputs in cuda_cases.drawn(range(6)).values():
        once, twice = print_program(program), print_program(repeated(program, inputs, 2)[0])
        assert once.text.count("__global__") == twice.text.count("__global__")
        apart = 1 + max([buffer.number for buffer in program.buffers])
        first, again = twice.launches[: len(once.launches)], twice.launches[len(once.launches) :]
        assert once.launches == first
        for launch, other in zip(first, again, strict=True):
            assert launch.name == other.name
            assert launch.step + len(program.steps) == other.step
            assert [number + apart for number in launch.buffers] == list(other.buffers)


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_drawn_kernels_on_other_buffers_give_the_bits_of_the_interpreter(tmp_path: Path) -> None:
    drawn = cuda_cases.drawn(range(3)).items()
    cases = {key: repeated(program, inputs, 2) for key, (program, inputs) in drawn}
    hosted = Hosted({key: program for key, (program, _) in cases.items()}, tmp_path)
    for key, (program, inputs) in cases.items():
        expected, memory = interpreted(program, inputs), hosted.run(key, inputs, FORWARD)
        assert all(same_bits(expected[k], memory[k]) for k in written(program)), f"{program}"
