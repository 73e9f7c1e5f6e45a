"""Into how many chunks rows are divided: what the model must say of any of them."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from aotlite.backends.cuda.passes.row_chunks import BUSY, FEW_LEFT, Division, best_chunks, cost
from aotlite.backends.cuda.target import A100, H100, Target

divisions = st.builds(
    Division,
    extent=st.integers(1, 1 << 20),
    blocks=st.integers(1, 600),
    room=st.sampled_from([1, 2, 4, 8, 16]),
    moved=st.integers(0, 1 << 30),
    partial_bytes=st.integers(0, 1 << 20),
    most=st.none() | st.integers(1, 300),
)


@given(divisions, st.sampled_from([A100, H100]))
def test_no_other_number_of_chunks_costs_less(division: Division, target: Target) -> None:
    """Of those that leave few points over, and are no more than may be."""
    chunks = best_chunks(division, target)
    most = min(division.extent, division.most or division.extent)
    assert 1 <= chunks <= most
    assert division.extent % chunks <= chunks * FEW_LEFT
    for other in range(1, min(most, 2 * division.room * target.multiprocessors) + 1, 7):
        if division.extent % other <= other * FEW_LEFT and other * division.blocks <= 2 * (
            division.room * target.multiprocessors
        ):
            assert cost(division, chunks, target) <= cost(division, other, target)


@given(divisions, st.sampled_from([A100, H100]))
def test_what_is_dearer_to_combine_is_divided_less(division: Division, target: Target) -> None:
    dearer = attrs.evolve(division, partial_bytes=4 * division.partial_bytes + 1)
    assert best_chunks(dearer, target) <= best_chunks(division, target)


def test_all_multiprocessors_are_kept_busy_where_that_costs_nothing() -> None:
    for extent in (1 << 20, 3 * 5 * 7 << 12, 1_000_003):
        free = Division(extent, 1, 8, 1 << 40, 0)
        assert cost(free, best_chunks(free, H100), H100) < 1.05
    assert BUSY < 1
