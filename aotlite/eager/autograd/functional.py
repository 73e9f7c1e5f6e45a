"""`backward` and `grad`: the public ways into the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.eager.autograd.engine import run_backward
from aotlite.eager.autograd.history import edge_of
from aotlite.eager.autograd.single import (
    collect,
    grad_single,
    run_single,
    single,
)
from aotlite.eager.state import STATE
from aotlite.eager.storage import no_data
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import ArgumentError, AutogradError
from aotlite.ir.op import OPS

Gradients = Sequence[Tensor | None] | Tensor | None


def backward(
    tensors: Sequence[Tensor] | Tensor,
    grad_tensors: Gradients = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Adds the gradients of `tensors` to the `.grad` of the leaves they came from.

    A missing gradient is 1 for a tensor of one element. Raises AutogradError for tensors without
    history, for a graph that was freed, and for saved values that were modified in place.
    """
    one = None if create_graph else single(tensors, grad_tensors)
    if one is not None:
        node, grads, leaves = one
        collect(run_single(node, grads, retain=retain_graph), leaves)
        return
    roots = _roots(_listed("backward: an output", tensors), grad_tensors)
    run_backward(roots, retain_graph=retain_graph, create_graph=create_graph)


def grad(
    outputs: Sequence[Tensor] | Tensor,
    inputs: Sequence[Tensor] | Tensor,
    grad_outputs: Gradients = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, one for each input.

    >>> import aotlite as al
    >>> x = al.tensor(3.0, requires_grad=True)
    >>> al.autograd.grad(x * x, x)
    (tensor(6.),)
    """
    if not isinstance(inputs, (Tensor, list, tuple)):  # an iterator is walked once only
        inputs = _listed("grad: an input", inputs)
    retain = create_graph if retain_graph is None else retain_graph
    found: Sequence[Tensor | None] | None = None
    if not create_graph:
        found = grad_single(outputs, grad_outputs, inputs, retain=retain)
    if found is None:
        sinks = _sinks(inputs)
        roots = _roots(_listed("grad: an output", outputs), grad_outputs)
        found = run_backward(roots, sinks=sinks, retain_graph=retain, create_graph=create_graph)
    if not allow_unused:
        for i, gradient in enumerate(found):
            if gradient is None:
                raise AutogradError(
                    f"grad: input {i} is not used by the outputs, expected every input to be; pass "
                    "allow_unused=True to get None for it"
                )
    return tuple(found)


def _sinks(inputs: Any) -> list[Any]:
    targets = _listed("grad: an input", inputs)
    sinks = [edge_of(t) for t in targets]
    for i, (tensor, sink) in enumerate(zip(targets, sinks, strict=True)):
        if sink is None:
            raise AutogradError(
                f"grad: input {i} ({tensor.meta}) does not require grad, expected one that does"
            )
    return sinks


def _listed(what: str, tensors: Any) -> list[Tensor]:
    alone = isinstance(tensors, Tensor) or tensors is None
    found: list[Any] = [tensors] if alone else list(tensors)
    for item in found:
        if not isinstance(item, Tensor):
            raise ArgumentError(f"{what} is {item!r}, expected a tensor")
    return found


def _roots(tensors: list[Tensor], gradients: Gradients) -> list[tuple[Any, Any]]:
    if gradients is None or isinstance(gradients, Tensor):
        given: list[Any] = [gradients] * len(tensors) if gradients is None else [gradients]
    else:
        given = list(gradients)
    if len(given) != len(tensors):
        raise ArgumentError(
            f"backward: {len(given)} gradients are given for {len(tensors)} tensors, expected as "
            "many"
        )
    roots = []
    for tensor, gradient in zip(tensors, given, strict=True):
        if tensor.storage.buffer is None and STATE.recorder is None:
            raise no_data("backward")
        edge = edge_of(_here(tensor))
        if edge is None:
            raise AutogradError(
                f"backward: the tensor {tensor.meta} does not require grad and has no history, "
                "expected a tensor that does"
            )
        roots.append((edge, _first(tensor, gradient)))
    return roots


def _here(tensor: Tensor) -> Tensor:
    recorder = STATE.recorder
    return tensor if recorder is None else recorder.here(tensor)


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
        first: Tensor = tensor._apply(OPS["full"], (tensor.shape, 1, tensor.dtype, tensor.device))
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
    return gradient.to(tensor.dtype)


def _backward(
    tensor: Tensor, gradient: Tensor | None, *, retain_graph: bool, create_graph: bool
) -> None:
    one = None if create_graph else single(tensor, gradient)
    if one is None:
        retain = retain_graph or create_graph
        backward([tensor], [gradient], retain_graph=retain, create_graph=create_graph)
        return
    node, grads, leaves = one
    collect(run_single(node, grads, retain=retain_graph), leaves)


# Tensor cannot import its engine, which imports Tensor (see `dispatch`).
Tensor._backward = _backward  # type: ignore[method-assign, assignment]
