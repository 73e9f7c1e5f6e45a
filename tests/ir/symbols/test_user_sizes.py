"""DYN-23: to a user's function a symbolic size is an int, and every answer is eager's.

Each snippet runs on a symbol, and on the ints: what it gives, or raises, is the same wherever the
log of assumptions holds.
"""

import itertools
import random

import pytest

from aotlite.ir.symbols.table import SymbolTable
from tests.ir.helpers import size_programs
from tests.ir.helpers.concrete_sizes import at, form
from tests.ir.helpers.size_snippets import DIFFERENT, RAISING, SNIPPETS, random_expression

HINTS = (0, 1, 2, 6)
OTHERS = range(10)
CASES = [
    (group, line.strip())
    for group, lines in SNIPPETS.items()
    for line in lines.splitlines()
    if line.strip()
]


def compiled(text, names="n"):
    """The function of `n` that a snippet is, as code of a user's module."""
    return eval(f"lambda {names}: {text}", {**vars(size_programs), "__name__": "a_users_module"})


# ------------------------------------------------------------------------------------- comparisons
def outcome(function, *numbers):
    """("gives", value) or ("raises", class)."""
    try:
        return "gives", function(*numbers)
    except NameError:  # of the snippet, not of Python
        raise
    except Exception as error:
        return "raises", type(error)


def traced(function, *hints):
    """(outcome, log) of the function for symbols with these hints."""
    table = SymbolTable()
    table.show_as_ints()
    found = outcome(function, *[table.symbol(hint, lower=0) for hint in hints])
    return found, tuple(table.log)


def check(text, names, hints, others):
    """Asserts that a snippet does with symbols what it does with ints, wherever its log holds."""
    function = compiled(text, names)
    (what, result), log = traced(function, *hints)
    assert all(assumption.holds(named(hints)) for assumption in log)
    for numbers in (hints, *others):
        if all(assumption.holds(named(numbers)) for assumption in log):
            wanted, expected = outcome(function, *numbers)
            found = at(result, named(numbers))
            assert (wanted, form(expected)) == (what, form(found)), (text, hints, numbers, log)


def named(numbers):
    """The numbers by the names of the symbols."""
    return {f"s{i}": number for i, number in enumerate(numbers)}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.thinned(3)
@pytest.mark.parametrize(("group", "text"), CASES, ids=[f"{g}-{t}" for g, t in CASES])
def test_symbolic_size_is_an_int_to_a_users_function(group, text):
    """At its hint, and wherever the log holds: the same result, or the same error."""
    for hint in HINTS:
        check(text, "n", (hint,), [(n,) for n in OTHERS])


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("seed", range(8))
def test_random_expressions_give_what_ints_give(seed):
    """Two hundred expressions each, of two sizes."""
    draw = random.Random(seed)
    pairs = list(itertools.product(range(6), repeat=2))
    for _ in range(200):
        text = random_expression(draw, draw.randint(1, 4))
        check(text, "n, m", draw.choice(pairs), pairs)


@pytest.mark.parametrize("text", [line.strip() for line in RAISING.strip().splitlines()])
def test_what_takes_ints_of_the_type_int_only_raises(text):
    """docs/limits.md, "Limits of sizes as symbols": it never goes on with another value."""
    function = compiled(text)
    (what, _), _ = traced(function, 6)
    assert ("gives", "raises") == (outcome(function, 6)[0], what)


@pytest.mark.filterwarnings("ignore:.*is.* with a literal:SyntaxWarning")
@pytest.mark.parametrize("text", [line.strip() for line in DIFFERENT.strip().splitlines()])
def test_what_looks_at_the_object_itself_differs(text):
    """docs/limits.md, "Limits of sizes as symbols"; here to notice if Python changes."""
    function = compiled(text)
    found, _ = traced(function, 6)
    assert form(outcome(function, 6)) != form(found)
