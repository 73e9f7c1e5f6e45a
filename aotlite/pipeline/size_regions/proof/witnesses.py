"""Why a region needs each guard: its function is traced again, at sizes that one guard excludes.

A trace at such sizes sees what no record has: the user's branches, and results that nobody reads.
A region keeps what a trace takes, without the caller's tensors: empty ones stand for them. Used by
`report`. Rule: DYN-24. Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias
from weakref import ref

import attrs
import numpy as np

from aotlite.eager.autograd.differentiable_views import root_of
from aotlite.eager.base.modes import STATE, set_grad_enabled
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.view_root import CreationKind, twin_root
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.deferred import deferred
from aotlite.ir.geometry.layout import always_contiguous
from aotlite.ir.geometry.sizes import at_least_one
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Primal
from aotlite.ir.meta import MOST_MEMORY, TensorMeta
from aotlite.ir.symbols.assumption import Assumption, concrete, unassuming
from aotlite.ir.symbols.cases.results import rules_of, share_rules
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.observers import Observers, StageRecord
from aotlite.pipeline.request import Compilation, Request
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.symbolic_sizes import GivenRole, SymbolicSizes, place_of_role
from aotlite.stages.shared.memory.view_families import copy_autograd, is_of_its_own
from aotlite.stages.shared.size_values import AtSizes

if TYPE_CHECKING:
    from aotlite.ir.graph import symbolic_check
    from aotlite.ir.symbols.validation import outcomes, weakest
    from aotlite.pipeline.size_regions.proof import python_writes
else:  # for who asks for witnesses
    symbolic_check = deferred("aotlite.ir.graph.symbolic_check")
    outcomes = deferred("aotlite.ir.symbols.validation.outcomes")
    python_writes = deferred("aotlite.pipeline.size_regions.proof.python_writes")
    weakest = deferred("aotlite.ir.symbols.validation.weakest")

Rest: TypeAlias = Callable[[Request, Captured, StageRecords], None]
"""What is done with a trace: with the request, its capture, and its records."""
Retraced = Callable[[Request, Compilation, Callable[[Captured, StageRecords], None]], None]
"""Runs stages 1 to 8 for a compilation's observers, and for who takes what they made."""
Values: TypeAlias = Mapping[str, int]
Traced: TypeAlias = "dict[str, Graph | FunctionMeta | Convention]"
"""What the stages of a trace made."""
_COMPARED = ("1 capture", "2 analyze", "3 convention", "4 joint")
"""What is the function's own, before simplification."""
_MOST = 4096
"""No larger size is tried as a number: a function may loop over it."""


_NO_ANSWERS: Mapping[str, bool] = MappingProxyType({})


class Unrepeatable(Exception):
    """A trace cannot be repeated, for the reason given. Never leaves this package."""


# ------------------------------------------------------------------------------- what is kept
@attrs.frozen(eq=False, repr=False)
class Retrace:
    """The request of a region with stand-ins for its arguments, and how to trace it again."""

    request: Request
    leaves: tuple[object, ...]
    """Plain values, empty tensors, and weak references to whatever else the caller has."""
    again: Retraced
    compilation: Compilation
    grad_mode: bool | None
    dropped: tuple[weakest.GuardNeed, ...] = ()
    """The needs for guards that were dropped: either answer gives the program."""
    first: Mapping[GivenRole, TensorMeta | int] = MappingProxyType({})
    """The metas and ints of the call that was captured, where `leaves` are of another one."""

    @classmethod
    def of(
        cls,
        request: Request,
        again: Retraced,
        compilation: Compilation,
        members: Collection[int],
    ) -> Retrace:
        """What a trace takes that is like that of the request; `members` are ids of the tensors
        that are of view families."""
        made = StandIns(members)
        bare = attrs.evolve(request, leaves=(), tensors=(), sizes=None)
        leaves = tuple(map(made.of, request.leaves))
        return cls(bare, leaves, again, compilation, STATE.grad_mode)

    def symbols(
        self,
        sizes: SymbolicSizes,
        answers: Mapping[str, bool] = _NO_ANSWERS,
        hints: Values | None = None,
    ) -> SymbolicSizes:
        """Symbols for the sizes that were symbols, for another trace: in its table, facts have
        these answers, and those that are no guards any more that of the call; symbols have these
        hints, if there are some."""
        wholes = {*sizes.numbers, *[place_of_role(each)[0] for each in sizes.metas]}
        requests = {each: n for each, n in sizes.requests.items() if each.argument in wholes}
        given = {outcomes.said(each.guard.fact): True for each in self.dropped} | {**answers}
        table = outcomes.GivenAnswers(given=given) if given else SymbolTable()
        if hints is not None:
            table = outcomes.GivenHints(given, hints, _MOST)
        made = SymbolicSizes(requests, share_rules(table, rules_of(sizes.table)), first=self.first)
        made.table.computes.user_code = sizes.table.computes.user_code
        return made

    def check_silent(self) -> None:
        """Raises Unrepeatable if the function, or what users gave for its compilation, may write
        to what others see when it runs again."""
        options, function = self.compilation.options, self.request.function
        own = (*options.passes, *options.decompositions.values(), *options.stages.values())
        given = (*own, options.partition, *(options.saved_hooks or ()))
        write = python_writes.first_write([function, *self._leaves(), *given])
        if write is not None:
            raise Unrepeatable(f"not examined, since the function does not run again: it {write}")

    def _leaves(self) -> list[object]:
        return [each() if isinstance(each, ref) else each for each in self.leaves]

    def traced(self, sizes: SymbolicSizes, rest: Rest = lambda *_: None) -> Traced:
        """The graphs of a trace, and the function's metadata, by stage."""
        found: Traced = {}

        def observe(stage: str, made: object) -> None:
            if isinstance(made, (Graph, FunctionMeta, Convention)):
                found[stage] = made

        leaves = self._leaves()
        for index, (leaf, kept) in enumerate(zip(leaves, self.leaves, strict=True)):
            if leaf is None and kept is not None:
                raise Unrepeatable(f"argument {index} of the call that was traced is gone")
        tensors = [(k, leaf) for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        observers = Observers((observe,), verifies=False, runner=None)
        with as_it_was(self.grad_mode, tensors, sizes.fixed or sizes.first):
            request = attrs.evolve(self.request, leaves=leaves, tensors=tensors, sizes=sizes)
            compilation = attrs.evolve(self.compilation, observers=observers)
            self.again(request, compilation, partial(rest, request))
        return found


class StandIns:
    """Empty tensors for those of a call: of one memory where they are, with their history."""

    def __init__(self, members: Collection[int]) -> None:
        self._members = members
        self._made: dict[int, Tensor] = {}
        self._storages: dict[int, Storage] = {}

    def of(self, leaf: object) -> object:
        """What stands for a leaf."""
        if isinstance(leaf, TrackedObject) or (isinstance(leaf, Tensor) and is_wrapper(leaf)):
            return ref(leaf)
        return self._tensor(leaf) if isinstance(leaf, Tensor) else leaf

    def _tensor(self, real: Tensor) -> Tensor:
        made = self._made.get(id(real))
        if made is None:
            if real._base is not None and id(real) in self._members:
                made = self._view(real, self._tensor(real._base))
            else:
                made = self._alone(real)
            self._made[id(real)] = made
        return made

    def _alone(self, real: Tensor) -> Tensor:
        made = Tensor(self._storage(real), real.meta, real.offset)
        copy_autograd(real, made, requires_grad=real.requires_grad_outside())
        if real._base is not None:
            made._base = self._tensor(real._base)
            if is_of_its_own(real):  # so it has symbols, and a base of its own
                made._root = twin_root(root_of(real), None)
        return made

    def _view(self, real: Tensor, base: Tensor) -> Tensor:
        """A view of the base's stand-in: tensors of one base stay a view family."""
        with set_grad_enabled(real._kind is not CreationKind.NO_GRAD):
            made = base.as_strided(real.shape, real.meta.stride, real.offset)
        if real._leaf:  # of its own, where the base requires no gradient
            made.requires_grad_()
        return made

    def _storage(self, tensor: Tensor) -> Storage:
        real = tensor.storage
        made = self._storages.get(id(real))
        if made is None:
            seen = (tensor.offset + tensor.meta.span) * tensor.dtype.itemsize
            size = seen if real.buffer is None else real.nbytes()  # of a fake mode, or with data
            made = self._storages[id(real)] = Storage(_bytes(size), writable=real.writable)
            made.exported = real.exported
        return made


def _bytes(count: int) -> np.ndarray:
    """An array of so many bytes, which are one."""
    return np.ndarray((count,), np.uint8, b"\0", 0, (0,))


@contextmanager
def as_it_was(
    grad_mode: bool | None,
    tensors: Sequence[tuple[int, Tensor]],
    metas: Mapping[GivenRole, object],
) -> Iterator[None]:
    """A block with the grad mode of the call that was traced, in which the memory of stand-ins is
    as large as it is where they have these metas."""
    dense = [(index, each) for index, each in tensors if not is_wrapper(each)]
    pairs = [(each, metas.get(Primal(index))) for index, each in dense]
    changed = [(each, meta) for each, meta in pairs if isinstance(meta, TensorMeta)]
    kept = [(each.storage, each.storage.buffer) for each, _ in changed]
    for (each, meta), (storage, buffer) in zip(changed, kept, strict=True):
        more = (meta.span - each.meta.span) * each.dtype.itemsize
        storage.buffer = _bytes(max(buffer.nbytes + more, 0))
    outer, STATE.grad_mode = STATE.grad_mode, grad_mode
    try:
        yield
    finally:
        STATE.grad_mode = outer
        for storage, buffer in reversed(kept):
            storage.buffer = buffer


# -------------------------------------------------------------------------------- the question
def needs_of(
    retrace: Retrace, sizes: SymbolicSizes, guards: Sequence[Assumption]
) -> list[weakest.GuardNeed]:
    """Why each of these guards of a region is needed. Raises Unrepeatable."""
    retrace.check_silent()
    numbers: dict[GivenRole, int] = {Primal(i): number for i, number in sizes.numbers.items()}
    symbolic: dict[GivenRole, TensorMeta | int] = {**sizes.metas, **numbers}
    sizes = retrace.symbols(sizes)
    recorded = retrace.traced(sizes)
    found = sizes.table.log
    if [each.text for each in found] != [each.text for each in guards]:
        raise Unrepeatable("the function has other guards when it is traced again")

    def differs(values: Mapping[str, int]) -> bool:
        fixed = {role: concrete(each, values) for role, each in symbolic.items()}
        try:
            numbers = retrace.traced(SymbolicSizes({}, fixed=fixed))
            return _differ(recorded, numbers, values)
        except Exception:  # the function may raise anything there
            return True

    def differs_beyond(values: Mapping[str, int]) -> bool:
        """With symbols for sizes that are too large for numbers. An error may be of that."""
        try:
            other = retrace.traced(retrace.symbols(sizes, hints=values))
            return _differ(recorded, other, values)
        except (Exception, outcomes.TooLarge):
            return False

    room = list(_room(sizes, recorded))
    more = weakest.Beyond(differs_beyond, room)
    needs = weakest.weakest(sizes.table, found, differs, most=_MOST, beyond=more)
    for need, guard in zip(needs, guards, strict=True):
        need.guard = guard  # with the line that asked when the region was captured
    return needs


def _room(sizes: SymbolicSizes, recorded: Traced) -> Iterator[Assumption]:
    """Facts on sizes of dense tensors, which are in each call: they fit into memory."""
    graph = recorded["1 capture"]
    assert isinstance(graph, Graph)
    nodes = [node.meta for node in graph.nodes if isinstance(node.meta, TensorMeta)]
    with unassuming(sizes.table):
        for meta in dict.fromkeys(nodes):
            if always_contiguous(meta.shape, meta.stride):
                count = meta.dtype.itemsize * math.prod(map(at_least_one, meta.shape))
                fact: object = count <= MOST_MEMORY
                if isinstance(fact, SymBool):
                    yield Assumption(fact, None, None)


def _differ(recorded: Traced, other: Traced, values: Values) -> bool:
    """Whether another trace differs from the recorded one at these sizes."""
    put = AtSizes(values).put
    for stage in _COMPARED:
        mine, found = put(recorded.get(stage)), put(other.get(stage))
        if isinstance(mine, Graph) and isinstance(found, Graph):
            same = symbolic_check.same_program(mine, found)
        else:
            same = StageRecord(stage, mine).text == StageRecord(stage, found).text
        if not same:
            return True
    graphs = [made for made in recorded.values() if isinstance(made, Graph)]
    return any(symbolic_check.misfit(graph, values) is not None for graph in graphs)
