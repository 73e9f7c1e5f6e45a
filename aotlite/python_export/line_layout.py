"""`laid_out`: lines of Python, wrapped at 100 columns the way formatters wrap them.

A line that is too long is split at its last bracket: what is inside stands on a line of its own,
or, if that is too long, one item a line with a comma behind each. Input: lines without trailing
whitespace. Output: lines. Rule: PYX-3. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import io
import textwrap
import tokenize
from collections.abc import Iterator

WIDTH = 100
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def laid_out(text: str) -> str:
    """The text with its long lines wrapped."""
    lines: list[str] = []
    for each in text.split("\n"):
        line = each.rstrip()
        code = line.lstrip(" ")
        indent = line[: len(line) - len(code)]
        if len(line) <= WIDTH:
            lines.append(line)
        elif code.startswith("#"):
            lines.append(line[: WIDTH - 4].rstrip() + " ...")
        else:
            lines += _wrapped(code, indent)
    return "\n".join(lines)


def names_in(text: str) -> set[str]:
    """The names of variables, functions and modules in lines, without attributes.

    >>> sorted(names_in('y = np.sum(x, axis=0)  # as said'))
    ['axis', 'np', 'x', 'y']
    """
    code = textwrap.dedent(text) + "\n"
    tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    pairs = zip([None, *tokens], tokens, strict=False)
    return {
        each.string
        for before, each in pairs
        if each.type == tokenize.NAME and (before is None or before.string != ".")
    }


def _wrapped(code: str, indent: str) -> list[str]:
    """The lines of one statement, which is too long, or of an item of one."""
    code, comment = _without_comment(code)
    if len(indent) + len(code) <= WIDTH and not comment:
        return [indent + code]
    group = _last_group(code)
    if group is None:
        return [indent + code + comment]
    start, end = group
    if len(indent) + start + 1 > WIDTH:
        first = _first_group(code)
        if first is not None and first != group:
            start, end = first
            rows = [_wrapped(f"{item},", f"{indent}    ") for item in _items(code[start + 1 : end])]
            rest = _wrapped(code[end:] + comment, indent)
            return [indent + code[: start + 1], *[line for row in rows for line in row], *rest]
    head, body, tail = code[: start + 1], code[start + 1 : end], code[end:]
    inner = f"{indent}    "
    if len(inner) + len(body) <= WIDTH and code[start] != "{" and not body.endswith(","):
        return [indent + head, inner + body, indent + tail + comment]
    lines, items = [indent + head], list(_items(body))
    comma = "," if len(items) > 1 or body.endswith(",") else ""
    for item in items:
        lines += _wrapped(item + comma, inner)
    return [*lines, indent + tail + comment]


def _without_comment(code: str) -> tuple[str, str]:
    """The code, and the comment behind it with two spaces in front."""
    for place, _, char in _outside_of_texts(code):
        if char == "#":
            return code[:place].rstrip(), f"  {code[place:]}"
    return code, ""


def _last_group(code: str) -> tuple[int, int] | None:
    """The places of the last outermost pair of brackets that has something inside."""
    found, start = None, -1
    for place, depth, char in _outside_of_texts(code):
        if char in _PAIRS and depth == 1:
            start = place
        elif char in _PAIRS.values() and depth == 0 and place > start + 1:
            found = start, place
    return found


def _first_group(code: str) -> tuple[int, int] | None:
    """The places of the first outermost pair of brackets."""
    start = -1
    for place, depth, char in _outside_of_texts(code):
        if char in _PAIRS and depth == 1 and start < 0:
            start = place
        elif char in _PAIRS.values() and depth == 0 and start >= 0:
            return start, place
    return None


def _items(body: str) -> Iterator[str]:
    """The items between the outermost commas."""
    start = 0
    for place, depth, char in _outside_of_texts(body):
        if char == "," and depth == 0:
            yield body[start:place].strip()
            start = place + 1
    if body[start:].strip():
        yield body[start:].strip()


def _outside_of_texts(code: str) -> Iterator[tuple[int, int, str]]:
    """(place, depth of brackets behind it, character) of the characters outside of strings."""
    depth, quote, place = int(code[:1] in _PAIRS.values()), "", 0
    while place < len(code):
        char = code[place]
        if quote:
            if char == "\\":
                place += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        else:
            depth += (char in _PAIRS) - (char in _PAIRS.values())
            yield place, depth, char
        place += 1
