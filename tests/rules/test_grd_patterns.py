"""Entries are used where the pattern of aliases is theirs, and no more are made than that takes."""

import pytest
from hypothesis import given, settings

import aotlite as al
from tests.rules.helpers.sharing_sessions import sessions, written_overlap


@pytest.mark.draws(long=160)
@pytest.mark.rules("GRD-2", "DUP-5", "DUP-2", "GRD-6")
@settings(max_examples=20)
@given(sessions())
def test_any_pattern_after_any_other_is_eagers(session):
    """Results, inputs, versions, aliases: a world snapshot after each call of one object."""
    found, refused = session.play(al.compile(session.body))
    assert [] == found
    assert refused <= sum(written_overlap(session, pattern) for pattern in session.patterns)


@pytest.mark.draws(long=80)
@pytest.mark.rules("GRD-2", "DUP-1", "DUP-2", "DUP-5")
@settings(max_examples=12)
@given(sessions(history=True))
def test_any_pattern_after_any_other_has_eagers_gradients(session):
    found, refused = session.play(al.compile(session.body))
    assert [] == found
    assert refused <= sum(written_overlap(session, pattern) for pattern in session.patterns)


@pytest.mark.draws(long=200)
@pytest.mark.rules("DUP-5", "DUP-2", "ALI-8", "GRD-6")
@settings(max_examples=20)
@given(sessions(writes=False))
def test_which_arguments_are_one_object_is_compared_where_nothing_is_written_too(session):
    """The program may ask; what memory they share does not count."""
    compiled = al.compile(session.body)
    assert ([], 0) == session.play(compiled)
    assert len({session.key(pattern) for pattern in session.patterns}) == len(compiled.entries)


@pytest.mark.draws(long=120)
@pytest.mark.rules("GRD-2", "ALI-8", "ALI-1")
@settings(max_examples=15)
@given(sessions())
def test_calls_share_an_entry_where_no_rule_tells_them_apart(session):
    """An independent account of the rules counts the entries."""
    compiled = al.compile(session.body)
    keys = set()
    for pattern in session.patterns:
        if session.world(compiled, pattern).error is None:
            keys.add(session.key(pattern))
    assert len(keys) == len(compiled.entries)


@pytest.mark.draws(long=60)
@pytest.mark.rules("GRD-1", "GRD-2")
@settings(max_examples=12)
@given(sessions(history=True))
def test_a_pattern_that_was_met_compiles_nothing_again(session):
    """With histories, too, which say of more calls that they are different."""
    compiled = al.compile(session.body)
    for pattern in session.patterns:
        session.world(compiled, pattern)
    before = list(compiled.entries)
    for pattern in reversed(session.patterns):
        session.world(compiled, pattern)
    assert before == list(compiled.entries)
