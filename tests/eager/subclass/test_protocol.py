"""Wrapper classes and wrappers that break the protocol: who is named, and that nothing happened."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import ProtocolError, SubclassError
from aotlite.subclasses import TwoTensor, flatten, leaves_of, unwrap
from tests.stages.wrappers.helpers.classes import One


def pair() -> Any:
    return TwoTensor(al.ones(2), al.ones(2))


# ------------------------------------------------------------------------------ pairs of nonsense
@pytest.mark.rules("SUB-1")
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (al.ones(2), 3, "b is 3, expected a tensor"),
        (None, al.ones(2), "a is None, expected a tensor"),
        (al.ones(2), al.ones(3), r"b is f32\[3\], expected the geometry of a, f32\[2\]"),
    ],
)
def test_a_pair_of_something_else_names_class_and_attribute(a: Any, b: Any, message: str) -> None:
    with pytest.raises(SubclassError, match=f"^TwoTensor: {message}") as caught:
        TwoTensor(a, b)
    assert "(SUB-1)" in caught.value.__notes__[0]


@pytest.mark.rules("SUB-15")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_pair_written_to_a_plain_tensor_names_both_classes(*, compiled: bool) -> None:
    """SUB-15: and nothing is written."""

    def write(x: Any, y: Any) -> Any:
        return x.add_(y)

    x = al.ones(2)
    with pytest.raises(SubclassError, match="is a Tensor, expected a TwoTensor") as caught:
        (al.compile(write) if compiled else write)(x, pair())
    assert "(SUB-15)" in caught.value.__notes__[0]
    assert (x.tolist(), x.version) == ([1.0, 1.0], 0)


# ------------------------------------------------------------------------------------ the methods
METHODS: list[tuple[str, Any, str]] = [
    ("__tensor_unflatten__", staticmethod(lambda inner, spec: None), r"\(inner, spec\), expected"),
    ("__tensor_unflatten__", lambda self, inner, spec, size, stride: None, "a static or class"),
    ("__tensor_unflatten__", 3, "3, expected a static or class method, called as"),
    ("__tensor_flatten__", staticmethod(lambda: None), r"\(\), expected a method of instances"),
    ("__tensor_flatten__", lambda self, more: None, r"\(self, more\), expected a method of inst"),
    ("__tensor_flatten__", classmethod(lambda cls: None), "expected a method of instances"),
    ("__tensor_dispatch__", lambda cls, func, types, args, kwargs: None, "a method of instan"),
    ("__tensor_dispatch__", lambda self, func, args=(), kwargs=None: None, "a method of inst"),
    ("__tensor_dispatch__", classmethod(lambda cls, func, types: None), r"\(func, types\), expec"),
    ("__tensor_dispatch__", "dispatch", "'dispatch', expected a class method"),
    ("__tensor_function__", lambda cls, func, types, args, kwargs: None, "a method of instan"),
    ("__tensor_function__", staticmethod(lambda func: None), r"\(func\), expected a class method"),
]


@pytest.mark.rules("SUB-1")
@pytest.mark.parametrize(("name", "method", "message"), METHODS)
def test_a_method_that_cannot_be_called_is_named(name: str, method: Any, message: str) -> None:
    """SUB-1: when the first instance is made, before any op."""
    kind = type("Kind", (One,), {name: method})
    with pytest.raises(ProtocolError, match=f"Kind: attribute '{name}' is .*{message}") as caught:
        kind(al.ones(2))
    assert "(SUB-1)" in caught.value.__notes__[0]


@pytest.mark.rules("SUB-1")
def test_methods_that_take_more_than_they_are_given_are_fine() -> None:
    """SUB-1: static, class and callable ones, with defaults, and any arguments."""

    class Free(One):
        @staticmethod
        def __tensor_unflatten__(inner: Any, *rest: Any, **more: Any) -> Any:
            return Free(inner["inner"])

        @staticmethod
        def __tensor_dispatch__(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return Free(func(*[getattr(each, "inner", each) for each in args], **kwargs))

    assert (Free(al.ones(2)) * 2).inner.tolist() == [2.0, 2.0]


# ------------------------------------------------------------------------------------- circles
def circle(length: int) -> Any:
    """A pair that holds itself, directly or through others."""
    first = made = pair()
    for _ in range(length - 1):
        made = TwoTensor(al.ones(2), made)
    first.a = made
    return made


USES: dict[str, Any] = {
    "op": lambda x: x + 1,
    "write": lambda x: x.add_(1),
    "view": lambda x: x.view(2, 1),
    "split": lambda x: x.split(1),
    "list": lambda x: al.cat([al.ones(2), x]),
    "repr": repr,
    "flatten": flatten,
    "leaves": lambda x: [*leaves_of(x)],
    "unwrap": lambda x: unwrap([x]),
    "deepcopy": copy.deepcopy,
    "backward": lambda x: x.requires_grad_().sum().backward(),
    "compile": lambda x: al.compile(lambda x: x * 2)(x),
    "closure": lambda x: al.compile(lambda y: x * y)(al.ones(2)),
}


@pytest.mark.rules("SUB-9")
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_wrapper_that_holds_itself_is_named(use: Any, length: int) -> None:
    """SUB-9: Python's stack does not end."""
    x = circle(length)
    with pytest.raises(ProtocolError, match="TwoTensor: attribute .* that holds itself") as caught:
        use(x)
    assert "(SUB-9)" in caught.value.__notes__[0]
    assert (x.version, al.is_grad_enabled()) == (0, True)


@pytest.mark.rules("SUB-9")
def test_a_compiled_function_finds_a_circle_that_was_closed_later() -> None:
    compiled = al.compile(lambda x: x.mul_(2))
    x = pair()
    compiled(x)
    part, x.b = x.b, x
    with pytest.raises(ProtocolError, match="TwoTensor: attribute 'b' is a tensor that holds"):
        compiled(x)
    x.b = part
    assert compiled(x).a.tolist() == [4.0, 4.0]


@pytest.mark.rules("SUB-9")
def test_one_wrapper_at_two_places_is_no_circle() -> None:
    x = pair()
    assert (TwoTensor(x, TwoTensor(x.a, x.b)) * 2).b.a.tolist() == [2.0, 2.0]
    twice = TwoTensor(TwoTensor(x, x), TwoTensor(x, x))
    assert len([*leaves_of(twice)]) == 8


# ------------------------------------------------------------------------ tensors of a capture
KEPT: list[al.Tensor] = []


class Keeps(One):
    """Gives, for a product, what its class attribute makes of a tensor that it kept."""

    gives: Any = None

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if cls.gives is None or func.__name__ not in ("mul", "view", "split", "nonzero"):
            return super().__tensor_dispatch__(func, types, args, kwargs)
        return cls.gives(KEPT[0])


def kept_of_a_capture(kind: Any) -> None:
    """Leaves the product of a capture in `KEPT`."""
    KEPT.clear()

    def function(x: Any) -> Any:
        KEPT.append(x.inner * 2)
        return x + 1

    al.compile(function)(kind(al.ones(2)))


STRAYS: list[tuple[Any, Any, str]] = [
    (lambda x: x, lambda x: x * 2, "a tensor of a capture"),
    (One, lambda x: x * 2, "a One whose 'inner' is a tensor of a capture"),
    (lambda x: One(One(x)), lambda x: x * 2, "a One whose 'inner.inner' is a tensor of a capture"),
    (lambda x: KINDS[0](x), lambda x: x.view(2), "a Kept whose 'inner' is a tensor of a capture"),
    (lambda x: (KINDS[0](x),), lambda x: x.split(2), "a Kept whose 'inner' is a tensor of a capt"),
]
KINDS: list[Any] = []


@pytest.mark.rules("SUB-23")
@pytest.mark.parametrize(("gives", "use", "message"), STRAYS)
def test_a_dispatch_that_gives_a_tensor_of_a_capture_is_named(
    gives: Any, use: Any, message: str
) -> None:
    """SUB-23: when it gives it, not when somebody uses it."""
    kind: Any = type("Kept", (Keeps,), {})
    KINDS[:] = [kind]
    kept_of_a_capture(kind)
    kind.gives = staticmethod(gives)
    with pytest.raises(ProtocolError, match=f"Kept.__tensor_dispatch__ gives .{message}"):
        use(kind(al.ones(2)))
