"""`collector_paused`: no cyclic garbage collection while large graphs are built.

Ground floor. A graph may have a hundred thousand nodes, and the collector would visit all of them
again and again. That is the largest cost of a compilation, and it grows faster than the graph.
"""

from __future__ import annotations

import gc

from aotlite.ir.forks import Blocks

_ran: list[bool] = []
"""[whether the collector was enabled when the first block was entered]."""


def _pause() -> None:
    _ran[:] = [gc.isenabled()]
    gc.disable()


def _go_on() -> None:
    if _ran == [True]:
        gc.enable()


collector_paused = Blocks(_pause, _go_on).entered
"""A block without cyclic garbage collection. It resumes when the last block of any thread ends."""
