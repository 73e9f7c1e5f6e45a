"""CACHE-6, CACHE-12: new processes find the entry, also where two have made it at once."""

import pytest

from tests.artifacts.processes import Started, said


@pytest.mark.rules("CACHE-6", "CACHE-12")
def test_processes_at_once_leave_one_entry_which_another_finds_and_a_changed_one_does_not(tmp_path):
    started = Started(tmp_path)
    started.check_at_once(2)
    assert "miss kept 36.0 [3.0, 6.0, 9.0]" == said(started.process(scale=3.0))
