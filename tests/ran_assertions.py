"""A plugin of pytest: a test that passed, has assertions and ran none of them fails.

So is a loop over nothing found. Run it as

    PYTHONPYCACHEPREFIX=/tmp/cache python -m pytest -p tests.ran_assertions \
        -o enable_assertion_pass_hook=true tests

with a folder of its own for compiled modules: pytest keeps them, and those of other runs have no
hook. Assertions that a helper of `tests` runs count.
"""

import ast
import inspect
import textwrap

import pytest

RAN = pytest.StashKey[bool]()


def pytest_assertion_pass(item):
    item.stash[RAN] = True


def has_assertions(function):
    """Whether there is an assert statement in the text of a test."""
    try:
        text = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return False
    return any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and report.passed and not item.stash.get(RAN, False):
        function = getattr(item, "obj", None)
        if function is not None and has_assertions(function):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: no assertion ran, expected one at least"
    return report
