"""An adapter that writes down what it is asked, in the words of its library: for witnesses."""

from __future__ import annotations

import inspect
import itertools
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.testing.conformance.absent import Absent, is_missing
from aotlite.testing.conformance.adapter import Adapter
from aotlite.testing.conformance.spelling import spell, written

PLAIN = (bool, int, float, complex, str, bytes, slice, type(None), type(...))


@attrs.frozen(eq=False)
class Call:
    """One call of a method, and what came of it."""

    name: str
    method: Callable[..., Any]
    arguments: tuple[object, ...]
    result: object = None
    error: str = ""


class Recorder:
    """An adapter's methods, each call of which is kept. Stands for an `Adapter`."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.adapter, name)
        return self._recorded(name, attribute) if callable(attribute) else attribute

    def has(self, *names: str) -> bool:
        """Whether the adapter defines all these methods."""
        return not any(is_missing(self.adapter, name) for name in names)

    def _recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            try:
                result = method(*arguments)
            except Absent:
                raise
            except Exception as error:
                self.calls.append(Call(name, method, arguments, error=type(error).__name__))
                raise
            self.calls.append(Call(name, method, arguments, result))
            return result

        return call

    def lines(self) -> list[str]:
        """The calls as code of the library."""
        return _Scribe().write(self.calls)


class _Scribe:
    """Names what is no plain value at its first appearance: a, b, c and so on."""

    def __init__(self) -> None:
        self._named: list[tuple[object, str]] = []
        self._names = _all_names()

    def write(self, calls: Sequence[Call]) -> list[str]:
        return [line for call in calls for line in self._lines(call)]

    def _lines(self, call: Call) -> list[str]:
        bound = inspect.signature(call.method).bind(*call.arguments)
        bound.apply_defaults()
        texts = {each: self._text(value) for each, value in bound.arguments.items()}
        target = ", ".join(self._target(call.result))
        lines, expression = spell(call.name, call.method, texts, target)
        if expression not in ("", target):
            lines.append(f"{target} = {expression}" if target else expression)
        if call.error:
            lines[-1] += f"  # raises {call.error}"
        return lines

    def _target(self, result: object) -> list[str]:
        """The names that a result gets; none for plain values."""
        if is_plain(result):
            return []
        if isinstance(result, list | tuple):
            names = [self._name(each) for each in result]
            return [f"{names[0]},"] if len(names) == 1 else names
        return [self._name(result)]

    def _name(self, value: object) -> str:
        for known, name in self._named:
            if known is value:
                return name
        name = next(self._names)
        self._named.append((value, name))
        return name

    def _text(self, value: object) -> str:
        """A value as the lines call it: its name, or the literal."""
        if is_plain(value):
            return written(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self._text, value))}]"
        return self._name(value)


def is_plain(value: object) -> bool:
    """Whether a value is Python's own: numbers, texts, slices, and lists and tuples of these."""
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(is_plain, value))
    return type(value) in PLAIN


def _all_names() -> Iterator[str]:
    yield from string.ascii_lowercase
    for number in itertools.count(1):
        yield from (f"{letter}{number}" for letter in string.ascii_lowercase)
