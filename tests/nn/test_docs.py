"""The examples of docs/nn.md and of docstrings run and print what they say."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import aotlite.nn
import aotlite.optim

GUIDE = Path(__file__).parents[2] / "docs" / "nn.md"
MODULES = [
    module.name
    for package in (aotlite.nn, aotlite.optim)
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
]


def test_the_guide_is_true():
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, ran = doctest.testfile(str(GUIDE), module_relative=False, optionflags=options)
    assert (failed, ran > 20) == (0, True)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
