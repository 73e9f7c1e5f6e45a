"""Every rule about memory can be broken, is then found, and NumPy's own table is as recorded."""

import itertools

import numpy as np
import pytest

from aotlite import conformance
from aotlite.conformance.adapters.aotlite import Aotlite
from aotlite.conformance.adapters.numpy import NumPy
from aotlite.conformance.outcomes import Breaks, Keeps, Lacks
from aotlite.conformance.rules import GROUPS, all_rules
from tests.conformance.helpers.broken_numpy import MISTAKES, PLAIN, broken

MEMORY = (
    "views", "geometry", "writes", "overlap", "index", "functional", "copies", "dtypes", "errors",
    "immutable", "exchange", "random_chains",
)  # fmt: skip
RULES = [rule.id for rule in all_rules() if rule.group in MEMORY]


def outcome(adapter, rule):
    [result] = conformance.check(adapter, rules=[rule]).results
    return result.outcome


def test_every_rule_about_memory_has_a_mistake():
    assert sorted(RULES) == sorted([*MISTAKES, *PLAIN])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rule", RULES)
def test_a_mistake_is_found(rule):
    found = outcome(broken(rule), rule)
    assert isinstance(found, Breaks)
    assert found.lines
    assert found.got != found.expected


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", MISTAKES)
def test_numpy_makes_no_such_mistake(rule):
    assert isinstance(outcome(NumPy, rule), Keeps | Lacks)


def test_what_numpy_lacks():
    absent = {each.rule for each in conformance.check(NumPy, rules=MEMORY).absent}
    assert {"IMM-6", "IMM-7", "IMM-8", "IMM-9", "EXC-15"} == absent


def test_ids_are_unique_and_claims_are_sentences():
    ids = [rule.id for rule in all_rules()]
    assert len(set(ids)) == len(ids) >= 60
    for rule in all_rules():
        assert rule.group in GROUPS
        assert rule.claim.endswith((".", ".)")), rule.id


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_cases_are_the_same_each_time(rule):
    first, second = ([repr(case) for case in itertools.islice(rule.cases(), 100)] for _ in range(2))
    assert first == second != []


def test_a_witness_is_the_smallest_case():
    """A slice that copies from two places up is shown with two places."""

    class Big(NumPy):
        def narrow(self, a, dim, start, length):
            made = NumPy.narrow(self, a, dim, start, length)
            return made.copy() if a.size > 1 else made

    found = outcome(Big, "TEN-2a")
    assert ("a = np.array([0, 1], 'int64')", "a[...] = 100") == (found.lines[0], found.lines[-2])


def test_a_drawn_witness_is_small():
    class Wrong(NumPy):
        def copy_(self, a, b):
            a.reshape(-1)[:] = np.array(b).reshape(-1)

    found = outcome(Wrong, "MEM-1")
    assert len(found.lines) <= 5
    assert found.expected == "[[0, 2], [1, 3]]"


@pytest.mark.rules(
    "TEN-1", "TEN-2", "TEN-6", "TEN-7", "TEN-8", "TEN-9", "TEN-24", "IDX-1", "IDX-6", "IDX-7"
)
def test_aotlite_breaks_no_rule_about_memory():
    report = conformance.check(Aotlite, rules=MEMORY)
    assert [] == [(each.rule, each.outcome) for each in report.broken]
    assert len(report.kept) >= 80
