# ruff: noqa: E721
"""DYN-39: `int` and `float` that code of a captured function names are Python's classes."""

from __future__ import annotations

import enum
import functools
import threading
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al

pytestmark = pytest.mark.rules("DYN-39")
SIZES = (5, 3, 8, 1, 4)


class Number:
    """What is a number for `int` and `float`."""

    def __float__(self) -> float:
        return 2.5

    def __int__(self) -> int:
        return 7


def derived(n: Any) -> object:
    class Flag(int):
        def double(self) -> int:
            return self * 2

    class Part(float):
        pass

    return (
        (isinstance(3, Flag), issubclass(int, Flag), isinstance(n, Flag), isinstance(True, Flag)),
        (isinstance(2.0, Part), issubclass(float, Part), isinstance(n / 2, Part)),
        (int == Flag, len({int, Flag, float, Part}), Flag(3).double(), Flag.__mro__[1:]),
        (type(Flag(2)) == Flag, Part(1.5) + 1, Flag.__bases__, int(Flag(3)), float(Part(2))),
    )


def looked_at(n: Any) -> object:
    return (
        (int.__bases__, float.__bases__, int.mro(), dir(int) == dir((3).__class__), dir(float)),
        (hasattr(int, "of"), hasattr(float, "dtype"), hasattr(int, "__dict__"), vars(int).keys()),
        (int.__new__(int, 5), float.__new__(float, 2), int.__add__(1, 2)),
        (repr(int), str(float), int.__name__, int.__qualname__, int.__module__, hash(int)),
        (id(int) == id((3).__class__), int.__class__, isinstance(int, type), callable(float)),
    )


def compared(n: Any) -> object:
    kinds: dict[object, str] = {int: "a", float: "b"}
    return (
        ((3).__class__ is int, (n / 2).__class__ is float, int is not float, int in (float, int)),
        (kinds[int], kinds.get(bool), kinds[(2.0).__class__], int != float, [int].index(int)),
        (isinstance(n, int), isinstance(n / 2, float), isinstance(n, float)),
        ([isinstance(x, (int, float)) for x in (1, True, 2.0, "a", n, n / 2)]),
    )


def used_as_types(n: Any) -> object:
    optional = typing.Optional[int]  # noqa: UP045

    @functools.singledispatch
    def kind(_: object) -> str:
        return "object"

    kind.register(int, lambda _: "int")
    kind.register(float, lambda _: "float")

    class Level(enum.IntEnum):
        LOW = 1

    match n:
        case int():
            matched = "int"
        case _:
            matched = "none"
    return (
        (typing.get_args(optional), int | None, isinstance(n, int | None), list[int], matched),
        (kind(3), kind(2.0), kind("a"), kind(True), kind(n)),
        (np.dtype(int), np.zeros(1, dtype=float).dtype, np.array([1], int).tolist(), Level(1)),
        (list(map(int, "12")), [*map(float, ("1", "2"))], sorted("10 9".split(), key=int)),
        functools.partial(int, base=2)("11"),
    )


def called(n: Any) -> object:
    inner = [int(x) for x in ("1", 2.9, True, Number())]
    try:
        int("a")
    except ValueError as error:
        inner.append(len(error.args[0]))
    return (
        (inner, int("12", base=3), float("1e3"), float(Number()), int("0x1f", 16)),
        ({float(x) for x in (1, "2")}, sum(int(x) for x in (1.5, 2.5)), (lambda x: int(x))(2.5)),
        (int(*("7",)), int(*("7", 8)), (int)(3.5), int.__call__(4.5), int(int(2.5) + 0.9)),
    )


LOOKS: list[Callable[[Any], object]] = [derived, looked_at, compared, used_as_types, called]


def plain(found: object) -> str:
    """What was found, as text without the places of objects."""
    return repr(found).replace("aotlite_", "")


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_names_a_class_finds_pythons(
    look: Callable[[Any], object], dynamic: bool | None
) -> None:
    found: list[str] = []

    def function(x: al.Tensor) -> al.Tensor:
        found.append(plain(look(x.shape[0])))
        return x * 2

    compiled = al.compile(function, dynamic=dynamic, backend="reference")
    for size in SIZES:
        count = len(found)
        compiled(al.ones(size))
        captured = found[count:]
        del found[count:]
        function(al.ones(size))
        assert captured in ([], [found.pop()] * len(captured))


@pytest.mark.parametrize("compares", [False, True])
def test_calls_make_expressions_whatever_else_names_the_classes(compares: bool) -> None:
    module: Any = types.ModuleType("users_module")
    text = "def half(n):\n    return int(n * 0.5)\n"
    if compares:
        text += "def is_int(kind):\n    return kind is int\n"
        text += "class Flag(int):\n    pass\n"
    exec(text, vars(module))
    compiled = al.compile(lambda x: x[: module.half(x.shape[0])], dynamic=True, backend="reference")
    for size in SIZES:
        assert compiled(al.ones(size)).shape == (size // 2,)
    assert len(compiled.entries) == 1


inside_many: dict[str, Any] = {"__name__": "users"}
exec(  # code whose names and constants take more than a byte each
    "def many_names(n):\n    if n is None:\n"
    + "".join(f"        name{i} = other{i} + {i}.25\n" for i in range(300))
    + "    return int(n * 0.5), [float(x) for x in (n, 2)], int('3')\n",
    inside_many,
)


def test_code_with_many_names_and_constants_is_changed_too() -> None:
    many_names = inside_many["many_names"]

    def function(x: al.Tensor) -> al.Tensor:
        return x * many_names(x.shape[0])[0]

    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in SIZES:
        assert compiled(al.ones(size)).tolist() == [float(size // 2)] * size
    assert len(compiled.entries) == 1


def test_functions_made_within_make_expressions_and_are_pythons_afterwards() -> None:
    kept: list[Any] = []

    def function(x: al.Tensor) -> al.Tensor:
        def half(n: int) -> tuple[int, type]:
            return int(n * 0.5), int

        class Halving:
            def __call__(self, n: int) -> int:
                return sum([int(each / 2) for each in (n,)])

        kept[:] = [half, Halving(), lambda n: (int(n * 0.5), isinstance(3, int))[0]]
        return x[: half(x.shape[0])[0]] * kept[1](x.shape[0]) + kept[2](x.shape[0])

    compiled = al.compile(function, dynamic=True, backend="reference")
    for size in SIZES:
        expected = al.ones(size // 2) * (size // 2) + size // 2
        assert compiled(al.ones(size)).tolist() == expected.tolist()
    assert len(compiled.entries) == 1
    assert (kept[0](7.9), kept[1](7.9), kept[2](7.9)) == ((3, int), 3, 3)


@pytest.mark.rules("DYN-23", "HOOK-1")
@pytest.mark.parametrize("shares", [False, True])
def test_a_hook_that_calls_int_is_judged_as_it_was(shares: bool) -> None:
    """Eager's hook has a list of each call; an int of the size is that of each call."""

    def function(x: al.Tensor) -> al.Tensor:
        seen: list[int] = []
        y = x * 2

        def hook(grad: al.Tensor) -> al.Tensor:
            seen.append(int(2.5))
            return grad * len(seen) * int(1.5)

        y.register_hook(hook if shares else lambda grad: grad * int(2.5))
        return y

    found = []
    for dynamic in (False, True):
        compiled = al.compile(function, dynamic=dynamic, backend="reference")
        for size in SIZES:
            x: Any = al.ones(size).requires_grad_()
            try:
                compiled(x).sum().backward()
                found.append((dynamic, x.grad.tolist()))
            except al.UnsupportedError as error:
                found.append((dynamic, str(error)))
    half = len(found) // 2
    assert [each[1] for each in found[:half]] == [each[1] for each in found[half:]]


def test_a_name_of_the_modules_own_is_called() -> None:
    inside: dict[str, Any] = {"__name__": "users", "int": lambda value: 3}
    exec("def function(x): return x * int(x.shape[0] / 2)", inside)
    compiled = al.compile(inside["function"], dynamic=True, backend="reference")
    for size in SIZES:
        assert compiled(al.ones(size)).tolist() == [3.0] * size


def test_no_variable_appears_in_a_module_and_code_is_there_again() -> None:
    inside: dict[str, Any] = {"__name__": "users"}
    text = "def half(n): return int(n * 0.5)\ndef function(x): look(); return x[:half(x.shape[0])]"
    exec(text, inside)
    before, seen = (inside["half"].__code__, inside["function"].__code__), list[list[str]]()
    inside["look"] = lambda: seen.append(list(inside))
    names = list(inside)
    compiled = al.compile(inside["function"], dynamic=True, backend="reference")
    for size in SIZES:
        compiled(al.ones(size))
    assert seen and all(each == names for each in seen)
    assert (inside["half"].__code__, inside["function"].__code__) == before
    with pytest.raises(al.ShapeError):
        compiled(al.ones(3, 4).view(5))
    assert (inside["half"].__code__, inside["function"].__code__) == before


def test_other_threads_may_iterate_over_the_variables_of_a_module() -> None:
    inside: dict[str, Any] = {"__name__": "users"}
    exec("def function(x): return x.sin() * int(x.shape[0] * 0.5)", inside)
    stop, errors = threading.Event(), list[Exception]()

    def iterate() -> None:
        while not stop.is_set():
            try:
                for _ in inside.items():
                    pass
            except RuntimeError as error:
                errors.append(error)

    thread = threading.Thread(target=iterate)
    thread.start()
    for size in range(12):
        compiled = al.compile(inside["function"], dynamic=True, backend="reference")
        assert compiled(al.ones(size % 7, 2)).shape == (size % 7, 2)
    stop.set()
    thread.join()
    assert not errors


def test_threads_that_capture_one_function_leave_its_code() -> None:
    def half(x: al.Tensor) -> al.Tensor:
        return x[: int(x.shape[0] * 0.5)]

    own, found = half.__code__, list[Any]()

    def run() -> None:
        for size in SIZES:
            compiled = al.compile(half, dynamic=True, verify=0, backend="reference")
            found.append((size, compiled(al.ones(size))))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert half.__code__ is own
    assert all(result.shape == (size // 2,) for size, result in found)
