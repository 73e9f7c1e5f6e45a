"""`python_functions`: Python's own functions of numbers, for code that runs on symbols.

    math.sqrt(n)    float(n)    int(n * 0.5)

C code takes the value of a number, as it knows no other. So while a function is captured, `math`
has functions that make expressions of symbolic numbers, and that do what they did with any other;
so have modules whose code is captured, where they have imported such functions by name. Their code
calls such functions where it calls `int` and `float` by these names (`call_code.py`), and finds
Python's classes where it only names them. No module gets a name, and code of other threads finds
no difference. Rule: DYN-39. Spec: `specs/size_floats.md`.
"""

from __future__ import annotations

import builtins
import functools
import math
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from aotlite.ir.forks import lock
from aotlite.ir.symbols.floats.call_code import calling
from aotlite.ir.symbols.floats.operations import PYTHON
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.python_number import NOT_COMPUTED
from aotlite.ir.symbols.symint import SymInt

__all__ = ["UserCode", "python_functions"]

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


def _number_of(kind: type) -> Callable[..., object]:
    """What is called in place of `int` or `float`."""

    def number(*operands: object, **more: object) -> object:
        is_alone = len(operands) == 1 and not more
        if is_alone and (type(operands[0]) is SizeFloat or kind is float):
            found = _computed(kind.__name__, operands)
            if found is not NOT_COMPUTED:
                return found
        return kind(*operands, **more)

    return number


_FUNCTIONS: Final = {original: _function_of(name, original) for name, original in PYTHON.items()}
_NUMBERS: Final = {each.__name__: _number_of(each) for each in (int, float)}
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
before."""
_CALLING: dict[int, tuple[types.FunctionType, int, types.CodeType, types.CodeType]] = {}
"""By the id of a function whose code is changed: it, in how many blocks, its code and the other."""


@attrs.frozen(eq=False)
class UserCode:
    """The code of users that a captured function can run."""

    scopes: tuple[Scope, ...] = ()
    """The variables of modules."""
    functions: tuple[weakref.ref[types.FunctionType], ...] = ()

    def all_functions(self) -> list[types.FunctionType]:
        """These functions, and those of the modules."""
        found = [each for each in (made() for made in self.functions) if each is not None]
        found += [each for scope in self.scopes for each in _functions(scope)]
        return list({id(each): each for each in found}.values())


@contextmanager
def python_functions(code: UserCode) -> Iterator[None]:
    """A block in which `math` and the code of users have functions that take symbols."""
    taken, changed = [vars(math), *code.scopes], list[types.FunctionType]()
    try:
        with _LOCK:
            for scope in taken:
                _take(scope)
            for function in code.all_functions():
                if _call_others(function):
                    changed.append(function)
        yield
    finally:
        with _LOCK:
            for scope in taken:
                _leave(scope)
            for function in changed:
                _call_own(function)


def _call_others(function: types.FunctionType) -> bool:
    """Changes the code of a function; returns whether it is changed now."""
    known = _CALLING.get(id(function))
    if known is not None:
        _CALLING[id(function)] = function, known[1] + 1, *known[2:]
        return True
    if function.__builtins__ is not vars(builtins):
        return False
    own, scope = function.__code__, function.__globals__
    other = calling(own, tuple([each for each in _NUMBERS.items() if each[0] not in scope]))
    if other is own:
        return False
    _CALLING[id(function)] = function, 1, own, other
    function.__code__ = other
    return True


def _call_own(function: types.FunctionType) -> None:
    _, count, own, other = _CALLING.pop(id(function))
    if count > 1:
        _CALLING[id(function)] = function, count - 1, own, other
    elif function.__code__ is other:
        function.__code__ = own


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


# ------------------------------------------------------------------------- the functions of modules
_HOLD_NONE: Final = {
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.NoneType),
    *(str, int, float, bool, tuple, dict, list, set, frozenset),
}
"""Classes of most variables: what they hold is no function of the module, or is one itself."""


def _functions(scope: Scope) -> list[types.FunctionType]:
    """The functions of a module, and the methods of its classes."""
    found: list[types.FunctionType] = []
    waiting: list[Iterable[object]] = [list(scope.values())]
    seen = set[int]()
    while waiting:
        values = waiting.pop()
        functions = [x for x in values if type(x) is types.FunctionType]
        found += [x for x in functions if x.__globals__ is scope]
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
