"""Inside of `proving` a table answers by proof alone, and assumes nothing."""

import gc
import weakref

import pytest

from aotlite.backends.loops.backend import LOOPS
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.proving import Demands, Unproved, is_proved, known_divisor, proving
from aotlite.ir.symbols.table import SymbolTable


def test_open_questions_have_the_general_answer_or_none():
    table = SymbolTable()
    a, b = table.symbol(6, lower=0), table.symbol(6, lower=0)
    with proving(table):
        assert not a == b and a != b and a and not a == 1
        assert is_proved(a + 1 > 0) and not is_proved(a > 0)
        for question in (lambda: a < b, lambda: not a >= 1):
            with pytest.raises(Unproved, match="whether s0"):
                bool(question())
        for number in (int, float, lambda size: [0] * size):
            with pytest.raises(Unproved, match="the value of s0"):
                number(a)
        with table.rule_of("add"), pytest.raises(Unproved):
            bool(a == b)
    assert table.log == []
    assert a == b
    assert [each.text for each in table.log] == ["s0 == s1"]


def test_open_orders_are_demanded():
    table = SymbolTable()
    a, b = table.symbol(6, lower=0), table.symbol(5, lower=0)
    demands = Demands(table.hints)
    with proving(table, demands=demands):
        assert not a < b and not a == b and a + 1 > 0 and not is_proved(a > b)
        assert table.ask(max, a, b) == 6
        with table.rule_of("add"):
            assert not a == b
    assert list(demands.answers.values()) == [False, 6, False]
    assert demands.hold({"s0": 6, "s1": 2}) and not demands.hold({"s0": 6, "s1": 6})
    assert not demands.hold({"s0": 6, "s1": 7}) and not demands.hold({"s0": 7, "s1": 5})
    assert table.log == []
    with proving(table), pytest.raises(Unproved):  # no answer is kept
        bool(a < b)


def test_answers_of_metas_are_not_kept():
    table = SymbolTable()
    a, b = table.symbol(6, lower=0), table.symbol(6, lower=0)
    meta = tensor_meta((a, b), (b * 2, 1))
    with proving(table):
        assert not meta.contiguous
    with pytest.raises(AttributeError):
        object.__getattribute__(meta, "contiguous")


def test_no_cache_keeps_a_table_alive():
    table, build = SymbolTable(), Builder("f")
    x = build.placeholder(tensor_meta((table.size(6), table.size(7))))
    LOOPS.compile_sized(build.finish([(x * x.meta.shape[0]).mean()]))
    alive = weakref.ref(table)
    del table, build, x
    gc.collect()
    assert alive() is None


def test_divisors_of_sizes_are_those_of_their_terms_and_of_known_atoms():
    table = SymbolTable()
    a, b = table.symbol(12, "a", lower=0), table.symbol(5, "b", lower=0)
    ((monomial, _),) = a.terms.items()
    sizes = (a, 4 * a, a * b, 6 * a + 2, 8 * b, a + b)
    assert [known_divisor(each, 8) for each in sizes] == [1, 4, 1, 2, 8, 1]
    with proving(table, divisors={monomial[0]: 4}):
        found = [known_divisor(each, 8) for each in sizes]
    assert found == [4, 8, 4, 2, 8, 1]
    for values in ({"s0": 4 * n, "s1": m} for n in range(5) for m in range(5)):
        numbers = concrete(sizes, values)
        assert all(number % each == 0 for number, each in zip(numbers, found, strict=True))
    assert table.log == []
