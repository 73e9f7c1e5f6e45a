"""DYN-23: what a captured function raises, or stores outside, has numbers for symbols."""

from __future__ import annotations

import collections
import contextvars
import itertools
import queue
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al

pytestmark = pytest.mark.rules("DYN-23")
Row = collections.namedtuple("Row", "count pair")


class OwnError(Exception):
    """Keeps numbers as attributes."""

    def __init__(self, number: Any) -> None:
        super().__init__("own", [number])
        self.number = number
        self.pair = (number, [{"n": number}])


class SlotsError(Exception):
    """Keeps a number in a slot."""

    __slots__ = ("number",)

    def __init__(self, number: Any) -> None:
        self.number = number


def raise_caused(number: Any) -> None:
    try:
        raise KeyError(number)
    except KeyError as error:
        raise ValueError(number, {number + 1: number}) from error


def raise_own(number: Any) -> None:
    raise OwnError(number)


def raise_slots(number: Any) -> None:
    raise SlotsError(number)


def shown(error: BaseException | None) -> Any:
    """All that an error holds, by type and value."""
    if error is None:
        return None
    held = {**vars(error), "slot": getattr(error, "number", None)}
    causes = shown(error.__cause__), shown(error.__context__)
    return type(error).__name__, exact(error.args), exact(held), *causes


def exact(value: Any) -> Any:
    if isinstance(value, (list, tuple, set)):
        return type(value).__name__, [exact(each) for each in value]
    if isinstance(value, dict):
        return [(exact(key), exact(each)) for key, each in value.items()]
    return type(value).__name__, repr(value)


def number_of(which: str, x: Any, n: Any) -> Any:
    return {"size": lambda: x.shape[0], "count": lambda: x[x > 1].shape[0]}.get(which, lambda: n)()


@pytest.mark.parametrize("dynamic", [False, None, True])
@pytest.mark.parametrize(
    ("throw", "which"),
    [
        *itertools.product([raise_caused, raise_own, raise_slots], ["size", "int", "float"]),
        *itertools.product([raise_own, raise_slots], ["count"]),  # a key would ask for it
    ],
)
def test_an_error_holds_numbers(throw: Callable[[Any], None], which: str, dynamic: Any) -> None:
    def raising(x: Any, n: Any) -> None:
        throw(number_of(which, x, n))

    compiled = al.compile(raising, dynamic=dynamic, backend="reference")
    for n in (3, 4, 5):
        seen = []
        for run in (raising, compiled):
            with pytest.raises(Exception) as caught:
                run(al.arange(float(n)), n + 0.5 if which == "float" else n)
            seen.append(shown(caught.value))
        assert seen[0] == seen[1]


class Owner:
    """A class whose attributes are set."""

    last: Any = None


MODULE: Any = types.ModuleType("test_dyn_left_module")
SPACE = types.SimpleNamespace(last=None)
LIST: list[Any] = []
SET: set[Any] = set()
DICT: collections.UserDict[str, Any] = collections.UserDict()


def in_list(n: Any) -> None:
    LIST.extend([Row(n, (n, 1)), slice(0, n), {"n": (n, [n])}, frozenset([(n,)])])


def in_set(n: Any) -> None:
    SET.add(n)


def in_space(n: Any) -> None:
    SPACE.last = n, [n]


def in_class(n: Any) -> None:
    Owner.last = n


def in_module(n: Any) -> None:
    MODULE.last = n


def in_error(n: Any) -> None:
    LIST.append(OwnError(n))


def in_user_dict(n: Any) -> None:
    DICT["n"] = n


VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE", default=None)
ROOM = threading.local()
QUEUE: queue.Queue[Any] = queue.Queue()
OBJECTS = np.array([None, None, None], dtype=object)


def helper() -> None:
    """Has an attribute."""


def in_context(n: Any) -> None:
    VARIABLE.set((n, [n]))


def in_thread(n: Any) -> None:
    ROOM.n = n


def in_queue(n: Any) -> None:
    QUEUE.put((n, 1))


def in_objects(n: Any) -> None:
    OBJECTS[1] = n


def in_function(n: Any) -> None:
    helper.last = n  # type: ignore[attr-defined]


def in_closure(n: Any) -> None:
    LIST.append(lambda m=n, *, k=(n,): (n, m, k))


KEPT: dict[Callable[[Any], None], Callable[[], Any]] = {
    in_context: VARIABLE.get,
    in_thread: lambda: ROOM.n,
    in_queue: QUEUE.get_nowait,
    in_objects: lambda: OBJECTS.tolist(),
    in_function: lambda: helper.last,  # type: ignore[attr-defined]
    in_closure: lambda: LIST.pop()(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("which", ["size", "int", "float"])
@pytest.mark.parametrize("store", KEPT, ids=lambda each: each.__name__)
def test_what_is_kept_where_no_variable_holds_it_is_a_number(
    store: Callable[[Any], None], which: str, dynamic: bool
) -> None:
    def storing(x: Any, n: Any) -> Any:
        store(number_of(which, x, n))
        return x * 2

    seen = []
    for run in (storing, al.compile(storing, dynamic=dynamic, backend="reference")):
        run(al.arange(3.0), 1.5 if which == "float" else 3)
        seen.append(exact(KEPT[store]()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("which", ["size", "int", "float"])
@pytest.mark.parametrize(
    "store", [in_list, in_set, in_space, in_class, in_module, in_error, in_user_dict]
)
def test_what_is_stored_outside_is_a_number(
    store: Callable[[Any], None], which: str, dynamic: bool
) -> None:
    def storing(x: Any, n: Any) -> Any:
        store(number_of(which, x, n))
        return x * 2

    seen = []
    for run in (storing, al.compile(storing, dynamic=dynamic, backend="reference")):
        for kept in (LIST, SET, DICT):
            kept.clear()
        SPACE.last = Owner.last = MODULE.last = None
        run(al.arange(3.0), 1.5 if which == "float" else 3)
        errors = [shown(each) for each in LIST if isinstance(each, Exception)]
        others = [repr(each) for each in LIST if not isinstance(each, Exception)]
        kept = [SET, dict(DICT), SPACE.last, Owner.last, MODULE.last]
        seen.append((errors, others, exact(kept)))
    assert seen[0] == seen[1]
