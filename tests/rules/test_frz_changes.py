"""FRZ-1, FRZ-6: random frozen arguments of random programs, changed at random, are never stale."""

from __future__ import annotations

import pytest

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
