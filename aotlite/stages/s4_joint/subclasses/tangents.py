"""How wrappers are made of parts: the records that stages 2 and 4 make, and stage 10 writes out.

A `SubclassMeta` says by roles what a wrapper's parts are. `with_parts` adds the inner tensors of
what a function makes to its results, so that every question about memory is asked of dense tensors.
Rules: SUB-3, SUB-8, SUB-11..SUB-13. Spec: `specs/s5_desugar.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.eager.base.modes import recording
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.checks import told
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
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.recording_blocks import in_phase, nothing_kept
from aotlite.stages.shared.subclass_rebuild import rebuilt_wrapper, subclass_meta_of


# ------------------------------------------------------------------------------ tangents, gradients
@attrs.frozen(eq=False)
class FakeTangent:
    """What stands for the gradient that arrives for a result while the backward is recorded."""

    tensor: Tensor
    inputs: tuple[Node, ...]
    """The inputs that it is made of."""
    wrapping: SubclassMeta | None
    """How, where it is a wrapper (SUB-12)."""


def wrapper_of(captured: Captured, meta: FunctionMeta, result: Result) -> Tensor | None:
    """The wrapper that a differentiable result is, if it is one."""
    wrappers = captured.recorder.wrapped.nodes
    if not wrappers:
        return None
    sources: dict[Any, Any] = {source.role: source for source in captured.sources}
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
    recorder: Trace, result: Any, meta: TensorMeta, like: Tensor | None
) -> FakeTangent:
    """TAN-2: a tangent has the layout of its result, contiguous where that overlaps itself.

    `like` is the result where that is a wrapper, whose class may want another form (TAN-6).
    """
    if like is not None:
        like = _each_once(recorder, _preferred(recorder, like))
    return stand_in(recorder, result, Tangent, meta if like is None else like.meta, like)


def stand_in(
    recorder: Trace,
    result: Any,
    role_of: Callable[[Any], Any],
    meta: TensorMeta,
    like: Tensor | None,
) -> FakeTangent:
    """A gradient that arrives, in the form of `like`; `role_of` gives the roles of its inputs."""
    if like is None or not is_wrapper(like):
        tensor = _dense_tangent(recorder, role_of(result), meta)
        return FakeTangent(tensor, (tensor.value,), None)
    wrapping = subclass_meta_of(like, result, {}, Piece)
    inputs: list[Node] = []
    tensor = _wrapper_tangent(recorder, result, role_of, like, inputs)
    return FakeTangent(tensor, tuple(inputs), wrapping)


def _phase_of(role: Any) -> Phase:
    return Phase.BACKWARD if type(role) is Tangent else Phase.FORWARD


def _dense_tangent(recorder: Trace, role: Any, meta: TensorMeta) -> Tensor:
    if has_internal_overlap(meta.shape, meta.stride):
        meta = meta.as_contiguous()
    tangent = Tensor(Storage(None, capture=recorder), meta)
    tangent.value = Node(
        "placeholder", role, meta=meta, role=role, phase=_phase_of(role), grad_mode=False
    )
    return tangent


def _wrapper_tangent(
    recorder: Trace, result: Any, role_of: Callable[[Any], Any], like: Tensor, inputs: list[Node]
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
    """A tensor like this one that nothing else has anything to do with."""
    if is_wrapper(tensor):
        inner = {name: form_of(recorder, part) for name, part in inner_tensors(tensor).items()}
        form = rebuilt_wrapper(recorder, tensor, inner)
    else:
        form = Tensor(Storage(None, capture=recorder), tensor.meta)
    form.storage.capture = recorder
    form.value = Node("placeholder", Tangent(Output(0)), meta=tensor.meta)
    return form


def _preferred(recorder: Trace, like: Tensor) -> Tensor:
    """TAN-6: the form in which the result's class wants its gradients; nothing of it is kept."""
    if not hasattr(like, "__coerce_tangent_metadata__"):
        return like
    with nothing_kept(recorder):
        found = form_of(recorder, like).__coerce_tangent_metadata__()
        found = form_of(recorder, found) if isinstance(found, Tensor) else found
    if not isinstance(found, Tensor) or found.meta.shape != like.meta.shape:
        shown = found.meta if isinstance(found, Tensor) else told(found)
        raise noted(
            SubclassError(
                f"{type(like).__name__}.__coerce_tangent_metadata__ gives {shown}, expected a "
                f"tensor of shape {like.meta.shape}"
            ),
            "It says in which form gradients of a result are expected. (TAN-6)",
        )
    return found


def _each_once(recorder: Trace, like: Tensor) -> Tensor:
    """Contiguous where elements lie in one place; nothing of it is kept."""
    if not has_internal_overlap(like.meta.shape, like.meta.stride):
        return like
    with nothing_kept(recorder), recording(recorder):
        return form_of(recorder, like.detach().restride(like.meta.as_contiguous().stride))


def flat_gradients(
    recorder: Trace, sources: Sequence[Any], grads: Sequence[Any]
) -> tuple[list[tuple[Role, Any]], dict[Any, SubclassMeta | None]]:
    """The outputs that the sources' gradients are, and how those are made that are wrappers."""
    outputs: list[tuple[Role, Any]] = []
    wrappings: dict[Any, SubclassMeta | None] = {}
    for source, grad in zip(sources, grads, strict=True):
        if source.entries:
            values, wrappings[Gradient(source.role)] = flat_gradient(recorder, source.role, grad)
            outputs += values
    return outputs, wrappings


def flat_gradient(
    recorder: Trace, role: Any, grad: Tensor | None
) -> tuple[list[tuple[Role, Any]], SubclassMeta | None]:
    """The outputs of a backward that a gradient is, and how they make it (SUB-11)."""
    if grad is None or not is_wrapper(grad):
        return [(Gradient(role), None if grad is None else grad.value)], None
    with in_phase(recorder, Phase.BACKWARD):
        grad = dense_all_through(recorder, grad)
    wrapping = subclass_meta_of(grad, role, {}, Piece)
    values = zip(wrapping.leaves(), leaves_of(grad), strict=True)
    return [(Gradient(of), recorder.here(leaf).value) for (_, of), leaf in values], wrapping


def dense_all_through(recorder: Trace, grad: Tensor) -> Tensor:
    """The gradient with each element once, and its parts likewise, as compiled code gives them."""
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
    """A wrapper of these parts with each element once: by its class, where that has to say how."""
    meta = tensor.meta
    if meta.dense:
        return rebuilt_wrapper(recorder, tensor, dense)
    stride, spec = meta.as_contiguous().stride, flatten(tensor)[1]
    try:
        return unflatten(type(tensor), dense, spec, meta.shape, stride)
    except SubclassError:
        return _spread(recorder, tensor.restride(stride))
