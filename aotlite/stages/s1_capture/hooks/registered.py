"""Hooks that a captured function registers, and `retain_grad` in it: what becomes of each.

    on an input or result whose gradient comes from     each call registers it on its own tensors
    outside the function alone                          (`RegisteredHook`)
    any other, and proven pure (`purity`)               stage 4 runs it: its ops are in the backward
    any other, and not pure                             each backward calls it (`host_calls`)
    uses objects that the captured run made             refused, unless it is pure and can stay

Part of the recorder; the eager layer calls it. Rules: HOOK-1 to HOOK-4.
Spec: `specs/hooks_inside.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of, is_stale
from aotlite.eager.autograd.engine import reachable
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import OpNode
from aotlite.eager.autograd.nodes.retained_grads import retains
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import recording
from aotlite.eager.base.tape.hooks import RemovableHandle, alike
from aotlite.eager.base.tape.node import LAST, SEQUENCE, Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.eager.tracked_objects import observing
from aotlite.ir.errors import AutogradError
from aotlite.ir.forks import cached_property
from aotlite.ir.graph.role import Gradient, Output
from aotlite.ir.meta import TensorMeta
from aotlite.ir.provenance.location import Location
from aotlite.stages.records.call_effects import HookPlace, RegisteredHook
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.hooks.host_calls import HookSignature, HostCalledHooks
from aotlite.stages.s1_capture.hooks.purity import more_than_computes
from aotlite.stages.s1_capture.hooks.reachable import (
    Known,
    asked_gradients,
    may_change,
    reason_against,
)
from aotlite.stages.shared.gradient_sinks import whole_edge
from aotlite.stages.shared.user_frames import user_location

Hook = Callable[..., Any]


class DryRun(Recorder, Protocol):
    """The recorder of a trial run of a hook on fakes, whose nodes are thrown away."""

    refusal: BaseException | None

    def gradient(self, meta: TensorMeta) -> Tensor:
        """A fake gradient of this geometry."""


@attrs.frozen(eq=False, repr=False)
class _Placed:
    """A hook that the function registered."""

    kind: str
    tensor: Tensor
    edge: Edge
    handle: RemovableHandle
    location: Location | None

    @property
    def is_there(self) -> bool:
        return self.handle.id in self.handle.hooks


@attrs.define(eq=False, repr=False)
class RegisteredHooks:
    """The hooks and retained gradients of one capture. The eager layer reports them."""

    _recorder: CaptureTrace
    _dry_run: Callable[[], DryRun]
    _placed: list[_Placed] = attrs.field(factory=list)
    _retained: list[tuple[Tensor, Any]] = attrs.field(factory=list)
    """Tensors that retain their gradients, and the user's line that asked for it."""
    _called: HostCalledHooks = attrs.field(factory=HostCalledHooks)
    kept: dict[Output, Tensor] = attrs.field(factory=dict)
    """Results whose retained gradients the compiled backward computes."""
    come_back: bool = False
    """A hook was taken off a result that its tape node saves: a double backward would bypass
    the hook (DBL-1)."""
    _left: int | None = None
    """The tape's sequence number when the function returned. From then on a hook on an older
    node can only be registered by another hook."""

    # --- what the function does
    def placed(self, kind: str, tensor: Tensor, edge: Edge, handle: RemovableHandle) -> None:
        """Records a hook that the function registered on a tensor."""
        if self._is_late(edge[0]):
            del handle.hooks[handle.id]
            raise self._refuse_later("registers a hook")
        self._placed.append(_Placed(kind, tensor, edge, handle, user_location()))
        self._check_view(tensor)
        if edge[0].is_outside() and not self._is_at_entry(tensor, edge):
            raise self._recorder.refuse(
                "a hook on a tensor that shares its history with others from outside",
                "register it outside, or on x.view_as(x), taken inside",
            )

    def retained(self, tensor: Tensor) -> None:
        """Records a tensor whose gradient the function retains."""
        if self._is_late(tensor._node):
            raise self._refuse_later("lets a tensor retain its gradient")
        self._check_view(tensor)
        if all(each is not tensor for each, _ in self._retained):
            self._retained.append((tensor, user_location()))

    def _check_view(self, tensor: Tensor) -> None:
        """Refuses a hook on an input view that is written: its history in eager is its base's. That
        of a leaf is its own."""
        given = self._recorder.input_of(tensor)
        if given is None or given.family is not None or not given.storage.version or given.is_leaf:
            return
        if self._recorder.real_of(tensor)._base is not None:
            raise self._recorder.refuse(
                f"a hook on {given.place}, a view that the function writes,",
                "pass what it is a view of, too, or register the hook outside",
            )

    def removing(self, handle: RemovableHandle) -> None:
        """Refuses to remove a hook of the function during its backward."""
        if self._left is not None and any(each.handle is handle for each in self._placed):
            raise self._refuse_later("removes a hook")

    def end(self) -> None:
        """Marks the end of the function: later calls come from a backward."""
        self._left = next(SEQUENCE)

    def _is_late(self, node: TapeNode | None) -> bool:
        """Whether a backward is being recorded, and the node is one of the function's tape."""
        if self._left is None or node is None:
            return False
        return node.is_outside() if node.sequence == LAST else node.sequence < self._left

    def _refuse_later(self, what: str) -> Exception:
        refused: Exception = self._recorder.refuse(
            f"a hook that {what} of the compiled function",
            "do it outside the compiled function, or before its backward",
        )
        return refused

    def _is_at_entry(self, tensor: Tensor, edge: Edge) -> bool:
        """Whether an edge is that of an input at entry."""
        given = self._recorder.input_of(tensor)
        if given is None:
            return False
        return tensor._is_tracked_leaf() or given.entry == edge

    # --- what each call does
    def leaving(self, results: Sequence[object]) -> tuple[tuple[RegisteredHook, Any], ...]:
        """Takes hooks off the tape that each call registers on its own tensors; returns them.

        In the order in which eager's backward calls them: the results of a compiled call share one
        tape node. Raises UnsupportedError for a hook that can neither be moved nor recorded.
        """
        if not self._placed and not self._retained:
            self.end()
            return ()
        found: list[tuple[int, RegisteredHook, Any]] = []
        ends, kept = _Ends(self._recorder, results), set[Edge]()
        for each in self._placed:
            end = ends.at(each.tensor, each.edge, each.kind) if each.is_there else None
            if end is None or each.edge in kept:  # behind one that stays
                continue
            hook = each.handle.hooks[each.handle.id]
            reason = reason_against(hook, self._recorder, self._known)
            if reason is None:
                del each.handle.hooks[each.handle.id]
                self._does_more(hook, each.tensor)
                if end[1] is HookPlace.NOW and _saves(each.edge[0]):
                    self.come_back = True
                found.append(
                    (each.edge[0].sequence, RegisteredHook(*end, each.kind, _name(hook)), hook)
                )
            elif each.kind == "accumulated" or not isinstance(end[0], Output):
                raise self._refuse(hook, reason, each.location)
            else:
                kept.add(each.edge)
        for tensor, location in self._retained:
            node, index = _edge_now(tensor)
            if node is not None and retains(tensor, node, index):
                end = ends.at(tensor, (node, index), "retained")
                if end is not None and not node.attachments().tensors.get(index):
                    self._check_view(tensor)
                    del node.attachments().retained[index]
                    found.append((node.sequence, RegisteredHook(*end, "retained", ""), None))
                elif self._is_kept(tensor, results):
                    role = Output([r is tensor for r in results].index(True))
                    self.kept[role] = tensor
                    found.append((0, RegisteredHook(role, HookPlace.INSIDE, "retained", ""), None))
                elif tensor._grad is None:
                    raise self._refuse_retained(tensor, location)
        found.sort(key=itemgetter(0), reverse=True)
        self.end()
        return tuple([(hook, function) for _, hook, function in found])

    def _is_kept(self, tensor: Tensor, results: Sequence[object]) -> bool:
        """Whether the compiled backward computes the whole gradient that a result retains."""
        is_input = self._recorder.input_of(tensor) is not None
        return not is_input and any(r is tensor for r in results) and not is_wrapper(tensor)

    # --- results that retain gradients of the compiled backward
    def ends(self) -> dict[TapeNode, Output]:
        """The tape nodes of results that retain their gradients."""
        return {tensor._node: role for role, tensor in self.kept.items()}  # type: ignore[misc]

    def edges(self) -> dict[Output, list[Edge]]:
        """The tape edges of results that retain their gradients, by role."""
        return {
            role: [(node, tensor._index)]
            for role, tensor in self.kept.items()
            if (node := tensor._node) is not None
        }

    def clear(self) -> None:
        """Clears the retained gradients before a backward is recorded."""
        for tensor in self.kept.values():
            tensor._grad = None

    def gradients(self) -> list[tuple[Gradient, Any]]:
        """The retained gradients as graph outputs, after a backward was recorded."""
        found = [(Gradient(role), tensor._grad) for role, tensor in self.kept.items()]
        return [(role, None if grad is None else grad.value) for role, grad in found]

    def _refuse_retained(self, tensor: Tensor, location: Location | None) -> Exception:
        refused: Exception = self._recorder.refuse(
            f"retain_grad of a tensor {tensor.meta} that is no result, or of a wrapper from which "
            "another result is computed,",
            "return it; or return its gradient, if a backward inside computes it",
            location,
        )
        return refused

    @cached_property
    def _known(self) -> Known:
        recorder = self._recorder
        return Known([recorder.function, *recorder.leaves], recorder.compared())

    def _refuse(self, hook: Hook, reason: str, location: Location | None = None) -> Exception:
        refused: Exception = self._recorder.refuse(
            f"the hook {_name(hook)!r}, which {reason},",
            "make the hook, and what it changes, outside the compiled function",
            location,
        )
        return refused

    # --- a backward is recorded
    def call(self, hook: Hook, grad: Tensor) -> Any:
        """Runs a hook while a backward is recorded; returns the gradient that replaces `grad`.

        A pure hook runs now, and its ops are recorded. Any other becomes a host callback, if it
        may serve later calls.
        """
        known = None if grad is None else self._called.known(hook, grad)
        if known is not None:
            return known.happens(grad)
        self._check_gradients(hook)
        reason = reason_against(hook, self._recorder, self._known)
        if reason is not None or grad is None:
            self._check_computes(hook, reason or "is given None", (grad,))
        elif self._does_more(hook, grad) or self._asks(hook, grad):
            return self._called.later(hook, grad).happens(grad)
        return hook(grad)

    def call_of_node(self, hook: Hook, *grads: object) -> Any:
        """Runs a hook of a tape node, which has to be pure."""
        self._check_computes(hook, "is of a tape node", grads)
        return hook(*grads)

    def _check_computes(self, hook: Hook, reason: str, grads: Sequence[object]) -> None:
        """Refuses a hook that is not proven pure, and cannot be called at each backward."""
        more = more_than_computes(hook, self._known, grads)
        if more is not None:
            raise self._refuse(hook, f"{reason} and {more}")

    def _check_gradients(self, hook: Hook) -> None:
        """Refuses a hook that reads the `.grad` of an input leaf: its backward may add to that."""
        for tensor in asked_gradients(hook):
            given = self._recorder.input_of(tensor)
            if given is not None and given.is_leaf and given.fake.requires_grad:
                raise self._refuse(hook, f"asks for the .grad of {given.place}, an input,")

    def _does_more(self, hook: Hook, grad: Tensor) -> bool:
        """Whether a hook is not proven pure. The objects that it may change are not guarded."""
        if more_than_computes(hook, self._known, (grad,)) is None:
            return False
        self._recorder.note_reached(may_change(hook))
        if self._left is not None:
            self._recorder.guard_surroundings()
        return True

    def _asks(self, hook: Hook, like: Tensor) -> bool:
        """Whether a pure hook reads a value, or raises, in a trial run on fakes."""
        trial, form = self._dry_run(), HookSignature.of(like)
        grad = form.made(map(trial.gradient, form.metas()))
        try:
            with recording(trial), observing():
                given = hook(grad)
                if given is not None:
                    alike(hook, given, grad)
        except Exception:
            return True
        return trial.refusal is not None


def _saves(node: TapeNode) -> bool:
    """Whether a tape node may have saved its own results."""
    return type(node) is not OpNode or bool(node.saved_results)


def _edge_now(tensor: Tensor) -> tuple[Any, int]:
    """The present tape edge of a tensor; (None, 0) if it has none."""
    try:
        return edge_of(tensor) or (None, 0)
    except AutogradError:  # a view that has none by now (TEN-20)
        return None, 0


def _name(hook: Hook) -> str:
    return str(getattr(hook, "__name__", type(hook).__name__))


class _Ends:
    """Finds the inputs and results to which a hook can be moved.

    Their edge gets its whole gradient from outside: no node of the captured tape leads into it.
    """

    def __init__(self, recorder: CaptureTrace, results: Sequence[object]) -> None:
        self._recorder = recorder
        self._results = results

    @cached_property
    def _inner(self) -> set[Edge]:
        """The edges into which the tape of the run leads."""
        fakes = [*self._results, *(given.fake for given in self._recorder.inputs)]
        tensors = [each for each in fakes if isinstance(each, Tensor)]
        nodes = [t._node for t in tensors] + [t._root.node for t in tensors if t._root is not None]
        order, accumulating = reachable(dict.fromkeys([n for n in nodes if n is not None]))
        return {edge for node in (*order, *accumulating) for edge in node.edges if edge is not None}

    def at(self, tensor: Tensor, edge: Edge, kind: str) -> tuple[Any, HookPlace] | None:
        """The role and place to which a hook at this edge can be moved; None if it has to stay.

        A hook on a result that is a view stays: a later write bypasses it in eager (TEN-39), and
        the result may be rebuilt as no view (META-10).
        """
        given = self._recorder.input_of(tensor)
        if given is None:
            places = [i for i, result in enumerate(self._results) if result is tensor]
            role: Any = Output(places[0]) if places else None
        else:
            role = given.role
            if given.entry == edge and not given.is_leaf:
                self._check_view(given)
                return role, HookPlace.ENTRY
        if role is None:
            return None
        if isinstance(edge[0], AccumulateGrad):
            from_outside = given is not None or edge not in self._inner
            return (role, HookPlace.LEAF) if from_outside else None
        if (tensor._node, tensor._index) != edge or is_stale(tensor):
            return None
        if edge not in self._inner:
            leaves = given is not None or tensor._base is None or kind == "retained"
            return (role, HookPlace.NOW) if leaves else None
        if given is not None and kind != "retained" and whole_edge(tensor) != edge:
            raise self._recorder.refuse(
                f"a hook on {given.place} that is given the sum of gradients from inside and "
                "outside the function",
                "register it outside, before the call or after it",
            )
        return None

    def _check_view(self, given: Any) -> None:
        if given.storage.version and self._recorder.real_of(given.fake)._base is not None:
            raise self._recorder.refuse(
                f"a hook on {given.place}, a view that the function writes,",
                "register it outside, or on x.view_as(x), taken inside",
            )
