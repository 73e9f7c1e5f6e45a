"""An adapter that writes down what it is asked, in the words of its library: for witnesses."""

from __future__ import annotations

import inspect
import itertools
import string
from collections.abc import Callable, Iterator
from typing import Any

from aotlite.testing.conformance.absent import Absent, is_missing
from aotlite.testing.conformance.adapter import Adapter
from aotlite.testing.conformance.spelling import spell, written

PLAIN = (bool, int, float, complex, str, bytes, slice, type(None), type(Ellipsis))


class Recorder:
    """An adapter's methods, each call of which leaves lines in `lines`. Stands for an `Adapter`.

    What is no plain value gets a name at its first appearance: a, b, c and so on.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.lines: list[str] = []
        self._named: list[tuple[object, str]] = []
        self._names = _names()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.adapter, name)
        return self._recorded(attribute) if callable(attribute) else attribute

    def has(self, *names: str) -> bool:
        """Whether the adapter defines all these methods."""
        return not any(is_missing(self.adapter, name) for name in names)

    def _recorded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            try:
                result = method(*arguments)
            except Absent:
                raise
            except Exception as error:
                self._write(method, arguments, None)
                self.lines[-1] += f"  # raises {type(error).__name__}"
                raise
            self._write(method, arguments, result)
            return result

        return call

    def _write(self, method: Callable[..., Any], arguments: tuple[Any, ...], result: Any) -> None:
        bound = inspect.signature(method).bind(*arguments)
        bound.apply_defaults()
        texts = {name: self.text(value) for name, value in bound.arguments.items()}
        lines, expression = spell(method, texts)
        self.lines += lines
        names = self._target(result)
        if expression is None or expression in names:
            return
        self.lines.append(f"{', '.join(names)} = {expression}" if names else expression)

    def _target(self, result: object) -> list[str]:
        """The names that a result gets; none for plain values."""
        if is_plain(result):
            return []
        if isinstance(result, list | tuple):
            return [self._name(each) for each in result]
        return [self._name(result)]

    def _name(self, value: object) -> str:
        for known, name in self._named:
            if known is value:
                return name
        name = next(self._names)
        self._named.append((value, name))
        return name

    def text(self, value: object) -> str:
        """A value as the lines call it: its name, or the literal."""
        if is_plain(value):
            return written(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        return self._name(value)


def is_plain(value: object) -> bool:
    """Whether a value is Python's own: numbers, texts, slices, and lists and tuples of these."""
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(is_plain, value))
    return type(value) in PLAIN


def _names() -> Iterator[str]:
    yield from string.ascii_lowercase
    for number in itertools.count(1):
        yield from (f"{letter}{number}" for letter in string.ascii_lowercase)
