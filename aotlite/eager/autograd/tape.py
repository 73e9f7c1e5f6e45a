"""Tape nodes: what each op leaves behind so that gradients can flow back through it.

An edge (node, index) says whose gradient a tensor's gradient adds to: result `index` of `node`.
`run` takes the gradients of a node's results and gives those of its edges, in tensor ops only, so
that the same code differentiates eagerly, records the joint graph, and differentiates again.
Rules: TEN-12, TEN-13, TEN-17, TEN-28, TEN-29. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from aotlite.eager.autograd.chain import EMPTY_CHAIN, Chain, Step
from aotlite.eager.state import STATE
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Op, Source, Vjp

Edge = tuple[Any, int]
Gradients = list[Any]

SEQUENCE = itertools.count()


def next_sequence() -> int:
    """The number of the next tape node: nodes made later have a greater one (SEQ-1)."""
    return next(SEQUENCE)


LAST = 1 << 62
"""Sequence number of gradient accumulation: as soon as it is ready, it runs (TEN-27)."""


class SavedTensor:
    """A tensor kept for the backward, with the version it had (TEN-12)."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.version = tensor.storage.version

    def unpack(self, node: TapeNode) -> Tensor:
        """The tensor, for the node that saved it. Raises AutogradError if it was written since."""
        tensor = self.tensor
        if tensor.storage.version != self.version:
            raise noted(
                AutogradError(
                    f"{node.name}: a saved tensor {tensor.meta} is at version "
                    f"{tensor.storage.version}, expected version {self.version}: it was modified "
                    "in place"
                ),
                "Its values at the time of the forward are needed for the gradient. Write to a "
                "clone(), or write before the value is used. (TEN-12)",
            )
        return tensor


def detached_alias(tensor: Tensor) -> Tensor:
    """A tensor on the same storage without history (TEN-4, TEN-13)."""
    alias = Tensor(tensor.storage, tensor.meta, tensor.offset)
    alias.value = tensor.value
    return alias


class TapeNode:
    """Base of tape nodes."""

    __slots__ = ("__weakref__", "edges", "origin", "sequence")

    edges: tuple[Edge | None, ...]
    sequence: int
    origin: Any
    """The graph node whose op made this, while a function is captured."""

    @property
    def name(self) -> str:
        return type(self).__name__

    def results(self) -> int:
        """Number of results of the op, that is of gradients `run` takes."""
        return 1

    def leaf_nodes(self) -> list[AccumulateGrad | None] | None:
        """Where the edges lead, if each leads to a leaf of its own: no engine is needed (`single`).

        None where it is otherwise, or not known.
        """
        return None

    def gradients(self, grads: Gradients) -> list[Any]:
        """`run` for a node with `leaf_nodes`: without a history, whatever the grad mode."""
        raise AssertionError(f"{self.name} has an engine run it")

    def run(self, grads: Gradients) -> Sequence[Any]:
        """Gradients for the edges, None where nothing flows."""
        raise AssertionError(f"{self.name} says how it runs")

    def saved_tensors(self) -> list[SavedTensor]:
        """What `run` unpacks, checking versions."""
        return []

    def release(self) -> None:
        """Drops what was saved; a second backward then raises."""


@attrs.frozen(eq=False)
class Plan:
    """How a tape node of an op runs, for the operands whose gradients are asked for."""

    needed: tuple[int, ...]
    """Positions of these operands."""
    formulas: tuple[tuple[Callable[..., Any], tuple[tuple[Fetch, int], ...]], ...]
    """For each of them: its formula, and where the formula's parameters come from."""
    reads: tuple[int, ...]
    """Positions of the arguments that some formula reads."""
    operands: frozenset[int]
    """Those of `reads` that hold tensors, or numbers in a tensor's place."""
    results: tuple[int, ...]
    """Numbers of the results that some formula reads."""


def plan_of(vjp: Vjp, needed: tuple[int, ...]) -> Plan:
    """The plan for these operands, made once."""
    found: Plan | None = vjp.plans.get(needed)
    if found is None:
        found = vjp.plans[needed] = _make_plan(vjp, needed)
    return found


def _make_plan(vjp: Vjp, needed: tuple[int, ...]) -> Plan:
    operands, results = vjp.saves(needed)
    reads = tuple(sorted({*operands, *vjp.reads(Source.CONSTANT, needed)}))
    # An argument is kept at its place among those that are read.
    places = {position: place for place, position in enumerate(reads)}
    formulas = []
    for position in needed:
        formula = vjp.formulas[position]
        fetches = [
            (_FETCH[kind], places[i] if kind in (Source.OPERAND, Source.CONSTANT) else i)
            for kind, i in formula.sources
        ]
        formulas.append((formula.function, tuple(fetches)))
    return Plan(needed, tuple(formulas), reads, frozenset(operands), results)


class OpNode(TapeNode):
    """The node of a pure op or a view, with what its gradient formulas read.

    `key` is what the op's meta rule saw; `kept` are the arguments at `plan.reads`, None once they
    are released; `result` is the meta of the result, or a tuple of metas.
    """

    __slots__ = ("kept", "key", "op", "plan", "result", "saved_results")

    def __init__(self, op: Op, plan: Plan, key: tuple[Any, ...], kept: Any, edges: Any) -> None:
        self.op = op
        self.plan = plan
        self.key = key
        self.kept: tuple[Any, ...] | None = kept
        self.edges = edges
        self.result: Any = None
        self.saved_results: Mapping[int, SavedTensor] = _NOTHING
        self.sequence = next(SEQUENCE)
        self.origin = None

    @property
    def name(self) -> str:
        return "".join(part.capitalize() for part in self.op.name.split("_")) + "Backward"

    @property
    def needed(self) -> tuple[int, ...]:
        """Positions of the operands whose gradients are asked for."""
        return self.plan.needed

    def results(self) -> int:
        return len(self.result) if type(self.result) is tuple else 1

    def save_results(self, outs: tuple[Tensor, ...]) -> None:
        """Saves those of the results that the formulas read."""
        results = self.plan.results
        if results:
            self.saved_results = {k: SavedTensor(detached_alias(outs[k])) for k in results}

    def run(self, grads: Gradients) -> Sequence[Any]:
        if self.kept is None:
            raise released(self.name)
        found: list[Any] = []
        key = self.key
        for position, (function, fetches) in zip(self.plan.needed, self.plan.formulas, strict=True):
            grad = function(*[fetch(self, grads, i) for fetch, i in fetches])
            meta = key[position]
            if type(meta) is tuple:
                found += [_fitted(g, m) for g, m in zip(grad, meta, strict=True)]
            elif grad is None or grad.meta is meta:
                found.append(grad)
            else:
                found.append(_fitted(grad, meta))
        return found

    def saved_tensors(self) -> list[SavedTensor]:
        found = list(self.saved_results.values())
        for kept in self.kept or ():
            if type(kept) is SavedTensor:
                found.append(kept)
            elif type(kept) is list:
                found += kept
        return found

    def release(self) -> None:
        if self.plan.operands or self.saved_results:
            self.kept = None
            self.saved_results = _NOTHING


_NOTHING: Mapping[int, SavedTensor] = MappingProxyType({})


# ------------------------------------------------- where the parameters of a formula come from
Fetch = Callable[[OpNode, Gradients, int], Any]


def _grad(node: OpNode, grads: Gradients, index: int) -> Any:
    grad = grads[index]
    if grad is None:  # one of several: the others' gradients flow
        grad = grads[index] = _zeros(node.result[index])
    return grad


def _zeros(meta: TensorMeta) -> Any:
    from aotlite.eager.dispatch import dispatch

    return dispatch(OPS["full"], (meta.shape, 0, meta.dtype, meta.device))


def _operand(node: OpNode, grads: Gradients, place: int) -> Any:
    saved = node.kept[place]  # type: ignore[index]
    if type(saved) is SavedTensor:
        return saved.unpack(node)
    if type(saved) is list:
        return [item.unpack(node) for item in saved]
    return saved


def _constant(node: OpNode, grads: Gradients, place: int) -> Any:
    return node.kept[place]  # type: ignore[index]


def _operand_meta(node: OpNode, grads: Gradients, index: int) -> Any:
    return node.key[index]


def _result(node: OpNode, grads: Gradients, index: int) -> Tensor:
    tensor = node.saved_results[index].unpack(node)
    if not STATE.grad_mode:
        return tensor
    linked = detached_alias(tensor)
    linked._node, linked._index, linked.facts = node, index, None
    return linked


def _result_meta(node: OpNode, grads: Gradients, index: int) -> Any:
    return node.result[index] if type(node.result) is tuple else node.result


_FETCH: dict[Source, Fetch] = {
    Source.GRAD: _grad,
    Source.OPERAND: _operand,
    Source.OPERAND_META: _operand_meta,
    Source.RESULT: _result,
    Source.RESULT_META: _result_meta,
    Source.CONSTANT: _constant,
}


def released(name: str) -> AutogradError:
    """The error of a second backward through a freed node (TEN-12)."""
    return noted(
        AutogradError(
            f"{name}: the values saved for the backward are freed, expected the first backward "
            "through this graph"
        ),
        "Pass retain_graph=True to the first backward to go through the graph again. (TEN-12)",
    )


def _fitted(grad: Any, meta: TensorMeta) -> Any:
    """The gradient summed over broadcast dimensions and cast to the operand's dtype (TEN-36)."""
    if grad is None:
        return None
    if grad.meta.shape != meta.shape:
        grad = grad.sum_to(meta.shape)
    return grad if grad.meta.dtype is meta.dtype else grad.to_kind(meta.dtype)


class SliceAssign(TapeNode):
    """The history of a base after a write through one of its views (TEN-17).

    `written` is the node of the op whose result was written; `chain` leads from root to view.
    Edges: the base's history before the write, then those of the op's other operands.
    """

    __slots__ = ("chain", "root_meta", "written")

    def __init__(
        self, written: OpNode, chain: Chain, root_meta: TensorMeta, base: Edge | None
    ) -> None:
        self.written = written
        self.chain = chain
        self.root_meta = root_meta
        skip = 1 if written.needed[:1] == (0,) else 0
        self.edges = (base, *written.edges[skip:])
        self.sequence = next(SEQUENCE)
        self.origin = written.origin

    def run(self, grads: Gradients) -> Sequence[Any]:
        grad = grads[0]
        if grad is None:
            return [None] * len(self.edges)
        grad = _laid_out(grad, self.root_meta)
        seen = replay(self.chain, grad)
        inner = list(self.written.run([seen]))
        at_view = inner.pop(0) if self.written.needed[:1] == (0,) else None
        base = None
        if self.edges[0] is not None:
            hole = at_view if at_view is not None else seen.new_zeros(seen.shape)
            base = put(self.chain, grad, hole)
        return [base, *inner]

    def saved_tensors(self) -> list[SavedTensor]:
        return self.written.saved_tensors()

    def release(self) -> None:
        self.written.release()


def replay(chain: Iterable[Step], value: Any) -> Any:
    """`value` seen through the views of `chain`."""
    for step in chain:
        value = value._apply(step.op, (value, *step.args))
    return value


def put(chain: Chain | tuple[Step, ...], base: Any, value: Any) -> Any:
    """`base` with what is seen through `chain` replaced by `value` (FUN-7)."""
    parents = [base]
    for step in chain[:-1]:
        parents.append(parents[-1]._apply(step.op, (parents[-1], *step.args)))
    for step, parent in zip(reversed(chain), reversed(parents), strict=True):
        value = step.op.put(parent, value, *step.args)
    return value


class InputNode(TapeNode):
    """Stands for the history that a captured input has outside: a place where gradients end."""

    __slots__ = ()

    def __init__(self) -> None:
        self.edges = ()
        self.sequence = next(SEQUENCE)
        self.origin = None

    def run(self, grads: Gradients) -> Sequence[Any]:
        return ()


class AccumulateGrad(TapeNode):
    """Adds what arrives to the `.grad` of a leaf (TEN-29).

    It does not keep the leaf alive, which keeps this node: the gradient of a leaf that is gone is
    nobody's. After a change of the leaf's geometry, a new node collects, and this one passes on.
    """

    __slots__ = ("_leaf", "chain")

    def __init__(self, leaf: Tensor) -> None:
        self._leaf = weakref.ref(leaf)
        self.chain = EMPTY_CHAIN
        self.edges = ()
        self.sequence = LAST
        self.origin = None

    @property
    def leaf(self) -> Tensor | None:
        """The leaf, None if it is gone."""
        return self._leaf()

    def pass_on(self, chain: Chain, node: AccumulateGrad) -> None:
        """From now on gives what arrives, seen through `chain`, to `node`."""
        self.chain = chain
        self.edges = ((node, 0),)

    def run(self, grads: Gradients) -> Sequence[Any]:
        leaf = self._leaf()
        if leaf is None or grads[0] is None:
            return [None] * len(self.edges)
        if self.chain:
            return [replay(self.chain, _laid_out(grads[0], self.chain[0].operand))]
        accumulate(leaf, grads)
        return ()


def accumulate(leaf: Tensor, grads: Gradients) -> None:
    """Adds the gradient, which `grads` holds alone, to the leaf's (TEN-29)."""
    recorder = STATE.recorder
    if recorder is not None and recorder.is_outside(leaf):
        raise recorder.refuse(
            "backward() into the .grad of a tensor from outside",
            "call backward outside the compiled function, or use autograd.grad inside it",
        )
    meta = grads[0].meta
    if meta.shape != leaf.meta.shape or meta.dtype is not leaf.meta.dtype:
        raise AutogradError(
            f"backward: the gradient is {meta}, expected the shape and dtype of the leaf, "
            f"{leaf.meta}"
        )
    if leaf._grad is None:
        leaf._grad = _adopted(grads, leaf.meta)
    elif STATE.grad_mode:
        leaf._grad = leaf._grad + grads[0]
    else:
        leaf._grad.add_(grads[0])


def _adopted(grads: Gradients, leaf: TensorMeta) -> Tensor:
    """The gradient itself if nobody else can hold it and its layout is the leaf's, else a copy.

    `grads` must hold the engine's only reference: no variable on the way here may name it.
    """
    stride = leaf.stride if leaf.dense else leaf.as_contiguous().stride
    if STATE.grad_mode:  # it stays part of a graph
        return grads[0].restride(stride)
    fits = _same_layout(leaf.shape, grads[0].meta.stride, stride)
    if fits and grads[0]._base is None and _is_ours_alone(grads):
        return grads[0].detach()
    return grads[0].detach().restride(stride)


def _same_layout(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether strides agree, those of dimensions of size 1 aside, which say nothing."""
    return a == b or all(n == 1 or x == y for n, x, y in zip(shape, a, b, strict=True))


def _is_ours_alone(holder: list[Any]) -> bool:
    """Whether the list holds the only reference to a tensor whose storage no other tensor has.

    getrefcount counts its own argument too. Captured tensors have no data that copying would spare.
    """
    if sys.getrefcount(holder[0]) > 2:
        return False
    storage = holder[0].storage
    if storage.buffer is None or sys.getrefcount(storage) > 3:
        return False
    return is_whole(holder[0])


def is_whole(tensor: Tensor) -> bool:
    """Whether the tensor shows all of its buffer: a part would keep the rest alive."""
    nbytes: int = tensor.storage.buffer.nbytes
    return tensor.offset == 0 and nbytes == tensor.meta.span * tensor.meta.dtype.itemsize


def _laid_out(grad: Any, meta: TensorMeta) -> Any:
    """The gradient with the strides of `meta`, on which a chain was recorded.

    Between the elements of a `meta` with gaps lie zeros: `as_strided` may look there.
    """
    if meta.dense:
        return grad if grad.meta.stride == meta.stride else grad.restride(meta.stride)
    flat = grad.new_zeros((meta.span,)).as_strided_scatter(grad, meta.shape, meta.stride, 0)
    return flat.as_strided(meta.shape, meta.stride, 0)
