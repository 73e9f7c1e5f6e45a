"""Writes `ir/arrays/cupy.json`: CuPy's names with their arguments.

For a ufunc it has the loops and the dtypes of `at`, for another function the parameters. Needs
CuPy, and no GPU. `python tools/cupy_table.py`.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np

TARGET = Path(__file__).parents[1] / "ir/arrays/cupy.json"
SUBMODULES = ("linalg",)


def entry_of(thing: Any, ufunc: Any) -> dict[str, Any] | None:
    """The entry of a function for the emulation; None for anything else."""
    if isinstance(thing, ufunc):
        found = {"types": list(thing.types)}
        at = thing._scatter_op
        return {**found, "at": at} if at else found
    if inspect.isclass(thing) or not callable(thing):
        return None
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return None
    bare = [
        p.replace(annotation=p.empty, default=_plain(p.default))
        for p in signature.parameters.values()
    ]
    return {"parameters": str(inspect.Signature(bare))[1:-1]}


def _plain(default: Any) -> Any:
    """A default that is the same text in every run."""
    simple = default is inspect.Parameter.empty or isinstance(default, (bool, int, float, str))
    return default if simple else None


def table() -> dict[str, Any]:
    """The entries of all functions that CuPy and NumPy have."""
    import cupy
    from cupy._core._routines_math import clip
    from cupy._sorting.search import _where_ufunc

    hidden = {"_clip": clip, "_where": _where_ufunc}
    found: dict[str, Any] = {name: entry_of(of, cupy.ufunc) for name, of in hidden.items()}
    for place, ours, theirs in [("", cupy, np), *_submodules(cupy)]:
        for name in sorted(dir(ours)):
            if not name.startswith("_") and hasattr(theirs, name):
                entry = entry_of(getattr(ours, name), cupy.ufunc)
                if entry is not None:
                    found[place + name] = entry
    return found


def _submodules(cupy: Any) -> list[tuple[str, Any, Any]]:
    return [(f"{name}.", getattr(cupy, name), getattr(np, name)) for name in SUBMODULES]


def text() -> str:
    """The text of the file, one entry a line."""
    lines = [f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in table().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
