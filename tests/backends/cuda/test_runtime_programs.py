"""Random programs of views, writes and gradients, run as launches on a device of this process.

Their numbers are exact in any order of addition. Kernels are interpreted. Four seconds.
"""

from __future__ import annotations

import pytest

from aotlite.testing import check_program, draw
from tests.backends.cuda.helpers.devices import Relabeled, plain


@pytest.mark.parametrize("first", [20, *(pytest.param(n, marks=pytest.mark.long) for n in (0, 40))])
def test_random_programs_do_what_eager_does(first: int) -> None:
    backend = Relabeled(plain())
    for seed in range(first, first + 20):
        check_program(draw(seed), backend=backend)


@pytest.mark.parametrize("seed", [271, 641])
def test_a_temporary_without_elements_has_a_place(seed: int) -> None:
    check_program(draw(seed), backend=Relabeled(plain()))


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 4000, 100))
def test_thousands_of_random_programs_do_what_eager_does(first: int) -> None:
    backend = Relabeled(plain())
    for seed in range(first, first + 100):
        check_program(draw(seed), backend=backend)
