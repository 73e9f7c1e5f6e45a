"""Random programs about aliasing and mutation: a sample of what the long run has (GEN-11..13)."""

from __future__ import annotations

import pytest

from tests.end_to_end.alias_examples import EXAMPLES
from tests.end_to_end.alias_running import outcome


@pytest.mark.parametrize("name", EXAMPLES)
def test_programs_that_once_differed_are_like_eager(name: str) -> None:
    program, options = EXAMPLES[name]
    found = outcome(program, {"verify": 2, **options})
    assert ([], []) == (found.found, found.refused)
    assert len(program["calls"]) == found.calls
