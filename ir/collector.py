"""The cyclic garbage collector, paused while graphs are built by the hundred thousand nodes.

Ground floor. The collector looks at all of them again and again: the largest cost of a compilation,
and one that grows faster than the graph.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """A block in which no cyclic garbage is collected."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
