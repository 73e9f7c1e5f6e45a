"""The cyclic garbage collector, paused while graphs are built by the hundred thousand nodes.

Ground floor. The collector looks at all of them again and again: the largest cost of a compilation,
and one that grows faster than the graph.
"""

from __future__ import annotations

import gc

from aotlite.ir.forks import Blocks

_ran: list[bool] = []
"""Whether the collector was to run when the first block was entered."""


def _pause() -> None:
    _ran[:] = [gc.isenabled()]
    gc.disable()


def _go_on() -> None:
    if _ran == [True]:
        gc.enable()


collector_paused = Blocks(_pause, _go_on).entered
"""A block in which no cyclic garbage is collected, in no thread until the last one is left."""
