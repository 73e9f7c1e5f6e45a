"""DYN-23: what a captured function leaves behind to be read later has numbers, not symbols."""

from __future__ import annotations

import contextvars
import functools
import itertools
import operator
import threading
import traceback
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols import user_code

pytestmark = pytest.mark.rules("DYN-23")


def hooked(x: Any, n: int) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * n)
    return y


def hooked_by_size(x: Any, n: int) -> Any:
    held = {"n": [x.shape[0] + n]}
    y = x * 2
    y.register_hook(lambda g, k=n: g * held["n"][0] if k > 3 else g)
    return y


def called_back(x: Any, n: int) -> Any:
    return x + al.effects.callback(lambda: np.float32(n), results="f32[]")


def keys(x: Any, n: int) -> Any:
    return {n: x * 2, (x.shape[0], 1): n}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [hooked, hooked_by_size, called_back, keys],
    ids=lambda f: f.__name__,
)
def test_numbers_that_are_read_later_are_those_of_the_call(
    function: Callable[..., Any], dynamic: bool | None
) -> None:
    compiled = al.compile(function, dynamic=dynamic, backend="reference")
    for n in (3, 4, 5, 3, 6):
        seen = []
        for run in (function, compiled):
            x = al.arange(float(n)).requires_grad_()
            found = run(x, n)
            values = found if isinstance(found, dict) else {"": found}
            for each in values.values():
                if isinstance(each, al.Tensor):
                    each.sum().backward()
            listed = [(k, type(k), v if type(v) is int else v.tolist()) for k, v in values.items()]
            seen.append((listed, x.grad.tolist() if x.grad is not None else None))
        assert seen[0] == seen[1]


class Slots:
    __slots__ = ("n",)
    n: int


VARIABLE = contextvars.ContextVar("VARIABLE", default=1)
ROOM = threading.local()


def in_slots(n: int) -> Callable[[], int]:
    held = Slots()
    held.n = n
    return lambda: held.n


def in_a_class(n: int) -> Callable[[], int]:
    made = type("Made", (), {"n": n})
    return lambda: made().n


def in_a_generator(n: int) -> Callable[[], int]:
    def endless() -> Iterator[int]:
        while True:
            yield n

    return endless().__next__


def in_a_context(n: int) -> Callable[[], int]:
    VARIABLE.set(n)
    return lambda: VARIABLE.get()


def in_a_thread(n: int) -> Callable[[], int]:
    ROOM.n = n
    return lambda: ROOM.n


def in_an_error(n: int) -> Callable[[], int]:
    error = ValueError("size", n)
    return lambda: error.args[1]


def later(n: int) -> Callable[[], int]:
    def held() -> int:
        return m

    m = 1
    held()
    m = n
    return held


PLACES: dict[str, Callable[[int], Callable[[], int]]] = {
    "slots": in_slots,
    "class": in_a_class,
    "generator": in_a_generator,
    "context": in_a_context,
    "thread": in_a_thread,
    "later": later,
    "slice": lambda n: lambda s=slice(0, n): s.stop,  # type: ignore[misc]
    "proxy": lambda n: lambda s=MappingProxyType({"n": n}): s["n"],  # type: ignore[misc]
    "partial": lambda n: functools.partial(operator.add, n, 1),
    "repeated": lambda n: itertools.repeat(n).__next__,
    "wrapped": lambda n: functools.wraps(len)(lambda: n),
    "error": in_an_error,
}


@pytest.mark.thinned(6)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("way", ["hook", "rebound", "callback"])
def test_a_number_is_found_wherever_it_is_kept(name: str, way: str, dynamic: bool | None) -> None:
    def kept(x: Any) -> Any:
        if way == "rebound":
            read: Any = int
            y = x * 2
            y.register_hook(lambda g: g * read())
            read = PLACES[name](x.shape[0])
            return y
        read = PLACES[name](x.shape[0])
        if way == "callback":
            return x + al.effects.callback(lambda: np.float32(read()), results="f32[]")
        y = x * 2
        y.register_hook(lambda g: g * read())
        return y

    compiled = al.compile(kept, dynamic=dynamic, backend="reference")
    for n in (3, 4, 5, 3):
        seen = []
        for run in (kept, compiled):
            x = al.arange(float(n)).requires_grad_()
            found = run(x)
            found.sum().backward()
            assert x.grad is not None
            seen.append((found.tolist(), x.grad.tolist()))
        assert seen[0] == seen[1]


def test_a_callback_that_reaches_more_than_is_searched_has_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No search tells whether it holds a symbol."""
    monkeypatch.setattr(user_code, "MOST_HELD", 50)
    many = [[k] for k in range(100)]

    def called(x: Any) -> Any:
        held: Any = [many, [[[[x.shape[0]]]]]]
        read = lambda: np.float32(held[1][0][0][0][0])
        return x + al.effects.callback(read, results="f32[]")

    compiled = al.compile(called, dynamic=True, backend="reference")
    for n in (3, 4, 5):
        assert compiled(al.ones(n)).tolist() == [1.0 + n] * n
    assert len(compiled.entries) == 3


def test_a_hook_that_each_backward_calls_is_given_its_gradient() -> None:
    seen: list[Any] = []

    def noted(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: seen.append((g.tolist(), type(g.shape[0]))))
        y.register_hook(lambda g: g * 3 if seen else seen.append(1))
        return y[:2] * 3

    for dynamic in (None, True):
        compiled = al.compile(noted, dynamic=dynamic, backend="reference")
        for n in (3, 4, 5, 1, 3):
            outcomes = []
            for run in (noted, compiled):
                x = al.arange(float(n)).requires_grad_()
                run(x).sum().backward()
                assert x.grad is not None
                outcomes.append((x.grad.tolist(), list(seen)))
                seen.clear()
            assert outcomes[0] == outcomes[1]


@pytest.mark.rules("DYN-31")
def test_a_hook_that_each_backward_calls_for_a_count() -> None:
    seen: list[Any] = []

    def noted(x: Any) -> Any:
        y = x[x > 0] * 2
        y.register_hook(lambda g: seen.append(g.tolist()))
        return y * 3

    compiled = al.compile(noted, backend="reference")
    for values in ([1.0, -1.0, 2.0], [1.0, 3.0, 2.0], [-1.0, -1.0, -2.0], [1.0, -1.0, 5.0]):
        outcomes = []
        for run in (noted, compiled):
            x = al.tensor(values).requires_grad_()
            run(x).sum().backward()
            assert x.grad is not None
            outcomes.append((x.grad.tolist(), list(seen)))
            seen.clear()
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_callback_whose_results_have_a_size_of_the_call(dynamic: bool | None) -> None:
    def doubled(x: Any) -> Any:
        return al.effects.callback(lambda a: a * 2, x, results=tensor_meta((x.shape[0],)))

    compiled = al.compile(doubled, dynamic=dynamic, backend="reference")
    for n in (3, 4, 5, 3):
        assert compiled(al.arange(float(n))).tolist() == doubled(al.arange(float(n))).tolist()


def test_a_hook_that_reads_a_marked_size_is_refused() -> None:
    def scaled(x: Any) -> Any:
        n = x.shape[0]
        y = x * 2
        y.register_hook(lambda g: g * n)
        return y

    x = al.ones(3).requires_grad_()
    al.mark_dynamic(x, 0)
    with pytest.raises(
        al.GuardError, match=r"marked as dynamic, and the hook or callback .*lambda"
    ):
        al.compile(scaled, backend="reference")(x)


@pytest.mark.rules("DYN-32")
@pytest.mark.parametrize("dynamic", [False, None, True])
def test_a_hook_or_callback_that_holds_a_count_is_refused(dynamic: bool | None) -> None:
    def hook(x: Any) -> Any:
        n = x[x > 0].shape[0]
        y = x * 2
        y.register_hook(lambda g: g * n)
        return y

    def callback(x: Any) -> Any:
        n = x[x > 0].shape[0] + 1
        return x + al.effects.callback(lambda a: a * n, x, results="f32[3]")

    def key(x: Any) -> Any:
        n = x[x > 0].shape[0]
        al.size_hint(n, 2)
        return {n: x * 2}

    for function in (hook, callback, key):
        compiled = al.compile(function, dynamic=dynamic, backend="reference")
        with pytest.raises(al.UnsupportedError, match="a number that depends on values"):
            compiled(al.tensor([1.0, -1.0, 2.0]).requires_grad_())


def test_a_hook_that_reads_sizes_of_its_gradient_alone_keeps_symbols() -> None:
    def scaled(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: g * g.shape[0])
        return y

    compiled = al.compile(scaled, dynamic=True, backend="reference")
    for n in (3, 4, 5):
        x = al.ones(n).requires_grad_()
        compiled(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2.0 * n] * n
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-13")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * 2**n,
        lambda x, n: x * (1 << n),
        lambda x, n: ((x if n < 0 else x * 2), x + 2**n),
        lambda x, n: x * 2**n if n >= 0 else x,
        lambda x, n: x + ~((-1) ** n),
        lambda x, n: x + (3 >> n),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_an_exponent_that_becomes_negative_is_of_another_region(
    function: Callable[..., Any], dynamic: bool | None
) -> None:
    compiled = al.compile(function, dynamic=dynamic, backend="reference")
    for n in (2, 3, 5, -1, 0, -2):
        seen = []
        for run in (function, compiled):
            x = al.tensor([1, 3])
            try:
                seen.append(repr(run(x, n)))
            except (TypeError, ValueError) as error:
                seen.append(f"{type(error).__name__}: {error}")
        assert seen[0] == seen[1]


@pytest.mark.rules("NDA-2")
def test_ndarrays_among_the_arguments_have_numbers() -> None:
    for dynamic in (None, True):
        compiled = al.compile(lambda x, n: x * x.shape[0] + n, dynamic=dynamic, backend="reference")
        for n in (3, 4, 5):
            x = np.ones(n, np.float32)
            assert compiled(x, n).tolist() == [2.0 * n] * n


READ: dict[str, Callable[[Exception], Any]] = {
    "str": str,
    "repr": repr,
    "args": lambda error: error.args,
    "format": lambda error: f"{error}",
    "contains": lambda error: "4" in str(error),
    "traceback": lambda error: traceback.format_exception_only(error)[0],
}


class InBackward(al.autograd.Function):
    """Reads the text of an error in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        try:
            return grad.view(7)
        except ValueError as error:
            return grad * len(str(error)) + int("4" in str(error))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", READ)
def test_the_text_of_a_caught_error_has_the_sizes_of_each_call(
    name: str, dynamic: bool | None
) -> None:
    def caught(x: Any) -> Any:
        try:
            return InBackward.apply(x + al.ones(2, 2)), ""
        except ValueError as error:
            return InBackward.apply(x), READ[name](error)

    compiled = al.compile(caught, dynamic=dynamic, backend="reference")
    for n in (3, 4, 5, 2, 7, 13, 3):
        seen = []
        for run in (caught, compiled):
            x = al.arange(float(n)).requires_grad_()
            found, text = run(x)
            found.sum().backward()
            assert x.grad is not None
            seen.append((found.tolist(), text, x.grad.tolist()))
        assert seen[0] == seen[1]


@pytest.mark.rules("DYN-31")
def test_the_text_of_a_caught_error_has_the_count_of_each_call() -> None:
    def caught(x: Any) -> Any:
        try:
            return x[x > 0].view(7)
        except ValueError as error:
            return x * 2, str(error)

    compiled = al.compile(caught, backend="reference")
    for values in ([1.0, -1.0], [1.0, 2.0], [-1.0, -1.0]):
        found, text = compiled(al.tensor(values))
        assert (found.tolist(), text) == (caught(al.tensor(values))[0].tolist(), text)
        assert text == caught(al.tensor(values))[1]


def test_an_error_that_is_caught_and_not_read_keeps_symbols() -> None:
    def caught(x: Any) -> Any:
        try:
            return x + al.ones(2, 3, 4)
        except ValueError:
            return x * 2

    compiled = al.compile(caught, dynamic=True, backend="reference")
    for n in (3, 5, 6, 7):
        compiled(al.arange(float(n)))
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27")
@pytest.mark.parametrize("dynamic", [None, True])
def test_the_text_of_an_error_has_the_float_of_each_call(dynamic: bool | None) -> None:
    def caught(x: Any, rate: float) -> Any:
        try:
            return x.sum(rate)
        except TypeError as error:
            return x * rate, str(error)

    def raised(x: Any, beta: float) -> Any:
        return al.nn.functional.smooth_l1_loss(x, x, beta=-beta)

    one, other = [al.compile(f, dynamic=dynamic, backend="reference") for f in (caught, raised)]
    for rate in (0.5, 0.25, 1.0):
        assert one(al.ones(2), rate)[1] == caught(al.ones(2), rate)[1]
        texts = []
        for run in (raised, other):
            with pytest.raises(al.AotliteError) as error:
                run(al.ones(2), rate)
            texts.append(str(error.value))
        assert texts[0] == texts[1]


@pytest.mark.rules("RNG-12")
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_size_may_be_a_seed(dynamic: bool | None) -> None:
    def seeded(x: Any, n: int) -> Any:
        al.manual_seed(x.shape[0] + n)
        return al.rand(2)

    compiled = al.compile(seeded, dynamic=dynamic, backend="reference")
    for n, m in ((3, 4), (4, 4), (4, 5), (1, 0), (5, -8), (3, 4)):
        assert compiled(al.ones(n), m).tolist() == seeded(al.ones(n), m).tolist()
