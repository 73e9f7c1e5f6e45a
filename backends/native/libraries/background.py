"""Compilation in the background: one daemon thread runs jobs in order.

`compile(..., wait=False)` runs its interpreter until its job is done. Spec:
`specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from aotlite.backends.native.blocked_threads import is_absent
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.backends.native.libraries.shared_library import SharedLibrary
from aotlite.backends.native.single_flight import Once
from aotlite.ir.logs import carrying

__all__ = ["Job", "compile_in_background", "in_background"]

T = TypeVar("T")


class Job(Generic[T]):
    """A job with the methods of a future: `done()`, `result()`, `exception()`.

    A child forked before the job was done has no such thread: it starts the job again when it first
    asks.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._outcome: tuple[T] | BaseException | None = None
        self._start()

    def _start(self) -> None:
        self._finished = threading.Event()
        self._process = os.getpid()
        _submit(self)

    def _run(self) -> None:
        assert self._work is not None
        try:
            self._outcome = (self._work(),)
        except BaseException as error:
            self._outcome = error
        self._work = None  # frees what the function refers to
        self._finished.set()

    def done(self) -> bool:
        """Returns whether there is a result or an error."""
        if self._outcome is None and self._process != os.getpid():
            self._start()
        return self._outcome is not None

    def wait(self, timeout: float) -> bool:
        """Waits at most `timeout` seconds. Returns whether it is done."""
        return self.done() or self._finished.wait(timeout)

    def is_absent(self) -> bool:
        """Returns whether the thread waits outside of this process, for a compiler or a lock."""
        worker = _workers.known(os.getpid())
        return worker is not None and is_absent(worker.thread.ident)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the job. Returns its error, or None if it has a result.

        Raises TimeoutError if it is not done within `timeout` seconds.
        """
        if not self.done() and not self._finished.wait(timeout):
            raise TimeoutError(f"not compiled within {timeout} s")
        return self._outcome if isinstance(self._outcome, BaseException) else None

    def result(self, timeout: float | None = None) -> T:
        """Waits for the job. Returns its result, or raises its error, or TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert isinstance(self._outcome, tuple)
        return self._outcome[0]


def in_background(work: Callable[[], T]) -> Job[T]:
    """Returns the job of a function without arguments. A daemon thread calls it after earlier
    jobs."""
    return Job(carrying(work))


def compile_in_background(text: str, name: str, **options: Any) -> Job[SharedLibrary]:
    """Returns the job that compiles and loads a C11 text. Arguments are those of `load_c`."""
    return in_background(partial(load_c, text, name, **options))


# --------------------------------------------------------------------------------------- the thread
class _Worker:
    """The queue of jobs of a process, and the thread that runs them."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Job[object]] = SimpleQueue()
        self.thread = threading.Thread(target=self._loop, name="aotlite compiler", daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        while True:
            self.jobs.get()._run()


_workers = Once[_Worker]()


def _submit(job: Job[Any]) -> None:
    """Queues a job; runs it here and now if no thread can be started."""
    try:
        worker = _workers.get(os.getpid(), _Worker)
    except (RuntimeError, MemoryError):  # "can't start new thread"
        job._run()
    else:
        worker.jobs.put(job)
