"""Locations in the user's source: recorded as (code object, instruction), resolved when printed.

Ground floor. Each node records one, so recording must be cheap: it makes a tuple. Finding the line
walks the code's position table, which only printing pays for. A graph from a file has no code
objects, and holds resolved `Place`s.
"""

from __future__ import annotations

import linecache
import os
from itertools import islice
from types import CodeType

import attrs


def one_line(text: str) -> str:
    """A text for a comment: one line of printable characters, with the others as escapes.

    Names of files, and texts in a file that anybody wrote, may have line breaks; Python knows more
    of these than the usual one.

    >>> print(one_line(f"a{chr(10)}b{chr(12)}"))
    a\\nb\\x0c
    """
    if text.isprintable():
        return text
    return "".join([x if x.isprintable() else x.encode("unicode_escape").decode() for x in text])


def docstring_line(text: str) -> str:
    """A text for a line of a docstring: one that does not end it, and has no escapes of its own.

    >>> print(docstring_line(f"C:{chr(92)}new"))
    C:\\\\new
    """
    return one_line(text).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


@attrs.frozen
class Place:
    """A line of the user's source. `text` is empty where the file cannot be read."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        """`model.py:12 in loss: y = x * 2`, for comments in printed graphs."""
        text = f"{os.path.basename(self.file)}:{self.line} in {self.function}"
        return one_line(f"{text}: {self.text}" if self.text else text)

    def note(self) -> str:
        """The place as a line of a Python traceback, with the whole path."""
        text = one_line(f'  File "{self.file}", line {self.line}, in {self.function}')
        return f"{text}\n    {one_line(self.text)}" if self.text else text


Location = tuple[CodeType, int] | Place
"""(code object, byte index of the instruction: a frame's `f_lasti`), or the resolved `Place`."""


def place_of(location: Location) -> Place:
    """The line of a location.

    >>> place_of((place_of.__code__, 0)).function
    'place_of'
    """
    if isinstance(location, Place):
        return location
    code, instruction = location
    # The table has one entry per two-byte code unit.
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    line = (position and position[0]) or code.co_firstlineno
    text = " ".join(linecache.getline(code.co_filename, line).split())
    return Place(code.co_filename, line, code.co_name, text)


class Places:
    """`place_of` with a cache, for printing a whole graph."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        # By id: a code object's own hash reads its whole content, and files are no part of it.
        self._found: dict[tuple[int, int], Place] = {}

    def __call__(self, location: Location) -> Place:
        if isinstance(location, Place):
            return location
        key = (id(location[0]), location[1])
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = place_of(location)
        return found
