"""What a function does to lists and dicts among its arguments: each call does it to the caller's.

Programs are drawn: containers, and changes of them. Three calls, eager and compiled, leave the same
contents, orders and identities.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.pipeline.containers.argument_writes import writes_containers

pytestmark = pytest.mark.rules("GEN-14")

LEAVES = st.sampled_from(["tensor", 2, None])
KINDS = ("list", "tuple", "dict", "ordered", "deque")
FORMS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from(KINDS), st.lists(inner, max_size=3)),
    max_leaves=5,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "take", "move", "turn", "drop", "new"]), *[st.integers(0, 7)] * 2
    ),
    min_size=1,
    max_size=4,
)


def made(form: Any) -> Any:
    """The value of a form."""
    match form:
        case "tensor":
            return al.tensor([1.0, -2.0])
        case ("list", parts):
            return [made(part) for part in parts]
        case ("tuple", parts):
            return tuple([made(part) for part in parts])
        case ("deque", parts):
            return collections.deque([made(part) for part in parts])
        case (kind, parts):
            pairs = [(f"k{i}", made(part)) for i, part in enumerate(parts)]
            return dict(pairs) if kind == "dict" else collections.OrderedDict(pairs)
    return form


def containers(value: Any) -> list[Any]:
    """All containers in a value, outermost first; each once."""
    found: list[Any] = []
    stack = [value]
    for each in stack:
        if isinstance(each, (list, dict, tuple, collections.deque)):
            if isinstance(each, tuple) or all(each is not other for other in found):
                found += [] if isinstance(each, tuple) else [each]
                stack += each.values() if isinstance(each, dict) else each
    return found


def change(step: tuple[str, int, int], owners: list[Any], x: Any) -> None:
    """Changes one of the containers."""
    kind, which, other = step
    owner, given = owners[which % len(owners)], owners[other % len(owners)]
    is_dict = isinstance(owner, dict)
    keys = list(owner) if is_dict else list(range(len(owner)))
    if kind in ("add", "move", "new"):
        value = {"add": x * 2, "move": given, "new": [x, {"n": 3}, (x + 1,)]}[kind]
        if is_dict:
            owner[f"new {other}"] = value
        else:
            owner.append(value)
    elif kind == "turn" and is_dict and keys:
        owner[keys[0]] = owner.pop(keys[0])
    elif kind == "turn" and not is_dict:
        owner.reverse()
    elif kind == "drop":
        owner.clear()
    elif keys:
        del owner[keys[other % len(keys)]]


def image(value: Any, known: dict[int, int]) -> Any:
    """The contents of a value; what the caller passed by its number."""
    if id(value) in known:
        return f"given {known[id(value)]}"
    if isinstance(value, al.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(key, image(each, known)) for key, each in value.items()]
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [image(each, known) for each in value]
    return value


def left_by(function: Callable[..., Any], forms: list[Any]) -> list[Any]:
    """The images of the result and of all containers passed, after each of three calls."""
    images = []
    for _ in range(3):
        x, arguments = al.tensor([3.0, 4.0]), [made(form) for form in forms]
        owners = containers(arguments)
        tensors = [x, *[v for o in owners for v in (o.values() if isinstance(o, dict) else o)]]
        tensors = [each for each in tensors if isinstance(each, al.Tensor)]
        known = {id(each): n for n, each in enumerate([*owners, *tensors])}
        result = function(x, arguments)
        inside = [(v.items() if isinstance(v, dict) else v, type(v).__name__) for v in owners]
        images.append([image(result, known), [image(list(each), known) for each, _ in inside]])
    return images


@settings(max_examples=60)
@given(st.lists(FORMS, min_size=1, max_size=2), STEPS)
@example(forms=[("list", [])], steps=[("add", 1, 0)])
@example(forms=[("list", [2])], steps=[("move", 1, 1)])
@example(forms=[("dict", ["tensor", 2])], steps=[("turn", 1, 0), ("take", 1, 1)])
@pytest.mark.draws(long=2000)
def test_written_containers_are_what_eager_leaves(forms, steps):
    """Contents, the order of keys, and which objects are the caller's own."""

    def program(x: Any, arguments: Any) -> Any:
        owners = containers(arguments)
        for step in steps:
            change(step, owners, x)
        return x + 1, owners[-1]

    expected = left_by(program, forms)
    compiled = al.compile(program, backend="reference")
    found = left_by(compiled, forms)
    assert [each[1] for each in expected] == [each[1] for each in found]
    if writes_containers(compiled.entries[0].containers.spec):
        assert expected == found  # a list that is returned and was not written is a copy


def test_results_that_are_appended_have_gradients():
    def losses(x, w, out):
        for row in range(2):
            out.append((x[row] * w).sum())

    found = []
    for function in (losses, al.compile(losses, backend="reference")):
        for _ in range(2):
            w, out = al.ones(2, requires_grad=True), []
            function(al.tensor([[1.0, 2.0], [3.0, 4.0]]), w, out)
            (out[0] * 2 + out[1]).backward()
            found.append((len(out), w.grad.tolist()))
    assert [(2, [5.0, 8.0])] * 4 == found


def test_ndarrays_and_numbers_are_put_into_the_callers_containers():
    def keep(a, state):
        state["n"] += 1
        state["twice"], state["same"] = a * 2, a

    compiled = al.compile(keep, backend="reference")
    for _ in range(3):
        a, state = np.ones(2), {"n": 1}
        assert compiled(a, state) is None
        assert 2 == state["n"] and a is state["same"]
        assert isinstance(state["twice"], np.ndarray) and [2.0, 2.0] == state["twice"].tolist()


def test_a_container_that_grows_is_another_call():
    """Its length is part of the form of the call, like that of any list."""

    def log(x, out):
        out.append(x * len(out))

    compiled, out, expected = al.compile(log, backend="reference"), [], []
    for _ in range(3):
        compiled(al.ones(1), out)
        log(al.ones(1), expected)
    assert [[0.0], [1.0], [2.0]] == [each.tolist() for each in out]
    assert [each.tolist() for each in expected] == [each.tolist() for each in out]


def test_written_parameters_of_a_functional_step_are_the_callers():
    def step(params, x):
        for name in params:
            params[name] = params[name] - 0.5 * x

    compiled = al.compile(step, backend="reference")
    params = {"w": al.ones(2), "b": al.zeros(2)}
    for _ in range(3):
        compiled(params, al.ones(2))
    assert ([-0.5, -0.5], [-1.5, -1.5]) == (params["w"].tolist(), params["b"].tolist())
    assert 1 == len(compiled.entries)


# ---------------------------------------------------------------------------------- what is refused
def refused(f: Callable[..., Any], *args: Any, **options: Any) -> str:
    with pytest.raises(al.UnsupportedError, match="changes argument") as caught:
        al.compile(f, backend="reference")(*args)
    return " ".join([str(caught.value), *caught.value.__notes__])


def test_a_list_in_two_places_is_refused_where_it_is_written():
    """Copies of it are two lists; it may be read. An entry for two lists does not take it."""

    def f(x, a, b):
        a.append(x)
        return x * len(b)

    shared: list[Any] = []
    assert "pass a copy: the same object is passed in another place" in refused(
        f, al.ones(1), shared, shared
    )
    compiled = al.compile(f, backend="reference")
    assert [0.0] == compiled(al.ones(1), [], []).tolist()
    with pytest.raises(al.UnsupportedError, match="changes argument"):
        compiled(al.ones(1), shared, shared)
    assert not shared
    assert [1.0] == al.compile(lambda x, a, b: x * len(a) * len(b))(al.ones(1), *[[2]] * 2).tolist()


def test_a_list_that_is_a_variable_too_is_refused_where_it_is_written():
    """The function would see the variable as it was; it may read both."""
    history: list[Any] = []

    def f(x, out):
        out.append(x)
        return x * len(history)

    assert "pass a copy: the same object is a variable" in refused(f, al.ones(1), history)
    assert not history
    read = al.compile(lambda x, out: x * (len(out) + len(history)), backend="reference")
    assert [0.0] == read(al.ones(1), history).tolist()


def test_an_object_that_is_no_result_is_refused():
    out: list[Any] = []
    text = refused(lambda x, out: out.append(object()), al.ones(1), out)
    assert "argument 1, a list" in text and "an object of type object is no result" in text
    assert not out


def test_what_is_exported_does_not_write_containers():
    def f(x, out):
        out["y"] = x * 2

    for export in (al.export.program, lambda f, *args: al.freeze(f, args[1])(args[0])):
        with pytest.raises(al.UnsupportedError, match="changes argument"):
            export(f if export is al.export.program else lambda out, x: f(x, out), al.ones(1), {})
    with pytest.raises(al.UnsupportedError, match="to_python: the function changes a list or dict"):
        al.compile(f).to_python(args=(al.ones(1), {}))


def test_a_function_that_raises_leaves_containers_as_they_were():
    """RT-10: as with tensors that it has written."""

    def f(x, out):
        out.append(x)
        raise ValueError("no")

    out: list[Any] = []
    with pytest.raises(ValueError, match="no"):
        al.compile(f, backend="reference")(al.ones(1), out)
    assert not out


class Tapped(nn.Module):
    """A Module that fills a list for its caller."""

    def forward(self, x: Any, taps: list[Any]) -> Any:
        taps.append(x + 1)
        return x * 2


def test_a_module_fills_a_list_and_hands_it_on():
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Tapped()

        def forward(self, x: Any, taps: list[Any]) -> Any:
            return self.inner(x, taps) + self.inner(x, taps)

    compiled = al.compile(Outer(), backend="reference")
    for _ in range(2):
        taps: list[Any] = []
        assert [4.0] == compiled(al.ones(1), taps).tolist()
        assert [[2.0], [2.0]] == [each.tolist() for each in taps]
