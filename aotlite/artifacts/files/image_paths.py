"""`inner_difference`: where in two images of one object the first difference lies, as a path.

An image nests: objects have named attributes in round brackets, dictionaries values by key, lists
and tuples items, classes named members. A message names the innermost part that differs, and not
the whole object. Rule: CACHE-13. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

_OPEN, _CLOSE = "([{", ")]}"
_NUMBER = re.compile(r"#\d+ (?=\S)")
_LABEL = re.compile(r"([^\s:,;()\[\]{}]+): ")
_LISTED = re.compile(r"(#\d+ |[(\[ ])$")
_NAMED = re.compile(r"[\w>]$")

_NEXT = re.compile(r"[,;] ([^\s:,;()\[\]{}]+: |#\d+|int |float |complex |True|False|None|'|\"|b')")
"""What follows a separator of items: the facts of a tensor have commas, too."""


@attrs.define
class _Level:
    """An open bracket, and the item in it that has been reached."""

    start: int
    """Where the item begins."""
    is_named: bool
    """Whether items have the names of attributes."""
    separator: str
    count: int = 0


def inner_difference(before: str, now: str) -> tuple[str, str, str]:
    """The path from the object to the first part that differs, and this part's two images.

    >>> image = "#0 m.Net(a: int 1, b: #1 {'k': int 2})"
    >>> inner_difference(image, image.replace("2", "3"))
    (".b['k']", 'int 2', 'int 3')
    """
    at = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), None)
    at = min(len(before), len(now)) if at is None else at
    path, start = "", 0
    for level in _levels(before, at):
        label = _LABEL.match(before, level.start)
        if label is not None and label.end() > at:  # another name is there
            break
        begin = level.start if label is None else label.end()
        name = f"[{level.count}]" if label is None else f"[{label[1]}]"
        path += f".{label[1]}" if level.is_named and label is not None else name
        start = begin
    return path, *(_NUMBER.sub("", _item(each, start, whole=not path)) for each in (before, now))  # type: ignore[return-value]


def _levels(text: str, at: int) -> list[_Level]:
    """The brackets that are open at a place, but for those of shapes."""
    stack: list[_Level | None] = []
    for i, mark in _marks(text, at):
        if mark in _OPEN:
            stack.append(_opened(text, i, mark))
        elif mark in _CLOSE:
            if stack:
                stack.pop()
        elif stack and (level := stack[-1]) is not None and mark == level.separator:
            if _NEXT.match(text, i):
                level.start, level.count = i + 2, level.count + 1
    found = []
    for each in stack:
        if each is None:
            break
        found.append(each)
    return found


def _opened(text: str, i: int, mark: str) -> _Level | None:
    """The level of a bracket; None for that of a shape, or another whose items are no parts."""
    before = text[max(0, i - 12) : i]
    if mark == "(" and (_NAMED.search(before)):
        return _Level(i + 1, True, ",")
    if mark == "{" and _NAMED.search(before):
        return _Level(i + 1, True, ";")
    return _Level(i + 1, False, ",") if _LISTED.search(before) else None


def _marks(text: str, end: int) -> Iterator[tuple[int, str]]:
    """The brackets and separators outside quotes, with their places."""
    quote, i = "", 0
    while i < end:
        mark = text[i]
        if quote:
            i += mark == "\\"
            quote = "" if mark == quote else quote
        elif mark in "'\"":
            quote = mark
        elif mark in _OPEN or mark in _CLOSE or text[i : i + 2] in (", ", "; "):
            yield i, mark
        i += 1


def _item(text: str, start: int, *, whole: bool) -> str:
    """The item of an image that begins at a place."""
    if whole:
        return text
    depth = 0
    for i, mark in _marks(text[start:], len(text) - start):
        depth += (mark in _OPEN) - (mark in _CLOSE)
        if depth < 0 or (depth == 0 and _NEXT.match(text, start + i)):
            return text[start : start + i]
    return text[start:]
