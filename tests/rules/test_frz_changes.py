"""FRZ-1, FRZ-6: random frozen arguments of random programs, changed at random, are never stale."""

from __future__ import annotations

import ctypes

import pytest

import aotlite as al
from tests.freezing.changes import Figures, run, run_chain


@pytest.mark.rules("FRZ-1", "FRZ-6")
def test_random_programs_with_changed_frozen_arguments_equal_eager():
    figures = run(40)
    assert [] == figures.failures
    assert figures.folded_calls > 60
    assert figures.refolded > 60
    assert figures.second_orders > 20


@pytest.mark.rules("FRZ-6")
def test_a_change_that_is_not_noticed_is_reported(monkeypatch):
    """The comparison itself: with digests that never change, every change is stale."""
    from aotlite.freezing import frozen_content

    monkeypatch.setattr(frozen_content.FrozenContent, "holds", lambda self, tensor: True)
    figures = Figures()
    for seed in range(0, 20, 2):
        run_chain(seed, figures)
    assert any("eager" in each for each in figures.failures)
    assert any("refolded" in each for each in figures.failures)


@pytest.mark.rules("FRZ-6")
def test_a_write_past_the_library_is_noticed_when_it_is_said():
    """Through an address, or an internal buffer: nothing counts it."""
    writes = (
        lambda w: ctypes.memset(w.data_ptr(), 0, w.nbytes),
        lambda w: w.untyped_storage().buffer.fill(0),
    )
    for write in writes:
        w = al.full((2,), 0.65625)
        frozen = al.freeze(lambda w, x: x * w.exp(), w, backend="reference")
        frozen(al.ones(2))
        write(w)
        al.autograd.graph.increment_version(w)
        assert [1.0, 1.0] == frozen(al.ones(2)).tolist()
