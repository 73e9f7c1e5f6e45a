"""What pages announce is so: open differences have a place, and nothing is "not built yet" that is.

Each announcement stands in a table with a look at what would be there if it were built.
"""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

import aotlite as al
from aotlite.ir.op import OPS
from aotlite.pipeline import options
from aotlite.subclasses import TwoTensor
from aotlite.testing import laws

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(each for each in sorted((ROOT / "specs").rglob("*.md")) if "decisions" not in each.parts),
]
ANNOUNCING = re.compile(
    r"not built yet|comes? later|not yet built|no backend yet|does not exist yet|## Not yet"
    r"|^Pending: ",
    re.IGNORECASE | re.MULTILINE,
)


def is_module(name):
    """Whether there is a module of this name."""
    return importlib.util.find_spec(name) is not None


def has_option(*names):
    """Whether `aotlite.compile` takes one of these options."""
    known = {each.strip("_") for each in vars(options)} | set(al.compile.__kwdefaults__ or ())
    return bool(known & set(names))


def takes_plain_gradients():
    """Whether a compiled function whose result is a wrapper takes a plain gradient for it."""
    part = al.ones(2)
    wrapper = TwoTensor(part, part.clone()).requires_grad_()
    result = al.compile(lambda w: w * 2.0, backend="reference")(wrapper)
    try:
        result.backward(part)
    except al.TangentError:
        return False
    return wrapper.grad is not None


BUILT = {
    "control flow": lambda: bool({"cond", "while_loop", "scan", "map"} & set(OPS)),
    "budgets": lambda: has_option("memory_budget", "activation_memory_budget", "budget"),
    "policies": lambda: has_option("policy", "recompute_policy"),
    "reuse of saved memory": lambda: _names_it("backends/cpu", r"\bdonated\b"),
    "moves between devices": lambda: _names_it("aotlite/compiled_autograd", r"\bmoved_to_device\b"),
    "plain gradients of wrappers": takes_plain_gradients,
}
"""What is announced -> whether it is there."""

ANNOUNCED = {
    "docs/limits.md": [
        ("control flow", "policies", "budgets"),
    ],
    "specs/rules/tok.md": [("control flow",)],
    "specs/rules/cag.md": [("moves between devices",)],
    "specs/rules/sav.md": [("reuse of saved memory",)],
    "specs/s5_desugar.md": [("plain gradients of wrappers",)],
}
"""Page -> what each of its announcements is about."""


def _names_it(folder, pattern):
    files = (ROOT / folder).rglob("*.py")
    return any(re.search(pattern, each.read_text("utf-8")) for each in files)


def announcements(text):
    """The lines of a page that announce something."""
    return [line for line in text.splitlines() if ANNOUNCING.search(line)]


@pytest.mark.parametrize(
    "line",
    ["| base | One input. Not built yet. |", "Pending: export", "## Not yet", "That comes later."],
)
def test_an_announcement_is_found(line):
    assert [line] == announcements(f"One.\n{line}\nTwo.")


def test_every_announcement_is_of_something_that_is_named():
    found = {
        str(path.relative_to(ROOT)): len(lines)
        for path in PAGES
        if (lines := announcements(path.read_text("utf-8")))
    }
    assert {page: len(what) for page, what in ANNOUNCED.items()} == found


def test_everything_announced_is_announced_somewhere():
    assert set(BUILT) == {each for page in ANNOUNCED.values() for what in page for each in what}


@pytest.mark.parametrize("what", BUILT)
def test_what_is_announced_is_not_there(what):
    assert not BUILT[what]()


def test_no_law_is_announced():
    """Laws run, or are no laws."""
    assert not hasattr(laws, "PENDING")
    assert "waits for" not in (ROOT / "docs" / "laws.md").read_text("utf-8")


# --------------------------------------------------------------------------- tests expected to fail
def strict_xfails(tree):
    """(test, reason) of each test of a module that is expected to fail."""
    for node in ast.walk(tree):
        for mark in getattr(node, "decorator_list", ()):
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.xfail":
                given = {each.arg: ast.literal_eval(each.value) for each in mark.keywords}
                yield node.name, given.get("reason", "")


def unnamed(tree, pages):
    """The tests that are expected to fail, whose name or reason is on no page."""
    return [
        name
        for name, reason in strict_xfails(tree)
        if not reason or name not in pages or reason not in pages.lower()
    ]


def test_every_test_that_is_expected_to_fail_is_named_on_a_page_with_its_reason():
    names = ("limits.md", "differences.md")
    pages = "".join((ROOT / "docs" / each).read_text("utf-8") for each in names)
    tests = (ROOT / "tests").rglob("test_*.py")
    files = [each for each in tests if each.name != "test_conftest.py"]
    texts = {str(each): each.read_text("utf-8") for each in files}
    trees = {path: ast.parse(text) for path, text in texts.items() if "xfail" in text}
    assert {} == {path: found for path, tree in trees.items() if (found := unnamed(tree, pages))}
    assert sum(len(list(strict_xfails(tree))) for tree in trees.values()) >= 1


PLANTED = """
@pytest.mark.xfail(strict=True, reason="a wrong sum")
def test_sums_differ_still():
    assert 1 + 1 == 3
"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("", ["test_sums_differ_still"]),
        ("- **A wrong sum**: ...", ["test_sums_differ_still"]),
        ("`test_sums_differ_still`", ["test_sums_differ_still"]),
        ("- **A wrong sum** (`test_sums_differ_still`)", []),
    ],
)
def test_a_test_that_no_page_names_is_found(page, expected):
    assert expected == unnamed(ast.parse(PLANTED), page)
