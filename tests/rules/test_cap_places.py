"""Tensors outside the arguments are found again at each call, by whichever way a function has."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable
from itertools import product
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn

Function = Callable[[Any], Any]
Put = Callable[[Any], None]
Body = Callable[[Any, Any], Any]
Way = Callable[[Any, Body], tuple[Function, Put]]
"""A function of x that runs a body on x and an outer value, and what puts another in its place."""


def of_cell(value: Any, body: Body) -> tuple[Function, Put]:
    def put(other: Any) -> None:
        nonlocal value
        value = other

    return (lambda x: body(x, value)), put


def of_nested_function(value: Any, body: Body) -> tuple[Function, Put]:
    inner, put = of_cell(value, body)

    def outer(x: Any) -> Any:
        def middle(y: Any) -> Any:
            return inner(y)

        return middle(x)

    return outer, put


def of_default(value: Any, body: Body) -> tuple[Function, Put]:
    def function(x: Any, w: Any = value) -> Any:
        return body(x, w)

    return function, lambda other: setattr(function, "__defaults__", (other,))


def of_keyword_default(value: Any, body: Body) -> tuple[Function, Put]:
    def function(x: Any, *, w: Any = value) -> Any:
        return body(x, w)

    return function, lambda other: setattr(function, "__kwdefaults__", {"w": other})


def of_global(value: Any, body: Body) -> tuple[Function, Put]:
    names: dict[str, Any] = {"w": value, "body": body, "__name__": "elsewhere"}
    exec("def function(x):\n    return body(x, w)", names)
    return names["function"], lambda other: names.__setitem__("w", other)


def of_module(value: Any, body: Body) -> tuple[Function, Put]:
    module: Any = types.ModuleType("outside")
    module.w = value
    names: dict[str, Any] = {"outside": module, "body": body, "__name__": "elsewhere"}
    exec("def function(x):\n    return body(x, outside.w)", names)
    return names["function"], lambda other: setattr(module, "w", other)


def of_module_in_a_package(value: Any, body: Body) -> tuple[Function, Put]:
    package: Any = types.ModuleType("outside")
    package.inner = types.ModuleType("outside.inner")
    package.inner.w = value
    names: dict[str, Any] = {"outside": package, "body": body, "__name__": "elsewhere"}
    exec("def function(x):\n    return body(x, outside.inner.w)", names)
    return names["function"], lambda other: setattr(package.inner, "w", other)


def of_module_in_a_cell(value: Any, body: Body) -> tuple[Function, Put]:
    """Imported by the function around, not by the module."""
    outside: Any = types.ModuleType("outside")
    outside.inner = types.ModuleType("outside.inner")
    outside.inner.w = value
    return (lambda x: body(x, outside.inner.w)), lambda other: setattr(outside.inner, "w", other)


def of_partial(value: Any, body: Body) -> tuple[Function, Put]:
    function: Any = functools.partial(lambda x, w: body(x, w), w=value)
    return function, lambda other: function.keywords.__setitem__("w", other)


def of_partial_of_what_reads(value: Any, body: Body) -> tuple[Function, Put]:
    inner, put = of_cell(value, body)
    return functools.partial(lambda f, x: f(x), inner), put


def of_wrapped(value: Any, body: Body) -> tuple[Function, Put]:
    inner, put = of_cell(value, body)

    @functools.wraps(inner)
    def function(x: Any) -> Any:
        return inner(x)

    return function, put


def of_wrapped_alone(value: Any, body: Body) -> tuple[Function, Put]:
    """Reached by `__wrapped__` and by nothing else."""
    inner, put = of_cell(value, body)

    def function(x: Any) -> Any:
        found: Any = function
        return found.__wrapped__(x)

    function.__wrapped__ = inner  # type: ignore[attr-defined]
    return function, put


def of_another_method(value: Any, body: Body) -> tuple[Function, Put]:
    inner, put = of_cell(value, body)

    class Having:
        def helper(self, x: Any) -> Any:
            return inner(x)

        def __call__(self, x: Any) -> Any:
            return self.helper(x)

    return Having(), put


class Holding:
    """An object that is called, or of which a method is."""

    kept: Any = None

    def __init__(self, value: Any, body: Body) -> None:
        self.value = value
        self.body = body

    def __call__(self, x: Any) -> Any:
        return self.body(x, self.value)

    def method(self, x: Any) -> Any:
        return self.body(x, self.value)


def of_method(value: Any, body: Body) -> tuple[Function, Put]:
    holder = Holding(value, body)
    return holder.method, lambda other: setattr(holder, "value", other)


def of_object(value: Any, body: Body) -> tuple[Function, Put]:
    holder = Holding(value, body)
    return holder, lambda other: setattr(holder, "value", other)


def of_class(value: Any, body: Body) -> tuple[Function, Put]:
    class Having:
        kept: ClassVar[list[Any]] = [value]

        def __call__(self, x: Any) -> Any:
            return body(x, self.kept[0])

    return Having(), lambda other: Having.kept.__setitem__(0, other)


def of_containers(value: Any, body: Body) -> tuple[Function, Put]:
    box: dict[str, Any] = {"a": [1, (2, {"w": value})], "b": 3}
    put = box["a"][1][1].__setitem__
    return (lambda x: body(x, box["a"][1][1]["w"])), lambda other: put("w", other)


def of_nn_module(value: Any, body: Body) -> tuple[Function, Put]:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.parts = [value]

        def forward(self, x: Any) -> Any:
            return body(x, self.parts[0])

    net = Net()
    return (lambda x: net(x)), lambda other: net.parts.__setitem__(0, other)


def of_function_in_a_list(value: Any, body: Body) -> tuple[Function, Put]:
    """Another function, with globals of its own, takes the place of the first."""
    box: list[Any] = [of_global(value, body)[0]]
    return (lambda x: box[0](x)), lambda other: box.__setitem__(0, of_global(other, body)[0])


def of_gradient(value: Any, body: Body) -> tuple[Function, Put]:
    holder = al.zeros(2, 2)
    holder.grad = value
    return (lambda x: body(x, holder.grad)), lambda other: setattr(holder, "grad", other)


WAYS: tuple[Way, ...] = (
    *(of_cell, of_nested_function, of_default, of_keyword_default, of_global, of_module),
    of_module_in_a_package,
    of_module_in_a_cell,
    *(of_partial, of_partial_of_what_reads, of_wrapped, of_method, of_object, of_class),
    *(of_containers, of_nn_module, of_function_in_a_list, of_gradient),
    *(of_wrapped_alone, of_another_method),
)
CHANGES = ("nothing", "bytes", "another", "shape", "history", "an argument", "a view of it")


@attrs.frozen
class Session:
    """A way, what the function does to the outer tensor, and what changes between calls."""

    way: Way
    steps: tuple[str, ...]
    changes: tuple[str, ...]

    def body(self, x: Any, w: Any) -> Any:
        """Reads and writes both."""
        seen = x * w
        for step in self.steps:
            match step:
                case "write":
                    w.mul_(2.0)
                case "write quietly":
                    with al.no_grad():
                        w.add_(1.0)
                case "write a part":
                    w[0].add_(x.sum())
                case "read":
                    seen = seen + w
        return seen, w, w[0]

    def play(self, *, compiles: bool) -> list[Any]:
        """What is seen after each call, up to one that raises, of which eager has done a part."""
        made: list[Any] = [al.tensor([[1.0, 2.0], [3.0, 4.0]])]
        function, put = self.way(made[0], self.body)
        run = al.compile(function) if compiles else function
        x = al.tensor([[2.0, -1.0], [1.0, 3.0]], requires_grad=True)
        found = []
        for change in ("nothing", *self.changes):
            if not (change == "shape" and self.way is of_gradient):  # its leaf has one shape
                _change(change, x, made, put)
            found.append(_seen(run, x, made))
            if isinstance(found[-1], type):
                break
        return found


def _change(change: str, x: Any, made: list[Any], put: Put) -> None:
    w = made[-1]
    match change:
        case "bytes":
            with al.no_grad():
                w.fill_(3.0)
            return
        case "another":
            w = al.tensor([[5.0, 1.0], [1.0, 2.0]])
        case "shape":
            w = al.tensor([4.0, 2.0])
        case "history":
            w = al.ones(2, 2).requires_grad_() * 3.0
        case "an argument":
            w = x
        case "a view of it":
            w = w.t()
        case _:
            return
    made.append(w)
    put(w)


def _seen(run: Any, x: Any, made: list[Any]) -> Any:
    try:
        results = run(x)
    except al.AotliteError as error:
        return type(error)
    identity = [[a is b for b in (x, *made)] for a in results]
    seen = (*results, x, *made)
    facts = [(t.tolist(), t.stride(), t.requires_grad, t.is_leaf, t.version) for t in seen]
    gradient = None
    if results[0].requires_grad:
        try:
            (gradient,) = al.autograd.grad(results[0].sum(), [x], allow_unused=True)
        except al.AotliteError as error:
            return identity, facts, type(error)
    return identity, facts, None if gradient is None else gradient.tolist()


@pytest.mark.draws(long=200)
@pytest.mark.rules("CAP-3", "CAP-4", "FUN-27", "GRD-1")
@settings(max_examples=30)
@given(
    st.builds(
        Session,
        st.sampled_from(WAYS),
        st.lists(
            st.sampled_from(["write", "write quietly", "write a part", "read"]), max_size=3
        ).map(tuple),
        st.lists(st.sampled_from(CHANGES), max_size=4).map(tuple),
    )
)
def test_tensors_are_found_where_they_are_by_then(session: Session) -> None:
    eager, compiled = session.play(compiles=False), session.play(compiles=True)
    assert eager == compiled


class Text(str):
    """A text that wraps a function."""

    __slots__ = ("__wrapped__",)


def _of_namespace(value: Any) -> tuple[Callable[..., Any], Any]:
    box = types.SimpleNamespace(w=value)
    return (lambda x, _: x * box.w), 1


def _of_iterator(value: Any) -> tuple[Callable[..., Any], Any]:
    values = itertools.repeat(value)
    return (lambda x, _: x * next(values)), 1


def _of_set(value: Any) -> tuple[Callable[..., Any], Any]:
    values = {value}
    return (lambda x, _: x * next(iter(values))), 1


def _of_plain_argument(value: Any) -> tuple[Callable[..., Any], Any]:
    text: Any = Text("a")
    text.__wrapped__ = lambda: value
    return (lambda x, given: x * given.__wrapped__()), text


def _of_own_list(value: Any) -> tuple[Callable[..., Any], Any]:
    box, kept = types.SimpleNamespace(w=value), [0]

    def function(x: Any, _: Any) -> Any:
        kept[:] = [box.w]
        return x * kept[0]

    return function, 1


@pytest.mark.rules("CAP-3", "CAP-4")
def test_a_tensor_that_cannot_be_found_again_is_refused() -> None:
    """An argument that the function reaches by such a way, too: another may be there next time."""
    ways = (_of_namespace, _of_iterator, _of_set, _of_plain_argument, _of_own_list)
    for way, same in product(ways, (0, 1)):
        x = al.ones(2)
        function, beside = way(x if same else al.ones(2))
        with pytest.raises(al.UnsupportedError, match="neither an argument nor found"):
            al.compile(function)(x, beside)


def _of_class_of(module: str) -> Way:
    def way(value: Any, body: Body) -> tuple[Function, Put]:
        inner, put = of_cell(value, body)
        kind = type("Net", (nn.Module,), {"forward": lambda self, x: inner(x)})
        kind.__module__ = module
        net = kind()
        return (lambda x: net(x)), put

    return way


@pytest.mark.rules("CAP-3", "CAP-4")
def test_what_methods_read_is_found_whatever_the_module_of_their_class_is_called() -> None:
    for module in ("net", "net.aotlite", "net.builtins", "aotlite_net", "__main__"):
        session = Session(_of_class_of(module), ("write", "read"), ("another", "bytes"))
        assert session.play(compiles=False) == session.play(compiles=True), module


PLAIN = (2, 3, 2.0, -0.0, 0.0, True, None, "a", 2**70, float("inf"), float("nan"), 1e300)
PLAIN_WAYS = tuple(way for way in WAYS if way is not of_gradient)


def with_plain(x: Any, value: Any) -> Any:
    """What a function makes of a value: its type, its sign and its size count."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return x * min(max(value, -4), 4) + len(repr(value))
    return x + len(repr(value)) if value else x * -1.0


@pytest.mark.draws(long=600)
@pytest.mark.rules("CAP-4", "GRD-1")
@settings(max_examples=75)
@given(
    st.sampled_from(PLAIN_WAYS),
    st.lists(st.sampled_from(PLAIN), min_size=2, max_size=4),
)
def test_plain_values_are_found_where_they_are_by_then(way: Way, values: list[Any]) -> None:
    """And nothing is compiled again for a value that was met."""
    function, put = way(values[0], with_plain)
    compiled = al.compile(function)
    x = al.tensor([1.0, -2.0])
    for value in (*values, *values):
        put(value)
        assert repr(function(x).tolist()) == repr(compiled(x).tolist()), value
    if way is not of_function_in_a_list:  # where each has a function of its own
        assert len(compiled.entries) <= len({(type(value), repr(value)) for value in values})


@pytest.mark.rules("CAP-4")
@settings(max_examples=30)
@given(st.lists(st.sampled_from(["bound", "another", "unbound"]), max_size=4), st.booleans())
def test_names_that_are_bound_later_are_found(changes: list[str], called: bool) -> None:
    text = "def function(x):\n    return {}(x) * w if there() else x + 1.0"
    names: dict[str, Any] = {"__name__": "elsewhere", "same": lambda x: x}
    names["there"] = lambda: "w" in names
    exec(text.format("same" if called else ""), names)
    compiled = al.compile(names["function"])
    x = al.tensor([1.0, -2.0])
    assert [2.0, -1.0] == compiled(x).tolist()
    for change in changes:
        names.pop("w", None)
        if change != "unbound":
            names["w"] = al.tensor(3.0) if change == "bound" else al.tensor([2.0, 5.0])
        assert names["function"](x).tolist() == compiled(x).tolist()
