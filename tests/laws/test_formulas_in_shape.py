"""Formulas and kernels of ops reshape by `in_shape`, which assumes nothing about sizes.

`reshape` asks whether its result is a view, which users may see. Nobody sees that of what a formula
computes on its way: where it asked, attention had entries of its own for a batch of 1. What a
composite reshapes may be saved, and then a write to its memory is an error: there it asks.
"""

import ast
from pathlib import Path

import pytest

from aotlite.ir import ops

LEFT = {
    "_as_rows": "its result may be the user's",
    "_contracted": "the matrices are saved: eager's are views, which a write is told by",
    "_chained": "of a product, which is contiguous",
    "_outer": "the column is saved: eager's is a view, which a write is told by",
    "_product": "the matrices are saved: eager's are views, which a write is told by",
    "_reduced_rows": "the positions are saved: eager's are a view, which a write is told by",
    "_summed": "its result may be the user's",
    "_one_each": "of one element",
    "in_shape": "without symbols",
}
"""A function of ops that calls `reshape` -> the reason."""
FOLDER = Path(ops.__file__).parent


def is_reshape(node):
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr="reshape" | "reshape_as" | "flatten")):
            return not ast.unparse(of).endswith("xp")
    return False


def callers(tree):
    """The functions of a module, composites aside, in which something is reshaped."""
    for each in tree.body:
        decorators = [ast.unparse(item) for item in getattr(each, "decorator_list", ())]
        if not any("composite" in text for text in decorators) and any(
            map(is_reshape, ast.walk(each))
        ):
            yield getattr(each, "name", None) or ast.unparse(each)[:60]


@pytest.mark.rules("DYN-4")
def test_formulas_reshape_without_questions():
    found = [name for file in FOLDER.rglob("*.py") for name in callers(ast.parse(file.read_text()))]
    assert sorted(found) == sorted(LEFT)


def test_a_formula_that_asks_is_found():
    planted = ast.parse("VIEW = view(vjp={'self': lambda grad, meta: grad.reshape(meta.shape)})")
    assert list(callers(planted))
