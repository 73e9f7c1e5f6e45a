"""Tangents and gradients that are wrappers: placeholders for their parts, outputs for their parts.

A fake tangent for a wrapper result is a wrapper over dense placeholders, in the form that the
result's class wants. A wrapper gradient becomes dense outputs, and a `SubclassMeta` by which the
runtime rebuilds it. Used by stage 4. Rules: SUB-3, SUB-8, SUB-11..SUB-13, TAN-2, TAN-6.
Spec: `specs/s5_desugar.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.eager.base.modes import recording
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.checks import text_of
from aotlite.eager.subclass.protocol import (
    WrapperStorage,
    flatten,
    inner_tensors,
    is_wrapper,
    leaves_of,
    unflatten,
)
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import (
    Family,
    Gradient,
    IntermediateBase,
    MutatedInput,
    Output,
    Piece,
    Result,
    Role,
    Tangent,
)
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import SourceRole
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.recording_blocks import in_phase, nothing_kept
from aotlite.stages.shared.gradient_sinks import GradientSource
from aotlite.stages.shared.subclass_rebuild import rebuilt_wrapper, subclass_meta_of


# ------------------------------------------------------------------------------ tangents, gradients
@attrs.frozen(eq=False, repr=False)
class FakeTangent:
    """The fake gradient of a result, from which the engine's recorded run starts."""

    tensor: Tensor
    inputs: tuple[Node, ...]
    """Its placeholders: one, or those of a wrapper's parts and then its own."""
    wrapping: SubclassMeta | None
    """How a wrapper is made of them (SUB-12); None for a dense tangent."""


def wrapper_of(captured: Captured, meta: FunctionMeta, result: Result) -> Tensor | None:
    """The wrapper of a differentiable result; None for a dense one."""
    wrappers = captured.recorder.wrapped.nodes
    if not wrappers:
        return None
    sources: dict[Role, Any] = {source.role: source for source in captured.sources}
    match result:
        case MutatedInput(Family() as family):
            first = sources[sources[family].members[0]]
            member = captured.recorder.real_of(first.fake)
            found: Tensor = member if member._base is None else member._base
        case MutatedInput(of):
            found = sources[of].fake
        case IntermediateBase(index):
            base = meta.bases[index].node
            return None if base is None else wrappers.get(base)
        case _:
            found = captured.results[captured.index_of(result)]
    return found if is_wrapper(found) else None


def fake_tangent(
    recorder: Trace, result: Result, meta: TensorMeta, like: Tensor | None
) -> FakeTangent:
    """The tangent of a result: with its strides, or contiguous if these overlap (TAN-2).

    `like` is the result if it is a wrapper; its class may want another form (TAN-6).
    """
    if like is not None:
        like = _each_once(recorder, _preferred(recorder, like))
    return stand_in(recorder, result, Tangent, meta if like is None else like.meta, like)


def stand_in(
    recorder: Trace,
    result: Result,
    role_of: Callable[[Result], Role],
    meta: TensorMeta,
    like: Tensor | None,
) -> FakeTangent:
    """A fake gradient with the form of `like`; `role_of` makes the roles of its placeholders."""
    if like is None or not is_wrapper(like):
        tensor = _dense_tangent(recorder, role_of(result), meta)
        return FakeTangent(tensor, (tensor.value,), None)
    wrapping = subclass_meta_of(like, result, {}, Piece)
    inputs: list[Node] = []
    tensor = _wrapper_tangent(recorder, result, role_of, like, inputs)
    return FakeTangent(tensor, tuple(inputs), wrapping)


def _phase_of(role: Role) -> Phase:
    return Phase.BACKWARD if type(role) is Tangent else Phase.FORWARD


def _dense_tangent(recorder: Trace, role: Role, meta: TensorMeta) -> Tensor:
    if has_internal_overlap(meta.shape, meta.stride):
        meta = meta.as_contiguous()
    tangent = Tensor(Storage(None, capture=recorder), meta)
    tangent.value = Node(
        "placeholder", role, meta=meta, role=role, phase=_phase_of(role), grad_mode=False
    )
    return tangent


def _wrapper_tangent(
    recorder: Trace,
    result: Result,
    role_of: Callable[[Result], Role],
    like: Tensor,
    inputs: list[Node],
) -> Tensor:
    names, _ = flatten(like)
    inner: dict[str, Tensor] = {}
    for name in names:
        part, of = getattr(like, name), Piece(result, name)
        if is_wrapper(part):
            inner[name] = _wrapper_tangent(recorder, of, role_of, part, inputs)
        else:
            inner[name] = _dense_tangent(recorder, role_of(of), part.meta)
            inputs.append(inner[name].value)
    meta = like.meta
    tangent = rebuilt_wrapper(recorder, like, inner)
    tangent.storage = storage = WrapperStorage(type(like))
    storage.capture = recorder
    role = role_of(result)
    value = Node("placeholder", role, meta=meta, role=role, phase=_phase_of(role), grad_mode=False)
    tangent.value = value
    recorder.wrapped.nodes[value] = tangent
    inputs.append(value)
    return tangent


def form_of(recorder: Trace, tensor: Tensor) -> Tensor:
    """A fresh fake with the form of this tensor, on storages of its own."""
    if is_wrapper(tensor):
        inner = {name: form_of(recorder, part) for name, part in inner_tensors(tensor).items()}
        form = rebuilt_wrapper(recorder, tensor, inner)
    else:
        form = Tensor(Storage(None, capture=recorder), tensor.meta)
    form.storage.capture = recorder
    form.value = Node("placeholder", Tangent(Output(0)), meta=tensor.meta)
    return form


def _preferred(recorder: Trace, like: Tensor) -> Tensor:
    """A fake with the form that the result's class wants for gradients (TAN-6)."""
    if not hasattr(like, "__coerce_tangent_metadata__"):
        return like
    with nothing_kept(recorder):
        found = form_of(recorder, like).__coerce_tangent_metadata__()
        found = form_of(recorder, found) if isinstance(found, Tensor) else found
    if not isinstance(found, Tensor) or found.meta.shape != like.meta.shape:
        shown = found.meta if isinstance(found, Tensor) else text_of(found)
        raise noted(
            SubclassError(
                f"{type(like).__name__}.__coerce_tangent_metadata__ gives {shown}, expected a "
                f"tensor of shape {like.meta.shape}"
            ),
            "It says in which form gradients of a result are expected. (TAN-6)",
        )
    return found


def _each_once(recorder: Trace, like: Tensor) -> Tensor:
    """A contiguous fake of the same form, if elements of `like` share memory; else itself."""
    if not has_internal_overlap(like.meta.shape, like.meta.stride):
        return like
    with nothing_kept(recorder), recording(recorder):
        return form_of(recorder, like.detach().restride(like.meta.as_contiguous().stride))


def flat_gradients(
    recorder: Trace, sources: Sequence[GradientSource], grads: Sequence[Tensor | None]
) -> tuple[list[tuple[Role, Node | None]], dict[Role, SubclassMeta | None]]:
    """The sources' gradients as graph outputs, and the metas by which wrappers are made of them."""
    outputs: list[tuple[Role, Node | None]] = []
    wrappings: dict[Role, SubclassMeta | None] = {}
    for source, grad in zip(sources, grads, strict=True):
        if source.entries:
            values, wrappings[Gradient(source.role)] = flat_gradient(recorder, source.role, grad)
            outputs += values
    return outputs, wrappings


def flat_gradient(
    recorder: Trace, role: SourceRole, grad: Tensor | None
) -> tuple[list[tuple[Role, Node | None]], SubclassMeta | None]:
    """A gradient as graph outputs, and the meta by which a wrapper is made of them (SUB-11)."""
    if grad is None or not is_wrapper(grad):
        return [(Gradient(role), None if grad is None else grad.value)], None
    with in_phase(recorder, Phase.BACKWARD):
        grad = dense_all_through(recorder, grad)
    wrapping = subclass_meta_of(grad, role, {}, Piece)
    values = zip(wrapping.leaves(), leaves_of(grad), strict=True)
    return [(Gradient(of), recorder.here(leaf).value) for (_, of), leaf in values], wrapping


def dense_all_through(recorder: Trace, grad: Tensor) -> Tensor:
    """The gradient, and its parts, without gaps or repeated elements, as graphs return them."""
    with recording(recorder):
        return _spread(recorder, grad)


def _spread(recorder: Trace, tensor: Tensor) -> Tensor:
    if not is_wrapper(tensor):
        meta = tensor.meta
        return tensor if meta.dense else tensor.restride(meta.as_contiguous().stride)
    inner = inner_tensors(tensor)
    dense = {name: _spread(recorder, part) for name, part in inner.items()}
    if tensor.meta.dense and all(dense[name] is part for name, part in inner.items()):
        return tensor
    made = _laid_out(recorder, tensor, dense)
    made.storage.capture = recorder
    return recorder.here(made)


def _laid_out(recorder: Trace, tensor: Tensor, dense: dict[str, Tensor]) -> Tensor:
    """A wrapper of these parts, with contiguous outer strides unless its own are dense."""
    meta = tensor.meta
    if meta.dense:
        return rebuilt_wrapper(recorder, tensor, dense)
    stride, spec = meta.as_contiguous().stride, flatten(tensor)[1]
    try:
        return unflatten(type(tensor), dense, spec, meta.shape, stride)
    except SubclassError:
        return _spread(recorder, tensor.restride(stride))
