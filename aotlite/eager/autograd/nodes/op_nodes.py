"""`OpNode`: the tape node of an op, with the values saved for its gradient formulas.

An edge (node, index) of a tensor is where its gradient goes: to result `index` of `node`. `run`
takes the gradients of a node's results and returns those of its edges. It uses tensor ops only, so
that the same code runs the eager backward, records the joint graph, and is differentiated again.
Rules: TEN-12, TEN-13, TEN-17, TEN-28, TEN-29. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from itertools import compress
from types import MappingProxyType
from typing import Any

import attrs

from aotlite.eager.autograd.nodes.saved_names import name_saved
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor, detached_alias, saved
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.node import (
    SEQUENCE,
    Edge,
    Gradients,
    TapeNode,
    refuse_outside,
    released,
)
from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep
from aotlite.eager.base.tensor import Tensor, apply_op
from aotlite.eager.subclass.protocol import GradientForm, whole
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import CACHE_LIMIT, OPS, DataOp, Op, Source, Vjp
from aotlite.ir.ops.views.view_ops import VIEW


@attrs.frozen(eq=False, repr=False)
class FormulaPlan:
    """The formulas of an op for one set of operands that need gradients, and what they read."""

    needed: tuple[int, ...]
    """Positions of these operands."""
    formulas: tuple[tuple[Callable[..., Any], tuple[tuple[Fetch, int], ...]], ...]
    """For each of them: (its formula, how to fetch each of the formula's parameters)."""
    reads: tuple[int, ...]
    """Positions of the arguments that some formula reads."""
    operands: frozenset[int]
    """The positions among `reads` of tensors, or of numbers in a tensor's place."""
    results: tuple[int, ...]
    """Numbers of the results that some formula reads."""


def plan_of(op: Op, vjp: Vjp, needed: tuple[int, ...]) -> FormulaPlan:
    """The plan of an op for these operands; cached with the op's formulas."""
    found: FormulaPlan | None = vjp.plans.get(needed)
    if found is None:
        found = vjp.plans[needed] = _make_plan(vjp, needed)
        name_saved(OpNode, op)
    return found


def _make_plan(vjp: Vjp, needed: tuple[int, ...]) -> FormulaPlan:
    operands, results = vjp.saves(needed)
    reads = tuple(sorted({*operands, *vjp.reads(Source.CONSTANT, needed)}))
    # `OpNode.kept` has the arguments in the order of `reads`.
    places = {position: place for place, position in enumerate(reads)}
    formulas = []
    for position in needed:
        formula = vjp.formulas[position]
        fetches = [
            (_FETCH[kind], places[i] if kind in (Source.OPERAND, Source.CONSTANT) else i)
            for kind, i in formula.sources
        ]
        formulas.append((formula.function, tuple(fetches)))
    return FormulaPlan(needed, tuple(formulas), reads, frozenset(operands), results)


@cache
def name_of(op: str) -> str:
    """The name of an op's tape nodes: `ReluBackward`. An op with its count has that of the op whose
    results it computes, since eager's tape shows that one."""
    whole = OPS.get(op.removesuffix("_fitted"))
    if isinstance(whole, DataOp) and whole.fitted.name == op:
        op = whole.name
    return "".join([part.capitalize() for part in op.split("_")]) + "Backward"


@attrs.frozen(eq=False, repr=False)
class OpCall:
    """What tape nodes share of calls with one key and the same operands that need gradients."""

    op: Op
    plan: FormulaPlan
    key: tuple[Any, ...]
    """The key of the call (`Op.key`)."""
    result: Any
    """The meta of the result, or a tuple of metas."""


class Calls(dict[Any, OpCall]):
    """The `OpCall`s of an op with one key, by the positions of the operands that need gradients.

    A call whose result has another meta than the first one had has that in its dict key as well.
    """

    __slots__ = ("key",)

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key


def calls_of(op: Op, key: tuple[object, ...]) -> Calls:
    """The calls of an op with this key; cached with the op."""
    found: Calls | None = op.calls.get(key)
    if found is None:
        found = Calls(key)
        if key in op.results:  # none with symbolic sizes is
            if len(op.calls) >= CACHE_LIMIT:
                op.calls.clear()
            op.calls[key] = found
    return found


def new_call(op: Op, vjp: Vjp, calls: Calls, needed: tuple[int, ...], result: object) -> OpCall:
    """The `OpCall` for these operands and this result; made if it is missing."""
    first = calls.get(needed)
    where = needed if first is None or first.result == result else (needed, result)
    found = calls.get(where)
    if found is None:
        found = calls[where] = OpCall(op, plan_of(op, vjp, needed), calls.key, result)
    return found


class OpNode(TapeNode):
    """The node of a pure op or a view, with the values that its gradient formulas read.

    `kept` has the arguments at the positions `plan.reads`; None once they are freed.
    """

    __slots__ = ("call", "kept", "saved_results")

    def __init__(self, call: OpCall, kept: Any, edges: Any) -> None:
        self.call = call
        self.kept: tuple[Any, ...] | None = kept
        self.edges = edges
        self.saved_results: Mapping[int, SavedTensor] = NO_RESULTS
        self.sequence = next(SEQUENCE)
        self.origin = self.extra = None

    def name(self) -> str:
        return name_of(self.call.op.name)

    @property
    def op(self) -> Op:
        """The op that was called."""
        return self.call.op

    @property
    def plan(self) -> FormulaPlan:
        """The formulas to run, and what they read."""
        return self.call.plan

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of the call (`Op.key`)."""
        return self.call.key

    @property
    def result(self) -> Any:
        """The meta of the result, or a tuple of metas."""
        return self.call.result

    @property
    def needed(self) -> tuple[int, ...]:
        """Positions of the operands that need gradients."""
        return self.plan.needed

    def results(self) -> int:
        result = self.call.result
        return len(result) if type(result) is tuple else 1

    def formed(self, index: int, grad: Tensor) -> Tensor:
        form = None if self.extra is None else self.extra.forms.get(index)
        return whole(grad) if form is None else form(grad)

    def save_results(self, outs: tuple[Tensor, ...]) -> None:
        """Saves those of the results that the formulas read."""
        results = self.call.plan.results
        if results:
            keep = SavedTensor if STATE.watch is None else saved
            self.saved_results = {k: keep(detached_alias(outs[k])) for k in results}

    def run(self, grads: Gradients) -> Sequence[Tensor | None]:
        if self.kept is None:
            raise released(self.name())
        found: list[Tensor | None] = []
        key, plan = self.call.key, self.call.plan
        for position, (function, fetches) in zip(plan.needed, plan.formulas, strict=True):
            grad = function(*[fetch(self, grads, i) for fetch, i in fetches])
            meta = key[position]
            if type(meta) is tuple:
                found += [fitted(g, m) for g, m in zip(grad, meta, strict=True)]
            elif grad is None or grad.meta is meta:
                found.append(grad)
            else:
                found.append(fitted(grad, meta))
        return found

    def run_for(self, grads: Gradients, wanted: Sequence[bool]) -> Sequence[Tensor | None]:
        """The wanted gradients, each by its own formula; None for the others (TEN-44)."""
        if all(wanted) or len(wanted) != len(self.plan.needed):  # a list has an edge for each part
            return self.run(grads)
        if self.kept is None:
            raise released(self.name())
        found: list[Tensor | None] = []
        for yes, position, (function, fetches) in zip(
            wanted, self.plan.needed, self.plan.formulas, strict=True
        ):
            grad = function(*[fetch(self, grads, i) for fetch, i in fetches]) if yes else None
            found.append(fitted(grad, self.key[position]))
        return found

    def _slots(self) -> list[bool]:
        """For each differentiable operand, parts of lists too, whether it has an edge."""
        slots: list[bool] = []
        vjp: Vjp = self.op.vjp  # type: ignore[attr-defined]
        for position in vjp.positions:
            meta = self.key[position]
            count = len(meta) if type(meta) is tuple else 1
            slots += [position in self.plan.needed] * count
        return slots

    def spread(self, values: Sequence[object]) -> list[Any]:
        rest = iter(values)
        return [next(rest) if used else None for used in self._slots()]

    def gathered(self, values: Sequence[object]) -> list[Any]:
        return list(compress(values, self._slots()))

    def kept_records(self) -> list[SavedTensor]:
        """In the order in which `run` reads them: the first that was written is in its error."""
        found: dict[SavedTensor, None] = {}
        for _, fetches in self.plan.formulas if self.kept is not None else ():
            for fetch, i in fetches:
                if fetch is operand_of:
                    kept = self.kept[i]  # type: ignore[index]
                    found.update(dict.fromkeys(kept if type(kept) is list else (kept,)))
                elif fetch is result_of:
                    found[self.saved_results[i]] = None
        return [each for each in found if type(each) is SavedTensor]

    def kept_by_name(self, name: str) -> Any:
        """The saved value of a parameter, or of the result. Raises AttributeError for none."""
        if name == "result" and self.plan.results:
            if not self.saved_results:
                raise released(self.name())
            return self.saved_results[self.plan.results[0]]
        for place, position in enumerate(self.plan.reads):
            if self.op.schema.parameters[position].name == name:
                if self.kept is None:
                    raise released(self.name())
                return self.kept[place]
        raise AttributeError(f"{self.name()} has saved nothing of the name {name!r}")

    def is_spent_once(self) -> bool:
        return bool(self.call.plan.operands or self.saved_results)

    def release(self) -> None:
        if self.is_spent_once():
            self.kept = None
            self.saved_results = NO_RESULTS


def new_node(call: OpCall, args: tuple[object, ...], edges: object) -> OpNode:
    """The node of a call; it saves those of the arguments that the plan reads."""
    plan = call.plan
    if STATE.watch is None:
        return OpNode(call, kept_of(plan, args) if plan.reads else (), edges)
    node = OpNode(call, kept_of(plan, args, saved), edges)
    STATE.watch.made(node)
    return node


def kept_of(
    plan: FormulaPlan, args: tuple[object, ...], keep: Callable[[Tensor], SavedTensor] = SavedTensor
) -> tuple[Any, ...]:
    """The arguments that the formulas of a plan read, tensors as `SavedTensor`s."""
    kept: list[Any] = []
    for position in plan.reads:
        value = args[position]
        if isinstance(value, Tensor):
            value = keep(value)
        elif type(value) is tuple and position in plan.operands:
            value = [keep(item) for item in value]
        kept.append(value)
    return tuple(kept)


NO_RESULTS: Mapping[int, SavedTensor] = MappingProxyType({})
"""The saved results of a node that needs none, or was freed."""


# ------------------------------------------------- where the parameters of a formula come from
Fetch = Callable[[OpNode, Gradients, int], Any]


def _grad(node: OpNode, grads: Gradients, index: int) -> Tensor:
    grad = grads[index]
    if grad is None:  # of several results, only others have gradients
        grad = grads[index] = zeros_of(node.result[index])
    return grad


def _grad_or_none(node: OpNode, grads: Gradients, index: int) -> object:
    return grads[index]


def _grads(node: OpNode, grads: Gradients, index: int) -> list[Tensor]:
    return [_grad(node, grads, k) for k in range(node.results())]


def _grads_or_none(node: OpNode, grads: Gradients, index: int) -> Gradients:
    return grads


def zeros_of(meta: TensorMeta) -> Tensor:
    """Zeros of this shape and dtype."""
    return apply_op(OPS["full"], (meta.shape, 0, meta.dtype, meta.device))


def operand_of(node: OpNode, grads: Gradients, place: int) -> object:
    saved = node.kept[place]  # type: ignore[index]
    if type(saved) is SavedTensor:
        return saved.unpack(node)
    if type(saved) is list:
        return [item.unpack(node) for item in saved]
    return saved


def _constant(node: OpNode, grads: Gradients, place: int) -> object:
    return node.kept[place]  # type: ignore[index]


def _operand_meta(node: OpNode, grads: Gradients, index: int) -> object:
    return node.call.key[index]


def result_of(node: OpNode, grads: Gradients, index: int) -> Tensor:
    tensor = node.saved_results[index].unpack(node)
    if not STATE.grad_mode:
        return tensor
    linked = detached_alias(tensor)
    linked._node, linked._index, linked.facts = node, index, None
    return linked


def _result_meta(node: OpNode, grads: Gradients, index: int) -> object:
    result = node.call.result
    return result[index] if type(result) is tuple else result


_FETCH: dict[Source, Fetch] = {
    Source.GRAD: _grad,
    Source.GRAD_OR_NONE: _grad_or_none,
    Source.GRADS: _grads,
    Source.GRADS_OR_NONE: _grads_or_none,
    Source.OPERAND: operand_of,
    Source.OPERAND_META: _operand_meta,
    Source.RESULT: result_of,
    Source.RESULT_META: _result_meta,
    Source.CONSTANT: _constant,
}


def fitted(grad: Tensor | None, meta: TensorMeta) -> Tensor | None:
    """The gradient summed over broadcast dimensions and cast to the operand's dtype (TEN-36)."""
    if grad is None:
        return None
    given, wanted = grad.meta, meta.shape
    if given.table is not None or len(given.shape) != len(wanted) or given.shape != wanted:
        grad = grad.sum_to(wanted)
    return grad if grad.meta.dtype is meta.dtype else grad.to_kind(meta.dtype)


class SliceAssign(TapeNode):
    """The history of a base after a write to one of its views (TEN-17): PyTorch's CopySlices.

    `written` is the node of the op whose result was written; `chain` leads from the root to the
    view. The first edge is the base's history before the write, then come those of the op's other
    operands.
    """

    __slots__ = ("chain", "own", "root_meta", "written")

    def __init__(
        self,
        written: TapeNode,
        chain: ViewChain,
        root_meta: TensorMeta,
        base: Edge | None,
        own: int | None,
    ) -> None:
        self.written = written
        self.chain = chain
        self.root_meta = root_meta
        self.own = own
        """The number of the written node's edge for the view; None if it has none."""
        rest = [edge for i, edge in enumerate(written.edges) if i != own]
        self.edges = (base, *rest)
        self.sequence = next(SEQUENCE)
        self.origin = written.origin
        self.extra = written.extra

    def run(self, grads: Gradients) -> Sequence[Tensor | None]:
        grad = grads[0]
        if grad is None:
            return [None] * len(self.edges)
        grad = laid_out(grad, self.root_meta)
        seen = replay(self.chain, grad)
        written = self.written
        if STATE.grad_mode and type(written) is OpNode:
            # A saved result has the node that runs as its history. A second derivative frees that
            # node in its own turn, and must not free this one.
            written = copy(written)
        inner = list(written.run([seen]))
        at_view = None if self.own is None else inner.pop(self.own)
        base = None
        if self.edges[0] is not None:
            hole = at_view if at_view is not None else seen.new_zeros(seen.shape)
            base = put(self.chain, grad, hole)
        return [base, *inner]

    def kept_records(self) -> list[SavedTensor]:
        return self.written.kept_records()

    def is_spent_once(self) -> bool:
        return self.written.is_spent_once()

    def release(self) -> None:
        self.written.release()


def replay(chain: Iterable[ViewStep], value: Tensor) -> Tensor:
    """The views of `chain` applied to `value`."""
    for step in chain:
        if step.op is VIEW:  # the strides of a copy may not allow it
            value = value.reshape(step.result.shape)
        else:
            value = value._apply(step.op.shown, (value, *step.args))
    return value


def put(chain: ViewChain | tuple[ViewStep, ...], base: Any, value: object) -> Any:
    """`base` with the part that `chain` shows replaced by `value`; inverts `replay` (FUN-7)."""
    if not chain:
        return value
    parents = [base]
    for step in chain[:-1]:
        parents.append(replay((step,), parents[-1]))
    for step, parent in zip(reversed(chain), reversed(parents), strict=True):
        value = step.op.put(parent, value, *step.args)
    return value


class InputNode(TapeNode):
    """Stands for the history of a captured input outside of the capture: gradients end here."""

    __slots__ = ("form",)

    def __init__(self, form: GradientForm | None = None) -> None:
        self.form = form
        """Converts the input's gradient to its form (`gradient_forms`)."""
        self.edges = ()
        self.sequence = next(SEQUENCE)
        self.origin = self.extra = None

    def run(self, grads: Gradients) -> Sequence[Tensor | None]:
        raise refuse_outside()

    def is_outside(self) -> bool:
        return True

    def formed(self, index: int, grad: Tensor) -> Tensor:
        return grad if self.form is None else self.form(grad)


def laid_out(grad: Tensor, meta: TensorMeta) -> Tensor:
    """The gradient with the strides of `meta`, for which a chain was recorded.

    Gaps between elements are zeros, since an `as_strided` may show them.
    """
    if meta.dense:
        return grad if grad.meta.stride == meta.stride else grad.restride(meta.stride)
    flat = grad.new_zeros((meta.span,)).as_strided_scatter(grad, meta.shape, meta.stride, 0)
    return flat.as_strided(meta.shape, meta.stride, 0)
