"""What a rule by cases needs is found once, for all traces, and keeps no trace alive."""

import gc
import weakref

import pytest

from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.op import OPS
from aotlite.ir.symbols import cases
from aotlite.ir.symbols.cases.results import forget_results
from aotlite.ir.symbols.table import SymbolTable


def asked(shape, lower=0):
    """The table, the log and the result of `amax` along the second dimension."""
    table = SymbolTable()
    ranges = dict.fromkeys((0, 1), (lower, None))
    meta = symbolic_meta(table, tensor_meta(shape), "x", ranges=ranges)
    result = cases.fewest(table, OPS["amax"].rule, (meta, (1,), False))
    return table, [each.text for each in table.log], str(result)


@pytest.fixture
def runs(monkeypatch):
    found = []
    by = cases._Run.by

    def counted(run, hints):
        found.append(run.function)
        return by(run, hints)

    monkeypatch.setattr(cases._Run, "by", counted)
    return found


@pytest.mark.rules("DYN-25")
def test_a_second_trace_needs_the_same_without_a_search(runs):
    _, log, result = asked((3, 4))
    assert log == ["s1 != 0"] and len(runs) == 1
    table, again, same = asked((3, 4))
    assert (again, same) == (log, result) and len(runs) == 1
    assert [event for event in table.events if type(event) is tuple and event[0] == "!="]
    forget_results()
    assert asked((3, 4))[1:] == (log, result) and len(runs) == 2


@pytest.mark.rules("DYN-25")
def test_other_hints_and_ranges_are_looked_at_anew(runs):
    asked((3, 4))
    asked((3, 5))
    assert len(runs) == 2
    assert asked((3, 4), lower=1)[1] == []


@pytest.mark.rules("DYN-22")
def test_no_trace_is_kept_alive():
    table, *_ = asked((3, 4))
    number = weakref.ref(table.named("s1"))
    del table
    gc.collect()
    assert number() is None


@pytest.mark.rules("DYN-25")
def test_symbols_that_are_made_later_are_looked_at(runs):
    """What is assumed is gathered once, until a symbol or a fact is added."""
    table = SymbolTable()
    a, b = (table.size(hint, lower=0) for hint in (3, 3))
    assert a == b
    cases.fewest(table, OPS["amax"].rule, (tensor_meta((2, a)), (1,), False))
    c = table.size(4, lower=0)
    cases.fewest(table, OPS["amax"].rule, (tensor_meta((b, c)), (1,), False))
    assert [each.text for each in table.log] == ["s0 == s1", "s0 != 0", "s2 != 0"]
    assert len(runs) == 2
