"""Access paths as plain data: the steps by which another process finds a value again.

Rule: CACHE-7. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.artifacts.reads.value_images import NoImage
from aotlite.stages.records.guards.access_paths import AccessPath

KINDS = frozenset("attr item cell global default module grad member part class".split())


def words_of_path(path: AccessPath) -> list[Any]:
    """`[argument, [[kind, key], ...]]`. Raises NoImage for a key that is no plain value."""
    if type(path) is not AccessPath:
        raise NoImage(f"the value {path}, which each call computes")
    return [path.argument, [[kind, _key_words(key, path)] for kind, key in path.path]]


def path_of(words: Any, function: object) -> AccessPath:
    """The access path of these words from a function. Raises ValueError for other words."""
    argument, steps = words
    if argument is not None and (type(argument) is not int or argument < 0):
        raise ValueError(f"an access path from argument {argument!r}")
    path = []
    for kind, key in steps:
        if kind not in KINDS:
            raise ValueError(f"an access path with the step {kind!r}")
        path.append((kind, _key(key)))
    return AccessPath(argument, function, tuple(path))


def _key_words(key: object, path: AccessPath) -> Any:
    if type(key) is tuple:
        return [_key_words(each, path) for each in key]
    if type(key) in (str, int, bool, type(None)):
        return key
    raise NoImage(f"{path}, whose key is a {type(key).__name__}")


def _key(words: Any) -> Any:
    if type(words) is list:
        return tuple([_key(each) for each in words])
    if type(words) in (str, int, bool, type(None)):
        return words
    raise ValueError(f"an access path with the key {words!r}")
