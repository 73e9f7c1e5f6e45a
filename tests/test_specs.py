"""Examples in specs, docs, README and docstrings run and show what they say."""

import doctest
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from aotlite.backends.native.compiler import toolchain
from aotlite.ir.errors import MissingExtraError
from aotlite.pipeline import options
from tests.helpers.own_ops import taken_out
from tests.house.sources import PRODUCT, tree

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("specs/**/*.md"), *ROOT.glob("docs/**/*.md")])
ELSEWHERE = {"docs/nn.md", "specs/artifacts.md"}
"""Pages with tests of their own (tests/nn/test_docs.py, tests/artifacts/test_page.py)."""


EXTRAS = {"onnx": ("onnx", "onnxruntime"), "stablehlo": ("jax",), "torch": ("torch",)}
NEEDED = {
    "docs/fx_exchange.md": ("torch", "stablehlo"),
    "docs/interchange.md": ("onnx", "stablehlo"),
    "specs/onnx.md": ("onnx",),
    "specs/stablehlo.md": ("stablehlo",),
    "specs/jaxpr.md": ("stablehlo",),
    "specs/torch_fx.md": ("torch",),
    "aotlite.interchange.onnx.model": ("onnx",),
    "aotlite.interchange.onnx.session": ("onnx",),
    "aotlite.interchange.stablehlo.module": ("stablehlo",),
    "aotlite.interchange.stablehlo.runner": ("stablehlo",),
    "aotlite.interchange.torch_fx.writer": ("torch",),
}
"""The extras of pages and modules whose examples need one."""


def skip_without_extras(name):
    """Skips examples whose packages are not installed."""
    for extra in NEEDED.get(name, ()):
        for package in EXTRAS[extra]:
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed, which aotlite[{extra}] brings")


def relative(page):
    return str(page.relative_to(ROOT))


EXAMPLES = [p for p in PAGES if ">>> " in p.read_text("utf-8") and relative(p) not in ELSEWHERE]


NAMES = {name: each.text for name, each in tree().folders(*PRODUCT).items()}
MODULES = [name for name, text in NAMES.items() if ">>> " in text and name != "aotlite.__main__"]
"""Importing `aotlite.__main__` runs it."""


def failures(test):
    """What a doctest prints when it fails; nothing where it passes."""
    printed = []
    with taken_out():
        doctest.DocTestRunner(verbose=False).run(test, out=printed.append)
    return "".join(printed)


@pytest.fixture
def user(request, monkeypatch):
    """The default backend of every user, who has a C compiler or has none."""
    monkeypatch.setattr(options, "DEFAULT_BACKEND", "auto")
    if request.param == "without":
        monkeypatch.setattr(toolchain, "_search", lambda: (None, ()))
        monkeypatch.setattr(toolchain, "is_known", lambda: True)
    elif toolchain.find_compiler() is None:
        pytest.skip("no C compiler works here")


NO_COMPILER_LONG = {"docs/laws.md", "docs/testing.md", "specs/testing.md", "docs/subclasses.md"}
"""Pages about laws and programs, which take seconds: without a compiler with -m long."""


def pages(shown):
    """The pages, with the users that they are shown to."""
    for page in EXAMPLES:
        for user in ("with a compiler", "without"):
            if (user == "without" and relative(page) in NO_COMPILER_LONG) == (shown == "long"):
                yield pytest.param(page, user, id=f"{user}-{relative(page)}")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:aotlite. no C compiler works here:RuntimeWarning")
@pytest.mark.parametrize(("page", "user"), [*pages("long")], indirect=["user"])
def test_long_page_shows_what_its_examples_give_without_a_compiler(page, user):
    test_page_shows_what_its_examples_give(page, user)


@pytest.mark.slow("the pages about laws try the op table")
@pytest.mark.filterwarnings("ignore:aotlite. no C compiler works here:RuntimeWarning")
@pytest.mark.thinned(3)
@pytest.mark.parametrize(("page", "user"), [*pages("usual")], indirect=["user"])
def test_page_shows_what_its_examples_give(page, user):
    skip_without_extras(relative(page))
    text = page.read_text("utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    found = failures(test)
    assert not found, found  # the message is the whole text


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", MODULES)
def test_docstrings_show_what_their_examples_give(name):
    skip_without_extras(name)
    try:
        module = importlib.import_module(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
    tests = doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__)
    assert any(test.examples for test in tests), "the text has examples, no docstring has"
    for test in tests:
        found = failures(test)
        assert not found, found


def test_walk_sees_all_three_packages():
    """A walk over nothing would find no wrong example."""
    assert {"aotlite.pipeline", "aotlite.ir.graph", "aotlite.backends.reference"} < set(NAMES)
    assert len(MODULES) > 100


RULE = re.compile(r"^(?:- \*\*|### )([A-Z]+-\d+)(?:\*\*| · )", re.MULTILINE)
"""A rule as a line of a list, and as a heading of a page of `specs/rules`."""


def test_each_rule_is_stated_on_one_page():
    stated = {}
    for page in PAGES:
        for rule in RULE.findall(page.read_text("utf-8")):
            stated.setdefault(rule, []).append(relative(page))
    assert {} == {rule: pages for rule, pages in stated.items() if len(pages) > 1}


CITED = re.compile(r"(?<!\.\.)(?<! to )\b([A-Z]{2,4}-\d+)\b(?!\.\.| to [A-Z]+-\d)")
PREFIXES = re.compile(r"^\| ([A-Z, ]+) \|", re.MULTILINE)


def test_every_rule_that_is_cited_is_stated():
    """Ranges are not counted: a few of their rules belong to what is not built yet."""
    index = (ROOT / "specs" / "README.md").read_text("utf-8")
    prefixes = {word for row in PREFIXES.findall(index) for word in row.split(", ")}
    stated = {rule for page in PAGES for rule in RULE.findall(page.read_text("utf-8"))}
    assert {rule.split("-")[0] for rule in stated} <= prefixes
    sources = {relative(page): page.read_text("utf-8") for page in PAGES}
    sources |= {name: source.text for name, source in tree().folders(*PRODUCT).items()}
    missing = {
        (name, rule)
        for name, text in sources.items()
        for rule in CITED.findall(text)
        if rule.split("-")[0] in prefixes and rule not in stated
    }
    assert set() == missing


def test_every_page_of_the_specs_is_in_their_index():
    index = (ROOT / "specs" / "README.md").read_text("utf-8")
    pages = [page for page in ROOT.glob("specs/**/*.md") if page.name != "README.md"]
    missing = [relative(p) for p in pages if f"({p.relative_to(ROOT / 'specs')})" not in index]
    assert [] == missing


TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)`|`(test_\w+)`")


def test_specs_name_tests_that_exist():
    sources = {relative(p): p.read_text("utf-8") for p in sorted(ROOT.glob("tests/**/*.py"))}
    everything = "\n".join(sources.values())
    missing = []
    for page in ROOT.glob("specs/**/*.md"):
        for file, function in TEST_NAME.findall(page.read_text("utf-8")):
            if (file and file not in sources) or (function and f"def {function}" not in everything):
                missing.append((relative(page), file or function))
    assert [] == missing
