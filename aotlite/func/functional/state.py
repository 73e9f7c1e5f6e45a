"""`functional_state(tensor)`: what a functional mode knows of a tensor; it changes nothing.

Rule: FNT-21. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.eager.base.tensor import Tensor
from aotlite.func.functional.functional_recorder import FunctionalRecorder
from aotlite.func.functional.memory import TensorAlias
from aotlite.ir.errors import ArgumentError

Views = tuple[str, ...]
"""The names of view ops, from the root of a memory on."""


@attrs.frozen
class FunctionalState:
    """A tensor in a functional mode, and its memory."""

    is_from_outside: bool
    """Whether it stands for an argument, or for a tensor that the function reaches otherwise."""
    views: Views
    """The views that lead from the root of its memory to it."""
    writes: int
    """The number of writes to its memory so far."""
    pending: tuple[Views, ...]
    """The views through which writes came that no read has put into the root's value yet."""
    replayed: tuple[Views, ...]
    """The views of the memory that were taken again since the last write, for reads."""
    is_synced: bool
    """Whether its value is known: a read of it would run no op."""
    has_new_history: bool
    """Whether a write with a gradient changed the history of its memory."""


def is_functional_tensor(tensor: Tensor) -> bool:
    """Whether this is a tensor of a function that `functionalize` runs now."""
    return _alias_of(tensor) is not None


def functional_state(tensor: Tensor) -> FunctionalState | None:
    """What the running functional mode knows of a tensor; None for a tensor of no such mode.

    >>> import aotlite as al
    >>> def f(x):
    ...     row = x[0]
    ...     row.add_(1.0)
    ...     print(al.func.functional_state(x).pending, al.func.functional_state(x).is_synced)
    ...     al.func.sync(x)
    ...     print(al.func.functional_state(x).pending, al.func.functional_state(x).is_synced)
    >>> al.func.functionalize(f)(al.zeros(2, 3))
    (('select',),) False
    () True
    """
    alias = _alias_of(tensor)
    if alias is None:
        return None
    memory = alias.memory
    known = memory.last is not None and memory.last[0] is alias.chain
    synced = not memory.pending and (not alias.chain or alias.chain in memory.seen)
    own = alias.history is not None and not alias.inner and alias.history.version == memory.version
    return FunctionalState(
        memory.handle is not None,
        _names(alias.chain),
        memory.version,
        tuple([_names(chain) for chain, _, _ in memory.pending]),
        tuple([_names(chain) for chain in memory.seen]),
        known or synced or own,
        memory.has_new_history,
    )


def sync(tensor: Tensor) -> None:
    """Puts pending writes into the value of a tensor, as a read of it would.

    Raises ArgumentError for a tensor of no functional mode.
    """
    alias, recorder = _alias_of(tensor), STATE.recorder
    if alias is None or not isinstance(recorder, FunctionalRecorder):
        raise ArgumentError(
            f"sync: the tensor is {tensor!r}, expected one of a function that functionalize runs"
        )
    recorder.outer_of(recorder.here(tensor))


def _alias_of(tensor: Tensor) -> TensorAlias | None:
    recorder = STATE.recorder
    if not isinstance(recorder, FunctionalRecorder) or not isinstance(tensor, Tensor):
        return None
    mine = tensor if tensor.storage.capture is recorder else recorder.stand_ins.get(id(tensor))
    alias: TensorAlias | None = None if mine is None else mine.value
    return alias


def _names(chain: ViewChain) -> Views:
    return tuple([step.op.name for step in chain])
