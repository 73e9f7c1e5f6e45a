"""The order of what a container holds, and contents that are no numbers: a function that changes
and reads them is refused, or does what eager does in every call.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.rules.helpers import unread_order, vanishing_programs
from tests.rules.helpers.order_forms import CHANGES, CONTENTS, READS, WAYS, Case, cases, outcome
from tests.rules.test_cap_programs import made, snippets
from tests.rules.test_cap_programs import outcome as outcome_of

pytestmark = pytest.mark.rules("CAP-14")

UNREAD = snippets(unread_order.PROGRAMS)
VANISHING = snippets(vanishing_programs.PROGRAMS)
SETTLED = {
    *("kwargs order of partial", "defaultdict", "json of dict", "star call", "unpack two"),
    *("dict compare ordered", "a subclass with an iterator", "popitem dropped, then first"),
    "frozen dataclass keys",
}
"""Whose orders are those of all later calls after the first one (CAP-16)."""


@pytest.mark.parametrize("contents", CONTENTS)
def test_a_list_that_is_reversed_is_refused_whatever_it_holds(contents):
    assert "refused" == outcome(Case(contents, "list", "reverse", "an item", "a closure"))


@pytest.mark.parametrize("way", WAYS)
def test_a_dict_whose_order_changes_is_found_whatever_way_leads_to_it(way):
    assert "refused" == outcome(Case("texts", "dict", "an item put back", "the first", way))


@pytest.mark.parametrize(
    ("kind", "change"), [(kind, change) for kind, found in CHANGES.items() for change in found]
)
def test_each_change_of_an_order_is_found(kind, change):
    case = Case("closures", kind, change, next(iter(READS[kind])), "an attribute")
    assert "silent" != outcome(case)


@pytest.mark.parametrize(
    ("kind", "read"), [(kind, read) for kind, found in READS.items() for read in found]
)
def test_each_read_of_an_order_is_found(kind, read):
    case = Case("dtypes", kind, next(iter(CHANGES[kind])), read, "self")
    assert "refused" == outcome(case)


@settings(max_examples=50)
@given(st.sampled_from(cases()))
@pytest.mark.draws(long=5000)
def test_no_combination_differs_silently(case):
    assert "silent" != outcome(case)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNREAD)
def test_programs_that_do_not_read_the_order_compile(name):
    assert "equal" == outcome_of(lambda: made(UNREAD[name]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", VANISHING)
def test_programs_that_take_objects_away_are_refused(name):
    expected = "equal" if name in SETTLED else "refused"
    assert expected == outcome_of(lambda: made(VANISHING[name]))


def test_the_error_names_the_order():
    turns = dict.fromkeys(("a", "b"), 2)

    def f(x):
        first = next(iter(turns))
        turns[first] = turns.pop(first)
        return x * len(first)

    with pytest.raises(
        al.UnsupportedError, match="a read of the order of the keys of turns, which"
    ):
        al.compile(f)(al.ones(1))
    assert ["a", "b"] == list(turns)
