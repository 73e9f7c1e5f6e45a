"""What has to happen in one call of compiled code, and what of it has: counted while it runs.

Ground floor. Each effect of a graph has a number in its chain. Code that somebody else's compiler
made is watched: the kernels of effects tell the call's `Ledger` which of them is about to happen,
and one that is out of turn, a second run of the graph say, is refused before it happens. What has
not happened when the call ends is an error, too.
Rules: TOK-6. Spec: `specs/tokens.md`.
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
    """The call that is watched in this thread."""

    ledger: Ledger | None = None


_WATCHED = _Watched()


class Ledger:
    """The effects of one call: `expected` has, by type, the number and op of each, in order."""

    def __init__(self, of: str, expected: Expected) -> None:
        self.of = of
        """Whose call it is, for errors."""
        self.expected = expected
        self.count = dict.fromkeys(expected, 0)
        """How many of each type have begun to happen."""
        self.error: BaseException | None = None
        """What one has raised: eager does nothing after it, so nothing else happens."""

    def begin(self, effect: str, number: int, name: str) -> None:
        """Raises TokenError for an effect whose turn it is not."""
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
        """Raises what an effect raised, and TokenError for one that has not happened."""
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
    """A block in which an effect happens. What it calls in turn is not part of the call."""
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
    """A block whose effects are those of another call than the one that is watched."""
    before, _WATCHED.ledger = _WATCHED.ledger, None
    try:
        yield
    finally:
        _WATCHED.ledger = before


def watching(of: str, expected: Expected, run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` with its effects watched: those that are expected happen, in order, and no others."""

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
