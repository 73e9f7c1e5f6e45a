"""Programs with ints among their arguments, compiled once, give what eager gives at all values."""

import random

import pytest

from aotlite.backends.native.compiler.toolchain import find_compiler
from tests.end_to_end.number_programs import difference, program
from tests.thinning import thinned

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")


def compared(seed: int, count: int, backend: str) -> None:
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        found = difference(program(draw), draw, backend)
        assert found is None, f"program {number} of seed {seed}\n{found}"


@pytest.mark.rules("DYN-26", "DYN-13")
@pytest.mark.parametrize("seed", thinned(range(8), 8))
def test_programs_with_ints(seed: int) -> None:
    compared(seed, 12, "reference")


@needs_compiler
@pytest.mark.rules("DYN-26", "SIZ-6")
def test_kernels_for_all_ints() -> None:
    compared(7, 8, "cpu")


@pytest.mark.long
@pytest.mark.rules("DYN-26", "DYN-13")
@pytest.mark.parametrize("seed", range(20, 24))
def test_many_programs_with_ints(seed: int) -> None:
    compared(seed, 500, "reference")
