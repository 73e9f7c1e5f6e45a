"""Forked children that end in time, and threads that are held up while a test forks."""

import os
import signal
import threading
import traceback
from contextlib import contextmanager

LIMIT = 15


def in_forked(function):
    """Calls a function in a forked child, which an alarm ends where it hangs."""
    child = os.fork()
    if not child:
        try:
            signal.alarm(LIMIT)
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert 0 == os.waitstatus_to_exitcode(status)


class Halt:
    """Holds up the thread that calls `here` first, until `let_go`."""

    def __init__(self):
        self.reached, self._go = threading.Event(), threading.Event()

    def here(self):
        """Waits, unless some thread did before."""
        if not self.reached.is_set():
            self.reached.set()
            assert self._go.wait(LIMIT)

    def let_go(self):
        """The thread goes on."""
        self._go.set()


@contextmanager
def held_up(function):
    """A thread that calls `function(halt)`, which has come to `halt.here()`, for a block."""
    halt = Halt()
    thread = threading.Thread(target=function, args=(halt,))
    thread.start()
    try:
        assert halt.reached.wait(LIMIT)
        yield
    finally:
        halt.let_go()
        thread.join(LIMIT)
