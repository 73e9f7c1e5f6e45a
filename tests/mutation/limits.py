"""Limits of a process that runs a mutant: memory, time of the whole, time of one case."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MEMORY = 5 * 2**30
"""Bytes of address space."""


class Hang(BaseException):
    """Raised in a case that takes too long. No `Exception`, which a case could catch."""


def limit(seconds: float) -> None:
    """Limits the memory and the processor time of this process, which the system then kills."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    whole = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises Hang in a block that takes more processor time than this."""

    def stop(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    # Again and again, should a first one be swallowed.
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
