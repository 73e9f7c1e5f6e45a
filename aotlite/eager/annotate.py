"""`annotate`: what users note around ops, for whoever reads the graph. Rule: SEQ-5.

Spec: `specs/rules/seq.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aotlite.eager.state import STATE
from aotlite.ir.errors import ArgumentError


@contextmanager
def annotate(tags: Mapping[str, Any]) -> Iterator[None]:
    """A block, or decorated function, whose ops have these tags in a graph that is captured.

    Backward nodes have those of the op that they differentiate. Inner blocks add to outer ones.
    Computing, it does nothing.

    >>> import aotlite as al
    >>> def loss(w):
    ...     with annotate({"part": "head"}):
    ...         y = w.exp()
    ...     return y.sum()
    >>> graph = al.inspect.stages_of(loss, al.ones(2, requires_grad=True))["simplify"]
    >>> [(node.target.name, dict(node.tags)) for node in graph.calls if node.tags]
    [('exp', {'part': 'head'}), ('mul', {'part': 'head'})]
    """
    wrong = [key for key in tags if type(key) is not str]
    if wrong:
        raise ArgumentError(f"annotate: a tag is named {wrong[0]!r}, expected a str")
    recorder = STATE.recorder
    before = None if recorder is None else recorder.scopes.tag(tags)
    try:
        yield
    finally:
        if recorder is not None:
            recorder.scopes.leave(before)
