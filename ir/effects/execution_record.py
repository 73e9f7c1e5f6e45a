"""`Ledger`: checks at run time that compiled code performs each effect once and in order.

Ground floor. Each effect of a graph has a number in its chain. A backend of the user's may drop,
repeat or reorder effects, so its code is watched. The kernel of each effect tells the `Ledger` of
the call before it acts. An effect that is not due is refused before it happens, and one that is
missing when the call ends is an error. Rules: TOK-6. Spec: `specs/tokens.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aotlite.ir.errors import TokenError, noted

__all__ = ["Expected", "Ledger", "happening", "unwatched", "watching"]

_HINT = (
    "Each effect happens once, in the order of its type, in the thread that calls: by the kernel "
    "of its op, or where aotlite.effects.happening says so. (TOK-6)"
)
Expected = dict[str, list[tuple[int, str]]]


class _Watched(threading.local):
    """The ledger of the call that this thread runs; None for none."""

    ledger: Ledger | None = None


_WATCHED = _Watched()


class Ledger:
    """The effects of one call. `expected`: effect type -> (number, op) of each, in order."""

    def __init__(self, of: str, expected: Expected) -> None:
        self.of = of
        """The name of the compiled function, for errors."""
        self.expected = expected
        self.count = dict.fromkeys(expected, 0)
        """Effect type -> how many have begun."""
        self.error: BaseException | None = None
        """The error that an effect raised. As in eager mode, no effect may follow it."""

    def begin(self, effect: str, number: int, name: str) -> None:
        """Counts an effect that is about to happen. Raises TokenError if another one is due."""
        if self.error is not None:
            raise self.error
        place, known = self.count.get(effect, 0), self.expected.get(effect, [])
        if place < len(known) and known[place][0] == number:
            self.count[effect] = place + 1
            return
        due = _named(*known[place]) if place < len(known) else "no more"
        self.error = self._wrong(effect, f"{_named(number, name)} happens, expected {due}")
        raise self.error

    def close(self) -> None:
        """Raises the error of an effect, or TokenError if one has not happened."""
        if self.error is not None:
            raise self.error
        for effect, known in self.expected.items():
            for number, name in known[self.count[effect] :]:
                what = f"{_named(number, name)} did not happen, expected it to, in this thread"
                raise self._wrong(effect, what)

    def _wrong(self, effect: str, what: str) -> TokenError:
        return noted(TokenError(f"{self.of}: of the effects of type {effect!r} {what}"), _HINT)


def _named(number: int, name: str) -> str:
    return f"{name} {number}"


@contextmanager
def happening(effect: str, number: int, name: str) -> Iterator[None]:
    """A block that performs an effect. Effects of what it calls are not counted for the call."""
    ledger = _WATCHED.ledger
    if ledger is None:
        yield
        return
    ledger.begin(effect, number, name)
    _WATCHED.ledger = None
    try:
        yield
    except BaseException as error:
        ledger.error = error
        raise
    finally:
        _WATCHED.ledger = ledger


@contextmanager
def unwatched() -> Iterator[None]:
    """A block whose effects are not counted for the call that is watched."""
    before, _WATCHED.ledger = _WATCHED.ledger, None
    try:
        yield
    finally:
        _WATCHED.ledger = before


def watching(of: str, expected: Expected, run: Callable[..., Any]) -> Callable[..., object]:
    """`run`, with a check that the expected effects happen, in order, and no others."""

    def call(*args: Any) -> Any:
        ledger = Ledger(of, expected)
        before, _WATCHED.ledger = _WATCHED.ledger, ledger
        try:
            results = run(*args)
        finally:
            _WATCHED.ledger = before
        ledger.close()
        return results

    return call
