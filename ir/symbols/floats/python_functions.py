"""`python_functions`: Python's own functions of numbers, for code that runs on symbols.

    math.sqrt(n)    float(n)    int(n * 0.5)

C code takes the value of a number, as it knows no other. So while a function is captured, `math`
has functions that make expressions of symbolic numbers, and that do what they did with any other;
so have modules whose code is captured, where they have imported such functions by name, and under
the names `int` and `float`. Code of other threads finds no difference.

`int` and `float` are classes that equal Python's, and whose instances are those of Python's. Code
that compares classes by `is` (`kind is int`) could tell; a module with such code keeps Python's.
Rule: DYN-39. Spec: `specs/size_floats.md`.
"""

from __future__ import annotations

import dis
import functools
import math
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from aotlite.ir.forks import lock
from aotlite.ir.symbols.floats.operations import PYTHON
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.python_number import NOT_COMPUTED
from aotlite.ir.symbols.symint import SymBool, SymInt

__all__ = ["python_functions"]

Scope = dict[str, Any]


def _computed(name: str, operands: Sequence[object]) -> Any:
    for each in operands:
        if type(each) is SizeFloat or type(each) is SymInt:
            table: Any = each.table
            computes = table.computes
            return NOT_COMPUTED if computes is None else computes(name, tuple(operands))
    return NOT_COMPUTED


def _function_of(name: str, original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def function(*operands: object, **more: object) -> object:
        found = NOT_COMPUTED if more else _computed(name, operands)
        return original(*operands, **more) if found is NOT_COMPUTED else found

    return function


class _OfNumbers(type):
    """The class of `int` and `float` as captured code finds them."""

    of: type
    """Python's class."""

    def __call__(cls, *operands: object, **more: object) -> object:
        number, is_alone = cls.of, len(operands) == 1 and not more
        if is_alone and (type(operands[0]) is SizeFloat or number is float):
            found = _computed(number.__name__, operands)
            if found is not NOT_COMPUTED:
                return found
        return number(*operands, **more)

    def __instancecheck__(cls, value: object) -> bool:
        return type(value) in _STAND[cls.of] or isinstance(value, cls.of)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.of)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.of

    def __hash__(cls) -> int:
        return hash(cls.of)

    def __repr__(cls) -> str:
        return repr(cls.of)


_STAND: Final[dict[type, tuple[type, ...]]] = {
    int: (SymInt, SymBool),
    float: (SizeFloat, SymFloat),
}
"""What stands for numbers of a class."""


def _class_of(of: type) -> type:
    inside = {"of": of, "dtype": np.dtype(of), "__module__": "builtins", "__slots__": ()}
    return _OfNumbers(of.__name__, (of,), inside)


_FUNCTIONS: Final = {original: _function_of(name, original) for name, original in PYTHON.items()}
_CLASSES: Final = {each.__name__: _class_of(each) for each in (int, float)}
_OF_MATH: Final[dict[str, Any]] = {
    name: value
    for name, value in vars(math).items()
    if type(value) is types.BuiltinFunctionType and value in _FUNCTIONS
}
"""What `math` has of these functions, by name, and below what it has while it is changed."""
_CHANGED: Final = {name: _FUNCTIONS[value] for name, value in _OF_MATH.items()}
_LOCK: Any = lock()
_HELD: dict[int, tuple[Scope, int, dict[str, object]]] = {}
"""By the id of a module's variables: these, in how many blocks they are changed, and what was there
before; nothing of names that are new."""


@contextmanager
def python_functions(scopes: Iterable[Scope]) -> Iterator[None]:
    """A block in which `math` and these variables of modules have functions that take symbols."""
    taken = [vars(math), *scopes]
    try:
        with _LOCK:
            for scope in taken:
                _take(scope)
        yield
    finally:
        with _LOCK:
            for scope in taken:
                _leave(scope)


def _take(scope: Scope) -> None:
    if id(scope) in _HELD:
        _, count, before = _HELD[id(scope)]
        _HELD[id(scope)] = scope, count + 1, before
        return
    if scope is vars(math) and _OF_MATH.items() <= scope.items():  # nobody has changed it
        _HELD[id(scope)] = scope, 1, dict(_OF_MATH)
        scope.update(_CHANGED)
        return
    found: dict[str, Any] = {
        name: value
        for name, value in list(scope.items())
        if type(value) is types.BuiltinFunctionType and value in _FUNCTIONS
    }
    _HELD[id(scope)] = scope, 1, found
    if found:
        scope.update({name: _FUNCTIONS[value] for name, value in found.items()})
    if scope is not vars(math):
        names = _CLASSES.keys() - scope.keys()
        names -= frozenset().union(*map(_identified, _codes(scope)))
        scope.update({name: _CLASSES[name] for name in names})


def _leave(scope: Scope) -> None:
    _, count, before = _HELD.get(id(scope), (scope, 0, {}))
    if count > 1:
        _HELD[id(scope)] = scope, count - 1, before
        return
    _HELD.pop(id(scope), None)
    if scope is vars(math) and before == _OF_MATH and _CHANGED.items() <= scope.items():
        scope.update(before)
        return
    for name, value in before.items():
        if scope.get(name) is _FUNCTIONS[value]:  # type: ignore[index]
            scope[name] = value
    for name, value in _CLASSES.items():
        if scope.get(name) is value:
            del scope[name]


# ------------------------------------------------------------------------------ names that are `is`
_HOLD_NONE: Final = {
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.NoneType),
    *(str, int, float, bool, tuple, dict, list, set, frozenset),
}
"""Classes of most variables: what they hold is no function of the module, or is one itself."""


def _codes(scope: Scope) -> list[types.CodeType]:
    """The code of the functions of a module, and of the methods of its classes."""
    found: list[types.CodeType] = []
    waiting: list[Iterable[object]] = [list(scope.values())]
    seen = set[int]()
    while waiting:
        values = waiting.pop()
        functions = [x for x in values if type(x) is types.FunctionType]
        found += [x.__code__ for x in functions if x.__globals__ is scope]
        for each in [x for x in values if type(x) not in _HOLD_NONE]:
            kind = type(each)
            if id(each) in seen:
                continue
            seen.add(id(each))
            if kind in (classmethod, staticmethod):
                waiting.append([each.__func__])  # type: ignore[attr-defined]
            elif kind is property:
                waiting.append([each.fget, each.fset])  # type: ignore[attr-defined]
            elif issubclass(kind, type) and each.__module__ == scope.get("__name__"):
                waiting.append(list(vars(each).values()))
    return found


@functools.lru_cache(maxsize=4096)
def _identified(code: types.CodeType) -> frozenset[str]:
    """The names of `int` and `float` among the operands of `is` in code, and in code within it."""
    found: set[str] = set()
    if not _CLASSES.keys().isdisjoint(code.co_names):
        steps = list(dis.get_instructions(code))
        for n, step in enumerate(steps):
            if step.opname == "IS_OP":
                near = {each.argval for each in steps[max(0, n - 4) : n] if each.arg is not None}
                found |= {name for name in _CLASSES if name in near}
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found |= _identified(each)
    return frozenset(found)
