"""The records of a tape that is one graph: its calls, and the gradients in flight at each.

A *call* is a node of the graph where Python runs: a hook, a node that the engine runs, the sum into
a leaf. At a call the run needs every gradient in flight, since the engine has to go on from there
if Python did what the graph does not expect. Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.compiled_autograd.execution import SegmentStep
from aotlite.compiled_autograd.recorder import Place
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta


class NotOneGraph(Exception):
    """Raised while a tape is recorded: it cannot be one graph. Its text says why (CAG-27)."""


@attrs.frozen(eq=False)
class Frame:
    """The gradients in flight, as values.

    A value is None, the index of an operand, a place of the state after the call before, or
    ("view", value, chain).
    """

    buffers: tuple[tuple[int, tuple[Any, ...]], ...]
    """(node, values that arrived at it) for nodes whose turn has not come."""
    sinks: tuple[Any, ...]
    grads: tuple[Any, ...] | None = None
    """Those of the results of the node whose step has begun."""
    found: tuple[Any, ...] | None = None
    """Those of its edges, once there are some."""


@attrs.define(eq=False)
class TapeCall:
    """One call of the graph."""

    node: int
    """The tape node whose step it belongs to."""
    pause: tuple[str, int]
    """What is called (`steps.Pause.told`)."""
    operands: tuple[tuple[int, TensorMeta, int], ...]
    """(index among the operands, meta, version) of those that `frame` takes. A custom function may
    have written a gradient that it gives."""
    frame: Frame
    begins: bool
    """Whether it is the first one of its node's step."""
    gives: bool
    """Whether the graph has computed the gradients of the node's edges since the call before."""
    ran: tuple[int, ...]
    """The nodes that have run since the call before: they release their saved values."""
    results: tuple[tuple[Place, TensorMeta], ...] = ()
    """The gradients that the graph reads anew after the call: their places then."""
    then: tuple[str, int] | None = None
    """The next pause of the step; None at its end."""
    posts: int = 0
    """The number of hooks behind the node."""
    in_flight: tuple[Any, ...] = ()
    """The signatures of all gradients in flight after the call."""
    rest: int = 0
    """The place in the order of the first node that has not run after the call."""
    until: int = 0
    """The place behind the last node that runs before the next call, whose node may be that one.
    What these nodes read is compared after this call, and what later ones read after later ones."""


@attrs.frozen(eq=False)
class Accumulation:
    """The sum into the `.grad` of a leaf, before a call."""

    node: int
    meta: TensorMeta
    version: int
    value: Any
    """0 for the operand, or a place."""


@attrs.define(eq=False)
class OneTape:
    """A tape as one graph, and what its run needs."""

    order: tuple[int, ...]
    graph: Graph
    """With `call_hook`, `call_backward` and `accumulate_grad` as calls."""
    places: tuple[Place, ...]
    """The sources of the inputs; ("call", number) for the number of a call."""
    calls: tuple[TapeCall | Accumulation, ...]
    saved: tuple[tuple[int, tuple[int, ...], frozenset[int]], ...]
    """(place in the order, slots that are read, absent tangents) of nodes with saved values."""
    ran: tuple[int, ...]
    """The nodes that run after the last call."""
    leaves: tuple[tuple[int, Any], ...]
    """(node, value) of the leaves whose gradients are results."""
    sinks: tuple[Any, ...]
    """The values of the sinks at the end."""
    versions: tuple[int, ...]
    """Those of the results."""
    called: dict[str, str]
    """By the name of a node that is called and not recorded: why (CAG-30)."""
    run: Run | None = None
    shared: bool = False
    """Whether a result may be on memory of an input."""
    pure: Graph | None = None
    after: dict[Hashable, SegmentStep] = attrs.field(factory=dict)
    """Segments with which a tape went on that left the graph, by place and pattern."""


Learned = dict[int, tuple[Any, ...]]
"""Number of a call -> for each gradient that it gave when it ran: None, SAME, the meta of a new
one, or ("grads", index) or ("found", index) if it is that gradient."""
SAME = "same"
UNKNOWN = "unknown"
"""What a call gave is nothing that a recording can expect: a wrapper, or no tensor."""
