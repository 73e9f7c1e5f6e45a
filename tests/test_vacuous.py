"""No test of the suite is one that cannot fail, as far as its text shows; the checker is tried."""

import ast
import re
from pathlib import Path

import pytest

from tests.vacuous import checking_names, complaints

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("test_*.py"))

PLANTED = {
    "assert True": "a constant is asserted",
    "assert 'text'": "a constant is asserted",
    "assert (x == 1, 'why')": "a tuple that is not empty is asserted",
    "assert [x == 1]": "a display that is not empty is asserted",
    "assert {'a': x}": "a display that is not empty is asserted",
    "assert f'{x} is'": "a text that is not empty is asserted",
    "assert (x == each for each in y)": "an object that is always true is asserted",
    "assert lambda: x == 1": "an object that is always true is asserted",
    "assert x == 1 or True": "one side of an `or` is always true",
    "assert x == 1 and True": "a constant is asserted",
    "assert x == x": "a thing is compared with itself",
    "assert x.a[0] == x.a[0]": "a thing is compared with itself",
    "assert x is x": "a thing is compared with itself",
    "assert x <= x": "a thing is compared with itself",
    "assert 1 == 2": "two constants are compared",
    "assert f(x) in (True, False)": "whether something is True or False is always so",
    "assert all(f(i) in (False, True) for i in x)": (
        "of each: whether something is True or False is always so"
    ),
    "assert len(x) >= 0": "a size is never below 0",
    "assert 0 <= len(x)": "a size is never below 0",
    "assert isinstance(x, object)": "everything is an object",
    "with pytest.raises(ValueError):\n    f(x)\n    g(x)": (
        "raises over several statements: any may raise, and ends"
    ),
    "with pytest.raises(ValueError):\n    f(x)\n    assert x == 1": (
        "raises over several statements: any may raise, and ends"
    ),
    "f(x)": "no assertion: only an error can fail it",
    "helper(x)": "no assertion: only an error can fail it",
    "for each in x:\n    f(each)": "no assertion: only an error can fail it",
}
"""Body of a test that cannot fail -> what is said of it."""

SOUND = [
    "assert x == 1",
    "assert x == 1 or x == 2",
    "assert f(x) == f(x)",
    "assert x.p is x.p",
    "assert f(x) in (1, 0)",
    "assert len(x) >= 1",
    "assert x <= x + 1",
    "assert all(f(i) == 1 for i in x)",
    "checked(x)",
    "twice(x)",
    "np.testing.assert_allclose(x, y)",
    "with pytest.raises(ValueError):\n    f(x)",
    "with pytest.raises(ValueError):\n    number = 3\n    f(number)",
    "with pytest.raises(ValueError):\n    assert x == 1\n    raise ValueError",
    "with raises(ValueError):\n    f(x)",
]

HELPERS = """
def helper(x):
    return x + 1

def checked(x):
    assert x == 1

def twice(x):
    checked(x)
    checked(x)
"""


def said_of(body):
    """What the checker says of a test with this body, beside helpers that check or do not."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return [what for _, what in complaints(ast.parse(f"{HELPERS}\ndef test_it(x, y):\n{lines}"))]


@pytest.mark.parametrize("body", PLANTED)
def test_a_test_that_cannot_fail_is_found(body):
    assert PLANTED[body] in said_of(body)


@pytest.mark.parametrize("body", SOUND)
def test_a_test_that_can_fail_is_let_alone(body):
    assert [] == said_of(body)


def test_a_helper_of_another_module_is_looked_into():
    tree = ast.parse("from tests.rules.test_hook_python import agree, seen as other, world")
    assert {"agree"} == checking_names(tree) - {"world"}


def test_the_suite_is_looked_at():
    texts = [path.read_text("utf-8") for path in FILES]
    count = sum(len(re.findall(r"^ *def test_", text, re.MULTILINE)) for text in texts)
    assert (True, True) == (len(FILES) >= 300, count >= 3500)


@pytest.mark.slow("parses every test of the suite")
def test_no_test_of_the_suite_is_one_that_cannot_fail():
    found = [
        f"{path.relative_to(TESTS)}:{line}: {what}"
        for path in FILES
        for line, what in complaints(ast.parse(path.read_text("utf-8")))
    ]
    assert [] == found
