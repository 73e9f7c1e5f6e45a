"""The texts of values that a function has read outside its arguments, and that a program has fixed.

    rate = 0.5                          a number
    CONFIG = {'lr': 0.5, 'names': [2]}  a container, with the plain values in it
    settings.lr = 0.5                   an attribute of a plain object, each one

Rule: PRG-7. Spec: `specs/programs.md`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.dtypes import DType
from aotlite.stages.records.guards.access_paths import attributes_of
from aotlite.stages.records.guards.snapshots import PLAIN

_MOST = 120
"""The most characters of a line."""
_ITEMS = 16
"""The most items of a container, and the most attributes of an object, that are shown."""
_DEPTH = 4
"""The deepest nesting of containers that is shown."""
_NO_OBJECTS = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
)


def texts_of_read(words: str, value: object) -> Iterator[str]:
    """Lines for a value that was read at the place of these words; none for one without plain ones.

    >>> list(texts_of_read("config", {"lr": 0.5, "layers": [2, None]}))
    ["config = {'lr': 0.5, 'layers': [2, None]}"]
    """
    if value is None or isinstance(value, (Tensor, TrackedObject, *_NO_OBJECTS)):
        return
    if (text := _text(value)) is not None:
        yield f"{words} = {text}"[:_MOST]
        return
    for name, inner in list(attributes_of(value).items())[:_ITEMS]:
        if inner is not None and (text := _text(inner)) is not None:
            yield f"{words}.{name} = {text}"[:_MOST]


def _text(value: object, depth: int = 0) -> str | None:
    """The text of a plain value, or of a container with one in it; None for all else."""
    if depth > _DEPTH:
        return None
    if isinstance(value, np.ndarray):
        few = f": {value.tolist()}" if value.size <= _ITEMS else ""
        return f"ndarray {value.dtype}{list(value.shape)}{few}"
    if isinstance(value, (*PLAIN, np.generic, DType)):
        return repr(value)
    if not isinstance(value, (list, tuple, dict)):
        return None
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    texts = [(key, inner, _text(inner, depth + 1)) for key, inner in items[:_ITEMS]]
    if all(text is None or inner is None for _, inner, text in texts):
        return None
    shown = [text if text is not None else f"a {type(inner).__name__}" for _, inner, text in texts]
    if isinstance(value, dict):
        shown = [f"{key!r}: {text}" for (key, _, _), text in zip(texts, shown, strict=True)]
    more = ["..."] if len(items) > _ITEMS else []
    start, end = "{}" if isinstance(value, dict) else "()" if isinstance(value, tuple) else "[]"
    return f"{start}{', '.join(shown + more)}{end}"
