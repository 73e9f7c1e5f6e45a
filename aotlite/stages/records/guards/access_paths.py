"""Access paths: how each call finds a tensor or object outside the arguments again.

A path is a root (an argument of the call, or the compiled function) and the steps from it. Stage 1
searches the paths (`s1_capture/environment/access_search.py`), stage 10 writes them into guards.
Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.stages.records.guards.access_words import NOTHING, path_words

Step = tuple[str, Any]
_Slot = types.MemberDescriptorType | types.GetSetDescriptorType
ARGS: types.GetSetDescriptorType = vars(BaseException)["args"]
"""The descriptor of what an exception was made with: no slot, but read like one."""


@attrs.frozen(eq=False)
class AccessPath:
    """A root and the steps from it: ('attr', name), ('item', key), ('cell', i), ('global', name),
    ...

    `argument` is the number of an argument leaf, or None if `function` is the root.
    """

    argument: int | None
    function: Any
    path: tuple[Step, ...] = ()

    def then(self, kind: str, key: object) -> AccessPath:
        """The path with a further step."""
        return AccessPath(self.argument, self.function, (*self.path, (kind, key)))

    def resolve(self, leaves: list[Any]) -> Any:
        """The present value at the end of the path; NOTHING if a step leads nowhere."""
        value = self.function if self.argument is None else leaves[self.argument]
        for kind, key in self.path:
            value = _STEPS[kind](value, key)
            if value is NOTHING:
                return NOTHING
        return value

    def __str__(self) -> str:
        return path_words(self.function, self.argument, self.path, take)


def attributes_of(value: object) -> dict[str, Any]:
    """The `__dict__` of an object, without a call of its `__getattr__` or `__getattribute__`."""
    found: dict[str, Any]
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:  # a class with slots alone
        if not issubclass(type(value), threading.local):
            return {}
        found = threading.local.__getattribute__(value, "__dict__")  # type: ignore[arg-type]
    return found


def _attribute(value: object, key: str) -> object:
    """The value of an attribute, without a call of descriptors (but slots) or `__getattr__`."""
    own = attributes_of(value)
    if key in own:
        return own[key]
    if key == "__dict__":
        return own
    found = next((vars(cls)[key] for cls in type(value).__mro__ if key in vars(cls)), NOTHING)
    is_slot = isinstance(found, types.MemberDescriptorType) or found is ARGS
    return _in_slot(found, value) if is_slot else found  # type: ignore[arg-type]


def _in_slot(slot: _Slot, value: object) -> object:
    try:
        return slot.__get__(value)
    except AttributeError:  # an empty slot
        return NOTHING


def _item(value: Any, key: Any) -> object:
    try:
        return value[key]
    except (KeyError, IndexError, TypeError):
        return NOTHING


def _cell(value: Any, key: int) -> Any:
    try:
        return value.__closure__[key].cell_contents
    except (ValueError, IndexError, TypeError):
        return NOTHING


def _global(value: Any, key: str) -> Any:
    return value.__globals__.get(key, NOTHING)


def _default(value: Any, key: object) -> Any:
    found = value.__defaults__ if isinstance(key, int) else value.__kwdefaults__
    return _item(found or (), key)


def _module_attribute(value: object, key: str) -> Any:
    return vars(value).get(key, NOTHING)


def _gradient(value: object, key: object) -> object:
    return value._grad if isinstance(value, Tensor) else NOTHING


def _member(value: object, key: str) -> Any:
    return getattr(value, key, NOTHING)


def _of_class(value: object, key: tuple[int, str]) -> object:
    """A value in the body of a class (or an object's class) or of a base, without its wrapper."""
    number, name = key
    kinds = (value if isinstance(value, type) else type(value)).__mro__
    return _opened(vars(kinds[number]).get(name, NOTHING)) if number < len(kinds) else NOTHING


def _body(value: object, key: tuple[int, str]) -> object:
    """A value in the body of a class or of a base, as it lies there."""
    number, name = key
    kinds = (value if isinstance(value, type) else type(value)).__mro__
    return vars(kinds[number]).get(name, NOTHING) if number < len(kinds) else NOTHING


def _target(value: Any, key: object) -> object:
    """The object of a weak reference."""
    found = value() if type(value) is weakref.ref else None
    return NOTHING if found is None else found


def _local(value: Any, key: str) -> object:
    """A variable of a generator that waits."""
    frame = value.gi_frame if type(value) is types.GeneratorType else None
    return NOTHING if frame is None else frame.f_locals.get(key, NOTHING)


_OPENED = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    functools.cached_property: "func",
}


def _opened(value: object) -> Any:
    """The function of a static or class method, or of a property."""
    name = _OPENED.get(type(value))
    return value if name is None else getattr(value, name)


def class_step_text(at: str, owner: object, key: tuple[int, str]) -> str:
    """An expression of the present value of `_of_class`; it may raise after a change."""
    number, name = key
    kind = owner if isinstance(owner, type) else type(owner)
    base = at if kind is owner else f"type({at})"
    if number:
        base = f"{base}.__mro__[{number}]"
    inside = _OPENED.get(type(vars(kind.__mro__[number])[name]))
    return f"{base}.__dict__[{name!r}]" + ("" if inside is None else f".{inside}")


_STEPS = {
    "attr": _attribute,
    "item": _item,
    "cell": _cell,
    "global": _global,
    "default": _default,
    "module": _module_attribute,
    "grad": _gradient,
    "member": _member,
    "part": _member,
    "class": _of_class,
    "body": _body,
    "target": _target,
    "local": _local,
}


def take(value: Any, kind: str, key: Any) -> Any:
    """The value one step from `value`; NOTHING if the step leads nowhere."""
    return _STEPS[kind](value, key)
