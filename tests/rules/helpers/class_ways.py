"""Ways from a function to an outer value through a class: custom functions, static and class
methods, what classes hold. Each gives a function of x that runs a body on x and the value, and what
puts another in its place. Used by `test_cap_classes.py`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, ClassVar

import aotlite as al
from aotlite import nn

Function = Callable[[Any], Any]
Put = Callable[[Any], None]
Body = Callable[[Any, Any], Any]
Way = Callable[[Any, Body], tuple[Function, Put]]


def _of_names(text: str, value: Any, body: Body) -> tuple[dict[str, Any], Put]:
    """The names of a module with this text, which reads the value as `w`."""
    names: dict[str, Any] = {"w": value, "body": body, "al": al, "nn": nn, "__name__": "elsewhere"}
    exec(text, names)
    return names, lambda other: names.__setitem__("w", other)


PLAIN_CLASS = """
class Base:
    @staticmethod
    def static(x):
        return body(x, w)

class Plain(Base):
    @classmethod
    def by_class(cls, x):
        return cls.static(x)

    def __init__(self):
        self.kept = w

    def method(self, x):
        return body(x, w)

    @property
    def asked(self):
        return w

    def of_super(self, x):
        return super().static(x)

class Outer:
    inner = Plain
"""
CALLS = {
    "static": "Plain.static(x)",
    "class": "Plain.by_class(x)",
    "inner": "Outer.inner.static(x)",
    "made": "body(x, Plain().kept)",
    "method": "Plain().method(x)",
    "property": "body(x, Plain().asked)",
    "super": "Plain().of_super(x)",
    "alias": "alias(x)",
    "bound": "bound(x)",
    "module": "module.Plain.static(x)",
    "list": "box[0].static(x)",
    "cell": "(lambda kind: (lambda y: kind.static(y)))(Plain)(x)",
}
FUNCTION = """
class Inner(al.autograd.Function):
    {forward}

    @staticmethod
    {mark}
    def backward(ctx, g):
        return body(g, {read})

class Outer:
    inner = Inner

class Derived(Inner):
    pass
"""
WITH_CTX = """
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
"""
WITH_SETUP = """
    @staticmethod
    def forward(x):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.w = w
"""
APPLIES = {
    "name": "Inner.apply(x)",
    "attribute": "Outer.inner.apply(x)",
    "derived": "Derived.apply(x)",
    "alias": "alias(x)",
    "module": "module.Inner.apply(x)",
    "list": "box[0].apply(x)",
}


def _finished(names: dict[str, Any], kind: str, alias: str, call: str) -> Function:
    names["module"] = types.ModuleType("inner")
    setattr(names["module"], kind, names[kind])
    names["box"] = [names[kind]]
    names["alias"] = getattr(names[kind], alias)
    names["bound"] = getattr(names[kind], "by_class", None)
    exec(f"def function(x):\n    return {call}", names)
    found: Function = names["function"]
    return found


def way_of_call(call: str) -> Way:
    def way(value: Any, body: Body) -> tuple[Function, Put]:
        names, put = _of_names(PLAIN_CLASS, value, body)
        return _finished(names, "Plain", "static", call), put

    return way


def way_of_function(forward: str, read: str, call: str, mark: str = "") -> Way:
    """Of a custom function, whose backward runs the body: the gradient shows it."""

    def way(value: Any, body: Body) -> tuple[Function, Put]:
        names, put = _of_names(FUNCTION.format(forward=forward, read=read, mark=mark), value, body)
        return _finished(names, "Inner", "apply", call), put

    return way


def of_class_attribute(value: Any, body: Body) -> tuple[Function, Put]:
    class Config:
        w: ClassVar[Any] = value

    return (lambda x: body(x, Config.w)), lambda other: setattr(Config, "w", other)


def of_inherited_attribute(value: Any, body: Body) -> tuple[Function, Put]:
    class Config:
        w: ClassVar[Any] = value

    class Special(Config):
        pass

    return (lambda x: body(x, Special.w)), lambda other: setattr(Config, "w", other)


def of_hiding_attribute(value: Any, body: Body) -> tuple[Function, Put]:
    """A base's attribute first, then one of the class itself, which hides it, and back."""

    class Config:
        w: ClassVar[Any] = value

    class Special(Config):
        pass

    def put(other: Any) -> None:
        if "w" in vars(Special):
            del Special.w
            Config.w = other
        else:
            Special.w = other

    return (lambda x: body(x, Special.w)), put


def of_replaced_method(value: Any, body: Body) -> tuple[Function, Put]:
    """The method itself is another one, with a value of its own."""

    class Plain:
        pass

    def put(other: Any) -> None:
        Plain.static = staticmethod(lambda x: body(x, other))  # type: ignore[attr-defined]

    put(value)
    return (lambda x: Plain.static(x)), put  # type: ignore[attr-defined]


MODULE = """
class Net(nn.Module):
    @staticmethod
    def static(x):
        return body(x, w)

    @property
    def asked(self):
        return w

    def forward(self, x):
        return {call}

net = Net()
"""
BASE = """
class Base(nn.Module):
    def forward(self, x):
        return body(x, w)
"""


def way_of_module(call: str) -> Way:
    def way(value: Any, body: Body) -> tuple[Function, Put]:
        names, put = _of_names(MODULE.format(call=call), value, body)
        net = names["net"]
        return (lambda x: net(x)), put

    return way


def of_base_elsewhere(value: Any, body: Body) -> tuple[Function, Put]:
    """A method that overrides one of a base in another module, whose names are not its own."""
    names, put = _of_names(BASE, value, body)
    base: Any = names["Base"]

    class Net(base):
        def forward(self, x: Any) -> Any:
            return super().forward(x)

    net = Net()
    return (lambda x: net(x)), put


WAYS: tuple[Way, ...] = (
    *map(way_of_call, CALLS.values()),
    *(of_class_attribute, of_inherited_attribute, of_hiding_attribute),
    *(of_replaced_method, of_base_elsewhere),
    *map(way_of_module, ("self.static(x)", "Net.static(x)", "body(x, self.asked)")),
)
ONCE = "@al.autograd.function.once_differentiable"
FUNCTION_WAYS: tuple[Way, ...] = (
    *[way_of_function(WITH_CTX, "w", call) for call in APPLIES.values()],
    *[way_of_function(WITH_SETUP, "ctx.w", call) for call in APPLIES.values()],
    way_of_function(WITH_CTX, "w", "Inner.apply(x)", ONCE),
)
