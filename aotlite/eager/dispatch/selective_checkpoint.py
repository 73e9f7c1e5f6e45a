"""Selective checkpoints: which results of a region are saved, and which are computed again.

A policy decides for each pure op that a region calls. In the first run the results that it saves
are kept; in the second run they take the place of the computation, while the tape node of the op is
made as always. While a region with a policy runs, `_HANDLERS` has `_run_selected` for pure ops; at
all other times dispatch knows nothing of it. Rules: CKP-10, CKP-11. Spec: `specs/checkpoint.md`.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.eager import dispatch
from aotlite.eager.autograd.nodes.op_nodes import calls_of
from aotlite.eager.autograd.nodes.saved_tensors import detached_alias
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch.pure import link_result, link_results, note_origin, run_pure
from aotlite.eager.subclass.op_functions import function_of
from aotlite.ir.errors import ArgumentError, AutogradError, noted
from aotlite.ir.forks import lock
from aotlite.ir.op import PureOp


class CheckpointPolicy(enum.Enum):
    """What happens to the results of an op in a region of `checkpoint`.

    In eager code MUST and PREFER are one. In a compiled function the partitioner may compute again
    what is preferred to be saved.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


@attrs.frozen
class SelectiveCheckpointContext:
    """The first argument of a policy."""

    is_recompute: bool
    """Whether the region is computed again."""


Policy = Callable[..., Any]
_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


class _Selected(threading.local):
    """The run of a region with a policy in this thread; None for none."""

    run: _FirstRun | _SecondRun | None = None


_SELECTED = _Selected()
_LOCK = lock()
_INSTALLED = [0]
"""How many runs with a policy are active, in all threads."""


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """The contexts of the two runs of a region, for `checkpoint(context_fn=)`.

    A policy is called as `policy(context, op, *args)` for each pure op, with `op` from
    `aotlite.ops`, and returns a `CheckpointPolicy`; True and False stand for MUST_SAVE and
    PREFER_RECOMPUTE. A list of ops saves their results. Views, writes and random numbers are
    always done again. A saved result that was written since is an AutogradError, unless
    `allow_cache_entry_mutation` is set.

    >>> import aotlite as al
    >>> from functools import partial
    >>> contexts = partial(al.create_selective_checkpoint_contexts, [al.ops.matmul])
    >>> w = al.ones(2, 2).requires_grad_()
    >>> y = al.checkpoint(lambda w: (w @ w).exp(), w, context_fn=contexts)
    >>> y.sum().backward()
    """
    kept = _Kept(_policy_of(policy_fn_or_list), allow_cache_entry_mutation)
    return _FirstRun(kept), _SecondRun(kept)


def _policy_of(given: object) -> Policy:
    if isinstance(given, (list, tuple)):
        chosen = list(given)
        if all(callable(each) for each in chosen):
            return lambda context, op, *args: any(op is each for each in chosen)
    elif callable(given):
        return given
    raise ArgumentError(
        f"create_selective_checkpoint_contexts: the policy is {given!r}, expected a function or a "
        "list of functions of aotlite.ops"
    )


@attrs.define(eq=False)
class _Kept:
    """What the two runs share."""

    policy: Policy
    may_be_written: bool
    calls: list[tuple[PureOp, list[tuple[Tensor, object]] | None]] = attrs.field(factory=list)
    """For each pure op its (result, version)s if they are saved."""

    def decision(self, op: PureOp, args: tuple[object, ...], *, again: bool) -> CheckpointPolicy:
        """What the policy decides about an op."""
        before, _SELECTED.run = _SELECTED.run, None
        try:
            found = self.policy(SelectiveCheckpointContext(again), function_of(op), *args)
        finally:
            _SELECTED.run = before
        if type(found) is bool:
            return CheckpointPolicy.MUST_SAVE if found else CheckpointPolicy.PREFER_RECOMPUTE
        if not isinstance(found, CheckpointPolicy):
            raise ArgumentError(
                f"checkpoint: the policy returned {found!r} for {op.name}, expected a "
                "CheckpointPolicy or a bool"
            )
        return found


class _Run:
    """The context of one run of a region."""

    def __init__(self, kept: _Kept) -> None:
        self.kept = kept
        self._before: list[Any] = []

    def __enter__(self) -> None:
        with _LOCK:
            _INSTALLED[0] += 1
            dispatch._HANDLERS[PureOp] = _run_selected
        self._before.append(_SELECTED.run)
        _SELECTED.run = self  # type: ignore[assignment]

    def __exit__(self, *exc: object) -> None:
        _SELECTED.run = self._before.pop()
        with _LOCK:
            _INSTALLED[0] -= 1
            if not _INSTALLED[0]:
                dispatch._HANDLERS[PureOp] = run_pure


class _FirstRun(_Run):
    """The first run: keeps results."""

    def __enter__(self) -> None:
        self.kept.calls.clear()
        super().__enter__()

    def result(self, op: PureOp, args: tuple[object, ...], recorder: Recorder | None) -> Any:
        """The result of an op, which is kept if the policy says so."""
        chosen = self.kept.decision(op, args, again=False)
        found: Any
        if recorder is not None and chosen is CheckpointPolicy.MUST_SAVE:
            found = _saved(op, args, recorder)
        else:
            found = run_pure(op, args, recorder)
        saved = None
        if chosen in _SAVED:
            results = found if type(found) is tuple else (found,)
            saved = [(detached_alias(each), each.storage.version) for each in results]
        self.kept.calls.append((op, saved))
        return found


class _SecondRun(_Run):
    """The second run: kept results take the place of computations."""

    def __enter__(self) -> None:
        self.count = 0
        super().__enter__()

    def result(self, op: PureOp, args: tuple[object, ...], recorder: Recorder | None) -> Any:
        """The result of an op: the kept one, or a new one."""
        kept, index = self.kept, self.count
        self.count += 1
        chosen = kept.decision(op, args, again=True)
        known, saved = kept.calls[index] if index < len(kept.calls) else (None, None)
        if known is not op or (saved is not None) is not (chosen in _SAVED):
            raise noted(
                AutogradError(
                    f"checkpoint: number {index} of the ops of the region is {op.name}, for which "
                    f"the policy says {chosen.name}, expected the op and the decision of the "
                    "first run"
                ),
                "A policy has to decide alike in both runs. (CKP-11)",
            )
        if saved is None:
            return run_pure(op, args, recorder)
        return _linked(op, args, recorder, [self._unwritten(op, *each) for each in saved])

    def _unwritten(self, op: PureOp, result: Tensor, version: object) -> Tensor:
        if result.storage.version != version and not self.kept.may_be_written:
            raise noted(
                AutogradError(
                    f"checkpoint: a result of {op.name} that the policy saves is at version "
                    f"{result.storage.version}, expected version {version}: it was modified in "
                    "place"
                ),
                "Recompute this op, write to a clone(), or pass allow_cache_entry_mutation=True. "
                "(CKP-11)",
            )
        return detached_alias(result)


def _run_selected(op: PureOp, args: tuple[object, ...], recorder: Recorder | None) -> Any:
    """The handler of pure ops while some thread runs a region with a policy."""
    run = _SELECTED.run
    return run_pure(op, args, recorder) if run is None else run.result(op, args, recorder)


def _saved(op: PureOp, args: tuple[object, ...], recorder: Recorder) -> Any:
    """The result of an op whose node in a capture tells the partitioner to save it."""
    before, recorder.recompute = recorder.recompute, False
    try:
        return run_pure(op, args, recorder)
    finally:
        recorder.recompute = before


def _linked(
    op: PureOp, args: tuple[object, ...], recorder: Recorder | None, outs: Sequence[Tensor]
) -> Any:
    """Kept results as those of an op: with its tape node."""
    key = op.key(args)
    meta = op.results.get(key) or op.result_for(key)
    if op.vjp is not None and STATE.grad_mode:
        if type(meta) is tuple:
            node = link_results(op, op.vjp, args, calls_of(op, key), tuple(outs), meta)
            if node is not None:
                note_origin(node, outs[0].value, recorder)
        else:
            link_result(op, op.vjp, args, calls_of(op, key), outs[0])
    return tuple(outs) if type(meta) is tuple else outs[0]


__all__ = [
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "create_selective_checkpoint_contexts",
]
