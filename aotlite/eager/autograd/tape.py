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
from collections.abc import Iterable, Sequence
from typing import Any

from aotlite.eager.autograd.chain import EMPTY_CHAIN, Chain, Step
from aotlite.eager.state import STATE
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Formula, Op, Source, Vjp

Edge = tuple[Any, int]
Gradients = list[Any]

_SEQUENCE = itertools.count()


def next_sequence() -> int:
    """The number of the next tape node: nodes made later have a greater one (SEQ-1)."""
    return next(_SEQUENCE)


LAST = 1 << 62
"""Sequence number of gradient accumulation: as soon as it is ready, it runs (TEN-27)."""


class SavedTensor:
    """A tensor kept for the backward, with the version it had (TEN-12)."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.version = tensor.storage.version

    def unpack(self, name: str) -> Tensor:
        """The tensor. Raises AutogradError if it was written since."""
        tensor = self.tensor
        if tensor.storage.version != self.version:
            raise noted(
                AutogradError(
                    f"{name}: a saved tensor {tensor.meta} is at version {tensor.storage.version}, "
                    f"expected version {self.version}: it was modified in place"
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

    def run(self, grads: Gradients) -> Sequence[Any]:
        """Gradients for the edges, None where nothing flows."""
        raise AssertionError(f"{self.name} says how it runs")

    def saved_tensors(self) -> list[SavedTensor]:
        """What `run` unpacks, checking versions."""
        return []

    def release(self) -> None:
        """Drops what was saved; a second backward then raises."""


class OpNode(TapeNode):
    """The node of a pure op or a view, with what its gradient formulas read."""

    __slots__ = (
        "args",
        "count",
        "key",
        "needed",
        "op",
        "operands",
        "result_metas",
        "saved_results",
    )

    def __init__(
        self,
        op: Op,
        vjp: Vjp,
        args: tuple[Any, ...],
        edges: dict[int, Any],
        operands: dict[int, Any],
    ) -> None:
        self.op = op
        self.needed = tuple(edges)
        flat: list[Edge | None] = []
        for edge in edges.values():
            flat.extend(edge) if type(edge) is list else flat.append(edge)
        self.edges = tuple(flat)
        self.key = op.key(args)
        self.args = tuple([None if _holds_tensor(a) else a for a in args])
        self.operands: dict[int, Any] | None = operands
        self.saved_results: dict[int, SavedTensor] = {}
        self.result_metas: tuple[TensorMeta, ...] = ()
        self.count = 1
        self.sequence = next(_SEQUENCE)
        self.origin = None

    @property
    def name(self) -> str:
        return "".join(part.capitalize() for part in self.op.name.split("_")) + "Backward"

    def results(self) -> int:
        return self.count

    def set_results(self, outs: tuple[Tensor, ...]) -> None:
        """Notes the results' metas and saves those that the formulas read."""
        self.count = len(outs)
        self.result_metas = tuple([out.meta for out in outs])
        vjp: Vjp = self.op.vjp  # type: ignore[attr-defined]
        for k in vjp.saves(self.needed)[1]:
            self.saved_results[k] = SavedTensor(detached_alias(outs[k]))

    def run(self, grads: Gradients) -> Sequence[Any]:
        if self.operands is None:
            raise released(self.name)
        found: list[Any] = []
        cache: dict[tuple[Source, int], Any] = {}
        formulas = self.op.vjp.formulas  # type: ignore[attr-defined]
        for position in self.needed:
            grad = self._apply(formulas[position], grads, cache)
            meta = self.key[position]
            if type(meta) is tuple:
                found += [_fitted(g, m) for g, m in zip(grad, meta, strict=True)]
            else:
                found.append(_fitted(grad, meta))
        return found

    def _apply(self, formula: Formula, grads: Gradients, cache: dict[Any, Any]) -> Any:
        values = []
        for source in formula.sources:
            if source in cache:
                values.append(cache[source])
                continue
            kind, index = source
            if kind is Source.GRAD:
                value = grads[index]
                if value is None:
                    if self.count > 1:
                        value = self._zeros(self.result_metas[index])
                    else:
                        return None
            elif kind is Source.OPERAND:
                value = self._operand(index)
            elif kind is Source.RESULT:
                value = self._result(index)
            elif kind is Source.OPERAND_META:
                value = self.key[index]
            elif kind is Source.RESULT_META:
                value = self.result_metas[index]
            else:
                value = self.args[index]
            cache[source] = value
            values.append(value)
        return formula.function(*values)

    def _zeros(self, meta: TensorMeta) -> Any:
        from aotlite.eager.dispatch import dispatch

        return dispatch(OPS["full"], (meta.shape, 0, meta.dtype, meta.device))

    def _operand(self, index: int) -> Any:
        saved = self.operands[index]  # type: ignore[index]
        if type(saved) is SavedTensor:
            return saved.unpack(self.name)
        if type(saved) is list:
            return [item.unpack(self.name) for item in saved]
        return saved

    def _result(self, index: int) -> Tensor:
        tensor = self.saved_results[index].unpack(self.name)
        if not STATE.grad_mode:
            return tensor
        linked = detached_alias(tensor)
        linked._node, linked._index, linked.facts = self, index, None
        return linked

    def saved_tensors(self) -> list[SavedTensor]:
        found = list(self.saved_results.values())
        for saved in (self.operands or {}).values():
            each = saved if type(saved) is list else [saved]
            found += [one for one in each if type(one) is SavedTensor]
        return found

    def release(self) -> None:
        if self.operands or self.saved_results:
            self.operands = None
            self.saved_results = {}


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or (
        type(value) is tuple and bool(value) and isinstance(value[0], Tensor)
    )


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
        self.sequence = next(_SEQUENCE)
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
        self.sequence = next(_SEQUENCE)
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
        _accumulate(leaf, grads)
        return ()


def _accumulate(leaf: Tensor, grads: Gradients) -> None:
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
    return storage.buffer is not None and sys.getrefcount(storage) <= 3


def _laid_out(grad: Any, meta: TensorMeta) -> Any:
    """The gradient with the strides of `meta`, on which a chain was recorded.

    Between the elements of a `meta` with gaps lie zeros: `as_strided` may look there.
    """
    if meta.dense:
        return grad if grad.meta.stride == meta.stride else grad.restride(meta.stride)
    flat = grad.new_zeros((meta.span,)).as_strided_scatter(grad, meta.shape, meta.stride, 0)
    return flat.as_strided(meta.shape, meta.stride, 0)
