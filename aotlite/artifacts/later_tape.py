"""`LaterTape`: the tape of a kept entry, recorded when a derivative of its backward is first asked.

The records of an entry hold no tape (REC-5). So the function is captured again, once, for tensors
like those of the call that found the entry; nothing is computed. What the function read must still
be as it was. Rules: CACHE-14, DBL-2. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from aotlite.artifacts.restoring import tape_of
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.forks import lock
from aotlite.ir.graph.role import Incoming, Role
from aotlite.pipeline import Request
from aotlite.pipeline.request import Compilation
from aotlite.stages.shared.memory.view_families import copy_autograd


class LaterTape:
    """Stands for the `KeptTape` of the first order, which `recorded` gives."""

    order = 1

    def __init__(
        self,
        request: Request,
        compilation: Compilation,
        higher_order_inputs: frozenset[Any],
        is_as_it_was: Callable[[list[Any]], bool],
    ) -> None:
        self.higher_order_inputs = higher_order_inputs
        self._request = attrs.evolve(request, leaves=(), tensors=())
        self._compilation = compilation
        self._leaves = [_description(leaf) for leaf in request.leaves]
        self._is_as_it_was = is_as_it_was
        self._lock = lock()
        self._made: Any = None

    def incoming(self, result: Role) -> Incoming:
        """The role of this result's tangent as an input."""
        return Incoming(result)

    def recorded(self) -> Any:
        """The tape. Raises AutogradError if what the function read has changed since."""
        with self._lock:
            if self._made is None:
                leaves = [make() for make in self._leaves]
                if not self._is_as_it_was(leaves):
                    raise noted(
                        AutogradError(
                            "backward: the compiled function was found in the cache, and what it "
                            "read has changed since, expected it unchanged until the first "
                            "derivative of a gradient"
                        ),
                        "Compile with artifact_cache=False, or differentiate before the change.",
                    )
                tensors = tuple([(i, x) for i, x in enumerate(leaves) if isinstance(x, Tensor)])
                request = attrs.evolve(self._request, leaves=leaves, tensors=tensors)
                self._made = tape_of(request, self._compilation)
        return self._made


def _description(leaf: Any) -> Callable[[], Any]:
    """Makes an argument like this one later; keeps neither its data nor a Module alive."""
    if isinstance(leaf, TrackedObject):
        held = weakref.ref(leaf)
        return lambda: _alive(held())
    if not isinstance(leaf, Tensor):
        return lambda: leaf
    requires_grad = leaf.requires_grad_outside()
    like = Tensor(Storage(None, writable=leaf.storage.writable), leaf.meta, 0)
    copy_autograd(leaf, like, requires_grad=requires_grad)
    exported = leaf.storage.exported

    def make() -> Tensor:
        storage = like.storage
        sizes = zip(like.meta.shape, like.meta.stride, strict=True)
        extent = sum([max(size - 1, 0) * stride for size, stride in sizes])
        storage.buffer = np.empty(extent + 1, like.meta.dtype.numpy)
        storage.exported = exported
        return like

    return make


def _alive(module: Any) -> Any:
    if module is None:
        raise AutogradError(
            "backward: a Module that the compiled function was called with is gone, expected it "
            "alive until the first derivative of a gradient"
        )
    return module
