"""`Parameters`: another spelling of the call that was captured is brought into its form.

A keyword for a position, keywords in another order, a default that is passed or left out: a
function of Python cannot tell them apart. What it can tell (keys of `**kwargs` and of dicts in
another order, other containers) stays another call. Spec: `specs/programs.md`, PRG-4.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs

from aotlite.ir.errors import ArgumentError
from aotlite.nn.module import Module

_PLAIN: Final = (bool, int, float, complex, str, type(None))
_KINDS: Final = tuple(inspect._ParameterKind)
_POSITIONAL: Final = (int(_KINDS[0]), int(_KINDS[1]))
_VARIADIC: Final = (int(_KINDS[2]), int(_KINDS[4]))
Call = tuple[tuple[Any, ...], dict[str, Any]]


@attrs.frozen
class CallParameter:
    """A parameter of the function, which a call may pass."""

    name: str
    kind: int
    """The number of `inspect`'s kind."""
    default: tuple[()] | tuple[Any] = ()
    """Its default in a tuple, where that is a plain value."""


@attrs.frozen
class Parameters:
    """The parameters of a function, without those that took Modules and optimizers; none where
    the function can see how arguments are passed."""

    rows: tuple[CallParameter, ...] = ()

    @classmethod
    def of(cls, function: Any, call: Call, is_state: Callable[[object], bool]) -> Parameters:
        """Those of a function that was captured for a call."""
        if isinstance(function, Module):
            if type(function).__call__ is not Module.__call__:
                return cls()
            function = function.forward
        if getattr(function, "__signature__", None) is not None:
            return cls()
        try:
            found = inspect.signature(function, follow_wrapped=False)
            taken = found.bind(*call[0], **call[1]).arguments
        except (TypeError, ValueError):  # a function of C
            return cls()
        rows = [
            CallParameter(name, int(each.kind), _kept(each.default))
            for name, each in found.parameters.items()
            if not (name in taken and is_state(taken[name]))
        ]
        return cls(tuple(rows))

    @classmethod
    def read(cls, data: object, form: Call) -> Parameters | None:
        """Those of data, for a call in that form; None for other data."""
        rows = []
        for row in data if type(data) is tuple else (None,):
            match row:
                case (str() as name, int() as kind, () | (_,) as default) if (
                    type(kind) is int
                    and 0 <= kind < len(_KINDS)
                    and name.isidentifier()
                    and _are_plain(default)
                ):
                    rows.append(CallParameter(name, kind, default))
                case _:
                    return None
        made = cls(tuple(rows))
        try:
            takes = not rows or made.like(form, form) is not None
        except (ValueError, KeyError, ArgumentError):
            takes = False
        return made if takes else None

    def written(self) -> tuple[Any, ...]:
        """The parameters as data."""
        return tuple([(each.name, each.kind, each.default) for each in self.rows])

    def like(self, call: Call, form: Call) -> Call | None:
        """The call in the form of another one; None where it binds to other parameters. Raises
        ArgumentError for a parameter that one of them leaves out, and whose default differs."""
        try:
            mine, wanted = self._bound(call), self._bound(form)
        except TypeError:
            return None
        for each in self.rows:
            if each.kind not in _VARIADIC:
                self._check(each, mine, wanted)
        (extras, more), (its_extras, its_more) = self._rest(mine), self._rest(wanted)
        if len(extras) != len(its_extras) or list(more) != list(its_more):
            return None
        by_position = [each.name for each in self.rows if each.kind in _POSITIONAL]
        args = [mine[name] for name in by_position[: len(form[0]) - len(extras)]]
        return (*args, *extras), {key: more[key] if key in more else mine[key] for key in form[1]}

    def _rest(self, bound: Mapping[str, Any]) -> tuple[Any, Any]:
        """What a call passes to `*args` and to `**kwargs`."""
        names = {each.kind: each.name for each in self.rows}
        extras, more = (bound.get(names.get(kind, "")) for kind in _VARIADIC)
        return extras or (), more or {}

    def _bound(self, call: Call) -> dict[str, Any]:
        return dict(_signature(self.rows).bind_partial(*call[0], **call[1]).arguments)

    def _check(self, each: CallParameter, mine: dict[str, Any], wanted: Mapping[str, Any]) -> None:
        """Adds a default that a call leaves out, and takes away one that it passes."""
        is_there, is_wanted = each.name in mine, each.name in wanted
        if is_there and not is_wanted:
            value = mine.pop(each.name)
            if not each.default or not _is_same(value, each.default[0]):
                default = repr(each.default[0]) if each.default else "it left out"
                raise ArgumentError(
                    f"program: {each.name} is {_words(value)}, expected {default}, as it was "
                    "captured with its default"
                )
        elif is_wanted and not is_there:
            if not each.default:
                raise ArgumentError(f"program: {each.name} is left out, expected an argument")
            mine[each.name] = each.default[0]


@lru_cache(64)
def _signature(rows: tuple[CallParameter, ...]) -> inspect.Signature:
    return inspect.Signature([inspect.Parameter(each.name, _KINDS[each.kind]) for each in rows])


def _kept(default: object) -> tuple[()] | tuple[Any]:
    return (default,) if default is not inspect.Parameter.empty and _are_plain((default,)) else ()


def _are_plain(values: tuple[Any, ...]) -> bool:
    return all(_are_plain(x) if type(x) is tuple else type(x) in _PLAIN for x in values)


def _is_same(value: object, default: object) -> bool:
    return type(value) is type(default) and _are_plain((value,)) and repr(value) == repr(default)


def _words(value: object) -> str:
    return repr(value)[:60] if _are_plain((value,)) else f"a {type(value).__name__}"
