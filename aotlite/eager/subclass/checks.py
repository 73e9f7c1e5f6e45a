"""Checks of wrapper classes and wrappers, before the engine uses them.

`check_methods` checks a class when its first instance is made: the methods of the protocol must
accept the arguments that they will get. `check_finite` checks an instance with wrappers inside:
none of them may contain it. The results of the methods are checked where they are called
(`eager.subclass.protocol`, `eager.dispatch.subclass`). Rules: SUB-1, SUB-9. Spec:
`specs/subclasses.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import refusals_apart
from aotlite.ir.errors import ProtocolError, noted

_CALLED = {
    "__tensor_flatten__": ("self",),
    "__tensor_unflatten__": ("inner", "spec", "outer_size", "outer_stride"),
    "__tensor_dispatch__": ("func", "types", "args", "kwargs"),
    "__tensor_function__": ("func", "types", "args", "kwargs"),
}
"""Method of the protocol -> the names of its positional arguments."""

_OF_CLASSES = ("__tensor_dispatch__", "__tensor_function__")
"""The class methods of the protocol."""


def text_of(value: Any) -> str:
    """The text of a value in an error; safe if its `repr` is broken; the class for a tensor."""
    if isinstance(value, (Tensor, type)) or callable(value):
        return value.__name__ if isinstance(value, type) else f"a {type(value).__name__}"
    if type(value) in (tuple, list) and len(value) < _MANY:
        open_, close = "()" if type(value) is tuple else "[]"
        comma = "," if type(value) is tuple and len(value) == 1 else ""
        try:
            return f"{open_}{', '.join(map(text_of, value))}{comma}{close}"
        except RecursionError:  # a list that holds itself
            return f"a {type(value).__name__}"
    try:
        with refusals_apart():
            return repr(value)
    except Exception:  # whatever a class's __repr__ raises
        return f"a {type(value).__name__}"


_MANY = 100


def check_methods(cls: type[Tensor]) -> None:
    """Raises ProtocolError for a method that does not accept the protocol's arguments (SUB-1)."""
    for name, given in _CALLED.items():
        method = getattr(cls, name, None)
        if method is None:
            continue
        if not callable(method):
            raise _uncallable(cls, name, repr(method))
        if name in _OF_CLASSES and isinstance(inspect.getattr_static(cls, name), FunctionType):
            raise _uncallable(cls, name, "a method of instances")
        if not _takes(method, len(given)):
            raise _uncallable(cls, name, f"called as {name}{_signature(method)}")


def _takes(method: Any, count: int) -> bool:
    """Whether it accepts `count` positional arguments; true where its signature is unknown."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _signature(method: Any) -> str:
    names = [str(each) for each in inspect.signature(method).parameters.values()]
    return f"({', '.join(names)})"


def _uncallable(cls: type[Tensor], name: str, found: str) -> Exception:
    kind = "a method of instances" if name == "__tensor_flatten__" else "a class method"
    kind = "a static or class method" if name == "__tensor_unflatten__" else kind
    return noted(
        ProtocolError(
            f"{cls.__name__}: attribute {name!r} is {found}, expected {kind}, called as "
            f"{name}({', '.join(_CALLED[name])})"
        ),
        "specs/subclasses.md says what a wrapper class has. (SUB-1)",
    )


DEEP = 30
"""The depth of nested ops on wrappers from which `check_end` looks for infinite recursion."""


def check_end(
    op: Any, operands: Sequence[Tensor], kinds: Sequence[type[Tensor]], depth: int
) -> None:
    """Raises ProtocolError for infinite recursion of ops on wrappers (SUB-9, SUB-10).

    If a class runs ops on the parts of its wrappers, the nesting of operands decreases.
    """
    key = op, *map(id, operands)
    if depth == DEEP:
        STATE.deep = key, 0
        for each in operands:
            if each.__tensor_dispatch__ is not None:
                check_finite(each)
        STATE.deep = key, _nesting(operands)
    elif key == STATE.deep[0] or (depth == 2 * DEEP and _nesting(operands) >= STATE.deep[1]):
        kind = kinds[0].__name__
        raise noted(
            ProtocolError(
                f"{op.name}: to give it, {kind} asks for ops on wrappers again and again, expected "
                "ops on its parts"
            ),
            f"{kind}.__tensor_dispatch__ must read the parts from attributes, and run ops on them. "
            "(SUB-10)",
        )


def _nesting(operands: Sequence[Tensor]) -> int:
    """The nesting depth of wrappers in the operands."""
    parts = [each for each in operands if each.__tensor_dispatch__ is not None]
    count = 0
    while parts and count < _MANY:
        count += 1
        inner = [getattr(each, name, None) for each in parts for name in _names(each)]
        found = {id(x): x for x in inner if isinstance(x, Tensor) and x.__tensor_dispatch__}
        parts = [*found.values()]
    return count


def check_finite(wrapper: Tensor) -> None:
    """Raises ProtocolError for a wrapper that contains itself (SUB-9)."""
    path = _way_back(wrapper, {id(wrapper)}, set())
    if path is None:
        return
    kind = type(wrapper).__name__
    raise noted(
        ProtocolError(
            f"{kind}: attribute {path!r} is a tensor that holds itself, expected one that is made "
            "of others"
        ),
        "Parts of a wrapper may be wrappers, but the innermost ones must be dense. (SUB-9)",
    )


def _way_back(wrapper: Tensor, around: set[int], done: set[int]) -> str | None:
    """The path of attributes, such as `a.b`, to a wrapper that contains this one; None if none."""
    for name in _names(wrapper):
        part = getattr(wrapper, name, None)
        if not isinstance(part, Tensor) or part.__tensor_dispatch__ is None or id(part) in done:
            continue
        if id(part) in around:
            return name
        path = _way_back(part, {*around, id(part)}, done)
        if path is not None:
            return f"{name}.{path}"
    done.add(id(wrapper))
    return None


def _names(wrapper: Tensor) -> list[str]:
    """The names that it flattens to; empty if its `__tensor_flatten__` is broken."""
    found = wrapper.__tensor_flatten__() if hasattr(wrapper, "__tensor_flatten__") else None
    names = found[0] if isinstance(found, tuple) and found else ()
    return [each for each in names if type(each) is str] if isinstance(names, (list, tuple)) else []
