"""`backward` and `grad`: the public functions that run the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.engine import Roots, run_backward
from aotlite.eager.autograd.gradient_edge import GradientEdge
from aotlite.eager.autograd.leaf_backward import collect, grad_single, run_single, single
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import no_data
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tensor import Tensor, here
from aotlite.eager.subclass.protocol import coerced, formed
from aotlite.ir.errors import ArgumentError, AutogradError
from aotlite.ir.meta.devices import check_device

Gradients = Sequence[Tensor | None] | Tensor | None


def backward(
    tensors: Sequence[Tensor] | Tensor,
    grad_tensors: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Iterable[Tensor | GradientEdge | None] | Tensor | GradientEdge | None = None,
) -> None:
    """Adds the gradients of `tensors` to the `.grad` of the leaves that they depend on.
    With `inputs`, only to the `.grad` of these, which need not be leaves. A missing gradient is 1
    for a tensor of one element. Raises AutogradError for tensors without history, for a graph that
    was freed, and for saved values that were modified in place.
    """
    retain = create_graph if retain_graph is None else retain_graph
    plain = not create_graph and inputs is None
    one = single(tensors, grad_tensors) if plain else None
    if one is not None:
        node, grads, leaves = one
        collect(run_single(node, grads, retain=retain), leaves)
        return
    roots = _roots("backward", _listed("backward: an output", tensors), grad_tensors)
    sinks = None if inputs is None else _targets(inputs)
    run_backward(
        roots, sinks=sinks, accumulate=True, retain_graph=retain, create_graph=create_graph
    )


def grad(
    outputs: Iterable[Tensor | GradientEdge | None] | Tensor | GradientEdge,
    inputs: Iterable[Tensor | GradientEdge | None] | Tensor | GradientEdge,
    grad_outputs: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, one for each input.

    Both may be tensors or gradient edges. With `materialize_grads`, an unused input gets zeros.

    >>> import aotlite as al
    >>> x = al.tensor(3.0, requires_grad=True)
    >>> al.autograd.grad(x * x, x)
    (tensor(6.),)
    """
    if materialize_grads and allow_unused is False:
        raise ArgumentError(
            "grad: argument 'allow_unused' is False, expected True or nothing where "
            "'materialize_grads' is True"
        )
    if not isinstance(inputs, (Tensor, list, tuple)) or isinstance(inputs, GradientEdge):
        inputs = _listed("grad: an input", inputs)  # an iterator can be consumed only once
    if type(inputs) in (list, tuple) and not inputs:
        raise ArgumentError("grad: argument 'inputs' is empty, expected a tensor at least")
    retain = create_graph if retain_graph is None else retain_graph
    found: Sequence[Tensor | None] | None = None
    if STATE.recorder is not None:
        STATE.recorder.ask_gradients(_listed("grad: an input", inputs))
    if not create_graph:
        found = grad_single(outputs, grad_outputs, inputs, retain=retain)
    if found is None:
        roots = _roots("grad", _listed("grad: an output", outputs), grad_outputs)
        sinks = _sinks(inputs)
        if STATE.recorder is not None:
            STATE.recorder.check_paths([edge for edge, _ in roots], sinks)
        found = run_backward(roots, sinks=sinks, retain_graph=retain, create_graph=create_graph)
        found = _formed(inputs, found) if STATE.wrappers else found
    if materialize_grads:
        return _materialized(_listed("grad: an input", inputs), found)
    if not allow_unused:
        for i, gradient in enumerate(found):
            if gradient is None:
                raise AutogradError(
                    f"grad: input {i} is not used by the outputs, expected every input to be; pass "
                    "allow_unused=True to get None for it"
                )
    return tuple(found)


def _formed(inputs: object, found: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients, each in the gradient form of its input (SHD-15).
    Those of views may not have it yet; that of a leaf has it, unless a hook replaced it.
    """
    pairs = zip(_listed("grad: an input", inputs), found, strict=True)
    return [
        g if g is None or isinstance(t, GradientEdge) or _is_formed(t) else formed(t, g)
        for t, g in pairs
    ]


def _is_formed(target: Tensor) -> bool:
    node = target._accumulator if target._leaf else None
    return node is not None and node.extra is None


def _materialized(inputs: list[Any], found: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    for i, each in enumerate(inputs):
        if isinstance(each, GradientEdge):
            raise ArgumentError(
                f"grad: input {i} is a gradient edge, expected a tensor where 'materialize_grads' "
                "is True"
            )
    pairs = zip(inputs, found, strict=True)
    return tuple([t.new_zeros(t.shape) if g is None else g for t, g in pairs])


def _targets(inputs: object) -> list[Edge | None]:
    """The edges of `inputs`, at which the backward ends; non-leaves will retain their gradients."""
    targets = _listed("backward: an input", inputs)
    if not targets:
        raise ArgumentError("backward: argument 'inputs' is empty, expected a tensor at least")
    edges = _sinks(targets, "backward")
    for each in targets:
        if isinstance(each, Tensor):
            each.retain_grad()
    return edges


def _sinks(inputs: object, name: str = "grad") -> list[Edge | None]:
    targets = _listed(f"{name}: an input", inputs)
    sinks = [_edge(each) for each in targets]
    for i, (tensor, sink) in enumerate(zip(targets, sinks, strict=True)):
        # A view under no_grad requires grad, and its gradient goes nowhere (TEN-21).
        if sink is None and isinstance(tensor, Tensor) and not tensor.requires_grad:
            raise AutogradError(
                f"{name}: input {i} ({tensor.meta}) does not require grad, expected one that does"
            )
    return sinks


def _edge(each: Tensor | GradientEdge) -> Edge | None:
    return (each.node, each.output_nr) if isinstance(each, GradientEdge) else edge_of(here(each))


def _listed(what: str, tensors: Any) -> list[Tensor | GradientEdge]:
    try:
        alone = tensors is None or isinstance(tensors, (Tensor, GradientEdge))
        found: list[Any] = [tensors] if alone else list(tensors)
    except TypeError:
        found = [tensors]
    for item in found:
        if not isinstance(item, (Tensor, GradientEdge)):
            raise ArgumentError(f"{what} is {item!r}, expected a tensor")
    return found


def _roots(name: str, tensors: list[Tensor | GradientEdge], gradients: Gradients) -> Roots:
    if gradients is None or isinstance(gradients, Tensor):
        given: list[Any] = [gradients] * len(tensors) if gradients is None else [gradients]
    else:
        given = list(gradients)
    if len(given) != len(tensors):
        raise ArgumentError(
            f"{name}: {len(given)} gradients are given for {len(tensors)} tensors, expected as many"
        )
    roots = []
    for tensor, gradient in zip(tensors, given, strict=True):
        if isinstance(tensor, GradientEdge):
            roots.append((_edge(tensor), _checked(name, tensor, gradient)))
            continue
        if tensor.storage.capture is not None and STATE.recorder is None:
            raise no_data("backward", tensor.storage)
        edge = edge_of(here(tensor))
        if edge is None:
            raise AutogradError(
                f"backward: the tensor {tensor.meta} does not require grad and has no history, "
                "expected a tensor that does"
            )
        roots.append((edge, coerced(tensor, _first(tensor, gradient))))
    return roots


def _checked(name: str, edge: GradientEdge, gradient: Tensor | None) -> Tensor:
    if not isinstance(gradient, Tensor):
        raise ArgumentError(
            f"{name}: the gradient of {edge} is {gradient!r}, expected a tensor: an edge has no "
            "shape that one could be made for"
        )
    return gradient


def _first(tensor: Tensor, gradient: Tensor | None) -> Tensor:
    if gradient is None:
        if tensor.numel() != 1:
            raise AutogradError(
                f"backward: the tensor has shape {tensor.shape}, expected one element where no "
                "gradient is given"
            )
        if tensor.dtype.is_complex:
            raise AutogradError(
                f"backward: the tensor is {tensor.dtype}, expected a real one where no gradient is "
                "given"
            )
        first: Tensor = tensor._filled(tensor.shape, 1, tensor.dtype, tensor.device)
        return first
    if not isinstance(gradient, Tensor):
        raise ArgumentError(f"backward: a gradient is {gradient!r}, expected a tensor or None")
    if gradient.meta is tensor.meta:
        return gradient
    if gradient.shape != tensor.shape:
        raise AutogradError(
            f"backward: the gradient has shape {gradient.shape}, expected {tensor.shape}"
        )
    if gradient.is_complex() and not tensor.is_complex():
        raise AutogradError(
            f"backward: the gradient of a {tensor.dtype} tensor is {gradient.dtype}, expected a "
            "real one"
        )
    if gradient.dim():
        check_device("backward: the gradient", gradient.device, tensor.device)
    return gradient.to(tensor.device, tensor.dtype)


def backward_of(
    tensor: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Iterable[Tensor | GradientEdge | None] | Tensor | GradientEdge | None = None,
) -> None:
    """Adds the gradients of this tensor to the `.grad` of the leaves that it depends on.
    With `inputs` (tensors), only to the `.grad` of these; only what they need is computed.
    """
    one = single(tensor, gradient) if not create_graph and inputs is None else None
    if one is None:
        backward([tensor], [gradient], retain_graph, create_graph, inputs)
        return
    node, grads, leaves = one
    collect(run_single(node, grads, retain=bool(retain_graph)), leaves)
