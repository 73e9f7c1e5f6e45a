"""PRG-7: clocks that C calls, hashes, the platform and states of aotlite are said where fixed."""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import operator
import platform
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import attrs
import pytest

import aotlite as al
from aotlite.export import aot_export_module, program
from aotlite.ir.errors import ExportWarning
from aotlite.ir.provenance.fixed_calls import watching
from aotlite.ir.provenance.purity import handed_on, held_in, modules_in
from aotlite.stages.s10_runtime.guards.failures import GuardCheck, what_fails

PART = functools.partial(time.perf_counter)
IS_LOUD = False


class Has:
    __call__ = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.module, self.part = time, PART


HAS = Has()
FIXED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a partial": (lambda x: x * PART(), "time.perf_counter for C to call"),
    "iter": (lambda x: x * next(iter(time.time, None)), "time.time for C to call"),
    "starmap": (lambda x: x * sum(itertools.starmap(time.time, [()])), "time.time for C to call"),
    "a factory": (
        lambda x: x * collections.defaultdict[int, float](time.monotonic)[0],
        "time.monotonic for C to call",
    ),
    "a class": (lambda x: x * HAS(), "time.perf_counter for C to call"),
    "an attribute": (lambda x: x * HAS.part(), "time.perf_counter for C to call"),
    "a module": (lambda x: x * next(iter(HAS.module.time, None)), "time.time for C to call"),
    "a getter": (
        lambda x: x * next(iter(operator.attrgetter("time")(time), None)),
        "time.time for C to call",
    ),
    "a key": (lambda x: x * (max(["a", "b"], key=hash) == "a"), "builtins.hash for C to call"),
    "hash": (lambda x: x * (hash("a") % 7), "hash() at"),
    "id": (lambda x: x * (id(x) % 7), "id() at"),
    "gc": (lambda x: x * gc.get_count()[0], "gc.get_count() at"),
    "references": (lambda x: x * sys.getrefcount(x), "sys.getrefcount() at"),
    "platform": (lambda x: x * len(platform.node()), "platform.node() at"),
    "threads": (lambda x: x * al.get_num_threads(), "aotlite's get_num_threads() at"),
}


@pytest.mark.rules("PRG-7")
@pytest.mark.parametrize("name", FIXED)
def test_what_c_or_a_machine_answers_is_said(name: str) -> None:
    function, words = FIXED[name]
    with pytest.warns(ExportWarning, match="has the answers of") as caught:
        made = program(function, al.ones(1))
    assert words in " ".join(made.baked_in)
    assert "test_calls_in_c.py:" in str(caught[0].message)


@pytest.mark.rules("PRG-7")
def test_a_module_says_it_too() -> None:
    class Waits(al.nn.Module):
        def __init__(self) -> None:
            self.part = PART

        def forward(self, x: Any) -> Any:
            return (x * self.part(),)

    with pytest.warns(ExportWarning, match="time.perf_counter for C to call at test_calls_in_c"):
        aot_export_module(Waits(), (al.ones(1),))


class Asked:
    """An object that notes each question."""

    asked: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        Asked.asked.append(name)
        return object.__getattribute__(self, name)


@pytest.mark.rules("PRG-7")
def test_a_search_for_clocks_asks_objects_nothing() -> None:
    """A capture, and users' code, see who asks an object for an attribute."""
    held: Any = Asked()
    object.__getattribute__(held, "__dict__")["part"] = PART

    def reads() -> Any:
        return held.part, held.__class__, kind.part  # a class has the slot of its objects

    kind: Any = Asked
    names: dict[str, Any] = {"held": held, "kind": kind}
    Asked.asked.clear()
    assert ["time.perf_counter"] == [name for name, _ in held_in(reads.__code__, names)]
    assert [] == list(handed_on(reads.__code__, names))
    assert [] == modules_in(reads.__code__, names)
    assert [] == Asked.asked


def pure(x: Any) -> Any:
    if IS_LOUD:
        print(time.perf_counter(), platform.node())
    groups: Any = collections.defaultdict(list)
    groups[functools.partial(int, "3")()].append(sum(map(abs, [1, -2])))
    return x * max(groups, key=operator.neg) * sorted({"b", "a"}, key=str.lower).index("a")


@pytest.mark.rules("PRG-7")
def test_pure_functions_that_c_calls_are_no_news() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = program(pure, al.ones(1))
    assert not any(" at " in each for each in made.baked_in)


class Pair(NamedTuple):
    first: object
    second: object


OPENING = {"open": open}


def paired(x: al.Tensor) -> al.Tensor:
    Pair(OPENING, 1)
    return x * 2


def test_what_python_writes_for_named_tuples_asks_nothing(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is <string>, wherever the process runs."""
    monkeypatch.chdir(tmp_path)
    with pytest.warns(ExportWarning, match="has the answers of 1 call fixed: io.open"):
        program(paired, al.ones(2))


@attrs.frozen
class Record:
    part: int


ASKED = "id(a0) != 0 and hash(a0) == 4"


def generated(how: str) -> list[str]:
    """What is said of code whose file is no file: it asks for hashes and ids, and for a clock."""
    with watching() as seen:
        if how == "guards":
            failed = what_fails([GuardCheck(ASKED, "x", "hash(a0)", "4")], {"hash": hash}, [3])
            assert failed is not None and failed.found == "3"
        elif how == "attrs":
            assert {Record(1): 2}[Record(1)] == 2
        elif how == "a user's text":
            assert not eval(ASKED, {"a0": 3})
        elif how == "a clock in a guard":
            what_fails([GuardCheck("now() < 0", "x", None, "4")], {"now": time.time}, [])
    return [each.partition(" at ")[0] for each in seen]


@pytest.mark.rules("PRG-7")
def test_texts_that_libraries_generate_ask_nothing() -> None:
    """Guards and methods of attrs have file names such as `<string>`, as a user's `eval` has."""
    assert [] == generated("guards") == generated("attrs") == generated("a clock in a guard")
    assert ["id()", "hash()"] == generated("a user's text")
