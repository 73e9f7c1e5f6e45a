"""What a function puts where it reads: attributes that were empty, or that the class gave;
functions of aotlite; locks, exceptions, registered classes (CAP-14)."""

from __future__ import annotations

import pytest

from tests.rules.helpers import replaced_programs
from tests.rules.test_cap_programs import made, outcome, snippets

pytestmark = pytest.mark.rules("CAP-14")

DEPENDENT = snippets(replaced_programs.PROGRAMS)
FREE = snippets(replaced_programs.FREE)


@pytest.mark.parametrize("name", DEPENDENT)
def test_another_thing_where_a_function_reads_is_refused(name):
    assert "refused" == outcome(lambda: made(DEPENDENT[name]))


@pytest.mark.parametrize("name", FREE)
def test_what_no_later_call_reads_may_be_put_anywhere(name):
    assert "equal" == outcome(lambda: made(FREE[name]))
