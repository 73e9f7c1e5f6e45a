"""An adapter that records its calls, and prints them as code of its library, for witnesses."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import string
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import attrs
import numpy as np

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.error_source import through
from aotlite.conformance.unsupported import Absent, is_missing
from aotlite.conformance.witnesses.call_source import is_constant, source_of, spell, written

INDENT = "    "
BLOCKS = ("no_grad", "inference_mode")
"""Methods that return a context manager."""


@attrs.frozen(eq=False)
class RecordedCall:
    """One call of a method, with its result or error."""

    name: str
    method: Callable[..., Any]
    arguments: tuple[object, ...]
    result: object = None
    error: str = ""


@attrs.frozen(eq=False)
class Definition:
    """A function of arrays, with the events of a trial run on some arrays."""

    function: Callable[..., Any]
    arrays: Sequence[object]
    events: list[Event]
    result: object


@attrs.frozen
class End:
    """The end of a `with` block that an earlier call began."""


@attrs.frozen(eq=False)
class Text:
    """Lines in which `{}` stands for arrays; they may define a function called `function`."""

    lines: str
    values: tuple[object, ...]
    function: Callable[..., Any] | None = None


Event: TypeAlias = RecordedCall | Definition | End | Text


class Recorder:
    """A wrapper of an `Adapter` that records each call of its methods."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.adapter, name)
        return self._recorded(name, attribute) if callable(attribute) else attribute

    def has(self, *names: str) -> bool:
        """Whether the adapter defines all these methods."""
        return not any(is_missing(self.adapter, name) for name in names)

    def _recorded(self, name: str, method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> Any:
            given = tuple(copy.deepcopy(each) if is_constant(each) else each for each in arguments)
            try:
                result = through(method, arguments)
            except Absent:
                raise
            except Exception as error:
                self.events.append(RecordedCall(name, method, given, error=type(error).__name__))
                raise
            self.events.append(RecordedCall(name, method, given, result))
            return self._block(result) if name in BLOCKS else result

        return call

    @contextlib.contextmanager
    def _block(self, block: AbstractContextManager[object]) -> Iterator[None]:
        with block:
            yield
        self.events.append(End())

    def define(self, definition: Definition) -> None:
        """Adds the definition of a function, whose events another recorder has recorded."""
        self.events.append(definition)

    def say(
        self, lines: str, *values: object, function: Callable[..., object] | None = None
    ) -> None:
        """Adds lines of Python that are no call of a method."""
        self.events.append(Text(lines, values, function))

    def lines(self) -> list[str]:
        """Returns the calls as code of the library."""
        return _Scribe().write(self.events)


class _Scribe:
    """Prints events as code. Values other than constants get names at first use: a, b, c, ..."""

    def __init__(
        self, known: Sequence[tuple[object, str]] = (), letters: str = string.ascii_lowercase
    ) -> None:
        self._named = list(known)
        self._names = _all_names(letters)

    def write(self, events: Sequence[Event]) -> list[str]:
        """Returns the lines of the events, indented in `with` blocks."""
        lines: list[str] = []
        depth = 0
        for event in events:
            match event:
                case RecordedCall(name=name):
                    added = [*self._sources(event), *self._lines(event)]
                    lines += [INDENT * depth + line for line in added]
                    depth += name in BLOCKS
                case Definition():
                    lines += [INDENT * depth + line for line in self._definition(event)]
                case Text(lines=text, values=values):
                    added = text.format(*map(self._text, values)).splitlines()
                    lines += [INDENT * depth + line for line in added]
                    self._named.append((event.function, "function"))
                case End():
                    depth -= 1
        return lines

    def _sources(self, call: RecordedCall) -> Iterator[str]:
        """Yields the source of function arguments at their first use; they keep their names."""
        for value in call.arguments:
            if inspect.isfunction(value) and all(known is not value for known, _ in self._named):
                self._named.append((value, value.__name__))
                yield from source_of(value)

    def _definition(self, event: Definition) -> list[str]:
        ours = [pair for pair in self._named if all(pair[0] is not each for each in event.arrays)]
        inner = _Scribe(ours, "xyzuvwpqrst")
        parameters = ", ".join(inner._new_name(each) for each in event.arrays)
        body = inner.write(event.events)
        if event.result is not None:
            body.append(f"return {inner._text(event.result)}")
        self._named.append((event.function, "function"))
        head = f"def function({parameters}):"
        return [head, *(INDENT + each for each in body)]

    def _lines(self, call: RecordedCall) -> list[str]:
        bound = inspect.signature(call.method).bind(*call.arguments)
        bound.apply_defaults()
        texts = {each: self._text(value) for each, value in bound.arguments.items()}
        if call.name in BLOCKS:
            return [f"with {spell(call.name, call.method, texts)[1]}:"]
        if call.name.startswith("compile") and not call.error:
            self._named.append((call.result, "compiled"))
        is_new = not any(call.result is each for each in call.arguments)
        target = ", ".join(self._target(call.result)) if is_new else ""
        lines, expression = spell(call.name, call.method, texts, target)
        if expression not in ("", target):
            lines.append(f"{target} = {expression}" if target else expression)
        if call.error:
            lines[-1] += f"  # raises {call.error}"
        return lines

    def _target(self, result: object) -> list[str]:
        """Returns the names of a result; none for constants."""
        if is_plain(result):
            return []
        if isinstance(result, list | tuple):
            names = [self._name(each) for each in result]
            return [f"{names[0]},"] if len(names) == 1 else names
        return [self._name(result)]

    def _is_named(self, value: object) -> bool:
        return any(known is value for known, _ in self._named)

    def _name(self, value: object) -> str:
        for known, name in self._named:
            if known is value:
                return name
        return self._new_name(value)

    def _new_name(self, value: object) -> str:
        name = next(self._names)
        self._named.append((value, name))
        return name

    def _text(self, value: object) -> str:
        """Returns the name of a value, or its literal."""
        if is_plain(value) or (is_constant(value) and not self._is_named(value)):
            return written(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self._text, value))}]"
        if type(value) is tuple:
            inner = ", ".join(map(self._text, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return self._name(value)


def is_plain(value: object) -> bool:
    """Whether a value is a constant without NumPy scalars, as those may be views of an array."""
    return is_constant(value) and not _holds_numpy(value)


def _holds_numpy(value: object) -> bool:
    if isinstance(value, dict):
        return _holds_numpy([*value, *value.values()])
    if isinstance(value, tuple | list | set | frozenset):
        return any(map(_holds_numpy, value))
    return isinstance(value, np.generic)


def _all_names(letters: str) -> Iterator[str]:
    yield from letters
    for number in itertools.count(1):
        yield from (f"{letter}{number}" for letter in letters)
