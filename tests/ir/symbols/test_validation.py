"""Guards imply every fact that a trace used, or the earliest that they do not imply is named."""

import itertools
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlite.ir.errors import GuardError
from aotlite.ir.geometry import sizes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.symbols import calls, proofs
from aotlite.ir.symbols.assumption import Assumption, concrete
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation import judge, solver, validate
from aotlite.ir.symbols.validation.claims import CLAIMED, Claim, Evaluation, Premises, claims_of
from aotlite.ir.symbols.validation.expansion import Expansion
from aotlite.ir.symbols.validation.rule_results import wrong_result
from aotlite.ir.symbols.validation.search import search
from tests.ir.symbols.helpers.plants import plants
from tests.ir.symbols.helpers.size_programs import SizeProgram, difference, drawn, points
from tests.ir.symbols.planted import refute

needs_z3 = pytest.mark.skipif(not solver.is_installed(), reason="z3 is not installed")
WAYS = [False, pytest.param(True, marks=needs_z3)]


def table_with(*hints, lower=2):
    table = SymbolTable()
    sources = [f"x.shape[{k}]" for k in range(len(hints))]
    return table, *map(lambda hint, source: table.symbol(hint, source, lower=lower), hints, sources)


# ------------------------------------------------------------------------------------ the events
@pytest.mark.rules("DYN-11")
def test_every_operation_is_an_event_as_it_was_asked():
    table, a, b = table_with(6, 5)
    found = [a + b, a - 1, a * b, a * 4 // 2, a % 3, -a, abs(a - b), 7 - a, a**2, a << 1, a >> 1]
    found += [sizes.maximum(a, b), sizes.minimum(a, 4), 2**a, a > 1, bool(a > b), int(b)]
    texts = [claim.text for claim in claims_of(table)]
    for text in (
        *("s0 + s1 is s0 + s1", "s0 - 1 is s0 - 1", "s0 * s1 is s0*s1", "(4*s0) // 2 is 2*s0"),
        *("s0 % 3 is s0 % 3", "0 - s0 is -s0", "7 - s0 is -s0 + 7", "s0 ** 2 is s0*s0"),
        *("s0 << 1 is 2*s0", "s0 >> 1 is s0//2", "max(s0, s1) is max(s0, s1)", "s0 > 1"),
        *("s0 > s1", "s1 == 5", "2 ** s0 is 2**s0"),
    ):
        assert text in texts, text
    assert any(text.startswith("abs((s0 - s1)) is ") for text in texts)
    assert len(found) == 17


@pytest.mark.rules("DYN-11")
def test_facts_that_are_learned_are_events():
    """Bounds that an assumption narrows, and equations that it solves."""
    table, a, b = table_with(6, 5)
    assert 2 * a >= 9 and a == b + 1
    texts = [claim.text for claim in claims_of(table)]
    assert {"s0 >= 5", "s1 == s0 - 1"} < set(texts)


@pytest.mark.rules("DYN-11")
def test_plain_ints_are_no_events():
    table = SymbolTable()
    assert (6 + 5, sizes.maximum(6, 5), sizes.ceil_div(6, 5)) == (11, 6, 2)
    assert [] == list(table.events)


def layer(table):
    """A small network with a slice, which asks one question."""
    build = Builder("layer")
    x = build.placeholder(symbolic_meta(table, tensor_meta((4, 6)), "x"))
    y = build.placeholder(symbolic_meta(table, tensor_meta((4, 6)), "y"))
    return build.finish([(x + y).flatten().narrow(0, 3, 4)])


@pytest.mark.rules("DYN-11", "DYN-12")
def test_events_know_the_op_and_the_line():
    table = SymbolTable()
    layer(table)
    asked = [claim.asked for claim in claims_of(table)]
    assert any(text.startswith("add, ") and "(x + y)" in text for text in asked)
    size = table.named("s0")
    assert size * 7 > 3
    assert "assert size * 7 > 3" in claims_of(table)[-1].asked
    assert all("/ir/symbols/" not in claim.asked for claim in claims_of(table))


# --------------------------------------------------------------------------------- the verdicts
@pytest.mark.rules("DYN-11")
@pytest.mark.parametrize("asks", WAYS)
def test_a_graph_of_a_layer_is_sound(asks):
    table = SymbolTable()
    layer(table)
    verdict = judge(table, solver=asks)
    assert verdict.counter is None and not verdict.unknown
    assert verdict.is_proved or not asks
    assert str(verdict).startswith("sound")


@pytest.mark.rules("DYN-11", "DYN-12")
@pytest.mark.parametrize("asks", WAYS)
def test_a_lost_guard_is_a_counter_model(asks):
    """For each guard of a trace: without it the trace is unsound."""
    table, a, b = table_with(6, 5)
    assert a % 2 == 0 and a * b > 7 and a > b and a != 4
    for lost in table.log:
        rest = [kept for kept in table.log if kept is not lost]
        counter = judge(table, rest, solver=asks).counter
        if lost.text == "s0*s1 > 7":  # a > b > 1, and a is even
            assert counter is None
            continue
        assert counter.claim.text == lost.text, lost
        assert all(kept.holds(counter.values) for kept in rest)
        assert not lost.holds(counter.values)


@pytest.mark.rules("DYN-11", "DYN-12")
def test_the_error_says_what_is_wrong_where_and_who_asked():
    table, a, b = table_with(6, 5)
    assert a + 1 > b
    with pytest.raises(GuardError) as caught:
        validate(table, [])
    text, notes = str(caught.value), caught.value.__notes__
    assert text.startswith("symbols: s0 + 1 > s1 is false at s0=")
    assert "expected a fact that the guards imply" in text
    assert "assert a + 1 > b" in text
    assert "was claimed" in notes[0]
    assert notes[1].startswith("Facts that are false there: s0 + 1 > s1")
    assert notes[2] == "Guards, which all hold there: none."


@pytest.mark.rules("DYN-11")
def test_guards_that_exclude_the_traced_call_are_refuted():
    """No sizes satisfy both: without the hints everything would follow."""
    table, a = table_with(6)
    assert a > 3
    counter = judge(table, [*table.log, guard(a, "<", 3)]).counter
    assert counter is not None and counter.values == {"s0": 6}
    assert counter.claim.text == "s0 < 3"


def guard(size, relation, number):
    """A guard that no trace has assumed."""
    return Assumption(SymBool(size, relation, number), None, None)


@pytest.mark.rules("DYN-11")
def test_a_search_says_how_far_it_looked():
    table, a, b = table_with(6, 5)
    assert a * a + b * b > 3 * b + a - 2
    verdict = judge(table, [], solver=False)
    assert (verdict.reach, len(verdict.searched)) == (32, 1) or verdict.is_proved
    tables = SymbolTable()
    many = [tables.symbol(3, lower=0) for _ in range(6)]
    product = many[0] * many[1] * many[2] + many[3] * many[4] * many[5]
    assert (product // 5) * 5 <= product
    found = search(Premises(tables, ()), claims_of(tables), time.thread_time() + 60)
    assert (found.reach, found.found, found.is_complete) == (4, None, True)
    assert found.points >= 5**6


@pytest.mark.rules("DYN-11")
def test_time_that_runs_out_leaves_it_open():
    table, a, b = table_with(6, 5)
    assert (a * b + 1) // 2 >= 2
    verdict = judge(table, time_limit=0.0)
    assert verdict.unknown and not verdict.is_proved
    assert str(verdict).startswith("unknown: ")


@pytest.mark.rules("DYN-11")
def test_time_in_which_others_compute_does_not_count(monkeypatch):
    """A machine that is busy proves what a quiet one does."""
    table, a, b = table_with(6, 5)
    assert (a * b * a // 5) * 5 <= a * b * a
    sound = str(judge(table, time_limit=20.0))
    expand = Expansion.proves

    def slowly(expansion, claim):
        time.sleep(0.03)
        return expand(expansion, claim)

    monkeypatch.setattr(Expansion, "proves", slowly)
    assert sound.startswith("sound") and ", 0 by z3" not in sound
    assert str(judge(table, time_limit=0.4)) == sound


@needs_z3
@pytest.mark.rules("DYN-11")
def test_z3_counts_steps_for_a_question():
    """Which ends without a clock: at the steps that stand for what is left of the time."""
    table, a, b = table_with(6, 5)
    c = table.symbol(7, lower=1)
    hard = Claim("!=", a**3 + b**3, c**3, True)
    asked = solver.Solver(Premises(table, ()))
    asked._solver.set = lambda name, value: limits.__setitem__(name, value)
    limits: dict[str, int] = {}
    asked._solver.check = lambda: asked._z3.unknown
    assert asked.refutes(hard, time.thread_time() + 0.5) is None
    assert 0.9e6 < limits["rlimit"] <= 1e6
    assert limits["timeout"] > 4000


@needs_z3
@pytest.mark.rules("DYN-11")
def test_threads_prove_at_a_time():
    """z3 crashes where two threads use one context."""

    def prove(count):
        for n in range(3, 3 + count):
            table, a, b = table_with(n, n + 2)
            guards = [guard(a, ">=", 2), guard(b, "==", a + 1)]
            claims = [Claim(">=", b, 1, True), Claim("<", a % n, n, True), Claim("==", b, a, True)]
            asked, later = solver.Solver(Premises(table, guards)), time.thread_time() + 5
            found.append([asked.refutes(each, later) is False for each in claims])

    found = []
    threads = [threading.Thread(target=prove, args=(15,)) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [[True, True, False]] * 90


@pytest.mark.rules("DYN-11")
def test_an_answer_of_a_function_is_tried_where_no_solver_knows_it():
    table, a = table_with(6)
    assert sizes.settled(lambda size: size % 3 == 0, a)
    assert judge(table).is_proved
    counter = judge(table, []).counter
    assert counter is not None and counter.values["s0"] % 3 != 0


@pytest.mark.rules("DYN-11")
def test_ranges_are_those_that_were_declared():
    """What an assumption narrowed is no premise, but something to prove."""
    table = SymbolTable()
    size = table.symbol(6, lower=0, upper=8)
    assert size >= 4 and size + 1 >= 5
    assert judge(table).counter is None
    counter = judge(table, []).counter
    assert counter is not None and 0 <= counter.values["s0"] < 4


# --------------------------------------------------------------------------- exact arithmetic
@pytest.mark.rules("DYN-13")
@needs_z3
@pytest.mark.parametrize("function", ["//", "%", "max", "min", "abs", "**", "<<", ">>"])
def test_z3_computes_what_python_computes(function):
    """For each pair of small numbers: the true result has a proof, and another has none."""
    table = SymbolTable()
    a, b = table.symbol(6), table.symbol(3)
    for x, y in itertools.product(range(-5, 6, 2), (-3, -2, 1, 3)):
        if function in ("**", "<<", ">>") and y < 0:
            continue
        fixed = Premises(table, [guard(a, "==", x), guard(b, "==", y)])
        asked = solver.Solver(fixed)
        result = CLAIMED[function](x, y)
        later = time.thread_time() + 5
        assert asked.refutes(Claim(function, a, b, result), later) is False, (x, y)
        found = asked.refutes(Claim(function, a, b, result + 1), later)
        assert found == {"s0": x, "s1": y} or function in ("**", "<<", ">>"), (x, y)


@pytest.mark.rules("DYN-11", "DYN-13")
def test_a_division_by_zero_violates_what_it_claims():
    table = SymbolTable()
    a, b = table.symbol(6, lower=0), table.symbol(3, lower=0)
    assert a // b is table.call("//", a, b)
    assert [assumption.text for assumption in table.log] == ["s1 != 0"]
    assert judge(table).counter is None
    counter = judge(table, []).counter
    assert counter is not None and counter.values["s1"] == 0


# ------------------------------------------------------------------------------- laws, by drawing
@pytest.mark.rules("DYN-11", "DYN-13")
@given(st.integers(0, 10**6))
def test_claims_of_a_sound_table_hold_at_all_small_sizes(seed):
    """And there the program on ints gives what the symbolic results are."""
    program = drawn(seed)
    try:
        table, results = program.trace()
    except ZeroDivisionError:
        return
    claims, premises = claims_of(table), Premises(table, tuple(table.log))
    assert judge(table, time_limit=20.0).counter is None
    expansion = Expansion(premises)
    proved = [claim for claim in claims if expansion.proves(claim)]
    for values in points(program, 4):
        named = {f"s{k}": value for k, value in enumerate(values)}
        if premises.admit(named):
            at = Evaluation(named)
            assert all(claim.holds(at) for claim in claims)
    assert proved and difference(program, table, results, 4) is None


@pytest.mark.rules("DYN-11")
@given(st.integers(0, 10**6), st.integers(-1, 1), st.data())
def test_what_expansion_proves_holds_also_for_wrong_results(seed, change, data):
    """Claims with a wrong result: expansion proves none that is false somewhere."""
    program = drawn(seed)
    try:
        table, _ = program.trace()
    except ZeroDivisionError:
        return
    claims = [claim for claim in claims_of(table) if not isinstance(claim.result, float)]
    kept = data.draw(st.lists(st.sampled_from(table.log), unique_by=id)) if table.log else []
    premises = Premises(table, kept)
    expansion = Expansion(premises)
    for claim in claims:
        result = (not claim.result) if claim.result in (True, False) else claim.result + change
        wrong = Claim(claim.function, claim.left, claim.right, result)
        if expansion.proves(wrong):
            for values in points(program, 3):
                named = {f"s{k}": value for k, value in enumerate(values)}
                if premises.admit(named):
                    assert wrong.holds(Evaluation(named)), (wrong, named)


# ------------------------------------------------------------------------------ planted mistakes
@pytest.mark.rules("DYN-12")
def test_a_wrong_proof_is_named_before_what_follows_from_it(monkeypatch):
    """Facts are taken for at least 1 larger than they are: `s0 - 2 >= 1` is then proved."""
    monkeypatch.setattr(proofs, "bounds", lambda terms: (1, None))
    table, a = table_with(6)
    assert a - 2 > 0
    half = sizes.maximum(a - 2, 1)
    assert half is a - 2
    counter = judge(table).counter
    assert counter.values == {"s0": 2}
    assert counter.claim.text == "s0 - 2 > 0"
    assert "assert a - 2 > 0" in counter.claim.asked
    assert len(counter.failed) >= 2


@pytest.mark.rules("DYN-12")
def test_a_wrong_simplification_is_named_with_its_op(monkeypatch):
    monkeypatch.setattr(calls, "_within", lambda table, a, b: 0)
    table = SymbolTable()
    build = Builder("halved")
    x = build.placeholder(symbolic_meta(table, tensor_meta((6, 4)), "x"))
    build.finish([x.slice(0, 0, None, 3)])
    with pytest.raises(GuardError, match=r"// 3 is 0 is false at .*asked by slice, .*x\.slice"):
        validate(table)


@pytest.mark.rules("DYN-11", "DYN-12")
def test_planted_unsound_simplifications_are_refuted():
    programs = [drawn(seed) for seed in range(40)]
    every = [plant for plant in plants() if not plant.is_of_record]
    chosen = every[1::149]
    found = [each for plant in chosen if (each := refute(plant, programs)) is not None]
    assert len(found) >= 2
    for each in found:
        assert each.witness is not None, each
        assert each.seconds < 1.0, each


@pytest.mark.rules("DYN-11", "DYN-12")
def test_each_plant_where_sizes_become_numbers_is_refuted():
    """A number that is used is an event, whatever becomes of its assumption."""
    programs = [drawn(seed) for seed in range(40)]
    chosen = [plant for plant in plants() if plant.function == "SymbolTable.specialize"]
    found = [refute(plant, programs) for plant in chosen if not plant.is_of_record]
    unsound = [each for each in found if each is not None]
    assert len(unsound) >= 5
    for each in unsound:
        assert each.witness is not None, each
        assert each.seconds < 1.0, each


@pytest.mark.rules("DYN-11")
def test_a_plant_is_taken_out_again():
    plant = next(plant for plant in plants() if plant.function == "multiply")
    program = SizeProgram((3, 4), ((2, None), (2, None)), (("*", 0, 1), ("==", 2, "12")))
    with plant.planted():
        pass
    table, results = program.trace()
    assert concrete(results[0], {"s0": 5, "s1": 7}) == 35
    assert difference(program, table, results) is None


@pytest.mark.rules("DYN-11")
def test_extremes_of_decided_operands_need_no_solver():
    """`max(s0, 1)` is s0 where a guard says that s0 is not 0."""
    table, a, b = table_with(6, 5, lower=0)
    strides = sizes.at_least_one(a) * 4, sizes.minimum(b, 3)
    assert a != 0 and b >= 3 and strides[0] != a
    verdict = judge(table, solver=False)
    assert verdict.reach == -1 and not verdict.searched and verdict.expanded
    lost = judge(table, [guard for guard in table.log if guard.text != "s0 != 0"], solver=False)
    assert lost.counter is not None and lost.counter.values["s0"] == 0


@pytest.mark.rules("DYN-13")
def test_an_event_has_its_operands_in_their_order():
    table, a = table_with(6)
    assert sizes.maximum(2, a) is a and 20 // a is not a // 20
    texts = [claim.text for claim in claims_of(table)]
    assert "20 // s0 is 20//s0" in texts and "s0 // 20 is s0//20" in texts


def _first_or_one(size):
    return size if size > 4 else 1


@pytest.mark.rules("DYN-11")
def test_a_result_by_cases_is_tried_once_for_each_vector_of_its_sizes():
    table, a, *_ = table_with(6, 5, 7, lower=0)
    tried = []

    def rule(size):
        tried.append(size)
        return size

    def claim(function, result):
        return Claim("by cases", (function, (a,)), None, result)

    premises = Premises(table, [])
    assert wrong_result(premises, [claim(rule, a)], time.thread_time() + 5) is None
    assert sorted(set(tried)) == sorted(tried) and {0, 1, 2, 3, 6} <= set(tried)
    claims = [claim(rule, a), claim(_first_or_one, a), claim(rule, a + 1)]
    found = wrong_result(premises, claims, time.thread_time() + 5)
    assert found is not None and found.index == 1 and found.values["s0"] in (0, 2, 3, 4)


@pytest.mark.rules("DYN-11")
def test_a_guard_with_a_division_says_that_its_divisor_is_not_0():
    """`s0 % s1 == 0` has no value where s1 is 0, so that no other guard is needed for that."""
    table, a, b = table_with(6, 3, lower=0)
    assert a % b == 0 and sizes.at_least_one(b) * 2 > b
    (guard,) = [guard for guard in table.log if "%" in guard.text]
    assert judge(table, [guard], solver=False).reach == -1
    assert judge(table, [], solver=False).counter is not None


@pytest.mark.rules("DYN-11")
def test_guards_that_are_products_need_no_solver():
    """The heads of an attention, of which all sizes are symbols."""
    table, batch, width, other = table_with(3, 8, 8, lower=0)
    heads = width // 4
    assert batch != 0 and batch * heads * 4 == batch * width and batch * other == batch * width
    assert heads * 4 == other and sizes.at_least_one(other) >= heads
    assert heads > 1 and other > 4 and other // 4 == heads
    verdict = judge(table, solver=False)
    assert verdict.reach == -1 and verdict.counter is None
    lost = judge(table, [guard for guard in table.log if guard.text != "s0 != 0"], solver=False)
    assert lost.counter is not None
