"""DYN-23: to a user's function a symbolic size is an int, and every answer is eager's.

Each snippet runs on a symbol, and on the ints: what it gives, or raises, is the same wherever the
log of assumptions holds.
"""

import pytest

from aotlite.ir.symbols.table import SymbolTable
from tests.ir.helpers import size_programs
from tests.ir.helpers.concrete_sizes import at, form
from tests.ir.helpers.size_snippets import DIFFERENT, RAISING, SNIPPETS

HINTS = (0, 1, 2, 6)
OTHERS = range(10)
CASES = [
    (group, line.strip())
    for group, lines in SNIPPETS.items()
    for line in lines.splitlines()
    if line.strip()
]


def compiled(text):
    """The function of `n` that a snippet is, as code of a user's module."""
    return eval(f"lambda n: {text}", {**vars(size_programs), "__name__": "a_users_module"})


# ------------------------------------------------------------------------------------- comparisons
def outcome(function, n):
    """("gives", value) or ("raises", class)."""
    try:
        return "gives", function(n)
    except NameError:  # of the snippet, not of Python
        raise
    except Exception as error:
        return "raises", type(error)


def traced(function, hint):
    """(outcome, log) of the function for a symbol with this hint."""
    table = SymbolTable()
    table.show_as_ints()
    found = outcome(function, table.symbol(hint, "x.shape[0]", lower=0))
    return found, tuple(table.log)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("group", "text"), CASES, ids=[f"{g}-{t}" for g, t in CASES])
def test_symbolic_size_is_an_int_to_a_users_function(group, text):
    """At its hint, and wherever the log holds: the same result, or the same error."""
    function = compiled(text)
    for hint in HINTS:
        (what, result), log = traced(function, hint)
        assert all(assumption.holds({"s0": hint}) for assumption in log)
        for n in (hint, *OTHERS):
            if all(assumption.holds({"s0": n}) for assumption in log):
                wanted, expected = outcome(function, n)
                found = at(result, {"s0": n})
                assert (wanted, form(expected)) == (what, form(found)), (hint, n, log)


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
