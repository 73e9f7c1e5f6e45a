"""A mistake of the suite or of an adapter is a verdict of its own, and never the library's."""

import collections
import functools
import random
import re
from pathlib import Path

import attrs
import numpy as np
import pytest

from aotlite import conformance
from aotlite.cli import main
from aotlite.conformance import rules
from aotlite.conformance.adapters.aotlite import Aotlite
from aotlite.conformance.adapters.numpy import NumPy
from aotlite.conformance.error_source import is_ours, through
from aotlite.conformance.isolation.process import examine
from aotlite.conformance.isolation.tracked_adapter import Watched
from aotlite.conformance.models import memory_model
from aotlite.conformance.outcomes import Breaks, Faulty
from aotlite.conformance.report import markdown
from aotlite.conformance.rules import all_rules, select
from aotlite.conformance.runner import run_rule
from aotlite.conformance.witnesses import call_source
from tests.conformance.helpers.adapters import Misspelt
from tests.conformance.helpers.broken_numpy import broken
from tests.conformance.helpers.planted_faults import (
    ERRORS,
    PARTS,
    calls_of,
    functions_of_the_suite,
    part_of,
    planted,
)

HERE = "tests.conformance.helpers.adapters"
ADAPTERS = {"numpy": NumPy, "aotlite": Aotlite}


@functools.cache
def asked():
    """Rules with the library that they are asked of: NumPy, a broken NumPy, and aotlite."""
    pairs = [(rule.id, "numpy") for rule in all_rules() if rule.group != "random_chains"]
    pairs += [(rule.id, "broken") for rule in select(["views", "writes", "copies"])[::3]]
    pairs += [(rule.id, "aotlite") for rule in select(["autograd", "gradients", "versions"])[::3]]
    return pairs


def run(rule, library):
    """The outcome of a rule, nothing of its adapter's methods being known from before."""
    call_source._statements.cache_clear()
    return run_rule(rule, adapter_for(rule.id, library))


def adapter_for(rule, library):
    return broken(rule)() if library == "broken" else ADAPTERS[library]()


@functools.cache
def unplanted(rule, library):
    """The outcome without a mistake, and how often each function is called for it."""
    outcome = []
    [asked] = select([rule])
    calls = calls_of(lambda: outcome.append(run(asked, library)))
    known = functions_of_the_suite()
    return outcome[0], {code: count for code, count in calls.items() if code in known}


def draws(count, pairs):
    """(rule, library, code, call, error) at random, each part as often as the others."""
    source = random.Random(count)
    pairs = source.sample(asked(), pairs)
    for number in range(count):
        part = list(PARTS)[number % len(PARTS)]
        while True:
            rule, library = source.choice(pairs)
            _, calls = unplanted(rule, library)
            codes = [code for code in calls if part_of(code) == part]
            if codes:
                break
        code = source.choice(sorted(codes, key=lambda each: (each.co_filename, each.co_qualname)))
        yield rule, library, code, source.randrange(calls[code]), source.choice(ERRORS)


def unworded(outcome):
    """The outcome without the lines of its witness, which need not be spelled in the best way."""
    return attrs.evolve(outcome, lines=()) if isinstance(outcome, Breaks) else outcome


def check_draws(count, pairs):
    known = functions_of_the_suite()
    seen = collections.Counter()
    for rule, library, code, call, error in draws(count, pairs):
        expected, _ = unplanted(rule, library)
        [asked] = select([rule])
        with planted(known[code], error("planted"), call) as plant:
            found = run(asked, library)
        what = (rule, library, code.co_qualname, call, error.__name__, found)
        assert plant.calls > call, what
        assert isinstance(found, Faulty) or unworded(found) == unworded(expected), what
        seen[part_of(code), type(found).__name__] += 1
    return seen


def test_a_mistake_in_the_suite_is_never_the_librarys():
    seen = check_draws(150, pairs=24)
    assert dict.fromkeys(PARTS, 30) == {
        part: sum(count for (of, _), count in seen.items() if of == part) for part in PARTS
    }
    found = sum(count for (_, outcome), count in seen.items() if outcome == "Faulty")
    assert found >= 120, seen


@pytest.mark.long
def test_many_mistakes_in_the_suite_are_never_the_librarys():
    assert check_draws(3000, pairs=len(asked())).total() == 3000


MISTAKES = {
    "a name": lambda self, *arguments: no_such_name(arguments),  # type: ignore[name-defined]  # noqa: F821
    "a function": lambda self, *arguments: np.no_such_function(*arguments),  # type: ignore[attr-defined]
    "a method": lambda self, *arguments: np.zeros(1).no_such_method(*arguments),  # type: ignore[attr-defined]
    "a helper": lambda self, *arguments: self._no_such_helper(*arguments),
    "an assertion": lambda self, *arguments: failed_assertion(),
    "an import": lambda self, *arguments: failed_import(),
}
"""What an adapter's line may have by mistake -> the method."""


def failed_assertion():
    assert not HERE


def failed_import():
    import no_such_module  # type: ignore[import-not-found]  # noqa: F401


@functools.cache
def first_rules():
    """Method of NumPy's adapter -> the first rule that calls it."""
    found = {}
    for rule in all_rules():
        if rule.group == "random_chains":
            continue
        called = set()
        run_rule(rule, Watched(NumPy(), {}, called.add))
        for name in called - {""}:
            found.setdefault(name, rule)
    return found


OWN = [name for name, method in vars(NumPy).items() if callable(method) and name != "from_list"]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_an_adapters_line_is_never_the_librarys(mistake):
    """Every method of NumPy's adapter that rules call, with each mistake, in its first rule."""
    first = {name: rule for name, rule in first_rules().items() if name in OWN}
    assert len(first) >= 50
    for name, rule in first.items():
        adapter = type("Mistaken", (NumPy,), {name: MISTAKES[mistake]})()
        assert isinstance(run_rule(rule, adapter), Faulty), (name, rule.id)


def test_a_fault_says_which_line_made_it():
    report = conformance.check(Misspelt, rules=["TEN-2a", "TEN-1d"])
    assert ([], ["TEN-2a"], ["TEN-1d"]) == (
        [each.rule for each in report.broken],
        [each.rule for each in report.faulty],
        [each.rule for each in report.kept],
    )
    said = (
        "TEN-2a  narrow is a view: a fault of the suite or the adapter, "
        "adapters.py:LINE in narrow: NameError: name 'nump' is not defined; "
        "at case ((1,), (('narrow', 0, 0, 1),))"
    )
    line = re.search(r"adapters\.py:(\d+) in", report.table())[1]
    assert said.replace("LINE", line) == report.table().splitlines()[0]
    assert report.table().endswith("absent 0, faults of the suite or the adapter 1")


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("library", "rule", "said", "place"),
    [
        ("Unwell", "TEN-2a", "crashes (exit status 4)", "outside of every method of the library"),
        ("Stuck", "MEM-1", "hangs (> 2 s)", "outside of every method of the library"),
        ("Leaver", "TEN-2a", "SystemExit: 5", Path(memory_model.__file__).name + ":2 in to_list"),
    ],
)
def test_a_suite_that_ends_its_process_is_no_crash_of_the_library(library, rule, said, place):
    report = examine(f"{HERE}:{library}", [rule, "TEN-1d"], seconds=2)
    outcomes = {each.rule: each.outcome for each in report.results}
    assert (said, place) == (outcomes[rule].said, outcomes[rule].place)
    assert ((), (outcomes[rule],)) == (report.broken, tuple(e.outcome for e in report.faulty[:1]))


def test_what_a_library_does_in_the_place_of_an_array_is_its_own():
    """None is no array: what asks it for a method is the library's consequence."""

    class Empty(NumPy):
        transpose = lambda self, a, dim0, dim1: None

    [result] = conformance.check(Empty, rules=["TEN-2d"]).results
    assert isinstance(result.outcome, Breaks)
    assert "AttributeError: 'NoneType' object has no attribute 'tolist'" == result.outcome.got


def written_in_the_suite(lines):
    """The function `body` of these lines, as one of the suite's own modules has it."""
    space = {}
    exec(compile(lines, rules.__file__, "exec"), space)
    return space["body"]


def wrapping(function):
    """A library's own error for one of a function that it runs."""

    def call(*arguments):
        try:
            return function(*arguments)
        except Exception as error:
            raise RuntimeError("tracing failed") from error

    return call


@pytest.mark.parametrize(
    ("lines", "argument", "expected"),
    [
        ("def body(a): raise KeyError(a)", 1, True),
        ("def body(a): return __import__('json').loads(a)", "{", True),
        ("def body(a): return a()", lambda: np.zeros(2).reshape(3), False),
    ],
)
def test_an_error_that_a_library_wraps_keeps_its_origin(lines, argument, expected):
    with pytest.raises(RuntimeError) as raised:
        through(wrapping(written_in_the_suite(lines)), (argument,))
    assert expected == is_ours(raised.value)


def test_a_fault_is_a_status_of_its_own(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["conformance", f"{HERE}:Misspelt", "--rules", "TEN-2a"])
    assert exit.value.code == 3
    printed = capsys.readouterr().out
    assert "misspelt" in printed and "keeps 0, breaks 0, absent 0, faults of the" in printed


def test_a_fault_comes_before_a_breach(capsys):
    arguments = ["--rules", "TEN-2a", "--strict"]
    with pytest.raises(SystemExit) as exit:
        main(["conformance", f"{HERE}:Misspelt", f"{HERE}:Mine", *arguments])
    assert exit.value.code == 3


def test_the_page_says_where_a_library_was_not_asked(tmp_path):
    page = markdown([conformance.check(Misspelt, rules=["TEN-2a"])])
    assert "| TEN-2a | narrow is a view | **fault** |" in page
    assert "## Where misspelt" in page
    assert "- **TEN-2a** narrow is a view: a fault of the suite or the adapter, " in page
