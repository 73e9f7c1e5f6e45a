"""`checkpoint`: a region whose intermediate values are recomputed in the backward, not saved.

In the first run of a region, its tape nodes save holders (`RecomputedTensor`) instead of tensors.
The first holder that a backward unpacks runs the region again, with the same grad mode, generators
and arguments; number i of the tensors saved in that run is the value of holder i. In a captured
function the second run is recorded as part of the backward.
Rules: CKP-1 to CKP-9, RNG-8, TEN-42. Spec: `specs/checkpoint.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

import attrs
import optree

from aotlite.eager.autograd.nodes.saved_tensors import (
    Recomputed,
    SavedTensor,
    computed_again,
    detached_alias,
    saved,
)
from aotlite.eager.base.modes import STATE, watching
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.rng.generator import Noting, Replaying, drawing
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import ArgumentError, AutogradError, UnsupportedError, noted
from aotlite.ir.meta import TensorMeta

_CHANGED = (
    "The region depends on something that changed between its two runs: a variable, a file, the "
    "time. Pass what changes as an argument, and give it as it was. (CKP-4)"
)

ResultT = TypeVar("ResultT")


def checkpoint(
    function: Callable[..., ResultT],
    *args: object,
    use_reentrant: bool = False,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    **kwargs: object,
) -> ResultT:
    """`function(*args, **kwargs)`, whose intermediate values are recomputed in the backward.

    Only its tensor arguments are kept. The function runs twice, so it should have no side effects.
    Dropout drops the same elements in both runs, unless `preserve_rng_state` is False.
    `context_fn` gives two context managers, in which the runs take place: those of
    `create_selective_checkpoint_contexts` save the results of chosen ops (CKP-10).

    >>> import aotlite as al
    >>> x = al.ones(3, requires_grad=True)
    >>> y = al.checkpoint(lambda x: al.nn.functional.dropout(x.exp(), 0.5), x)
    >>> y.sum().backward()
    >>> (x.grad == y).all().item()
    True
    """
    if not callable(function):
        raise ArgumentError(f"checkpoint: argument 'function' is {function!r}, expected a function")
    if use_reentrant:
        raise noted(
            UnsupportedError("checkpoint: use_reentrant is True, expected False"),
            "use_reentrant=False supports the same functions, and more. (CKP-1)",
        )
    recorder = STATE.recorder
    if not STATE.grad_mode or recorder is not None and recorder.eager_values is not None:
        return function(*args, **kwargs)  # in a functional mode the tape outside saves values
    region = CheckpointRegion(function, args, kwargs, preserves=preserve_rng_state)
    if context_fn is not None:
        region.contexts = _contexts(context_fn)
    return region.first_run(args, kwargs)


def _contexts(context_fn: Callable[[], object]) -> tuple[Any, Any]:
    """The contexts of both runs. Raises ArgumentError unless there are two."""
    given = context_fn() if callable(context_fn) else None
    if not isinstance(given, tuple) or len(given) != 2:
        raise ArgumentError(
            f"checkpoint: context_fn is {context_fn!r}, which gives {given!r}, expected a function "
            "that gives two context managers"
        )
    return given


@contextmanager
def _inside() -> Iterator[None]:
    before, STATE.in_region = STATE.in_region, True
    try:
        yield
    finally:
        STATE.in_region = before


class RecomputedTensor(Recomputed):
    """A holder: stands for the saved tensor number `index` of a region."""

    __slots__ = ("__weakref__", "index", "region")

    def __init__(self, region: CheckpointRegion, index: int) -> None:
        self.region = region
        self.index = index

    def checked(self) -> list[SavedTensor]:
        """The records that the region reads, with version checks, when it is recomputed."""
        return self.region.checked()

    def regions(self) -> list[Any]:
        """Its region, and those that must be recomputed for the arguments."""
        kept = [each for each in self.region.kept if each is not None]
        return [self.region, *computed_again(kept)]


class CheckpointRegion:
    """One call of `checkpoint`. It lives as long as one of its holders."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, *, preserves: bool
    ) -> None:
        self.function = function
        call: Any = args, kwargs
        leaves: list[Any]
        leaves, self.form = optree.tree_flatten(call, none_is_leaf=True)
        recorder = STATE.recorder
        if recorder is not None:
            leaves = [recorder.here(v) if isinstance(v, Tensor) else v for v in leaves]
        self.leaves = [None if isinstance(v, Tensor) else v for v in leaves]
        self.given = [v if isinstance(v, Tensor) else None for v in leaves]
        """The tensors among the arguments; dropped after the first run."""
        kept: dict[int, SavedTensor] = {}
        for tensor in self.given:  # by the hooks around the region, if there are any (CKP-6)
            if tensor is not None and id(tensor) not in kept:
                kept[id(tensor)] = saved(tensor)
        self.kept = [None if v is None else kept[id(v)] for v in self.given]
        self.metas: list[TensorMeta] = []
        """The metas of the saved tensors, in order."""
        self.holders: list[ref[RecomputedTensor]] = []
        self.seen: list[_Seen] = []
        """The storages of the saved tensors, with their versions."""
        self.results: dict[int, int] = {}
        """id of a storage that the region made and returned -> its version then (CKP-5)."""
        self.is_complete = False
        self.again: WeakKeyDictionary[RecomputedTensor, SavedTensor] = WeakKeyDictionary()
        """Holder -> its tensor, in a backward that has recomputed the region."""
        self.task: Any = None
        self.contexts: tuple[Any, Any] = nullcontext(), nullcontext()
        """The contexts of the first run and of later ones (CKP-10)."""
        self.draws = Noting() if preserves else None
        self.state = recorder.streams.get() if recorder is not None and preserves else None
        self.scope = None if recorder is None else recorder.scopes.state
        """In a captured function: the Module and tags around it (SEQ-5)."""

    def name(self) -> str:
        """The name of the region in errors."""
        return "checkpoint"

    # --- the first run
    def first_run(self, args: Any, kwargs: Any) -> Any:
        """Runs the region, and returns its results. It gets the caller's own lists and dicts: what
        it changes in them is done once, since a second run gets copies (CKP-1)."""
        own = {id(t.storage) for t in self.given if t is not None}
        with watching(pack=(self.pack, unpack)), _inside(), ExitStack() as stack:
            if self.draws is not None:
                stack.enter_context(drawing(self.draws))
            stack.enter_context(self.contexts[0])
            results = self.function(*args, **kwargs)
        self.is_complete = True
        self.given = []
        made = [t for t in optree.tree_leaves(results) if isinstance(t, Tensor) and not t._leaf]
        pairs = [(id(t.storage), t.storage.version) for t in made]
        self.results = {of: version for of, version in pairs if of not in own}
        # Results may be written afterwards, since they are recomputed (CKP-5).
        self.seen = [each for each in self.seen if id(each.storage()) not in self.results]
        return results

    def pack(self, tensor: Tensor) -> RecomputedTensor:
        """The holder for a tensor that the region saves."""
        holder = RecomputedTensor(self, len(self.holders))
        self.holders.append(ref(holder))
        self.metas.append(tensor.meta)
        storage = tensor.storage
        if is_wrapper(tensor):  # its parts are recorded when they are saved themselves (SUB-1)
            return holder
        if all(each.storage() is not storage for each in self.seen[-_RECENT:]):
            seen = _Seen(ref(storage), storage.version, tensor.meta, tensor.offset, tensor.value)
            self.seen.append(seen)
        return holder

    # --- the second
    def value_of(self, holder: RecomputedTensor) -> Tensor:
        """The tensor of a holder; recomputes the region once in each backward."""
        task = STATE.task
        if task is None or self.task is not task or holder not in self.again:
            self._run_again(task)
        return self.again[holder].unpack(self)  # type: ignore[arg-type]

    def checked(self) -> list[SavedTensor]:
        """The records of tensors that must not be written before the recomputation (CKP-5)."""
        found = [read for each in self.kept if each is not None for read in each.checked()]
        return found + [each.record() for each in self.seen if each.storage() is not None]

    def version_of(self, storage: Storage) -> int:
        """The version of a storage for the region's checks: for results, that of the first run."""
        return self.results.get(id(storage), storage.version)

    def check(self) -> None:
        """Raises AutogradError if a tensor that the region reads was written since (CKP-5)."""
        for read in self.checked():
            read.unpack(self)  # type: ignore[arg-type]

    def _run_again(self, task: Any) -> None:
        self.check()
        unpacked: dict[int, Any] = {}
        for each in self.kept:
            if each is not None and id(each) not in unpacked:
                unpacked[id(each)] = each.unpack(self)  # type: ignore[arg-type]
        args, kwargs = self._arguments([e and unpacked[id(e)] for e in self.kept])
        again = _Again(self)
        with again.running(), self.contexts[1]:
            self.function(*args, **kwargs)
        again.check()
        self.again, self.task = again.found, task
        if task is not None:
            task.append(self)

    def forget(self) -> None:
        """Drops recomputed tensors, at the end of a backward."""
        self.again, self.task = WeakKeyDictionary(), None

    def _arguments(self, tensors: list[Any]) -> Any:
        pairs = zip(tensors, self.leaves, strict=True)
        return optree.tree_unflatten(self.form, [v if t is None else t for t, v in pairs])


@attrs.frozen(eq=False, repr=False)
class _Seen:
    """A tensor that a region saved: a weak reference to its storage, and the version."""

    storage: ref[Storage]
    version: int
    meta: TensorMeta
    offset: int
    value: Any
    """In a captured function, its graph value."""

    def record(self) -> SavedTensor:
        storage: Any = self.storage()
        tensor = Tensor(storage, self.meta, self.offset)
        tensor.value = self.value
        return SavedTensor.of_version(tensor, self.version)


_RECENT = 8
"""A storage is not recorded again if it is among the last so many. Repeats do no harm."""


def unpack(holder: RecomputedTensor) -> Tensor:
    """The tensor that a holder stands for."""
    return holder.region.value_of(holder)


class _Again:
    """One recomputation of a region."""

    def __init__(self, region: CheckpointRegion) -> None:
        self.region = region
        self.found: WeakKeyDictionary[RecomputedTensor, SavedTensor] = WeakKeyDictionary()
        self.count = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """A block with the modes and generators of the first run."""
        region, mode, recorder = self.region, STATE.grad_mode, STATE.recorder
        before = None if recorder is None else (recorder.origin, recorder.recompute)
        scope = None if recorder is None else recorder.scopes.state
        with ExitStack() as stack:
            stack.enter_context(watching(pack=(self.pack, lambda kept: kept)))
            stack.enter_context(_inside())
            if region.draws is not None:
                stack.enter_context(drawing(Replaying(region.draws)))
                if recorder is not None:
                    stack.enter_context(recorder.streams.replaying(region.state))
            STATE.grad_mode = True
            if recorder is not None:
                recorder.origin, recorder.recompute = None, True
                recorder.scopes.leave(region.scope)
            try:
                yield
            finally:
                STATE.grad_mode = mode
                if recorder is not None and before is not None:
                    recorder.origin, recorder.recompute = before
                    recorder.scopes.leave(scope)

    def pack(self, tensor: Tensor) -> Tensor:
        """Stores a saved tensor under its holder; returns it for backwards inside the region."""
        index, region = self.count, self.region
        self.count += 1
        alias = detached_alias(tensor)
        if index >= len(region.holders):
            return alias
        if tensor.meta is not region.metas[index]:
            raise noted(
                AutogradError(
                    f"checkpoint: number {index} of what the region saves is {tensor.meta} when it "
                    f"is computed again, expected {region.metas[index]} as in the forward"
                ),
                _CHANGED,
            )
        holder = region.holders[index]()
        if holder is not None:
            self.found[holder] = SavedTensor(alias)
        return alias

    def check(self) -> None:
        """Raises AutogradError if the run saved more or fewer tensors than the first one."""
        expected = len(self.region.holders)
        if self.count < expected or (self.count > expected and self.region.is_complete):
            raise noted(
                AutogradError(
                    f"checkpoint: the region saves {self.count} tensors when it is computed again, "
                    f"expected {expected} as in the forward"
                ),
                _CHANGED,
            )
