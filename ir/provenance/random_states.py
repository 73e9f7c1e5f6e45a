"""NumPy's generators that a user's code names, and the lines between which their states change.

Ground floor. NumPy's draws are no calls that Python's profiler sees. At each event of the code that
it does see, the states of the generators that the code names are compared with those before:

    noise = np.random.rand()        no event
    return x * noise                an event: the state has changed since the last one

The draw is at a line of the calls in between, which made no event. Rule: PRG-7. Spec:
`specs/programs.md`.
"""

from __future__ import annotations

import dis
import os
import types
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType

import attrs
import numpy as np

_GLOBAL: Source = np.random.get_state.__self__  # type: ignore[attr-defined]
Source = np.random.Generator | np.random.RandomState | np.random.BitGenerator
"""What draws, or what is drawn from."""
_MANY = 64
"""The most items of a container among which generators are searched."""


@attrs.define(eq=False)
class RandomStates:
    """The generators that are known, with their states."""

    _known: dict[int, tuple[Source, str]] = attrs.field(factory=dict)
    """By id: the generator, and its name in the user's code."""
    _states: dict[int, object] = attrs.field(factory=dict)
    naming: set[CodeType] = attrs.field(factory=set)
    """The codes that name a generator."""
    _entered: set[CodeType] = attrs.field(factory=set)
    _last: tuple[FrameType, int] | None = None
    """The frame of the last event, and its instruction."""

    def __attrs_post_init__(self) -> None:
        self._add(_GLOBAL, "numpy.random")

    def enter(self, frame: FrameType) -> None:
        """Notes the generators that the code of a user's frame names, as it begins."""
        code, known = frame.f_code, frame.f_globals
        if code not in self._entered:
            self._entered.add(code)
            named = {name: known[name] for name in code.co_names if name in known}
            found = dict(_generators({**named, **frame.f_locals}))
            for path, generator in found.items():
                self._add(generator, f"numpy.random.{type(generator).__name__} {path}")
            if found or "random" in code.co_names:
                self.naming.add(code)
        if code in self.naming:
            self._last = frame, frame.f_lasti

    def look(self, frame: FrameType | None, found: dict[str, None]) -> None:
        """Adds what was drawn in a user's frame since the last event, with its line."""
        if frame is not None and frame.f_code in self.naming:
            file = os.path.basename(frame.f_code.co_filename)
            for name in self._drawn():
                found[f"{name} at {file}:{self._lines(frame)}"] = None
            self._last = frame, frame.f_lasti

    def end(self, found: dict[str, None]) -> None:
        """Adds what was drawn since the last event, by code whose lines are not known."""
        self._last = None
        for name in self._drawn():
            found[f"{name} at an unknown line"] = None

    def _add(self, generator: Source, name: str) -> None:
        if id(generator) not in self._known:
            self._known[id(generator)] = generator, name
            self._states[id(generator)] = _state(generator)

    def _drawn(self) -> Iterator[str]:
        for key, (generator, name) in self._known.items():
            now = _state(generator)
            if now != self._states[key]:
                self._states[key] = now
                yield name

    def _lines(self, frame: FrameType) -> str:
        """The lines of the calls between the last event of a frame and this one."""
        first = self._last[1] if self._last is not None and self._last[0] is frame else -1
        calls = [
            each.positions.lineno
            for each in dis.get_instructions(frame.f_code)
            if first < each.offset < frame.f_lasti
            and each.opname.startswith("CALL")
            and each.positions is not None
            and each.positions.lineno is not None
        ]
        lines = sorted({*calls}) or [frame.f_lineno]
        return "-".join(dict.fromkeys([str(lines[0]), str(lines[-1])]))


def _generators(named: Mapping[str, object]) -> Iterator[tuple[str, Source]]:
    """The generators among values, in their containers and attributes, and of bound methods."""
    for name, value in named.items():
        yield from _one(name, value)
        for words, inner in _items(value):
            yield from _one(f"{name}{words}", inner)


def _one(path: str, value: object) -> Iterator[tuple[str, Source]]:
    if isinstance(value, types.MethodType):
        value = value.__self__
    if isinstance(value, Source):
        yield path, value


def _items(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, (types.ModuleType, type)):
        return ()
    if isinstance(value, (list, tuple)):
        return [(f"[{k}]", each) for k, each in enumerate(value[:_MANY])]
    if isinstance(value, dict):
        return [(f"[{key!r}]", each) for key, each in list(value.items())[:_MANY]]
    try:
        found: dict[str, object] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return ()
    return [(f".{name}", each) for name, each in found.items()]


def _state(generator: Source) -> object:
    """The state of a generator, which two equal ones share."""
    if isinstance(generator, np.random.RandomState):
        return _plain(generator.get_state(legacy=False))
    if isinstance(generator, np.random.Generator):
        return _plain(generator.bit_generator.state)
    return _plain(generator.state)


def _plain(value: object) -> object:
    """The value with bytes for arrays, so that it can be compared."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value
