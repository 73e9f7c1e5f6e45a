"""Random programs about aliasing on the backends that fuse: GEN-1, what no one can tell apart."""

from __future__ import annotations

import pytest

from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.testing.compiled import differences_of
from aotlite.testing.coverage.cells import POSSIBLE
from aotlite.testing.generate.random_programs import draw

COUNT = 80
FOUND = (1530, 1610, 2032, 2070, 2771)
"""Programs that once differed: writes through views that see a place twice, an axis that was
divided and has an odd number of positions, the sign of a sum that is zero."""


def difference(number: int, backend: str) -> list[str]:
    """How the program of a seed differs between a backend and eager."""
    program = draw(number, POSSIBLE[(number * 6151) % len(POSSIBLE)])
    return differences_of(program, backend=backend)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("number", [*FOUND, *range(5000, 5000 + COUNT)])
def test_a_program_as_loops_is_eagers(number: int) -> None:
    assert [] == difference(number, "loops")


@pytest.mark.long
@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
@pytest.mark.parametrize("number", [*FOUND, *range(6000, 6500)])
def test_a_program_in_c_is_eagers(number: int) -> None:
    assert [] == difference(number, "cpu")
