"""The words of access paths, and of the arguments of what stands for a function of the user's.

    freeze(weighted, w, net)     weighted.net.scale      an attribute of net, which is fixed

A frozen function is captured as a function of frozen tensors and arguments, which calls the user's
function. Words leave that out. Used by guards, metadata and errors. Spec:
`specs/s1_capture.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final


class _Nothing:
    """The result of a path that leads nowhere."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()

FRAME = "__frame__"
"""An attribute of a callable that stands for a function of the user's: words name that one. Of a
partial it has the names of the arguments that it fixes, by place and by name."""
_ARGUMENT = re.compile(r"\bargument (\d+)\b")


_TEXTS: dict[str, Callable[[str, Any], str]] = {
    "attr": lambda text, key: f"{text}.{key}",
    "item": lambda text, key: f"{text}[{key!r}]",
    "cell": lambda text, key: f"closure of {text}, cell {key}",
    "global": lambda text, key: key,
    "default": lambda text, key: f"default {key} of {text}",
    "module": lambda text, key: f"{text}.{key}",
    "grad": lambda text, key: f"{text}.grad",
    "member": lambda text, key: text if key in ("__func__", "func") else f"{text}.{key}",
    "part": lambda text, key: f"{text}.{key}",
    "class": lambda text, key: f"{text}.{key[1]}",
    "body": lambda text, key: f"{text}.{key[1]}",
    "target": lambda text, key: f"{text}()",
    "local": lambda text, key: key,
}


def item_text(value: object, key: object) -> str:
    """The step to an item of a value: a field of a named tuple, else the key in brackets."""
    fields = getattr(type(value), "_fields", ()) if isinstance(value, tuple) else ()
    return f".{fields[key]}" if fields and type(key) is int else f"[{key!r}]"


def path_words(
    function: Any,
    argument: int | None,
    path: Sequence[tuple[str, Any]],
    take: Callable[[Any, str, Any], Any],
) -> str:
    """The words of the steps from a function, or an argument of it, to an object."""
    text = name_of(function) if argument is None else argument_words(function, argument)
    is_there = argument is None and callable(function)  # else a stand-in for it
    value: Any = function if is_there else NOTHING
    if ("member", "__wrapped__") not in path:
        for kind, key in path:
            text = text + item_text(value, key) if kind == "item" else _TEXTS[kind](text, key)
            value = NOTHING if value is NOTHING else take(value, kind, key)
        return text
    value = function
    fixed: Any = None
    """The names of the arguments that a partial fixes, where the last step was into these."""
    for kind, key in path:
        names = getattr(value, FRAME, None)
        if kind == "member" and names is not None and key in ("args", "keywords"):
            fixed = names
        elif fixed is not None:
            text, fixed = f"{text}.{fixed[key]}", None
        elif kind != "member" or key != "__wrapped__" or names is None:
            text = _TEXTS[kind](text, key)
        value = NOTHING if value is NOTHING else take(value, kind, key)
    return text


def name_of(function: object) -> str:
    """The name of a function: for what stands for one, of that; else of its class."""
    name = getattr(function, "__name__", None)
    if name is None and hasattr(function, FRAME):
        name = getattr(function, "__wrapped__", None).__name__  # type: ignore[union-attr]
    return type(function).__name__ if name is None else str(name)


def argument_words(function: object, index: int) -> str:
    """The words for a flat argument: its number, or those of what stands for a user's function."""
    words = getattr(function, "__argument_words__", None)
    return f"argument {index}" if words is None else str(words(index))


def in_words(function: object, text: str) -> str:
    """A text about a call of a function, with `argument_words` for the numbers of arguments."""
    if getattr(function, "__argument_words__", None) is None:
        return text
    return _ARGUMENT.sub(lambda found: argument_words(function, int(found[1])), text)
