"""Backwards of random programs with random hooks: all that a user can observe of them.

`world(program, seed, tapes)` runs a program, puts hooks on what it made, goes backward in a way
that the seed draws, by the engine or by `tapes`, and gives a picture that is equal where nothing
can be told apart. Hooks note what they see, replace it, write it, raise, and remove one another.
"""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import Any

import attrs

import aotlite as al
from tests.helpers.programs import Aotlite, Program, _flat, execute

HOOKS = (
    "see", "double", "add one", "raise", "write", "remove", "add hook", "retain", "step",
    "see accumulated", "before the node", "behind the node",
)  # fmt: skip
WAYS = ("backward", "backward", "each", "grad", "into", "twice")


@attrs.define(eq=False)
class Scene:
    """The values of a program, and the notes of hooks."""

    rng: Random
    tensors: list[Any]
    log: list[Any] = attrs.field(factory=list)

    def note(self, tag: Any, *grads: Any) -> None:
        self.log.append((tag, [picture(grad) for grad in grads]))

    # --- hooks
    def add_hook(self, number: int) -> None:
        tensor, kind = self.rng.choice(self.tensors), self.rng.choice(HOOKS)
        if not tensor.requires_grad:
            return
        if kind == "see accumulated" and tensor.is_leaf:
            tensor.register_post_accumulate_grad_hook(
                lambda leaf: self.note((kind, number), leaf.grad)
            )
        elif kind == "step" and tensor.is_leaf:
            tensor.register_post_accumulate_grad_hook(self._stepped)
        elif kind == "before the node" and tensor.grad_fn is not None:
            tensor.grad_fn.register_prehook(lambda grads: self.note((kind, number), *grads))
        elif kind == "behind the node" and tensor.grad_fn is not None:
            tensor.grad_fn.register_hook(lambda into, out: self.note((kind, number), *into, *out))
        elif kind == "retain":
            tensor.retain_grad()
        elif kind in ("see", "double", "add one", "raise", "write", "remove", "add hook"):
            tensor.register_hook(self._hook(kind, number))

    def _hook(self, kind: str, number: int) -> Any:
        other = self.rng.choice(self.tensors)
        handle = None
        if kind == "remove" and other.requires_grad:
            handle = other.register_hook(lambda grad: self.note(("removed", number), grad))

        def hook(grad: Any) -> Any:
            self.note((kind, number), grad)
            if kind == "raise" and self.rng.random() < 0.3:
                raise ValueError("raised by a hook")
            if handle is not None:
                handle.remove()
            if kind == "add hook" and other.requires_grad and other.is_leaf:
                other.register_hook(lambda grad: self.note(("added", number), grad))
            if grad is None:
                return None
            if kind == "write" and self.rng.random() < 0.3:
                grad.mul_(2)
            return {"double": grad * 2, "add one": grad + 1}.get(kind)

        return hook

    def _stepped(self, leaf: Any) -> None:
        """As an optimizer that steps while the backward runs."""
        with al.no_grad():
            leaf.sub_(leaf.grad)
        leaf.grad = None

    # --- backwards
    def go(self, way: str, results: list[Any]) -> Any:
        """Goes backward; gives what it gives, or raises."""
        grads = [
            al.ones(r.shape, dtype=r.dtype, device=r.device) * (i + 1)
            for i, r in enumerate(results)
        ]
        retain = self.rng.random() < 0.5
        leads = [tensor for tensor in self.tensors if tensor.requires_grad]
        ends = self.rng.sample(leads, min(len(leads), self.rng.choice([1, 2, 3])))
        try:
            if way == "each":
                for result, grad in zip(results, grads, strict=True):
                    al.autograd.backward([result], [grad], retain_graph=retain)
            elif way == "grad":
                found = al.autograd.grad(results, ends, grads, allow_unused=True)
                return list(map(picture, found)), _shared([*found, *grads])
            else:
                into = ends if way == "into" else None
                al.autograd.backward(results, grads, retain_graph=retain, inputs=into)
                if way == "twice":
                    al.autograd.backward(results, grads)
        finally:
            self.note("given", *grads)
        return None


FEW = (0, 0, 1, 2, 3)
MANY = (1, 2, 3, 4, 6, 8)


def world(program: Program, seed: int, tapes: Any, counts: tuple[int, ...] = FEW) -> list[Any]:
    """The picture of the values after the program, its hooks and its backward.

    `counts` are the numbers of hooks among which the seed draws.
    """
    setup: list[Any] = []
    engine = Aotlite()
    execute(engine, program.setup, setup)
    values = [setup[i] for i in program.inputs]
    execute(engine, program.body, values)
    each = [value for value in (*setup, *values) if isinstance(value, al.Tensor)]
    scene = Scene(Random(seed), list({id(tensor): tensor for tensor in each}.values()))
    for number in range(scene.rng.choice(counts)):
        try:
            scene.add_hook(number)
        except al.AotliteError as error:
            scene.note(("refused", type(error).__name__))
    results = [values[i] for i in program.outputs]
    results = [r for r in results if isinstance(r, al.Tensor) and r.requires_grad]
    outcome: Any = None
    with nullcontext() if tapes is None else al.compiled_autograd.enable(tapes):
        try:
            outcome = scene.go(scene.rng.choice(WAYS), results)
        except Exception as error:
            outcome = (type(error).__name__, str(error))
    grads = [_grad_of(tensor) for tensor in scene.tensors]
    return [
        outcome,
        [grad if isinstance(grad, str) else picture(grad) for grad in grads],
        _shared([grad for grad in grads if isinstance(grad, al.Tensor)]),
        scene.log,
        [tensor.version for tensor in scene.tensors],
        [_flat(tensor) for tensor in scene.tensors],
    ]


def _grad_of(tensor: Any) -> Any:
    try:
        return tensor.grad
    except al.AotliteError as error:
        return type(error).__name__


def picture(tensor: Any) -> Any:
    """Strides of dimensions of size 1 say nothing."""
    if tensor is None:
        return None
    telling = [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1]
    dense = telling if tensor.meta.dense else None
    return tuple(tensor.shape), str(tensor.dtype), dense, tensor.requires_grad, repr(_flat(tensor))


def _shared(tensors: list[Any]) -> list[int]:
    """The groups of tensors on one storage."""
    owners = [None if tensor is None else id(tensor.storage) for tensor in tensors]
    return [owners.index(owner) for owner in owners]
