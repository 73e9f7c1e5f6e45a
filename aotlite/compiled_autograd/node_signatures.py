"""The form of a tape node (its part of the cache key), its saved values, and its twin on fakes.

A node is *open* if the gradients it computes depend only on its form and its saved values: it is
recorded. Any other node is *closed*: the engine runs it, between two graphs.
Rules: CAG-3, CAG-6, CAG-7, CAG-11, CAG-12, CAG-20. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad, collects
from aotlite.eager.autograd.nodes.op_nodes import OpNode, SliceAssign, operand_of, result_of
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph.role import Output, Saved
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op
from aotlite.stages.s10_runtime.backward.node import CompiledBackward
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan

Form = tuple[Any, ...]
"""A key: nodes of equal forms record equal graphs (CAG-7)."""

CLOSED = "closed"


# ---------------------------------------------------------------------------------------- forms
def form_of(node: TapeNode) -> Form:
    """The form of a node as it is now; that of a closed one begins with CLOSED."""
    if node.extra is not None and (not node.extra.is_idle or node.extra.forms):
        return (*_closed(node, "hooks"), *_hooks_of(node))
    if type(node) is AccumulateGrad and node.collected:
        return (*_closed(node, "hooks"), len(node.collected))
    return bare_form_of(node)


def bare_form_of(node: TapeNode) -> Form:
    """The form that a node would have without its hooks."""
    kind = type(node)
    if kind is OpNode:
        return _form_of_op(node)  # type: ignore[arg-type]
    if kind is AccumulateGrad:
        return _form_of_leaf(node)  # type: ignore[arg-type]
    if kind is SliceAssign:
        return _form_of_write(node)  # type: ignore[arg-type]
    if kind is CompiledBackward:
        return _form_of_compiled(node)  # type: ignore[arg-type]
    return _closed(node)


def _closed(node: TapeNode, why: str = "") -> Form:
    """The form of a closed node: its class, the reason, and the number of gradients it takes."""
    what = (getattr(node, name, None) for name in ("op", "plan")) if _has_plan(node) else ()
    return (CLOSED, type(node), why, node.results(), *what)


def _has_plan(node: TapeNode) -> bool:
    return type(node) in (OpNode, CompiledBackward)


def _hooks_of(node: TapeNode) -> Form:
    """The number of hooks of each kind (CAG-6); the hook functions themselves may change."""
    extra: Any = node.extra
    tensors = tuple([(index, len(hooks)) for index, hooks in extra.tensors.items()])
    forms = tuple(extra.forms)
    return tensors, tuple(extra.retained), len(extra.pre), len(extra.post), forms


def _form_of_op(node: OpNode) -> Form:
    call = node.call
    plan, op = call.plan, call.op
    if node.kept is None:
        return _closed(node, "values released")
    saved: list[Any] = []
    for position, value in zip(plan.reads, node.kept, strict=True):
        if type(value) is SavedTensor:
            saved.append(_meta_of(value))
        elif type(value) is list:
            saved.append(tuple(map(_meta_of, value)))
        elif _has_tensors(value):
            saved.append(None)
        elif is_number(op, position, value):
            saved.append((type(value), value if type(value) is int else repr(value)))
    saved += [_meta_of(record) for record in node.saved_results.values()]
    if None in saved or any(type(each) is tuple and None in each for each in saved):
        return _closed(node, "packed values")
    return (op, plan, call.key, call.result, tuple(saved))


def is_number(op: Op, position: int, value: object) -> bool:
    """Whether an argument must be in the form by value, since the op call's key is too coarse.

    The key has only the type of a number in place of a tensor, and does not tell 0.0 from -0.0.
    """
    return position in op.mixed or type(value) is float


def _has_tensors(value: object) -> bool:
    """Whether a plain argument is, or contains, a tensor: no version check covers it."""
    several = value if type(value) is tuple else (value,)
    return any(isinstance(each, Tensor) for each in several)


def _meta_of(record: SavedTensor) -> TensorMeta | None:
    """The meta of a saved tensor; None if it is packed by a hook, or a wrapper."""
    tensor = record.tensor
    return tensor.meta if tensor is not None and is_plain(tensor) else None


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has no dispatch of its own: parameters are plain, wrappers are not."""
    return tensor.__tensor_dispatch__ is None and tensor.__tensor_function__ is None


def is_released(node: TapeNode) -> bool:
    """Whether an open node has released its saved values since its form was read."""
    if type(node) is CompiledBackward:
        return node.saved is None
    saver = saver_of(node)
    return saver is not None and saver.kept is None


def _form_of_leaf(node: AccumulateGrad) -> Form:
    leaf = node.leaf
    if leaf is None:
        return (AccumulateGrad, None)
    if not is_plain(leaf):
        return _closed(node, "a wrapper")
    if node.edges:
        return (AccumulateGrad, leaf.meta, _form_of_chain(node.chain))
    return (AccumulateGrad, leaf.meta, collects(leaf))


def _form_of_chain(chain: ViewChain) -> Hashable:
    return tuple([(step.op, step.args, step.operand) for step in chain])


def _form_of_write(node: SliceAssign) -> Form:
    written = form_of(node.written) if type(node.written) is OpNode else (CLOSED,)
    if written[0] == CLOSED:
        return (*_closed(node), written)
    return (SliceAssign, written, _form_of_chain(node.chain), node.root_meta, node.own)


def _form_of_compiled(node: CompiledBackward) -> Form:
    if node.saved is None or not is_inlined(node.plan) or (node.plan.byte_checked and node.copies):
        return _closed(node)
    return (CompiledBackward, node.plan)


def is_inlined(plan: BackwardPlan) -> bool:
    """Whether a compiled backward only runs its graph, which is inlined then (CAG-11).

    Not if it raises, has effects, draws, reads memory late, has wrappers, or retains gradients.
    """
    facts = plan.facts
    parts = (
        facts.memory,
        plan.copied_on_write,
        facts.effects,
        facts.arrival_choices,
        facts.subclass_metas,
        facts.errors,
    )
    simple = not any(parts) and facts.final_rng_state is None and not facts.required_arrivals
    simple = simple and not any(isinstance(role, Output) for role, _ in plan.gradients)
    return simple and plan.variants is not None and not facts.arrivals


# ---------------------------------------------------------------------- the saved values of a node
def saver_of(node: object) -> OpNode | None:
    """The op node whose saved values this open node reads; None for other kinds of nodes."""
    node = node.written if type(node) is SliceAssign else node
    return node if type(node) is OpNode else None


def records_of(node: OpNode) -> Iterator[SavedTensor]:
    """The saved tensors of a node, in the order of its slots."""
    for value in node.kept or ():
        if type(value) is SavedTensor:
            yield value
        elif type(value) is list:
            yield from value
    yield from node.saved_results.values()


def slots_read(saver: OpNode, wanted: Sequence[bool] | None) -> list[int]:
    """The slots that the formulas of the wanted gradients read, in the order of the reads."""
    first: dict[Any, range] = {}
    count = 0
    for place, value in enumerate(saver.kept or ()):
        size = len(value) if type(value) is list else int(type(value) is SavedTensor)
        first[operand_of, place] = range(count, count + size)
        count += size
    for place in saver.saved_results:
        first[result_of, place] = range(count, count + 1)
        count += 1
    formulas = saver.plan.formulas
    chosen = [True] * len(formulas)
    if wanted is not None and len(wanted) == len(chosen):  # a list has an edge for each part
        chosen = list(wanted)
    found: dict[int, None] = {}
    for (_, fetches), yes in zip(formulas, chosen, strict=True):
        for fetch in fetches if yes else ():
            found.update(dict.fromkeys(first.get(fetch, ())))
    return list(found)


def twin_of(node: object, fakes: Iterator[Tensor]) -> Any:
    """A copy of the node that runs on fakes, one for each slot."""
    if type(node) is SliceAssign:
        write = copy.copy(node)
        write.written = twin_of(node.written, fakes)
        return write
    if type(node) is not OpNode:
        return node
    twin = OpNode(node.call, (), node.edges)
    twin.kept = tuple([_on_fakes(value, fakes) for value in node.kept or ()])
    twin.saved_results = {k: SavedTensor(next(fakes)) for k in node.saved_results}
    return twin


def _on_fakes(value: object, fakes: Iterator[Tensor]) -> object:
    if type(value) is SavedTensor:
        return SavedTensor(next(fakes))
    return [SavedTensor(next(fakes)) for _ in value] if type(value) is list else value


def saved_roles(node: CompiledBackward) -> list[Saved]:
    """The roles of a compiled call's saved values, in the order of its slots."""
    variants: Any = node.plan.variants
    return [each.role for each in variants.graph.placeholders if isinstance(each.role, Saved)]
