"""`annotate`: users' tags on the ops of a block, for readers of the graph. Rule: SEQ-5.

Spec: `specs/rules/seq.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ArgumentError, noted


@contextmanager
def annotate(tags: Mapping[str, object]) -> Iterator[None]:
    """A block, or decorated function, whose ops get these tags in captured graphs.

    Nodes of the backward have the tags of the op that they differentiate. Inner blocks add to outer
    ones. It has no effect on the computation. Raises ArgumentError, also in eager mode, for tags
    whose names are not strings, or which cannot be copied or hold tensors.

    >>> import aotlite as al
    >>> def loss(w):
    ...     with annotate({"part": "head"}):
    ...         y = w.exp()
    ...     return y.sum()
    >>> graph = al.inspect.stages_of(loss, al.ones(2, requires_grad=True))["simplify"]
    >>> [(node.target.name, dict(node.tags)) for node in graph.calls if node.tags]
    [('exp', {'part': 'head'}), ('mul', {'part': 'head'})]
    """
    copied = _copied(tags)
    recorder = STATE.recorder
    before = None if recorder is None else recorder.scopes.tag(copied)
    try:
        yield
    finally:
        if recorder is not None:
            recorder.scopes.leave(before)


def _copied(tags: Mapping[str, object]) -> dict[str, object]:
    """Deep copies of the tags, which later changes by the user do not reach."""
    found = {}
    for name, value in tags.items():
        if type(name) is not str:
            raise ArgumentError(f"annotate: a tag is named {name!r}, expected a str")
        memo: dict[int, object] = {}
        try:
            found[name] = copy.deepcopy(value, memo)
        except Exception as error:
            raise noted(
                ArgumentError(
                    f"annotate: the tag {name!r} is a {type(value).__name__} that cannot be "
                    "copied, expected data"
                ),
                f"{type(error).__name__}: {error}",
                "Use a name or a number that identifies it. (SEQ-5)",
            ) from error
        if any(isinstance(each, Tensor) for each in memo.values()):
            raise noted(
                ArgumentError(f"annotate: the tag {name!r} holds a tensor, expected other data"),
                "Tags describe ops of a graph, which has no values. (SEQ-5)",
            )
    return found
