"""The words for a place: the way to a tensor or Module by the names that the user's code has.

    argument 1.params[0]                              opt.params[0]
    closure of step, cell 0['a']                      weights['a']
    step.w                                            w, which the frozen function fixes

Guards say a place as they look it up; this is for descriptors. Rules: TRC-8.
Spec: `specs/descriptors.md`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from aotlite.nn.module import Module
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath, take
from aotlite.stages.records.guards.access_words import item_text

_SAME = ("__self__", "__func__", "func", "__wrapped__")
"""Members that lead to the function or Module that a callable calls."""


def words_of(
    way: AccessPath, leaves: Sequence[Any], arguments: Sequence[str], *, is_whole: bool = False
) -> str:
    """A place in words, where `arguments` are the words of the leaves; empty for the function.

    A variable of a function stands for itself; with `is_whole` after the way to that function."""
    value: Any = way.function if way.argument is None else leaves[way.argument]
    text = "" if way.argument is None else arguments[way.argument]
    bound: Any = None
    """The partial whose fixed arguments the walk is in."""
    for kind, key in way.path:
        if value is NOTHING:
            return str(way)
        if bound is not None:
            text, bound = _inside(text, _fixed_argument(bound, key)), None
        elif kind == "member" and key in ("args", "keywords"):
            bound = value if isinstance(value, functools.partial) else None
        elif kind != "member" or key not in _SAME:
            variable = _variable(value, kind, key)
            if variable is None:
                text = _step(text, kind, key, value)
            else:
                text = _inside(text, variable) if is_whole else variable
        value = take(value, kind, key)
    return text


def _variable(function: Any, kind: str, key: Any) -> str | None:
    """The name of a function's variable; None for a step that leads to none."""
    match kind:
        case "cell":
            return str(function.__code__.co_freevars[key])
        case "default" if isinstance(key, int):
            code = function.__code__
            first = code.co_argcount - len(function.__defaults__ or ())
            return str(code.co_varnames[first + key])
        case "global" | "default":
            return str(key)
    return None


def _step(text: str, kind: str, key: Any, value: Any) -> str:
    match kind:
        case "item":
            return text + item_text(value, key)
        case "grad":
            return f"{text}.grad"
        case "class":
            return _inside(text, key[1])
    return _inside(text, key)


def _inside(text: str, name: str) -> str:
    return f"{text}.{name}" if text else name


def _fixed_argument(bound: Any, key: Any) -> str:
    """The parameter that a partial fixes, by its place or name."""
    if not isinstance(key, int):
        return str(key)
    names = parameter_names(bound.func)
    return names[key] if key < len(names) else f"args[{key - len(names)}]"


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters that positional arguments fill, in order."""
    called = inspect.unwrap(function, stop=lambda each: hasattr(each, "__signature__"))
    if isinstance(called, functools.partial) and isinstance(called.func, Module):
        called = functools.partial(called.func.forward, *called.args, **called.keywords)
    elif isinstance(called, Module):
        called = called.forward
    try:
        found = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return ()
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple([each.name for each in found if each.kind in kinds])
