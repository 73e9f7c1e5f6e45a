"""Random programs that compute with sizes: compiled once, they are eager at all sizes."""

from __future__ import annotations

from collections import Counter

import pytest

from aotlite.backends.native.compiler.toolchain import find_compiler
from tests.end_to_end.size_programs import check, draw


def compared(seeds: range, most: int, **options: object) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        program = draw(seed)
        seen, difference = check(program, most if len(program.symbols) < 3 else 2, **options)
        assert not difference, f"seed {seed}\n{program.text}{difference}"
        total.update(seen)
    return total


@pytest.mark.rules("DYN-1", "DYN-2", "DYN-4", "DYN-8")
def test_random_programs_of_sizes_are_eagers_at_all_sizes() -> None:
    seen = compared(range(1000, 1040), 4, backend="reference")
    assert seen["refused"] <= 0.05 * seen["points"]
    assert seen["served"] >= 1.5 * seen["entries"]


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
@pytest.mark.rules("SIZ-6")
def test_programs_that_were_wrong_in_kernels_for_all_sizes_are_eagers() -> None:
    """A vector axis that is known to be shorter than a block, as its size is a minimum."""
    for seed in (6076, 6093):
        compared(range(seed, seed + 1), 3, backend="cpu")


@pytest.mark.long
@pytest.mark.rules("DYN-1", "DYN-2", "DYN-4", "DYN-8")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_many_random_programs_of_sizes_are_eagers_at_all_sizes(backend: str) -> None:
    print(dict(compared(range(2000, 3000), 6, backend=backend)))
