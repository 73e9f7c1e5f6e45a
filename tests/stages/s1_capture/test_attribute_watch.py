"""The watch of attributes: what is noted, and that the function and its classes do not notice.

`_Watched` stands in the class of an object while a function is captured. All that code does with
the attribute gives what it gives without it, and the class is as it was afterwards.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import gc
import threading
import types
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import aotlite as al
from aotlite.stages.s1_capture.environment.attribute_watch import AttributeWatch
from aotlite.stages.s1_capture.environment.number_search import world_of
from aotlite.stages.s1_capture.hooks.dry_run import HookDryRun
from aotlite.stages.s1_capture.recorder import CaptureRecorder

pytestmark = pytest.mark.rules("CAP-14")


@pytest.fixture(autouse=True, scope="module")
def _no_protocols_stay() -> Iterator[None]:
    """What a protocol of these tests asks for is not watched anywhere as long as it lives."""
    yield
    gc.collect()


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
        thing.n = thing.own = thing.absent = thing.hidden = thing.method = thing.m = 0
        return thing.n, thing.own, thing.absent, thing.hidden, thing.method, thing.cached, thing.m

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
        other.own = 2
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
    exec(f"def function(_):\n    x.n += 1\n    x.n, {line}", names)
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
        one.n += 0
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
    assert set() == first.reads(one, "n") and 2 == len(second.reads(one, "n"))


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


# ------------------------------------------------------- what looks at bodies of classes, or keeps
PRELUDE = """
import functools, typing
import aotlite as al

@typing.runtime_checkable
class HasScale(typing.Protocol):
    def scale(self): ...

@typing.runtime_checkable
class HasSize(typing.Protocol):
    n: int

class A:
    {body}

made = []
a, b = A(), A()
a.n, a.scale = 1, lambda: 5
"""
BODIES = {
    "plain": "pass",
    "of the class": "n, scale = 4, None",
    "slots": '__slots__ = ("n", "scale", "k")',
    "a property": 'k = property(lambda self: 6)\n    __dict__ = property(lambda self: {"n": 50})',
    "cached": "k = functools.cached_property(lambda self: 3)",
}
LINES = (
    "a.n = a.n",
    "a.scale = a.scale",
    "a.scale = a.scale",
    "a.k = 2",
    "b.n = 2",
    "a.n = a.n + 1",
    "r = r + a.scale()",
    "r = r + a.n",
    "r = r + b.n",
    "r = r + a.k",
    "r = r + isinstance(a, HasScale)",
    "r = r + 2 * isinstance(b, HasScale)",
    "r = r + 4 * issubclass(A, HasScale)",
    "r = r + 8 * isinstance(b, HasSize)",
    "r = r + hasattr(A, 'n')",
    "r = r + getattr(A, 'n', 9)",
    "del a.n",
    "del b.scale",
    "del A.n",
    "delattr(A, 'scale')",
    "A.n = 7",
    "r = r + A.n",
    "made.append(type('B', (A,), {}))",
    "made.append(type('C', (), {k: x for k, x in getattr(A, '_' * 2 + 'dict__').items() "
    "if k in ('n', 'scale')}))",
    "r = r + len(A.mro())",
)


def program(body: str, lines: list[str]) -> dict[str, Any]:
    """A module with classes, and a function `f` of these lines: a line that raises adds a number
    that tells the kind of its error."""
    text = PRELUDE.format(body=BODIES[body]) + "\ndef f(x):\n    r = 0\n"
    for line in lines:
        text += f"    try: {line}\n    except (AttributeError, TypeError) as e: r += len(str(e))\n"
    names: dict[str, Any] = {"__name__": "program_of_a_user"}
    exec(text + "    return x * r\n", names)
    return names


def bodies(names: dict[str, Any]) -> object:
    """What lies in the bodies of a program's classes."""
    return [
        {key: x if type(x) is int else type(x) for key, x in vars(kind).items()}
        for kind in (names["A"], *names["made"])
    ]


def answers(names: dict[str, Any]) -> list[bool]:
    """What protocols say of the program's class; the answer of a method is kept for ever."""
    return [isinstance(names["A"](), names[each]) for each in ("HasScale", "HasSize")]


def assert_as_eager(body: str, lines: list[str]) -> bool:
    """Whether a program compiles, whose first call and classes are then those of eager; if it is
    refused, the class is as it was."""
    eager, compiled, untouched = (program(body, lines) for _ in range(3))
    expected = eager["f"](al.ones(1)).tolist()
    try:
        found = al.compile(compiled["f"], backend="reference")(al.ones(1)).tolist()
    except al.UnsupportedError:
        compiled["made"].clear()
        assert bodies(untouched) == bodies(compiled)
        return False
    assert expected == found, lines
    assert (bodies(eager), answers(eager)) == (bodies(compiled), answers(compiled)), lines
    return True


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("plain", "a.scale = a.scale; r = r + a.scale(); r = r + 2 * isinstance(b, HasScale)"),
        ("of the class", "a.scale = a.scale; r = r + a.n; r = r + isinstance(b, HasScale)"),
        ("plain", "a.n = a.n; del A.n; r = r + 8 * isinstance(b, HasSize)"),
        ("plain", "a.scale = a.scale; r = r + a.scale(); delattr(A, 'scale')"),
        ("a property", "a.n = a.n; r = r + a.n"),
        ("of the class", f"a.n = a.n; r = r + a.n; {LINES[-2]}"),
        ("plain", "a.mro = 2; r = r + len(A.mro())"),
    ],
)
def test_isinstance_deletes_and_copies_of_a_class_see_no_descriptor(body, lines):
    assert assert_as_eager(body, lines.split("; "))


def test_programs_over_classes_do_what_eager_does_and_leave_the_classes_as_it_does():
    random = Random(3)
    compiled = 0
    for _ in range(40):
        body = random.choice([*BODIES])
        compiled += assert_as_eager(body, random.sample(LINES, random.randrange(2, 7)))
    assert compiled > 10


def test_objects_are_not_asked_for_their_class() -> None:
    """Where classes have been watched, the next search looks into all that it finds."""

    class Counted:
        def __init__(self) -> None:
            self.n = 0

    class Lazy:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise RuntimeError("asked")

    counted, holds = Counted(), types.SimpleNamespace(count=2, lazy=Lazy())

    def counts(x: Any) -> Any:
        counted.n += 1
        return x * 2

    assert al.compile(counts)(al.ones(2)).tolist() == [2.0, 2.0]
    assert al.compile(lambda x: x * holds.count)(al.ones(2)).tolist() == [2.0, 2.0]
