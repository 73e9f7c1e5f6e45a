"""The watch of attributes: what is noted, and that the function and its classes do not notice.

`_Watched` stands in the class of an object while a function is captured. All that code does with
the attribute gives what it gives without it, and the class is as it was afterwards.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import threading
from typing import Any

import pytest

import aotlite as al
from aotlite.stages.s1_capture.environment.attribute_watch import AttributeWatch
from aotlite.stages.s1_capture.environment.number_search import world_of
from aotlite.stages.s1_capture.hooks.dry_run import HookDryRun
from aotlite.stages.s1_capture.recorder import CaptureRecorder

pytestmark = pytest.mark.rules("CAP-14")


class Root:
    n = 7
    hidden = "of the base"

    def method(self) -> str:
        return "method"


class Plain(Root):
    own: Any = "of the class"

    def __init__(self) -> None:
        self.n, self.own, self.hidden = 1, "of the object", "of the object"
        self.method: Any = lambda: "of the object"

    @functools.cached_property
    def cached(self) -> int:
        return 5


class Slim:
    __slots__ = ("m", "n")

    def __init__(self) -> None:
        self.n = 1


class Loose(Slim):
    pass


class Lazy:
    def __init__(self) -> None:
        self.n = 1

    def __getattr__(self, name: str) -> str:
        return f"computed {name}"


class Checked:
    def __init__(self) -> None:
        self.n = 1

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, (value,))


@dataclasses.dataclass
class Data:
    n: int = 1
    m: int = 2


class Abstract(abc.ABC):
    n = 3

    def __init__(self) -> None:
        self.n = 1

    @abc.abstractmethod
    def go(self) -> None:
        """Is what makes it abstract."""


class Concrete(Abstract):
    def go(self) -> None:
        """Nothing."""


class Derived(Plain):
    pass


CLASSES = [Plain, Slim, Loose, Lazy, Checked, Data, Concrete, Derived]


def watched(function: Any) -> tuple[AttributeWatch, Any]:
    """A watch, and the block in which the function runs."""
    watch = AttributeWatch()
    recorder = CaptureRecorder(function, [], HookDryRun)
    return watch, watch.running(world_of(function, [], keeps=True), recorder)


def use(thing: Any) -> Any:
    """All that code does with attributes."""
    found: list[object] = []

    def note(ask: Any) -> None:
        try:
            found.append(ask())
        except Exception as error:
            found.append((type(error), str(error), getattr(error, "name", None)))

    note(lambda: thing.n)
    note(lambda: thing.absent)
    note(lambda: thing.own)
    note(lambda: thing.hidden)
    note(lambda: thing.method())
    note(lambda: thing.cached)
    note(lambda: thing.cached)
    note(lambda: thing.m)
    note(lambda: type(thing).n)
    note(lambda: type(thing).own)
    note(lambda: type(thing).absent)
    note(lambda: type(thing).method(thing))
    note(lambda: (hasattr(thing, "n"), hasattr(thing, "absent"), hasattr(type(thing), "own")))
    note(lambda: getattr(thing, "n", "default"))
    note(lambda: getattr(thing, "absent", "default"))
    thing.n = 2
    thing.n = 2 if thing.n == 2 else thing.n
    note(lambda: thing.n)
    note(lambda: object.__getattribute__(thing, "n"))
    del thing.n
    note(lambda: thing.n)
    note(lambda: delattr(thing, "n"))
    thing.n = 4

    def put() -> None:
        thing.absent = 6

    note(put)
    note(lambda: thing.absent)
    note(lambda: repr(thing) if type(thing) is Data else None)
    note(lambda: thing == type(thing)() if type(thing) is Data else None)
    return found


@pytest.mark.parametrize("kind", CLASSES)
def test_all_that_code_does_with_attributes_gives_the_same_under_a_watch(kind):
    expected = use(kind())
    thing = kind()
    bodies = [dict(vars(each)) for each in kind.__mro__]
    names = {*"n own absent hidden method cached m".split()}

    def function(x):
        return use(thing)

    watch, running = watched(function)
    with running:
        found = {name for each, name in watch._placed if each is kind}
        assert "n" in found and found <= names
        assert expected == use(thing)
    assert bodies == [dict(vars(each)) for each in kind.__mro__]
    assert watch.reads(thing, "n")


def test_the_instruction_and_the_object_are_noted():
    one, other = Plain(), Plain()

    def function(x):
        one.n += 1
        return one.own, other.n

    watch, running = watched(function)
    with running:
        function(0)
    ((code, first),) = watch.reads(one, "n")
    ((same, second),) = watch.reads(other, "n")
    assert code is same is function.__code__ and first < second
    assert watch.reads(Plain(), "n") is None
    watch.forget()
    assert watch.reads(one, "n") is None


@pytest.mark.parametrize(
    "line",
    ["x.n", "vars(x)", "type(x).__dict__", "dir(x)", "setattr(x, '__class__', int)", "super().n"],
)
def test_where_code_would_see_the_descriptors_there_are_none(line):
    names = {"x": Plain()}
    exec(f"def function(_):\n    x.n, {line}", names)
    _, running = watched(names["function"])
    with running:
        assert (line == "x.n") is (type(vars(Plain).get("n", 0)) is not int)
    assert "n" not in vars(Plain)


@pytest.mark.parametrize("ends", ["return x * 2", "return x * one.n", "raise KeyError", "x.item()"])
def test_a_class_is_as_it_was_however_a_capture_ends(ends):
    one = Plain()
    names: dict[str, Any] = {"one": one}
    exec(f"def function(x):\n    one.own\n    one.n += 1\n    {ends}", names)
    before = dict(vars(Plain))
    with contextlib.suppress(KeyError, al.UnsupportedError):
        al.compile(names["function"], backend="reference")(al.ones(1))
    assert before == dict(vars(Plain))


def test_two_watches_of_one_class_leave_in_any_order():
    """Two threads may capture at one time."""
    one = Plain()

    def function(x):
        return one.n

    before, world = dict(vars(Plain)), world_of(function, [], keeps=True)
    first, second = AttributeWatch(), AttributeWatch()
    first.start(world, None)
    second.start(world, None)
    first.stop()
    thread = threading.Thread(target=function, args=(0,))
    thread.start()
    thread.join()
    second.stop()
    assert before == dict(vars(Plain))
    assert set() == first.reads(one, "n") and 1 == len(second.reads(one, "n"))


def test_an_attribute_that_the_function_puts_into_the_class_stays():
    one = Data()

    def function(x):
        Data.n = 9
        return one.n

    watch, running = watched(function)
    try:
        with running:
            assert 9 == (function(0) and Data.n)
        assert 9 == vars(Data)["n"]
        assert watch.reads(one, "n") is None
    finally:
        Data.n = 1
