"""Symbolic ints compute what Python's ints do, and say no more than is so."""

import gc
import itertools
import operator
import weakref

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.op import OPS
from aotlite.ir.op.schema import parse_schema
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable

SMALL = range(2, 8)


def table_with(*hints, **options):
    """A table, and a size of each hint."""
    table = SymbolTable(**options)
    return table, *[table.size(hint, f"x.shape[{i}]") for i, hint in enumerate(hints)]


def assignments(names, values=SMALL):
    """Every way to give the symbols of these names small values."""
    for chosen in itertools.product(values, repeat=len(names)):
        yield dict(zip(names, chosen, strict=True))


# --------------------------------------------------------------------------------- expressions
BINARY = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def expressions(leaves, names=tuple(BINARY)):
    """Expressions as nested tuples: a leaf, or (operator, left, right)."""
    return st.recursive(leaves, lambda inner: st.tuples(st.sampled_from(names), inner, inner))


def value_of(expression, values):
    """The expression with numbers or symbols put in for the names."""
    if isinstance(expression, tuple):
        name, *operands = expression
        return BINARY[name](*[value_of(operand, values) for operand in operands])
    return values[expression] if isinstance(expression, str) else expression


LEAVES = st.sampled_from(("a", "b")) | st.integers(-7, 7)
VALUES = st.fixed_dictionaries({"a": st.integers(-9, 9), "b": st.integers(-9, 9)})


@given(expressions(LEAVES), VALUES, VALUES)
@example(("//", ("-", 0, "a"), 4), {"a": 7, "b": 0}, {"a": -7, "b": 0})
@example(("%", ("*", 2, "a"), -4), {"a": 7, "b": 0}, {"a": -3, "b": 0})
@example(("//", ("//", ("+", "a", 1), 3), 2), {"a": -7, "b": 0}, {"a": 7, "b": 0})
@example(("%", "a", "b"), {"a": -7, "b": 3}, {"a": 7, "b": -3})
def test_arithmetic_is_that_of_ints(expression, hints, others):
    """Also where numbers are negative, and at other values for which nothing assumed fails."""
    table = SymbolTable()
    symbols = {name: table.symbol(hints[name], name) for name in ("a", "b")}
    try:
        expected = value_of(expression, hints)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            value_of(expression, symbols)
        return
    result = value_of(expression, symbols)
    assert expected == concrete(result, table.hints)
    assert all(assumption.holds(table.hints) for assumption in table.log)
    values = {"s0": others["a"], "s1": others["b"]}
    if all(assumption.holds(values) for assumption in table.log):
        assert value_of(expression, others) == concrete(result, values)


@given(expressions(LEAVES), VALUES)
def test_expression_is_printed_as_python_reads_it(expression, hints):
    table = SymbolTable()
    symbols = {name: table.symbol(hints[name], name) for name in ("a", "b")}
    try:
        result = value_of(expression, symbols)
    except ZeroDivisionError:
        return
    assert concrete(result, table.hints) == eval(str(result), {"max": max, "min": min}, table.hints)


def test_quotients_and_remainders_round_as_pythons_do():
    """DYN-13, each pair of small numbers: with a symbol on the left, on the right, on both."""
    for a, b in itertools.product(range(-9, 10), range(-5, 6)):
        if b == 0:
            continue
        table = SymbolTable()
        s, t = table.symbol(a), table.symbol(b)
        for left, right in ((s, b), (a, t), (s, t)):
            for whole in (divmod(left, right), (left // right, left % right)):
                assert divmod(a, b) == concrete(whole, table.hints), (a, b)
        assert (max(a, b), min(a, b), abs(a)) == concrete(
            (table.call("max", s, t), table.call("min", s, t), abs(s)), table.hints
        )


def test_division_by_zero_raises_as_python_does():
    table = SymbolTable()
    zero = table.symbol(0)
    for function in (operator.floordiv, operator.mod, divmod):
        with pytest.raises(ZeroDivisionError):
            function(5, zero)
        with pytest.raises(ZeroDivisionError):
            function(zero + 1, 0)


def test_powers_are_those_of_ints():
    table, a, b = table_with(3, 4)
    assert a**3 is a * a * a
    assert a**0 == 1
    assert (81, 16, 0.125) == (concrete(a**b, table.hints), concrete(2**b, table.hints), 2**-a)
    assert ["s0 == 3"] == [assumption.text for assumption in table.log]


def test_quotients_that_come_out_are_polynomials():
    table, a, b = table_with(6, 5)
    assert a * b // b is a
    assert a * b % b == 0
    assert (a * a - 1) // (a - 1) is a + 1  # sympy's division
    assert (3 * a * b + 3 * b) // (a * b + b) == 3
    assert (4 * a + 3) // 2 is 2 * a + 1
    assert (a // 2) // 3 is a // 6
    assert 2 * a % 4 is 2 * (a % 2)
    assert (-1) % a is a - 1
    assert [] == table.log


# ----------------------------------------------------------------------------------- interning
@given(expressions(LEAVES, ("+", "-", "*")), expressions(LEAVES, ("+", "-", "*")))
@example(("*", ("+", "a", "b"), ("-", "a", "b")), ("-", ("*", "a", "a"), ("*", "b", "b")))
def test_equal_polynomials_are_one_object(first, second):
    table = SymbolTable()
    symbols = {name: table.symbol(3, name) for name in ("a", "b")}
    one, other = value_of(first, symbols), value_of(second, symbols)
    points = list(assignments(("a", "b"), range(-40, 41, 5)))
    equal = all(value_of(first, at) == value_of(second, at) for at in points)
    assert equal == (one is other or type(one) is type(other) is int and one == other)


@given(expressions(LEAVES, ("+", "-", "*")), expressions(LEAVES, ("+", "-", "*")))
@example(("-", "a", 1), ("-", "b", 2))
@example(("-", "b", "a"), 1)
@example(("-", ("+", "a", 1), "b"), ("-", "b", ("+", "a", 1)))
def test_equal_polynomials_are_one_object_even_where_keys_are_equal(first, second):
    """Keys are values at one point; here the point is (1, 2), where everything meets."""
    table, _, _ = table_with(3, 3)
    table.interned.clear()
    table.symbols["s0"].point, table.symbols["s1"].point = 1, 2
    symbols = {"a": table.named("s0"), "b": table.named("s1")}
    one, other = value_of(first, symbols), value_of(second, symbols)
    points = list(assignments(("a", "b"), range(-40, 41, 5)))
    equal = all(value_of(first, at) == value_of(second, at) for at in points)
    assert equal == (one is other or type(one) is type(other) is int and one == other)


def test_what_cancels_out_is_an_int():
    table, a, b = table_with(6, 5)
    for number in (0, 3, -(2**70), 10**400):
        assert (number, int) == ((a + number) - a, type((a + number) - a))
        assert (number, int) == (a * b - (b * a - number), type(a * b - (b * a - number)))
        assert (number, int) == ((number - a) + a, type((number - a) + a))
    assert 0 == a * 0 == (a - b) * (a + b) - a * a + b * b
    assert [] == table.log


def test_sums_of_thousands_of_sizes_are_found_without_recursion():
    table = SymbolTable()
    sizes = [table.size(3) for _ in range(2000)]
    total = sum(sizes)
    assert 6000 == total.hint
    assert total > sizes[0]
    assert total is sum(reversed(sizes))


def test_dicts_find_symbols_and_ask_nothing():
    table, a, b = table_with(6, 6)
    shapes = {(a, b): "ab", (b, a): "ba", (6, 6): "66", (a, 6): "a6"}
    assert ["ab", "ba", "66", "a6"] == [shapes[key] for key in ((a, b), (b, a), (6, 6), (a, 6))]
    assert (a * 2, b) not in shapes
    assert [] == table.log


def test_metas_are_interned_by_their_symbols():
    table, a, b = table_with(6, 5)
    meta = tensor_meta((a, b, 3))
    assert meta is tensor_meta((a, b, 3), (b * 3, 3, 1))
    assert meta is not tensor_meta((b, a, 3))
    assert tensor_meta((2, 4, 3)) is meta.concrete({"s0": 2, "s1": 4})
    assert "f32[s0, s1, 3]" == repr(meta)
    assert "f32[s0, s1][1, s0]" == repr(tensor_meta((a, b), (1, a)))
    assert (3 * a * b, 3 * a * b) == (meta.numel, meta.span)
    assert meta.contiguous and meta.dense
    assert [] == table.log


def test_printing_a_meta_assumes_nothing():
    table, a = table_with(6)
    assert "f32[s0 - 2, 4]" == repr(tensor_meta((a - 2, 4), (4, 1)))
    assert "f32[4, s0 - 2][s0, 1]" == repr(tensor_meta((4, a - 2), (a, 1)))
    assert [] == table.log


def test_schemas_take_symbols_for_ints():
    table, a = table_with(6)
    schema = parse_schema("f(int first, int[] many, int? last=None) -> Tensor")
    assert (a, (a + 1, 3), None) == schema.bind((a, [a + 1, 3]), {})
    assert (a, (a,), a) == schema.bind((a, a), {"last": a})
    with pytest.raises(ArgumentError, match=r"f: argument 'many' is \[s0, 2.5\], expected int\[\]"):
        schema.bind((a, [a, 2.5]), {})
    assert [] == table.log


# ------------------------------------------------------------------------------------- answers
COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SIZES = expressions(LEAVES, tuple(BINARY))


@given(
    st.lists(st.tuples(SIZES, st.sampled_from(tuple(COMPARISONS)), SIZES), min_size=1, max_size=4),
    st.sampled_from(SMALL),
    st.sampled_from(SMALL),
)
@example([(("*", "b", "b"), "<=", ("*", "a", "b"))], 2, 3)
def test_answers_follow_from_what_was_assumed_before(questions, hint_a, hint_b):
    """Exhaustively: wherever the log holds, each answer that was given is the truth.

    Asked again, a question assumes nothing more.
    """
    table, a, b = table_with(hint_a, hint_b)
    answers = []
    for left, relation, right in questions:
        try:
            pair = [value_of(side, {"a": a, "b": b}) for side in (left, right)]
        except ZeroDivisionError:
            continue
        answer = bool(COMPARISONS[relation](*pair))
        assumed = len(table.log)
        assert answer == bool(COMPARISONS[relation](*pair))
        assert assumed == len(table.log)
        answers.append((left, relation, right, answer))
    for values in assignments(("s0", "s1")):
        if all(assumption.holds(values) for assumption in table.log):
            at = {"a": values["s0"], "b": values["s1"]}
            for left, relation, right, answer in answers:
                assert answer == COMPARISONS[relation](value_of(left, at), value_of(right, at))
    hints = {"a": hint_a, "b": hint_b}
    for left, relation, right, answer in answers:
        assert answer == COMPARISONS[relation](value_of(left, hints), value_of(right, hints))


@given(SIZES, st.sampled_from(tuple(COMPARISONS)), SIZES)
def test_bool_without_assumption_is_true_of_every_size(left, relation, right):
    table, a, b = table_with(6, 5)
    try:
        pair = [value_of(side, {"a": a, "b": b}) for side in (left, right)]
    except ZeroDivisionError:
        return
    truth = COMPARISONS[relation](*pair)
    if isinstance(truth, SymBool) or table.log:
        return
    for values in assignments(("a", "b")):
        assert truth == COMPARISONS[relation](value_of(left, values), value_of(right, values))


KNOWN = [
    ("a >= 2", True),
    ("a != 1", True),
    ("a == 0", False),
    ("a*b > b", True),
    ("a*b - b >= 2", True),
    ("(a - 1)*b >= b", True),
    ("(a - 1)*b > b", None),
    ("a*(b - 2) > b - 2", None),
    ("b < a*b", True),
    ("b == b*a", False),
    ("(a - 5)*(b - 5) > 0", None),
    ("(a - 5)*b > -7", None),
    ("a//2 <= a", True),
    ("a//2 < a", True),
    ("a % 3 < 3", True),
    ("2*a == 2*b + 1", False),
    ("a*(b + 1) == a*b + a", True),
    ("high(a - 2, 1) >= a - 2", True),
    ("low(a, b) <= b", True),
    ("high(a, b) < a", False),
    ("a > b", None),
    ("a == 3", None),
    ("a - 2 == 0", None),
    ("a % 2 == 0", None),
]


@pytest.mark.parametrize(("text", "expected"), KNOWN, ids=[text for text, _ in KNOWN])
def test_what_ranges_show_needs_no_assumption(text, expected):
    table, a, b = table_with(6, 5)

    def high(left, right):
        return table.call("max", left, right)

    def low(left, right):
        return table.call("min", left, right)

    truth = eval(text, {"a": a, "b": b, "high": high, "low": low})
    assert expected == (None if isinstance(truth, SymBool) else truth)
    assert [] == table.log


def test_assumption_decides_what_follows_from_it():
    table, a, b, c = table_with(6, 6, 8)
    assert bool(a == b)
    assert a * c == b * c
    assert bool(c > a + 1)
    assert c >= b + 2
    assert c != b + 1
    assert int(c) == 8
    assert c // 2 == 4
    assert a < 7  # from s2 > s0 + 1
    assert ["s0 == s1", "s2 > s0 + 1", "s2 == 8"] == [each.text for each in table.log]


# ----------------------------------------------------------------------------------- assumptions
def test_assumption_names_what_asked_and_the_users_line():
    table, a = table_with(6)
    taken = a > 4  # the comparison asks nothing yet
    assert [] == table.log
    if taken:
        pass
    (assumption,) = table.log
    assert "s0 > 4" == assumption.text
    assert f"s0 > 4 ({__name__.rpartition('.')[2]}.py:" in repr(assumption)
    assert "in test_assumption_names_what_asked_and_the_users_line: if taken:" in repr(assumption)


def test_a_fact_on_several_sizes_at_once_is_said_in_words():
    table = SymbolTable()
    a, b = table.size(5, lower=0), table.size(6, lower=0)
    for fact in ((a - 1) ** 2 + b != 0, (a - 1) ** 2 + (b - 2) ** 2 != 0, a - b != 0):
        assert fact
    said = [each.text for each in table.log]
    assert ["not (s0 == 1 and s1 == 0)", "not (s0 == 1 and s1 == 2)", "s0 - s1 != 0"] == said
    assert [False, True, True] == [each.holds({"s0": 1, "s1": 0}) for each in table.log]
    other = SymbolTable()
    a, b = other.size(1, lower=0), other.size(0, lower=0)
    assert (a - 1) ** 2 + b == 0
    assert ["s0 == 1 and s1 == 0"] == [each.text for each in other.log]
    negative = SymbolTable()
    assert negative.symbol(3, lower=-4) + negative.symbol(1, lower=0) != 0
    assert ["s0 + s1 != 0"] == [each.text for each in negative.log]


def test_assumption_of_a_rule_names_the_op():
    class Operand:
        def __init__(self, *shape):
            self.meta = tensor_meta(shape)

    table, a, b = table_with(6, 6)
    OPS["add"].infer((Operand(a), Operand(b)))
    (assumption,) = table.log
    assert ("s0 == s1", "add") == (assumption.text, assumption.op)
    assert 'OPS["add"].infer((Operand(a), Operand(b)))' in repr(assumption)


def test_rule_runs_once_for_equal_symbols_and_keeps_no_table_alive():
    class Operand:
        def __init__(self, meta):
            self.meta = meta

    table, a = table_with(6)
    meta = tensor_meta((a, 3))
    first = OPS["exp"].infer((Operand(meta),))
    assert first is OPS["exp"].infer((Operand(tensor_meta((a, 3))),))
    alive = weakref.ref(table)
    del table, a, meta, first
    gc.collect()
    assert alive() is None


def test_same_question_is_logged_once():
    table, a, b = table_with(6, 5)
    for _ in range(3):
        assert a > b
        assert not a < b
        assert bool(a > b - 1)
    assert ["s0 > s1"] == [each.text for each in table.log]


ASKS = {
    "int": int,
    "float": float,
    "index": operator.index,
    "range": lambda a: list(range(a)),
    "a slice": lambda a: list(range(9))[:a],
    "a fraction": lambda a: a / 4,
    "a fraction of it": lambda a: 4 / a,
    "times a float": lambda a: a * 0.5,
    "compared with a float": lambda a: a > 2.5,
    "a negative power": lambda a: a**-1,
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_value_that_is_asked_for_is_assumed_to_stay(ask):
    table, a = table_with(6)
    result = ask(a)
    assert ask(6) == result
    assert type(ask(6)) is type(result)
    assert ["s0 == 6"] == [each.text for each in table.log]
    assert table.log[0].specializes
    assert not table.log[0].holds({"s0": 7})


def test_symbol_is_a_number_in_a_tensors_place():
    table, build = SymbolTable(), Builder("scaled")
    x = build.placeholder(symbolic_meta(table, tensor_meta((6, 5)), "x"))
    size = x.meta.shape[0]
    graph = build.finish([x * size, size - x, (x / size).fill(size), size**x])
    verify(graph)
    assert ["f32[s0, s1]"] * 4 == [repr(node.meta) for node in graph.outputs]
    assert "ops.mul(arg_0, s0)" in graph.code
    assert [] == table.log


def test_tensor_takes_the_value_of_a_symbol_and_assumes_it():
    table, a = table_with(6)
    assert [6.0, 6.0] == (al.ones(2) * a).tolist()
    assert (2, 3) == al.zeros(a).view(2, a // 2).shape
    assert ["s0 == 6"] == [each.text for each in table.log]


def test_truth_of_a_size_is_that_it_is_not_zero():
    table, a = table_with(6)
    assert a
    assert [] == table.log
    assert a - 2
    assert ["s0 != 2"] == [each.text for each in table.log]


def test_answer_of_a_function_is_assumed_as_a_whole():
    def parity(shape):
        return shape[0] % 2

    table, a = table_with(6)
    assert (0, 0) == (table.ask(parity, (a, 3)), table.ask(parity, (a, 3)))
    (assumption,) = table.log
    assert "parity((s0, 3)) is 0" == assumption.text
    assert assumption.holds({"s0": 8}) and not assumption.holds({"s0": 7})


# --------------------------------------------------------------------------------------- symbols
def test_sizes_of_zero_and_one_are_no_symbols():
    """DYN-1."""
    table = SymbolTable()
    assert (0, 1) == (table.size(0), table.size(1))
    assert {} == table.symbols
    assert isinstance(table.size(2), SymInt)


def test_equal_hints_share_a_symbol_on_request_only():
    table, a, b, c = table_with(6, 6, 5, duck_shape=True)
    assert a is b and a is not c
    assert ["x.shape[0]", "x.shape[1]"] == table.symbols["s0"].sources
    _, d, e = table_with(6, 6)
    assert d is not e


def test_size_that_is_unknown_has_no_hint():
    """DYN-5: what ranges decide is decided; anything else is refused."""
    table = SymbolTable()
    count = table.symbol(None, "nonzero", lower=0)
    assert count >= 0
    assert count + 1 != 0
    for ask in (lambda: bool(count == 3), lambda: int(count)):
        with pytest.raises(UnsupportedError, match="the value of u0 is asked for, expected a"):
            ask()
    assert [] == table.log


def test_sizes_of_two_traces_do_not_mix():
    (_, a), (_, b) = table_with(6), table_with(6)
    for mix in (operator.add, operator.mul, operator.floordiv, operator.lt):
        with pytest.raises(ArgumentError, match="symbols: s0 is of another trace, expected sizes"):
            mix(a, b)
    assert a != b


def test_sizes_compare_unequal_to_what_is_no_number():
    _, a = table_with(6)
    assert a != "6" and not a == None  # noqa: E711
    with pytest.raises(TypeError):
        a < "6"  # noqa: B015
    with pytest.raises(TypeError):
        a + "6"


def test_input_gets_symbols_and_strides_in_them():
    """DYN-7."""
    table = SymbolTable()
    channels_last = tensor_meta((2, 3, 4, 5), (60, 1, 15, 3))
    assert "f32[s0, s1, s2, s3][s1*s2*s3, 1, s1*s3, s1]" == repr(
        symbolic_meta(table, channels_last, "x")
    )
    gaps = symbolic_meta(SymbolTable(), tensor_meta((4, 3), (10, 2)), "y", (0,))
    assert "f32[s0, 3][10, 2]" == repr(gaps)
    assert "f32[1, s4, 0]" == repr(symbolic_meta(table, tensor_meta((1, 6, 0)), "z"))
