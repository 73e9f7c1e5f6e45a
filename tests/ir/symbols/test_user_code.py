"""Whose code asks a symbolic size: aotlite's finds a symbol, a user's an int (DYN-23)."""

import logging
import types

import numpy as np
import pytest

from aotlite.ir.geometry.sizes import always_equal
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable


def shown(*hints):
    """A table whose sizes users see as ints, and a size of each hint."""
    table = SymbolTable()
    table.show_as_ints()
    return table, *[table.size(hint) for hint in hints]


def asking(expression, module):
    """The function `n -> expression` of a module of this name; None: of none."""
    scope = {"SymInt": SymInt} if module is None else {"SymInt": SymInt, "__name__": module}
    return eval(f"lambda n: {expression}", scope)


QUESTIONS = {
    "str(n)": ("s0", "6"),
    "repr((n, 2))": ("(s0, 2)", "(6, 2)"),
    "f'{n}'": ("s0", "6"),
    "{6: 'six'}.get(n)": (None, "six"),
    "isinstance(n, int)": (False, True),
    "isinstance(n, SymInt)": (True, True),
    "type(n > 4) is bool": (False, True),
    "str(n > 4)": ("s0 > 4", "True"),
}
OURS = ("aotlite", "aotlite.ir.ops", "aotlite.stages.s1_capture", "aotlite.backends.cpu")
USERS = (
    "model",
    "__main__",
    "aotlite_models",
    None,
    "aotlite.nn.layers",
    "aotlite.testing.programs",
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_module_of_the_frame_decides(question):
    ours, users = QUESTIONS[question]
    for module in OURS:
        table, n = shown(6)
        assert ours == asking(question, module)(n)
        assert [] == table.log
    for module in USERS:
        table, n = shown(6)
        assert users == asking(question, module)(n)
        expected = {"isinstance(n, int)": [], "isinstance(n, SymInt)": []}.get(question)
        assert (expected is None) == bool(table.log)


@pytest.mark.parametrize("question", QUESTIONS)
def test_symbols_are_shown_on_request_only(question):
    table = SymbolTable()
    ours, _ = QUESTIONS[question]
    assert ours == asking(question, "model")(table.size(6))
    assert [] == table.log


def test_abstract_class_asks_for_the_code_that_called_it():
    _, n = shown(6)
    question = "isinstance(n, __import__('numbers').Number)"
    assert not asking(question, "aotlite.ir.op")(n)
    assert asking(question, "model")(n)


def test_metas_and_rules_of_shown_symbols_assume_nothing():
    table, n, m = shown(6, 5)
    meta = tensor_meta((n, m))
    assert meta is tensor_meta((n, m), (m, 1))
    assert "f32[s0, s1]" == repr(meta)
    assert not always_equal(n, m)
    assert [] == table.log


def test_comparison_that_a_user_is_given_is_a_bool_to_the_user():
    table, n = shown(6)
    fact = SymBool(n, ">", 4)
    assert (2, True, 1.0) == (fact + 1, fact == True, float(fact))  # noqa: E712
    assert ("yes", 2) == (("no", "yes")[fact], sum([fact, fact]))
    assert isinstance(fact, bool) and fact in {True} and "True" == f"{fact}"
    assert ["s0 > 4"] == [each.text for each in table.log]


def ask_numpy(n):
    return np.full(2, 0).repeat(np.prod((n, 1)))


def ask_logging(n):
    return logging.LogRecord("sizes", 10, __file__, 1, "%d rows", (n,), None).getMessage()


@pytest.mark.parametrize("ask", [ask_numpy, ask_logging])
def test_assumption_names_the_users_line_and_not_pythons(ask):
    table, n = shown(6)
    ask(n)
    (assumption,) = table.log
    assert f"in {ask.__name__}: " in repr(assumption)


def test_module_may_have_any_name():
    _, n = shown(6)
    module = types.ModuleType("odd")
    module.__name__ = 5
    assert "6" == eval("lambda n: str(n)", vars(module))(n)
