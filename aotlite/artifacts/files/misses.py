"""What became of the last look-up of each function: `aotlite cache why` and `explain` say it.

Kept beside the entries as one small JSON file a function, so that a later process can ask.
Rule: CACHE-13. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

import attrs

from aotlite.artifacts.files import store
from aotlite.artifacts.files.image_paths import inner_difference
from aotlite.artifacts.reads.value_images import differing_part
from aotlite.backends.native.cache.disk_cache import UnsoundError, files, read

MOST = 200
"""The most characters of a value."""


@attrs.frozen
class LookupOutcome:
    """The outcome of one look-up: `hit`, `miss` or `bypass`, and why."""

    outcome: str
    why: str = ""
    before: LookupOutcome | None = None
    """Of a hit: the last look-up before it that was none, if that is known."""


def in_words(difference: tuple[str, str, str]) -> str:
    """A read that differs, in a sentence.

    >>> in_words(("SCALE", "float 0x1.0000000000000p+1", "float 0x1.8000000000000p+1"))
    'SCALE is 3.0, was 2.0 when it was compiled'
    >>> in_words(("net", "#0 mine.Net(w: #1 (int 1, int 2))", "#0 mine.Net(w: #1 (int 1, int 4))"))
    'net.w[1] is 4, was 2 when it was compiled'
    """
    name, before, now = difference
    path, before, now = inner_difference(before, now)
    was, found = differing_part(_plain(before), _plain(now), MOST)
    return f"{name}{path} is {found}, was {was} when it was compiled"


def _plain(image: str) -> str:
    """An image as Python writes a value, for numbers."""
    kind, _, rest = image.partition(" ")
    if kind == "float" and " " not in rest:
        with suppress(ValueError):
            return repr(float.fromhex(rest))
    return rest if kind == "int" else image


_INSTEAD = {
    "users' Python runs in the backward": "write the function with built-in ops: what a custom "
    "Function or a hook does is no data",
    "the function registers hooks": "register them on its results, outside",
    "hooks of saved tensors": "set them around the call",
    "a user's module is asked for an attribute": "name the attribute in the code",
    " imports ": "import at the top of the module",
    " binds the global ": "return the value, and bind it outside",
    "a tensor is a wrapper subclass": "pass its parts, and wrap the results outside",
    "the function has effects": "leave prints and callbacks to the caller",
    "is a user's own, whose rules may differ": "write it with built-in ops, in the function itself",
    "whose class no file holds": "return a tuple or a dict, and make the object outside",
    "a size depends on values of tensors": "use a form of fixed size, such as al.where",
    " calls ": "pass the value as an argument, and print or write outside",
    "the function changes ": "return the value, and write it outside",
    "the option ": "leave the option out",
    "a profiler is on": "stop it while the function is compiled",
}
"""What to do instead, by words of the reason."""


def instead(why: str) -> str:
    """What to do about a reason for which nothing is kept; empty where that is not known.

    >>> instead("a tensor is a wrapper subclass")
    'pass its parts, and wrap the results outside'
    """
    return next((advice for words, advice in _INSTEAD.items() if words in why), "")


def note(function: str, outcome: LookupOutcome) -> None:
    """Keeps the outcome of the last look-up of a function; nothing happens where that is
    impossible."""
    cache = store.cache()
    if cache is None:
        return
    data = json.dumps({"function": function, **attrs.asdict(outcome)}).encode()
    key = store.outcome_key(function)
    with suppress(OSError):
        before = files(os.path.join(cache.folder, key))
        path = cache.keep(key, "outcome", ".json", data)
        for each in before:
            if each != path:
                store.remove(each)


def note_hit(function: str) -> None:
    """Keeps that the last look-up of a function was a hit, beside the outcome before it."""
    before = last(function)
    if before is None or before.outcome != "hit":
        note(function, LookupOutcome("hit", before=before))


def last(function: str) -> LookupOutcome | None:
    """The outcome of the last look-up of a function; None if none is known."""
    cache = store.cache()
    if cache is None:
        return None
    for path in files(os.path.join(cache.folder, store.outcome_key(function))):
        with suppress(OSError, UnsoundError, ValueError, KeyError, TypeError):
            made: Any = json.loads(read(path))
            if made["function"] == function:
                return _outcome(made, made.get("before"))
    return None


def _outcome(made: Any, before: Any = None) -> LookupOutcome:
    """The outcome in a document."""
    earlier = None if before is None else _outcome(before)
    return LookupOutcome(str(made["outcome"]), str(made["why"]), earlier)
