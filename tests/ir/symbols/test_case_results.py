"""What a rule by cases needs is found once, for all traces, and keeps no trace alive."""

import gc
import weakref

import pytest

import aotlite as al
from aotlite.ir.errors import IndexOutOfRangeError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.op import OPS
from aotlite.ir.symbols import cases
from aotlite.ir.symbols.cases.parts import SizePart
from aotlite.ir.symbols.cases.results import forget_results, share_rules
from aotlite.ir.symbols.table import SymbolTable


def asked(shape, lower=0, rules=None):
    """The table, the log and the result of `amax` along the second dimension."""
    table = share_rules(SymbolTable(), {} if rules is None else rules)
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


@pytest.mark.rules("DYN-25")
def test_a_function_takes_what_it_found_for_other_hints_that_fulfil_it(runs):
    rules = {}
    first = asked((3, 4), rules=rules)[1:]
    assert asked((5, 2), rules=rules)[1:] == first and len(runs) == 1
    with pytest.raises(IndexOutOfRangeError):  # it needs s1 != 0
        asked((3, 0), rules=rules)
    assert len(runs) > 1


@pytest.mark.rules("DYN-25")
def test_guards_do_not_depend_on_other_functions():
    """What another function has found for other hints is not taken."""
    bodies = [lambda x, k=k: x.reshape(4, -1).sum(k) for k in (0, 0)]
    found = []
    for body, shapes in zip(bodies, ([(6, 2), (4, 3)], [(4, 3)]), strict=True):
        compiled = al.compile(body, dynamic=True, backend="reference")
        for shape in shapes:
            compiled(al.ones(*shape))
        found.append([[guard.text for guard in each.guards] for each in compiled.regions()])
    forget_results()
    fresh = al.compile(bodies[1], dynamic=True, backend="reference")
    fresh(al.ones(4, 3))
    assert [guard.text for guard in fresh.regions().rows[0].guards] == found[1][0]


@pytest.mark.rules("DYN-25")
def test_a_rule_that_takes_a_number_is_not_run_in_vain(monkeypatch):
    """`unbind` takes the number of parts: no value but the hint gives its result."""
    parts = []
    made = SizePart.__init__

    def counted(part, *args, **options):
        parts.append(part)
        made(part, *args, **options)

    monkeypatch.setattr(SizePart, "__init__", counted)
    compiled = al.compile(lambda x: al.stack(x.unbind(0)), dynamic=True, backend="reference")
    compiled(al.ones(6, 3))
    assert compiled.regions().rows[0].guards[0].text == "s0 == 6"
    assert len(parts) < 60


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
