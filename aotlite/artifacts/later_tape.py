"""`LaterTape`: the tape of a kept entry, recorded when a derivative of its backward is first asked.

The records of an entry hold no tape (REC-5). So the function is captured again, once, for tensors
like those of the call that found the entry; nothing is computed. What the function read must still
be as it was. Rules: CACHE-14, DBL-2. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs

from aotlite.artifacts.restoring import tape_of
from aotlite.eager.base.modes import STATE, set_grad_enabled
from aotlite.eager.base.tape.view_chain import PartStep
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.forks import lock
from aotlite.ir.graph.role import Incoming, Role
from aotlite.pipeline import Request
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.size_regions.proof.witnesses import StandIns, as_it_was
from aotlite.stages.records.symbolic_sizes import SymbolicSizes


class LaterTape:
    """Stands for the `KeptTape` of the first order, which `recorded` gives."""

    order = 1

    def __init__(
        self,
        request: Request,
        compilation: Compilation,
        higher_order_inputs: frozenset[Any],
        members: Collection[int],
        is_as_it_was: Callable[[list[Any]], bool],
        symbols: Callable[[], SymbolicSizes] | None = None,
        assumed: Sequence[str] = (),
    ) -> None:
        """`members` are the ids of the tensors that are of view families; `symbols` makes those for
        the capture, which must assume what the entry has `assumed`."""
        self.higher_order_inputs = higher_order_inputs
        self._request = attrs.evolve(request, leaves=(), tensors=())
        self._compilation = compilation
        self._leaves = list(map(_Likes(members).of, request.leaves))
        self._grad_mode = STATE.grad_mode
        self._is_as_it_was = is_as_it_was
        self._symbols, self._assumed = symbols, list(assumed)
        self._lock = lock()
        self._made: Any = None

    def incoming(self, result: Role) -> Incoming:
        """The role of this result's tangent as an input."""
        return Incoming(result)

    def recorded(self) -> Any:
        """The tape. Raises AutogradError if what the function read has changed since."""
        with self._lock:
            if self._made is None:
                leaves = list(map(_present, self._leaves))
                if not self._is_as_it_was(leaves):
                    raise _changed()
                self._made = self._captured(leaves)
        return self._made

    def _captured(self, leaves: list[Any]) -> Any:
        tensors = tuple([(i, x) for i, x in enumerate(leaves) if isinstance(x, Tensor)])
        sizes = None if self._symbols is None else self._symbols()
        request = attrs.evolve(self._request, leaves=leaves, tensors=tensors, sizes=sizes)
        first = {} if sizes is None else sizes.first
        with as_it_was(self._grad_mode, tensors, first), set_grad_enabled(bool(self._grad_mode)):
            made = tape_of(request, self._compilation)
        if sizes is not None:
            log = [each.text for each in sizes.table.log]
            if log[: len(self._assumed)] != self._assumed:
                raise _changed()
        return made


def _changed() -> AutogradError:
    error = AutogradError(
        "backward: the compiled function was found in the cache, and what it read has changed "
        "since, expected it unchanged until the first derivative of a gradient"
    )
    return noted(error, "Compile with artifact_cache=False, or differentiate before the change.")


class _Likes(StandIns):
    """Empty tensors for those of a call, with the views through which they are seen: the capture
    must give the graph that the kept one was made of."""

    def _view(self, real: Tensor, base: Tensor) -> Tensor:
        with set_grad_enabled(real._kind is not CreationKind.NO_GRAD):
            made = base
            for step in real._chain:
                if isinstance(step, PartStep):
                    made = made._apply(step.parts.op, (made, *step.parts.args))[step.index]
                else:
                    made = made._apply(step.op, (made, *step.args))
        return made.requires_grad_() if real._leaf else made


def _present(leaf: Any) -> Any:
    """An argument as it was kept: a Module, if it is still there."""
    return _alive(leaf()) if isinstance(leaf, weakref.ref) else leaf


def _alive(module: Any) -> Any:
    if module is None:
        raise AutogradError(
            "backward: a Module that the compiled function was called with is gone, expected it "
            "alive until the first derivative of a gradient"
        )
    return module
